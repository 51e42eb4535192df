//! A descriptor that is readable once something has happened: for event loops that sleep on descriptors.
//!
//! It is made when somebody asks for it. Until then an event costs a look at whether it was.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};

use crate::base::error::Result;
use crate::io::eventfd::EventfdWaker;

/// The descriptor of one session, if there is one, and whether it is set.
#[derive(Debug, Default)]
pub(crate) struct EventsFd {
    fd: OnceLock<Arc<EventfdWaker>>,
    /// It was set since it was cleared last: further events leave it alone.
    is_set: AtomicBool,
}

impl EventsFd {
    /// The descriptor. It is made by the first call, and is set then: what happened before shows on it, too.
    ///
    /// # Errors
    /// `SystemLimit` if the system has no descriptor left.
    pub(crate) fn get_or_make(&self) -> Result<Arc<EventfdWaker>> {
        if let Some(fd) = self.fd.get() {
            return Ok(Arc::clone(fd));
        }
        let made = EventfdWaker::new()?;
        let fd = self.fd.get_or_init(|| made);
        // Pairs with the fence, or the lock, of who tells of an event: it sees the descriptor, or the caller's next look sees
        // the event.
        fence(Ordering::SeqCst);
        self.set();
        Ok(Arc::clone(fd))
    }

    /// Whether somebody asked for it.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.fd.get().is_some()
    }

    /// Something has happened, and whoever looks finds it.
    #[inline]
    pub(crate) fn set(&self) {
        if let Some(fd) = self.fd.get() {
            self.write(fd);
        }
    }

    #[cold]
    fn write(&self, fd: &EventfdWaker) {
        if !self.is_set.swap(true, Ordering::AcqRel) {
            fd.wake();
        }
    }

    /// Forgets what has happened. Look after this. An event before the swap below can be seen then: the swap reads the mark of
    /// who told of it. A later event sets the descriptor again. Were the mark taken first, an event before the read would set
    /// both, and the read would clear the descriptor alone: no event would set it any more.
    pub(crate) fn clear(&self) {
        if let Some(fd) = self.fd.get() {
            fd.clear();
            self.is_set.swap(false, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::Timespec;

    use super::EventsFd;

    fn readable(events: &EventsFd, limit: Timespec) -> bool {
        let fd = events.get_or_make().expect("a descriptor");
        poll(&mut [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)], Some(&limit)) == Ok(1)
    }

    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    #[test]
    fn it_is_readable_from_the_first_event_until_it_is_cleared() {
        let events = EventsFd::default();
        events.set();
        events.clear();
        assert!(!events.is_wanted(), "nobody asked for it");
        assert!(readable(&events, NOW), "what came before shows");
        assert!(events.is_wanted() && readable(&events, NOW), "until it is cleared");
        events.clear();
        assert!(!readable(&events, NOW));
        for _ in 0..3 {
            events.set();
        }
        assert!(readable(&events, NOW));
        events.clear();
        assert!(!readable(&events, NOW), "three events are one");
        events.clear();
        events.set();
        assert!(readable(&events, NOW));
    }

    /// One thread counts up and tells of it, in bursts that outlast several clears; the other sleeps on the descriptor alone.
    #[test]
    fn no_event_is_lost_between_a_clear_and_a_look() {
        const ROUNDS: u64 = 200_000;
        const BURST: u64 = 1000;
        let (events, told, seen) = (EventsFd::default(), AtomicU64::new(0), AtomicU64::new(0));
        let limit = Timespec { tv_sec: 5, tv_nsec: 0 };
        let all_seen = std::thread::scope(|threads| {
            threads.spawn(|| {
                for n in 1..=ROUNDS {
                    told.store(n, Ordering::Relaxed);
                    events.set();
                    while n % BURST == 0 && seen.load(Ordering::Relaxed) < n {
                        std::hint::spin_loop();
                    }
                }
            });
            loop {
                if !readable(&events, limit) {
                    // So that the other thread ends.
                    return seen.swap(ROUNDS, Ordering::Relaxed) == ROUNDS;
                }
                events.clear();
                let n = told.load(Ordering::Relaxed);
                seen.store(n, Ordering::Relaxed);
                if n == ROUNDS {
                    return true;
                }
            }
        });
        assert!(all_seen, "it slept although there were events");
    }
}
