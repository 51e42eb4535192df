//! [`Mapping`]: pages of a sealed memfd of this process or of a peer.
//!
//! For a local memfd, the budget is checked first, every page is committed at creation, and the memfd is sealed
//! against shrinking and growing, not inherited by a fork, and unmapped on drop. An access to a mapping therefore
//! never raises SIGBUS (memfd_create(2), fcntl(2) F_ADD_SEALS). A peer's memfd is mapped only after its seals, its
//! size and its committed pages are checked.

mod detach;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use hmc_core::range::{ByteRange, Extent, Side};
use hmc_core::types::Access;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::Advice;

use super::limits::{self, Budget};
use super::mapped::{Mapped, map};
pub use super::pages::HUGE_PAGE;
use super::pages::{self, MAX_LEN, Patches, advise, commit, no_space, os};
use crate::error::MemError;
use crate::length::widen;
use crate::shared::{SharedBytes, SharedError};

/// The seals that a mapped memfd must have.
/// What is taken without a look at how much memory there is: the look costs more.
const UNASKED_BYTES: u64 = 64 << 10;
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// The kind of pages of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageKind {
    /// Pages of the base size.
    Small,
    /// The kernel was asked for transparent huge pages; it may have given fewer (see [`Mapping::huge_bytes`]).
    Transparent,
    /// Reserved huge pages (hugetlb).
    Reserved,
}

/// How to create a mapping.
#[derive(Clone, Debug)]
pub struct MappingOptions {
    huge: bool,
    commit: bool,
}

impl Default for MappingOptions {
    fn default() -> Self {
        Self { huge: true, commit: true }
    }
}

impl MappingOptions {
    /// Sets whether mappings of at least 2 MiB request huge pages. Default: `true`.
    #[must_use]
    pub const fn huge(mut self, yes: bool) -> Self {
        self.huge = yes;
        self
    }

    /// Sets whether all pages are allocated by [`Self::create`], so that no access can trap (default: `true`).
    /// Otherwise each page is allocated at its first access; if memory is exhausted, that access ends the process by
    /// SIGBUS. Such a mapping has no descriptor for peers ([`Mapping::fd`]), because it could end their processes, too.
    #[must_use]
    pub const fn commit(mut self, yes: bool) -> Self {
        self.commit = yes;
        self
    }

    /// Creates a mapping of `len` zero bytes. See [`Mapping::create`].
    ///
    /// # Errors
    /// Those of [`Mapping::create`].
    pub fn create(&self, len: u64) -> Result<Mapping, MemError> {
        if len == 0 {
            return Ok(Mapping::empty(None, Access::READ | Access::WRITE));
        }
        if len > MAX_LEN {
            return Err(MemError::TooLong { len, limit: MAX_LEN });
        }
        if self.commit {
            afford(len)?;
        }
        let huge = self.huge && len >= HUGE_PAGE;
        if huge && limits::free_huge_pages() >= len.div_ceil(HUGE_PAGE) {
            // A race for the reserved pages may be lost: then transparent ones do.
            if let Ok(mapping) = self.create_on(len, PageKind::Reserved) {
                return Ok(mapping);
            }
        }
        let granted = huge && limits::shmem_huge_granted();
        self.create_on(len, if granted { PageKind::Transparent } else { PageKind::Small })
    }

