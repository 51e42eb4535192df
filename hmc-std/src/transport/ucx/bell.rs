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
