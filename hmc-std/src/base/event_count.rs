//! Event count: wakes sleeping threads after a change.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::base::lock::lock;
use crate::base::polling;

/// What a waiting thread does after a check.
pub(crate) enum WaitStep<R> {
    /// The wait ends, with its result.
    Ready(R),
    /// The thread sleeps until the next event, or for this long.
    Park(Duration),
}

/// A number that changes with each event while a thread waits.
#[derive(Debug, Default)]
pub(crate) struct EventCount {
    pub(crate) sequence: AtomicU64,
    /// Locked while the number changes, and between its last check and the sleep.
    asleep: Mutex<()>,
    changed: Condvar,
    /// The number of threads that sleep or check the number themselves.
    pub(crate) waiting: AtomicU32,
}

impl EventCount {
    /// Calls `look` until it ends the wait, and sleeps in between.
    pub(crate) fn wait_until<R>(&self, mut look: impl FnMut() -> WaitStep<R>) -> R {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Pairs with the one in `notify_all`: either the teller sees us, or we see what it tells of.
        fence(Ordering::SeqCst);
        let found = loop {
            let before = self.sequence.load(Ordering::SeqCst);
            let pause = match look() {
                WaitStep::Ready(found) => break found,
                WaitStep::Park(pause) => pause,
            };
            polling::waits();
            let asleep = lock(&self.asleep);
            if self.sequence.load(Ordering::SeqCst) == before {
                drop(
                    self.changed
                        .wait_timeout(asleep, pause)
                        .unwrap_or_else(PoisonError::into_inner),
                );
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        found
    }

    /// Wakes all waiting threads, which check again.
    pub(crate) fn notify_all(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let asleep = lock(&self.asleep);
        self.sequence.fetch_add(1, Ordering::SeqCst);
        drop(asleep);
        self.changed.notify_all();
    }
}