    fn create_on(&self, len: u64, pages: PageKind) -> Result<Mapping, MemError> {
        let page = page_of(pages);
        // Cannot overflow: `len` is at most MAX_LEN.
        let size = len.next_multiple_of(page);
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if pages == PageKind::Reserved {
            flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        }
        let fd = rustix::fs::memfd_create("hmc", flags).map_err(|e| os("memfd_create", e))?;
        rustix::fs::ftruncate(&fd, size).map_err(|e| os("ftruncate", e))?;
        let mapped =
            map(fd.as_fd(), size, 0, Access::READ | Access::WRITE, self.huge && len >= HUGE_PAGE)?;
        let mapping = Mapping {
            at: mapped.pins().at,
            extent: Extent::new(len),
            mapped: Some(mapped),
            fd: Some(fd),
            access: Access::READ | Access::WRITE,
            pages,
            patched: Patches::new(u32::from(!self.commit)),
        };
        if pages == PageKind::Transparent {
            // A hint: where the kernel has no huge pages for shared memory, small ones serve.
            let _ = mapping.advise(Advice::LinuxHugepage);
        }
        // fallocate(2) would commit small pages, so where huge ones are granted they are faulted in first;
        // elsewhere that would cost twice the time for nothing.
        // madvise(2): MADV_POPULATE_WRITE fails instead of raising SIGBUS; kernels before 5.14 lack it.
        if self.commit && pages == PageKind::Transparent {
            match mapping.advise(Advice::LinuxPopulateWrite) {
                Ok(()) | Err(Errno::INVAL) => {}
                Err(e) => return Err(no_space(len, "madvise", e)),
            }
        }
        if let Some(fd) = &mapping.fd {
            if self.commit {
                commit(fd.as_fd(), size).map_err(|e| no_space(len, "fallocate", e))?;
            }
            // FUTURE_WRITE may still be added: F_SEAL_SEAL would forbid it, and `seal_future_write` sets both.
            rustix::fs::fcntl_add_seals(fd, SEALS).map_err(|e| os("fcntl(F_ADD_SEALS)", e))?;
        }
        Ok(mapping)
    }
}

/// Refuses what the system has no memory for.
fn afford(len: u64) -> Result<(), MemError> {
    if len <= UNASKED_BYTES { Ok(()) } else { Budget::check_now(len) }
}

fn page_of(pages: PageKind) -> u64 {
    if pages == PageKind::Reserved { HUGE_PAGE } else { limits::page_size() }
}

/// Pages of a sealed memfd in this process, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    extent: Extent,
    mapped: Option<Mapped>,
    fd: Option<OwnedFd>,
    access: Access,
    pages: PageKind,
    patched: Patches,
}

// SAFETY: mmap(2) pages belong to the process, not to a thread; any thread may access and unmap them. All
// access goes through `SharedBytes`.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`; `&Mapping` gives only views that never make references to the bytes, the one
// mutable field is atomic, and the system calls made through `&self` are thread-safe.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.mapped.as_ref().is_some_and(Mapped::is_inherited) {
            // The parent's. The child may have closed it, and have another file under its number.
            std::mem::forget(self.fd.take());
        }
    }
}

impl Mapping {
    /// Creates `len` zero bytes that can be shared with a peer: it checks the budget, creates a memfd, allocates all
    /// pages, and seals it. A length of 0 has no pages and no descriptor. Takes about the time to zero the pages.
    ///
    /// # Errors
    /// [`MemError::NoSpace`] if memory.max or MemAvailable leaves less than `len` (checked first) or the kernel cannot
    /// allocate; [`MemError::TooLong`]; [`MemError::NoFds`]; [`MemError::Os`]. No memory or descriptor remains
    /// allocated.
    pub fn create(len: u64) -> Result<Self, MemError> {
        MappingOptions::default().create(len)
    }

    /// Returns the options of [`Self::create`].
    #[must_use]
    pub fn builder() -> MappingOptions {
        MappingOptions::default()
    }

    fn empty(fd: Option<OwnedFd>, access: Access) -> Self {
        Self {
            at: NonNull::dangling(),
            extent: Extent::new(0),
            mapped: None,
            fd,
            access,
            pages: PageKind::Small,
            patched: Patches::new(0),
        }
    }

