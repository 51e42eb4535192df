//! Wakers that are called at a given time.

use std::sync::Arc;
use std::task::Waker;

use hmc_core::time::Instant;

use super::wakers::Wakers;
use crate::base::process::Origin;

/// Calls a waker when its time has come, by the thread that is started for it, unless it is dropped before.
#[derive(Debug)]
pub(crate) struct Timer {
    wakers: Arc<Wakers>,
    key: (Instant, u64),
    origin: Origin,
}

impl Timer {
    /// One that wakes nobody yet.
    pub(crate) fn new(wakers: &Arc<Wakers>, origin: Origin, at: Instant) -> Self {
        Self { wakers: Arc::clone(wakers), key: (at, wakers.timer_number()), origin }
    }

    /// Has `waker` called, in place of the one before.
    pub(crate) fn wake(&self, waker: &Waker) {
        if self.key.0 != Instant::NEVER {
            self.wakers.set_timer(self.key, waker.clone());
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // In a forked child the lock may be held permanently, by a thread that does not exist there.
        if !self.origin.is_child() {
            self.wakers.remove_timer(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::task::Wake;

    use hmc_core::time::{Duration, Instant};

    use super::{Timer, Wakers};
    use crate::base::clock;
    use crate::base::lock::lock;
    use crate::base::process::Origin;

    const LONG: std::time::Duration = std::time::Duration::from_secs(20);

    struct Reporter(Mutex<Sender<()>>);

    impl Wake for Reporter {
        fn wake(self: Arc<Self>) {
            lock(&self.0).send(()).expect("it is received");
        }
    }

    fn reporter() -> (std::task::Waker, Receiver<()>) {
        let (sender, reported) = channel();
        (Arc::new(Reporter(Mutex::new(sender))).into(), reported)
    }

    #[test]
    fn wakers_are_called_when_their_time_has_come() {
        let wakers = Wakers::new(false);
        let ((late, later), (soon, first), (gone, dropped)) = (reporter(), reporter(), reporter());
        let in_ms = |ms| clock::now().after(Duration::from_millis(ms));
        let timer = |at, waker| {
            let timer = Timer::new(&wakers, Origin::here().expect("a process"), at);
            timer.wake(waker);
            timer
        };
        let _never = timer(Instant::NEVER, &late);
        let _late = timer(in_ms(60_000), &late);
        drop(timer(in_ms(10), &gone));
        let at = in_ms(20);
        let soon_enough = timer(at, &late);
        // The last waker counts.
        soon_enough.wake(&soon);
        first.recv_timeout(LONG).expect("it is called");
        assert!(clock::now() >= at, "too early");
        assert!(later.try_recv().is_err() && first.try_recv().is_err(), "once, and nobody else");
        assert!(dropped.try_recv().is_err(), "its timer was dropped");
        drop(soon_enough);
        wakers.close();
    }
}
