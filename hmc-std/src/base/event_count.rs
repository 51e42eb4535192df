//! How those who sleep learn that something changed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::base::lock::lock;

/// What one who waits does after a look.
pub(crate) enum Next<R> {
    /// It has what it waited for, or gives up.
    Done(R),
    /// It sleeps until there are news, or so long.
    Sleep(Duration),
}

/// A number that changes with each piece of news, as long as somebody waits.
#[derive(Debug, Default)]
pub(crate) struct News {
    number: AtomicU64,
    /// Held while the number changes, and between the last look at it and the sleep.
    asleep: Mutex<()>,
    changed: Condvar,
    waiting: AtomicU32,
}

impl News {
    /// Looks until that is done, and sleeps in between.
    pub(crate) fn wait<R>(&self, mut look: impl FnMut() -> Next<R>) -> R {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Pairs with the one in `tell`: either the teller sees us, or we see what it tells of.
        fence(Ordering::SeqCst);
        let found = loop {
            let before = self.number.load(Ordering::SeqCst);
            let nap = match look() {
                Next::Done(found) => break found,
                Next::Sleep(nap) => nap,
            };
            let asleep = lock(&self.asleep);
            if self.number.load(Ordering::SeqCst) == before {
                drop(
                    self.changed.wait_timeout(asleep, nap).unwrap_or_else(PoisonError::into_inner),
                );
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        found
    }

    /// Tells those who wait to look again.
    pub(crate) fn tell(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let asleep = lock(&self.asleep);
        self.number.fetch_add(1, Ordering::SeqCst);
        drop(asleep);
        self.changed.notify_all();
    }

    /// From here on news are counted although nobody sleeps: who drives the session looks at the number.
    #[cfg(feature = "testing")]
    pub(crate) fn count(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// Changes whenever there are news, once they are counted.
    #[cfg(feature = "testing")]
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }
}