    /// Maps `len` bytes from `offset` of a descriptor that a peer sent, after it checked that the pages cannot
    /// disappear: the descriptor is sealed against shrinking and growing, large enough, and all its pages are
    /// allocated. The mapping is writable if `access` has `WRITE`; otherwise its views refuse writes.
    ///
    /// The pages are checked once. Unless the descriptor is sealed against writes, a peer of the same user can punch
    /// holes later; this is not prevented.
    ///
    /// # Errors
    /// [`MemError::NotSealed`], [`MemError::ShortFile`], [`MemError::Sparse`], [`MemError::Unaligned`] (the offset must
    /// be a multiple of the page size), [`MemError::TooLong`], [`MemError::Os`].
    pub fn map_peer(fd: OwnedFd, len: u64, offset: u64, access: Access) -> Result<Self, MemError> {
        let have = rustix::fs::fcntl_get_seals(&fd).map_err(|e| match e {
            // fcntl(2): EINVAL for a file that does not support seals.
            Errno::INVAL => MemError::NotSealed { have: 0, need: SEALS.bits() },
            _ => os("fcntl(F_GET_SEALS)", e),
        })?;
        if !have.contains(SEALS) {
            return Err(MemError::NotSealed { have: have.bits(), need: SEALS.bits() });
        }
        let stat = rustix::fs::fstat(&fd).map_err(|e| os("fstat", e))?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Extent::new(size)
            .span(Side::Remote, offset, len)
            .map_err(|e| MemError::ShortFile { claim: e.end(), size })?;
        // stat(2): st_blocks counts 512-byte units whatever the file system.
        let committed = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
        if committed < size {
            return Err(MemError::Sparse { claim: size, committed });
        }
        if len == 0 {
            return Ok(Self::empty(None, access));
        }
        if len > MAX_LEN {
            return Err(MemError::TooLong { len, limit: MAX_LEN });
        }
        let page = limits::page_size();
        let reserved = is_hugetlb(&fd);
        let align = if reserved { HUGE_PAGE } else { page };
        if !offset.is_multiple_of(align) {
            return Err(MemError::Unaligned { value: offset, align });
        }
        let huge = len >= HUGE_PAGE && offset.is_multiple_of(HUGE_PAGE);
        let mapped =
            map(fd.as_fd(), len.next_multiple_of(align), offset, access, huge || reserved)?;
        let pages = if reserved {
            PageKind::Reserved
        } else if huge && limits::shmem_huge_granted() {
            // Lets this process map the peer's huge pages as such. A hint.
            let _ = advise(mapped.pins(), Advice::LinuxHugepage);
            PageKind::Transparent
        } else {
            PageKind::Small
        };
        Ok(Self {
            at: mapped.pins().at,
            extent: Extent::new(len),
            mapped: Some(mapped),
            // mmap(2): the pages stay mapped when the descriptor is closed, and a descriptor for each window
            // of each of a thousand peers would reach the limit of a process.
            fd: None,
            access,
            pages,
            patched: Patches::new(0),
        })
    }

