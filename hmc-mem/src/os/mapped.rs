//! [`Mapped`]: pages of a descriptor, which forked children do not inherit. The raw half of [`super::memfd`].
//!
//! The caller decides whether a descriptor may be mapped; this module maps it and unmaps it on drop.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use hmc_core::types::Access;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::fork::Reserved;
use super::pages::{HUGE_PAGE, MAX_LEN, MappedPages, no_space, os};
use crate::error::MemError;
use crate::length::widen;

/// How often a place at a multiple of 2 MiB is looked for, if other threads take what was found.
const PLACES: u32 = 8;

/// Mapped pages that children do not inherit, and whose addresses are reserved there.
#[derive(Debug)]
pub(super) struct Mapped {
    // Dropped in this order: the reservation ends before the pages are unmapped.
    reserved: Reserved,
    pins: MappedPages,
}

impl Mapped {
    /// Keeps pages from children, and their addresses reserved there.
    fn keep_from_children(pins: MappedPages) -> Result<Self, MemError> {
        // SAFETY: the range is mapped and owned by `pins`, which unmaps it after the reservation has ended.
        let reserved = unsafe { Reserved::new(pins.at.as_ptr(), pins.len) }?;
        Ok(Self { reserved, pins })
    }

    /// The pages.
    pub(super) const fn pins(&self) -> &MappedPages {
        &self.pins
    }

    /// Returns whether this process is a child that was forked since the pages were mapped.
    pub(super) fn is_inherited(&self) -> bool {
        self.reserved.is_inherited()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.is_inherited() {
            // The pages are the parent's. The addresses stay reserved, as views of them may be left.
            self.pins.leave();
        }
    }
}

/// Maps `size` bytes, whole pages, of `fd` from `offset`, at a multiple of 2 MiB when `huge`.
pub(super) fn map(
    fd: BorrowedFd<'_>,
    size: u64,
    offset: u64,
    access: Access,
    huge: bool,
) -> Result<Mapped, MemError> {
    let too_long = MemError::TooLong { len: size, limit: MAX_LEN };
    let len = usize::try_from(size).map_err(|_| too_long)?;
    let prot = if access.contains(Access::WRITE) {
        ProtFlags::READ | ProtFlags::WRITE
    } else {
        ProtFlags::READ
    };
    // SAFETY: without an address, and with MAP_FIXED_NOREPLACE, no mapping is replaced (kernels before 4.17 take the address
    // as a wish).
    let try_at = |at: *mut u8, flags| unsafe {
        rustix::mm::mmap(at.cast(), len, prot, MapFlags::SHARED | flags, fd, offset)
    };
    // Not MAP_FIXED over a reservation of ours: where it fails after the kernel has unmapped the old pages, it leaves a gap,
    // which another thread's mapping may have filled when the reservation is given back.
    let mut mapped = Err(Errno::EXIST);
    for _ in 0..if huge { PLACES } else { 0 } {
        mapped = try_at(gap(len, HUGE_PAGE)?, MapFlags::FIXED_NOREPLACE);
        if mapped != Err(Errno::EXIST) {
            break;
        }
    }
    if mapped == Err(Errno::EXIST) {
        mapped = try_at(ptr::null_mut(), MapFlags::empty());
    }
    let at = mapped.map_err(|e| no_space(size, "mmap", e))?;
    // Never null: mmap(2) succeeded above the lowest page.
    let at = NonNull::new(at.cast::<u8>()).ok_or_else(|| os("mmap", Errno::NOMEM))?;
    // Row "fork" of the fault table: a child that touched these pages would break the parent's windows.
    Mapped::keep_from_children(MappedPages::new(at, len))
}

/// An address where `len` bytes fit at the moment, at a multiple of `align`, a power of two. Another thread may take it.
fn gap(len: usize, align: u64) -> Result<*mut u8, MemError> {
    let too_long = || MemError::TooLong { len: widen(len), limit: MAX_LEN };
    let align = usize::try_from(align).map_err(|_| too_long())?;
    let whole = len.checked_add(align).ok_or_else(too_long)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: no address is asked for, so no mapping is replaced.
    let base =
        unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), whole, ProtFlags::empty(), flags) }
            .map_err(|e| no_space(widen(len), "mmap", e))?;
    let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| os("mmap", Errno::NOMEM))?;
    let place = base.as_ptr().wrapping_add(base.as_ptr().align_offset(align).min(align));
    drop(MappedPages::new(base, whole));
    Ok(place)
}
