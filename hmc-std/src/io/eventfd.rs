//! A waker of one thread: an eventfd(2) that the thread polls with its sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::EventfdFlags;

use crate::base::error::{Error, Result};

/// Wakes a thread that polls its descriptor.
#[derive(Debug)]
pub(crate) struct EventfdWaker(OwnedFd);

impl EventfdWaker {
    /// Returns a waker that is not set.
    ///
    /// # Errors
    /// `SystemLimit` if the system has no descriptor left.
    pub(crate) fn new() -> Result<Arc<Self>> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| Arc::new(Self(fd)))
            .map_err(|e| Error::io("cannot create an eventfd to wait on", e))
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        // eventfd(2): fails only when the counter is full, and then the waker is set already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Forgets earlier wakes.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for EventfdWaker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
