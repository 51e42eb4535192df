//! Wakes a caller that waits on a link when another thread's progress has completed its operation.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::error::{Error, Result};
use crate::io::reactor::Reactor;

/// Wakes whoever waits on a link when another thread's progress has ended one of its operations.
#[derive(Debug)]
pub(crate) struct LinkWaker {
    serial: u32,
    reactor: Arc<Reactor>,
    /// A waiter sleeps on `fd`, or is about to.
    parked: AtomicBool,
    fd: OwnedFd,
}

impl LinkWaker {
    pub(crate) fn new(serial: u32, reactor: Arc<Reactor>) -> Result<Arc<Self>> {
        use rustix::event::EventfdFlags;
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::io("cannot create an eventfd", e))?;
        Ok(Arc::new(Self { serial, reactor, parked: AtomicBool::new(false), fd }))
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

impl AsFd for LinkWaker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl LinkWaker {
    /// An operation of the link has completed: wakes its waiter, or has the progress thread run the link.
    pub(crate) fn notify(&self) {
        if !self.wake() {
            self.reactor.enqueue(self.serial);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::{LinkWaker, Reactor};
    use crate::base::config::Progress;

    fn is_readable(waker: &LinkWaker) -> bool {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(waker, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    #[test]
    fn a_waiter_that_sleeps_is_woken_and_else_the_link_is_run() {
        let reactor = Arc::new(Reactor::new(Progress::Thread).expect("descriptors"));
        let waker = LinkWaker::new(7, Arc::clone(&reactor)).expect("a descriptor");
        let queued = || {
            let mut queued = VecDeque::new();
            reactor.take_queued(&mut queued);
            Vec::from(queued)
        };
        for _ in 0..2 {
            assert!(!waker.wake() && !is_readable(&waker), "nobody sleeps");
            waker.notify();
            assert_eq!(queued(), [7]);
            waker.park();
            assert!(!is_readable(&waker));
            waker.notify();
            assert!(queued().is_empty() && is_readable(&waker));
            assert!(waker.wake(), "as long as it has not woken");
            waker.unpark();
            assert!(!is_readable(&waker));
        }
    }
}
