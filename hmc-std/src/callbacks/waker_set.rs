//! Futures that wait for any of many events: each event wakes all of them, and they check again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use crate::callbacks::wakers::Wakers;

/// The wakers of those that wait.
#[derive(Debug, Default)]
pub(crate) struct WakerSet {
    /// Whether there may be wakers: events are frequent, and seldom is anybody waiting.
    waited_for: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl WakerSet {
    /// Wakes all, without a lock.
    pub(crate) fn wake(&self, session: &Wakers) {
        // Who sets it looks afterwards, under the lock under which what it waits for came before: a load is enough.
        if self.waited_for.load(Ordering::Acquire) {
            self.waited_for.store(false, Ordering::Release);
            let all = {
                let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *wakers)
            };
            all.into_iter().for_each(|waker| session.wake(waker));
        }
    }

    /// Has `waker` woken by the next event: look after this.
    pub(crate) fn add(&self, waker: &Waker) {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Wake, Waker};

    use super::WakerSet;
    use crate::callbacks::wakers::Wakers;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_who_waits_for_space_is_woken_once() {
        let (space, wakers) = (WakerSet::default(), Wakers::closed());
        let counts = [Arc::<Count>::default(), Arc::default()];
        let woken = || counts.each_ref().map(|c| c.0.load(Ordering::Relaxed));
        space.wake(&wakers);
        for count in &counts {
            // One that asks again while it waits.
            let waker = Waker::from(Arc::clone(count));
            space.add(&waker);
            space.add(&waker);
        }
        assert_eq!(woken(), [0, 0]);
        space.wake(&wakers);
        assert_eq!(woken(), [1, 1]);
        space.wake(&wakers);
        assert_eq!(woken(), [1, 1], "nobody waits any more");
        assert!(counts.iter().all(|c| Arc::strong_count(c) == 1), "no waker is kept");
    }
}
