//! Fairness of a lock that one thread takes repeatedly. The driver of a link copies chunk after chunk under the
//! lock of its data half, and the mutex of std is not fair. Heartbeats, failures and new operations must not wait
//! for the last chunk.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hmc_core::time::Duration;

use crate::base::clock;

/// How long a driver lets others go first at most: a woken thread may have to wait for a processor.
const LONGEST: Duration = Duration::from_millis(100);

/// Who waits for the lock, and how many have had it. Both are hints: the lock orders everything else.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    waiting: AtomicU32,
    served: AtomicU32,
}

impl Fairness {
    /// Takes the lock, before the driver takes it again and after those who wait for it already. Costs one look more than the lock if
    /// that is free.
    pub(super) fn lock<'a, T>(&self, lock: &'a Mutex<T>) -> MutexGuard<'a, T> {
        if let Ok(held) = lock.try_lock() {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return held;
            }
            // It is free because the one that it was left to has not run yet.
            drop(held);
            self.wait_for_one();
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.served.fetch_add(1, Ordering::Relaxed);
        held
    }

    /// Lets one of those who wait go first, for a while. The driver calls it between two polls, without the lock.
    #[inline]
    pub(super) fn yield_to_waiters(&self) {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.wait_for_one();
        }
    }

    #[cold]
    fn wait_for_one(&self) {
        let (served, by) = (self.served.load(Ordering::Relaxed), clock::now().after(LONGEST));
        while self.waiting.load(Ordering::Relaxed) != 0
            && self.served.load(Ordering::Relaxed) == served
            && clock::now() < by
        {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fairness, LONGEST};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use crate::base::clock;

    #[test]
    fn one_who_waits_comes_before_another_who_finds_the_lock_free() {
        let (lock, fairness) = (Mutex::new(()), Fairness::default());
        // It was woken and does not run.
        fairness.waiting.store(1, Ordering::Relaxed);
        let begun = clock::now();
        drop(fairness.lock(&lock));
        assert!(clock::now().since(begun) >= LONGEST);
        fairness.waiting.store(0, Ordering::Relaxed);
        drop(fairness.lock(&lock));
        assert_eq!(fairness.served.load(Ordering::Relaxed), 1, "only who waited counts");
    }

    #[test]
    fn one_who_waits_comes_before_the_drivers_next_poll() {
        const TAKES: u32 = 100;
        let (lock, fairness) = (Mutex::new(()), Fairness::default());
        let (over, driven) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|s| {
            s.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let held = lock.lock().expect("nobody panics");
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_millis(2) {
                        std::hint::spin_loop();
                    }
                    driven.fetch_add(1, Ordering::Relaxed);
                    drop(held);
                    fairness.yield_to_waiters();
                }
            });
            let mut waited = 0;
            for _ in 0..TAKES {
                // In the middle of a poll.
                while lock.try_lock().is_ok() {
                    std::hint::spin_loop();
                }
                let before = driven.load(Ordering::Relaxed);
                drop(fairness.lock(&lock));
                waited += driven.load(Ordering::Relaxed) - before;
            }
            over.store(true, Ordering::Relaxed);
            // The poll that is under way, and rarely one more that began before the wait was seen.
            assert!(waited <= 2 * TAKES, "{waited} polls of the driver for {TAKES} of the other");
        });
    }
}
