//! Address space and pages: anonymous pages, advice, commit, unmapping on drop.
//!
//! [`super::mapped`] maps the pages of descriptors.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};

use super::limits::{self, Budget};
use crate::error::{MemError, MemLimit};

/// Size of a huge page of x86-64, and of aarch64 with 4 KiB pages, in bytes. Regions of at least this size request huge
/// pages.
pub const HUGE_PAGE: u64 = 2 << 20;

/// The longest mapping, in bytes: 2^46, the user half of a 47-bit address space, less rounding.
pub(super) const MAX_LEN: u64 = 1 << 46;

pub(super) fn commit(fd: BorrowedFd<'_>, size: u64) -> Result<(), Errno> {
    loop {
        match rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, size) {
            // fallocate(2) starts again from what it has committed.
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

#[cold]
pub(super) fn os(call: &'static str, e: Errno) -> MemError {
    match e {
        Errno::MFILE | Errno::NFILE => MemError::NoFds { limit: limits::nofile() },
        _ => MemError::Os { call, errno: e.raw_os_error() },
    }
}

#[cold]
pub(super) fn no_space(need: u64, call: &'static str, e: Errno) -> MemError {
    let left = limits::address_space_left().filter(|_| e == Errno::NOMEM);
    if let Some(have) = left.filter(|left| is_too_little(*left, need)) {
        return MemError::NoSpace { need, have, limit: MemLimit::AddressSpace };
    }
    match e {
        // madvise(2): EFAULT where the population would have raised SIGBUS.
        Errno::NOSPC | Errno::NOMEM | Errno::FAULT => {
            MemError::NoSpace { need, have: Budget::read().have(), limit: MemLimit::Kernel }
        }
        _ => os(call, e),
    }
}

/// Whether `left` bytes of address space cannot hold a region of `need`: one that begins at a huge page takes one more.
const fn is_too_little(left: u64, need: u64) -> bool {
    left < need.saturating_add(HUGE_PAGE)
}

/// Mapped address space, unmapped on drop.
#[derive(Debug)]
pub(super) struct MappedPages {
    pub(super) at: NonNull<u8>,
    /// 0 for pages that are not to be unmapped.
    pub(super) len: usize,
}

impl MappedPages {
    /// Takes a whole mapping.
    pub(super) const fn new(at: NonNull<u8>, len: usize) -> Self {
        Self { at, len }
    }

    /// Leaves the pages mapped when the value is dropped.
    pub(super) fn leave(&mut self) {
        self.len = 0;
    }
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        // SAFETY: a whole mapping that nothing else unmaps; views of it borrow the `Mapping` that is being dropped. The call
        // cannot fail for such a range.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// How often pages that are not the descriptor's were put over some of it, or are being put.
#[derive(Debug)]
pub(super) struct Patches(AtomicU32);

impl Patches {
    pub(super) const fn new(n: u32) -> Self {
        Self(AtomicU32::new(n))
    }

    pub(super) fn are_none(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// Puts one there: noted before, and no more if it fails. Others may do so at the same time.
    pub(super) fn note<E>(&self, put: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.0.fetch_add(1, Ordering::AcqRel);
        let done = put();
        if done.is_err() {
            self.0.fetch_sub(1, Ordering::AcqRel);
        }
        done
    }
}

/// Moves `fresh` over as many bytes at `at`. An access to them meanwhile meets the old page or the new one.
///
/// # Errors
/// What mremap(2) says; the old pages are there as before.
///
/// # Safety
/// The range is whole pages, mapped, and the caller's own; accesses to it are those of views, which hold no reference.
pub(super) unsafe fn put_over(fresh: MappedPages, at: *mut u8) -> Result<(), Errno> {
    let (from, len) = (fresh.at.as_ptr().cast(), fresh.len);
    let flags = MremapFlags::MAYMOVE;
    // SAFETY: `fresh` is a whole mapping that this function owns, and the caller vouches for the range at `at`.
    let moved = unsafe { rustix::mm::mremap_fixed(from, len, len, flags, at.cast()) };
    // SAFETY: as the caller vouches; what mremap(2) answered is handed on.
    unsafe { finish_replace(fresh, at, moved.map(drop)) }
}

/// Deals with the answer of mremap(2). A call that fails after it has unmapped the old pages leaves a hole, which the next
/// mapping of any thread would fill, under views that safe code holds: kernels before 5.1 do so at the limit of mappings, later
/// ones look first. A hole is filled at once, with the bytes of `fresh`, and that is a success.
///
/// # Safety
/// As for [`put_over`].
unsafe fn finish_replace(
    fresh: MappedPages,
    at: *mut u8,
    moved: Result<(), Errno>,
) -> Result<(), Errno> {
    let Err(e) = moved else {
        // The pages have moved; the old address is free, and `MappedPages` must not unmap what may be there.
        std::mem::forget(fresh);
        return Ok(());
    };
    // munmap(2) unmaps all of a range or nothing of it.
    if is_mapped(at) {
        return Err(e);
    }
    let (prot, flags) =
        (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE);
    // SAFETY: MAP_FIXED_NOREPLACE replaces nothing.
    match unsafe { rustix::mm::mmap_anonymous(at.cast(), fresh.len, prot, flags) } {
        Ok(there) if there == at.cast() => {
            // SAFETY: mapped just now, `fresh.len` bytes, and disjoint from `fresh`.
            unsafe { crate::copy::copy(at, fresh.at.as_ptr(), fresh.len) };
            // If it fails, a forked child finds the range in use where it has to be reserved, and ends itself (`fork`).
            // SAFETY: mapped just now; the advice leaves the contents as they are.
            let _ = unsafe { rustix::mm::madvise(at.cast(), fresh.len, Advice::LinuxDontFork) };
            Ok(())
        }
        // Another thread was faster, or there is no space for one more mapping: views show what is not theirs.
        _ => {
            let what = b"hmc: pages that views refer to were unmapped and cannot be mapped again\n";
            // SAFETY: write(2) of a constant. If it fails, the process ends without the words.
            let _ = unsafe { libc::write(libc::STDERR_FILENO, what.as_ptr().cast(), what.len()) };
            std::process::abort();
        }
    }
}

/// Whether there is a mapping at the page that begins at `at`.
fn is_mapped(at: *mut u8) -> bool {
    let mut resident = 0u8;
    // SAFETY: mincore(2) writes one byte for up to one page, and fails with ENOMEM where none is mapped.
    unsafe { libc::mincore(at.cast(), 1, &raw mut resident) == 0 }
}

pub(super) fn advise(pins: &MappedPages, advice: Advice) -> Result<(), Errno> {
    loop {
        // SAFETY: the range is mapped and owned by `pins`. The advices used here (huge page, dontfork,
        // populate) leave the contents as they are.
        match unsafe { rustix::mm::madvise(pins.at.as_ptr().cast(), pins.len, advice) } {
            // madvise(2), MADV_POPULATE: EINTR and EAGAIN ask for another go.
            Err(Errno::INTR | Errno::AGAIN) => {}
            other => return other,
        }
    }
}

/// Maps `len` bytes of fresh private zeros, rounded up to whole pages.
pub(super) fn zeros(len: usize) -> Result<MappedPages, MemError> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let need = u64::try_from(len).unwrap_or(u64::MAX);
    // SAFETY: no address is asked for, so no mapping is replaced.
    let at = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, prot, MapFlags::PRIVATE) }
        .map_err(|e| no_space(need, "mmap", e))?;
    let at = NonNull::new(at.cast::<u8>()).ok_or_else(|| os("mmap", Errno::NOMEM))?;
    Ok(MappedPages::new(at, len))
}

/// As [`zeros`], every page committed, not inherited by a fork.
pub(super) fn anonymous(size: u64) -> Result<MappedPages, MemError> {
    let len = usize::try_from(size).map_err(|_| MemError::TooLong { len: size, limit: MAX_LEN })?;
    let pins = zeros(len)?;
    match advise(&pins, Advice::LinuxPopulateWrite) {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(e) => return Err(no_space(size, "madvise", e)),
    }
    advise(&pins, Advice::LinuxDontFork).map_err(|e| os("madvise(MADV_DONTFORK)", e))?;
    Ok(pins)
}

/// The same, without pages: reading gives zeros, and what is written takes memory.
pub(super) fn reserved(size: u64) -> Result<MappedPages, MemError> {
    let len = usize::try_from(size).map_err(|_| MemError::TooLong { len: size, limit: MAX_LEN })?;
    let pins = zeros(len)?;
    advise(&pins, Advice::LinuxDontFork).map_err(|e| os("madvise(MADV_DONTFORK)", e))?;
    Ok(pins)
}

#[cfg(test)]
mod tests;
