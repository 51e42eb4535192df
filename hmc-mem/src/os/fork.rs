//! Whether this process is the child of a fork, told by one load.
//!
//! A page that the kernel gives to a child as zeros (madvise(2), MADV_WIPEONFORK). Never a signal
//! handler or a `pthread_atfork` hook: nothing outside of the value knows of it.

use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::pages::{Pins, advise, no_space, os};
use crate::error::MemError;

/// The smallest page of the supported systems, in bytes: what is mapped, rounded up by the kernel.
const PAGE: usize = 4096;

/// A mark that only the process which made it bears.
#[derive(Debug)]
pub struct ForkGuard {
    page: Pins,
}

// SAFETY: the page is written once, in `new`, before the value can be shared; after that it is only
// read, by any number of threads.
unsafe impl Send for ForkGuard {}
// SAFETY: as above.
unsafe impl Sync for ForkGuard {}

impl ForkGuard {
    /// Marks this process.
    ///
    /// # Errors
    /// `NoSpace` for the page; `Os` where the kernel has no MADV_WIPEONFORK (before Linux 4.14).
    pub fn new() -> Result<Self, MemError> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let need = u64::try_from(PAGE).unwrap_or(u64::MAX);
        // SAFETY: no address is asked for, so no mapping is replaced.
        let at =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), PAGE, prot, MapFlags::PRIVATE) }
                .map_err(|e| no_space(need, "mmap", e))?;
        let at = NonNull::new(at.cast::<u8>()).ok_or_else(|| os("mmap", Errno::NOMEM))?;
        let page = Pins { at, len: PAGE };
        advise(&page, Advice::LinuxWipeOnFork).map_err(|e| os("madvise(MADV_WIPEONFORK)", e))?;
        // SAFETY: `at` is the first byte of a page mapped for writing, which nobody else knows of.
        unsafe { page.at.write_volatile(1) };
        Ok(Self { page })
    }

    /// Whether this process is a child that was forked since the mark was made.
    #[must_use]
    #[inline]
    pub fn is_child(&self) -> bool {
        // SAFETY: the page stays mapped as long as `self` and is written by nobody after `new`; the
        // kernel wipes it only in a child, before the child runs. Volatile, since the compiler must
        // not carry the value over a fork.
        let mark = unsafe { self.page.at.read_volatile() };
        mark == 0
    }
}

#[cfg(test)]
mod tests {
    use super::ForkGuard;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no madvise(2) and no fork(2)")]
    fn a_child_does_not_bear_the_mark() {
        let mark = ForkGuard::new().expect("a page");
        assert!(!mark.is_child());
        // SAFETY: fork(2); the child only reads a byte and ends by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: _exit(2) takes a number.
            unsafe { libc::_exit(i32::from(!mark.is_child())) };
        }
        let mut status = 0;
        // SAFETY: waitpid(2) on the child made above; `status` is a valid place for the answer.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert_eq!(waited, pid);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
        assert!(!mark.is_child());
    }
}
