//! Address space and pages: reserve, map, advise, commit, give back. The raw half of [`super::memfd`].
//!
//! Nothing here decides whether a descriptor may be mapped; it maps what it is told and undoes it on drop.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use hmc_core::kinds::Access;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::fork::Reserved;
use super::limits::{self, Budget};
use crate::error::{MemError, MemLimit};

/// The huge page of x86-64 and of aarch64 with 4 KiB pages, in bytes. Regions from here on ask for them.
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
    match e {
        // madvise(2): EFAULT where the population would have raised SIGBUS.
        Errno::NOSPC | Errno::NOMEM | Errno::FAULT => {
            MemError::NoSpace { need, have: Budget::read().have(), limit: MemLimit::Kernel }
        }
        _ => os(call, e),
    }
}

/// Mapped address space, given back on drop.
#[derive(Debug)]
pub(super) struct Pins {
    pub(super) at: NonNull<u8>,
    pub(super) len: usize,
    /// Keeps the pages from children, if their addresses may be handed out.
    reserved: Option<Reserved>,
}

impl Pins {
    fn new(at: NonNull<u8>, len: usize) -> Self {
        Self { at, len, reserved: None }
    }

    /// Keeps the pages from children, and their addresses reserved there.
    fn keep_from_children(mut self) -> Result<Self, MemError> {
        // SAFETY: the range is mapped and this value's own until `drop`, which ends the reservation first.
        self.reserved = Some(unsafe { Reserved::new(self.at.as_ptr(), self.len) }?);
        Ok(self)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take()
            && reserved.is_inherited()
        {
            // A child: the pages are its parent's. The addresses stay reserved, as views of them may be left.
            return;
        }
        // SAFETY: `at` and `len` are what `map` mapped, whole pages that nothing else unmaps; views of them
        // borrow the `Mapping` that is being dropped. The call cannot fail for such a range.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// Maps `size` bytes, whole pages, of `fd` from `offset`, at a multiple of 2 MiB when `huge`.
pub(super) fn map(
    fd: BorrowedFd<'_>,
    size: u64,
    offset: u64,
    access: Access,
    huge: bool,
) -> Result<Pins, MemError> {
    let too_long = MemError::TooLong { len: size, limit: MAX_LEN };
    let len = usize::try_from(size).map_err(|_| too_long)?;
    let prot = if access.contains(Access::WRITE) {
        ProtFlags::READ | ProtFlags::WRITE
    } else {
        ProtFlags::READ
    };
    let slack = if huge { usize::try_from(HUGE_PAGE).map_err(|_| too_long)? } else { 0 };
    // Reserve first, so that the mapping can start where huge pages fit.
    let whole = len.checked_add(slack).ok_or(too_long)?;
    // SAFETY: no address is asked for, so no mapping is replaced.
    let base = unsafe {
        rustix::mm::mmap_anonymous(
            ptr::null_mut(),
            whole,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }
    .map_err(|e| no_space(size, "mmap", e))?;
    let base = base.cast::<u8>();
    let Some(reserved) = NonNull::new(base).map(|at| Pins::new(at, whole)) else {
        return Err(os("mmap", Errno::NOMEM));
    };
    // `align_offset` of a byte pointer to a power of two is at most `slack - 1`.
    let head = if huge { base.align_offset(slack).min(slack) } else { 0 };
    let start = base.wrapping_add(head);
    // SAFETY: `start` and the `len` bytes from it lie in the reservation, which this function owns and
    // nobody uses; MAP_FIXED replaces just those pages.
    let at = unsafe {
        rustix::mm::mmap(start.cast(), len, prot, MapFlags::SHARED | MapFlags::FIXED, fd, offset)
    }
    .map_err(|e| no_space(size, "mmap", e))?;
    std::mem::forget(reserved);
    give_back(base, head);
    give_back(start.wrapping_add(len), slack.saturating_sub(head));
    // Never null: mmap(2) succeeded above the lowest page.
    let at = NonNull::new(at.cast::<u8>()).ok_or_else(|| os("mmap", Errno::NOMEM))?;
    // Row "fork" of the fault table: a child that touched these pages would break the parent's windows.
    Pins::new(at, len).keep_from_children()
}

/// Unmaps a rest of a reservation.
fn give_back(at: *mut u8, len: usize) {
    if let Some(at) = NonNull::new(at).filter(|_| len > 0) {
        drop(Pins::new(at, len));
    }
}

pub(super) fn advise(pins: &Pins, advice: Advice) -> Result<(), Errno> {
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
pub(super) fn zeros(len: usize) -> Result<Pins, MemError> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let need = u64::try_from(len).unwrap_or(u64::MAX);
    // SAFETY: no address is asked for, so no mapping is replaced.
    let at = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, prot, MapFlags::PRIVATE) }
        .map_err(|e| no_space(need, "mmap", e))?;
    let at = NonNull::new(at.cast::<u8>()).ok_or_else(|| os("mmap", Errno::NOMEM))?;
    Ok(Pins::new(at, len))
}

/// As [`zeros`], every page committed, not inherited by a fork.
pub(super) fn anonymous(size: u64) -> Result<Pins, MemError> {
    let len = usize::try_from(size).map_err(|_| MemError::TooLong { len: size, limit: MAX_LEN })?;
    let pins = zeros(len)?;
    match advise(&pins, Advice::LinuxPopulateWrite) {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(e) => return Err(no_space(size, "madvise", e)),
    }
    advise(&pins, Advice::LinuxDontFork).map_err(|e| os("madvise(MADV_DONTFORK)", e))?;
    Ok(pins)
}