    /// Returns a view of all bytes. It is read-only if the mapping is.
    #[must_use]
    pub fn bytes(&self) -> SharedBytes<'_> {
        let len = usize::try_from(self.extent.len()).unwrap_or(0);
        // SAFETY: `len` bytes at `at` are mapped until `self` is dropped, which the view's lifetime precludes;
        // committed and sealed, so that no access traps; outside of any Rust object. They are writable, or
        // the view is made read-only below. No safe function gives a slice. An empty mapping has no byte to access.
        let view = unsafe { SharedBytes::new(self.at, len) };
        if self.access.contains(Access::WRITE) { view } else { view.read_only() }
    }

    /// Returns the requested size, in bytes.
    #[must_use]
    pub const fn extent(&self) -> Extent {
        self.extent
    }

    /// Returns the kind of its pages.
    #[must_use]
    pub const fn pages(&self) -> PageKind {
        self.pages
    }

    /// Returns the alignment of its pages, in bytes.
    #[must_use]
    pub fn page_size(&self) -> u64 {
        page_of(self.pages)
    }

    /// Returns the rights of this process to the bytes.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Returns the descriptor to pass to a peer (`SCM_RIGHTS`).
    ///
    /// # Errors
    /// [`MemError::NotExportable`] for an empty mapping, for pages of a peer (only their owner shares them), after
    /// [`Self::replace_pages`] (the descriptor no longer has all bytes), and without [`MappingOptions::commit`].
    pub fn fd(&self) -> Result<BorrowedFd<'_>, MemError> {
        match &self.fd {
            Some(fd) if self.patched.are_none() => Ok(fd.as_fd()),
            _ => Err(MemError::NotExportable),
        }
    }

    /// Prevents new writable mappings and writes through the descriptor (`F_SEAL_FUTURE_WRITE`); existing mappings stay
    /// writable. For regions that are exported for reading only. Cannot be undone.
    ///
    /// # Errors
    /// [`MemError::Os`] if the kernel lacks the seal (before Linux 5.1); [`MemError::NotExportable`].
    pub fn seal_future_write(&self) -> Result<(), MemError> {
        rustix::fs::fcntl_add_seals(self.fd()?, SealFlags::FUTURE_WRITE | SealFlags::SEAL)
            .map_err(|e| os("fcntl(F_ADD_SEALS)", e))
    }

    /// Prevents further seals (`F_SEAL_SEAL`). For regions that are exported for writing, which a peer could otherwise
    /// seal against writes. Cannot be undone.
    ///
    /// # Errors
    /// Those of [`Self::seal_future_write`].
    pub fn seal_seals(&self) -> Result<(), MemError> {
        rustix::fs::fcntl_add_seals(self.fd()?, SealFlags::SEAL)
            .map_err(|e| os("fcntl(F_ADD_SEALS)", e))
    }

    /// Returns the number of bytes that this process maps by huge pages at the moment, from /proc/self/smaps. For
    /// `doctor` and tests: the file is large.
    #[must_use]
    pub fn huge_bytes(&self) -> u64 {
        if self.pages == PageKind::Reserved {
            return self.extent.len();
        }
        self.mapped.as_ref().map_or(0, |m| limits::huge_mapped(widen(m.pins().at.as_ptr().addr())))
    }

    /// Replaces the pages of a span by private pages with the same bytes: the span then belongs to this process alone,
    /// and a peer that still writes reaches the old pages, which only the peer can read. This revokes a window of a
    /// peer that is alive but does not answer.
    ///
    /// Bytes that the peer writes during the call are kept or lost. The descriptor can no longer be passed to peers.
    ///
    /// # Errors
    /// [`MemError::Unaligned`] unless the span starts and ends at a page boundary or at the end of the mapping;
    /// [`MemError::NoSpace`], checked before the first page is allocated; [`MemError::Shared`]. The mapping is
    /// unchanged.
    pub fn replace_pages(&self, span: ByteRange) -> Result<(), MemError> {
        let (at, _) = self.bytes().locate(span)?;
        if !self.access.contains(Access::WRITE) {
            return Err(SharedError::ReadOnly.into());
        }
        let page = self.page_size();
        let end = if span.end() == self.extent.len() {
            span.end().next_multiple_of(page)
        } else {
            span.end()
        };
        for value in [span.offset(), end] {
            if !value.is_multiple_of(page) {
                return Err(MemError::Unaligned { value, align: page });
            }
        }
        let size = end.saturating_sub(span.offset());
        let len =
            usize::try_from(size).map_err(|_| MemError::TooLong { len: size, limit: MAX_LEN })?;
        if len == 0 {
            return Ok(());
        }
        afford(size)?;
        let fresh = pages::anonymous(size)?;
        let len = fresh.len;
        // SAFETY: `len` bytes from `at` are mapped, as the span rounded up to whole pages lies in the mapping;
        // `fresh` has as many, new and disjoint.
        unsafe { crate::copy::copy(fresh.at.as_ptr(), at, len) };
        // SAFETY: the target range lies in this value's own mapping, whole pages; to replace them is the purpose, and views
        // never hold references to them.
        let moved = self.patched.note(|| unsafe { pages::put_over(fresh, at) });
        moved.map_err(|e| no_space(size, "mremap", e))
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        self.mapped.as_ref().map_or(Ok(()), |m| advise(m.pins(), advice))
    }
}

/// Whether a descriptor is a hugetlb file: its file system has the magic of hugetlbfs (statfs(2)).
fn is_hugetlb(fd: &OwnedFd) -> bool {
    const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;
    rustix::fs::fstatfs(fd).is_ok_and(|fs| fs.f_type == HUGETLBFS_MAGIC)
}
