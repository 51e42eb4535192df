//! What wakes a waiter when another thread's progress has ended its operation.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::driver::Driver;
use crate::error::{Error, Result};

/// Wakes whoever waits on a link when another thread's progress has ended one of its operations.
#[derive(Debug)]
pub(crate) struct Bell {
    serial: u32,
    driver: Arc<Driver>,
    /// A waiter sleeps on `fd`, or is about to.
    parked: AtomicBool,
    fd: OwnedFd,
}

impl Bell {
    pub(super) fn new(serial: u32, driver: Arc<Driver>) -> Result<Arc<Self>> {
        use rustix::event::EventfdFlags;
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::io("cannot create an eventfd", e))?;
        Ok(Arc::new(Self { serial, driver, parked: AtomicBool::new(false), fd }))
    }

    /// A waiter is about to sleep: look once more after this.
    pub(crate) fn park(&self) {
        self.parked.store(true, Ordering::SeqCst);
    }

    /// Wakes the waiter, if there is one that sleeps. Whether there is.
    pub(crate) fn wake(&self) -> bool {
        let parked = self.parked.load(Ordering::SeqCst);
        if parked {
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
        parked
    }

    /// It is awake.
    pub(crate) fn unpark(&self) {
        self.parked.store(false, Ordering::SeqCst);
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.fd, &mut count);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The bell as a completion queue of hmc-hw has it.
pub(super) struct Rope(pub(super) Arc<Bell>);

impl hmc_hw::ucx::Notify for Rope {
    fn notify(&self) {
        if !self.0.wake() {
            self.0.driver.enqueue(self.0.serial);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use hmc_hw::ucx::Notify as _;
    use rustix::event::{PollFd, PollFlags, poll};

    use super::{Bell, Driver, Rope};
    use crate::config::Progress;

    fn is_readable(bell: &Bell) -> bool {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    #[test]
    fn a_waiter_that_sleeps_is_woken_and_else_the_link_is_run() {
        let driver = Arc::new(Driver::new(Progress::Thread).expect("descriptors"));
        let bell = Bell::new(7, Arc::clone(&driver)).expect("a descriptor");
        let rope = Rope(Arc::clone(&bell));
        let queued = || {
            let mut queued = VecDeque::new();
            driver.take_queued(&mut queued);
            Vec::from(queued)
        };
        for _ in 0..2 {
            assert!(!bell.wake() && !is_readable(&bell), "nobody sleeps");
            rope.notify();
            assert_eq!(queued(), [7]);
            bell.park();
            assert!(!is_readable(&bell));
            rope.notify();
            assert!(queued().is_empty() && is_readable(&bell));
            assert!(bell.wake(), "as long as it has not woken");
            bell.unpark();
            assert!(!is_readable(&bell));
        }
    }
}
