//! Futures that wait for room to begin their operation: woken when any operation of the link has ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use crate::wakers::Wakers;

/// The wakers of one link.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Whether there may be wakers: operations end often, and seldom is anybody waiting.
    waited_for: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Room {
    /// Wakes all, without a lock.
    pub(super) fn wake(&self, session: &Wakers) {
        // Who sets it looks for room afterwards, under the lock under which the operation ended before: a load is enough.
        if self.waited_for.load(Ordering::Acquire) {
            self.waited_for.store(false, Ordering::Release);
            let all = {
                let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *wakers)
            };
            all.into_iter().for_each(|waker| session.wake(waker));
        }
    }

    /// Has `waker` woken when an operation ends: look for room after this.
    pub(super) fn add(&self, waker: &Waker) {
        let waker = waker.clone();
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        let extra = if wakers.iter().any(|w| w.will_wake(&waker)) {
            Some(waker)
        } else {
            wakers.push(waker);
            None
        };
        self.waited_for.store(true, Ordering::Release);
        drop(wakers);
        drop(extra);
    }
}
