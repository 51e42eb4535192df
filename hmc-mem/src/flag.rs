//! [`Flag`]: one 64-bit word that reports that the bytes before it are complete.
//!
//! [`Flag::store_release`] pairs with [`Flag::load_acquire`] of the same word: a reader of the stored value also
//! sees every byte written before the store. It orders nothing else.

use crate::sync::{AtomicU64, Ordering, spin_loop};

/// A 64-bit flag in memory that threads or processes share. All methods may be called by several threads at a time.
#[derive(Clone, Copy, Debug)]
pub struct Flag<'a> {
    word: &'a AtomicU64,
}

impl<'a> Flag<'a> {
    /// Returns the flag in `word`.
    #[must_use]
    pub const fn new(word: &'a AtomicU64) -> Self {
        Self { word }
    }

    /// Reads the flag. The `Acquire` pairs with the `Release` of [`Self::store_release`] and
    /// [`Self::add_release`]: bytes written before that store are visible after this load.
    #[must_use]
    #[inline]
    pub fn load_acquire(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// Sets the flag. The `Release` pairs with the `Acquire` of [`Self::load_acquire`].
    #[inline]
    pub fn store_release(&self, value: u64) {
        self.word.store(value, Ordering::Release);
    }

    /// Adds `more` to the flag, wrapping at 2^64, and returns its previous value. The ordering is `AcqRel`, so it pairs
    /// with stores before and loads after.
    #[inline]
    pub fn add_release(&self, more: u64) -> u64 {
        self.word.fetch_add(more, Ordering::AcqRel)
    }

    /// Reads the flag until `pred` accepts its value, and returns that value; `None` after `spin_budget` reads (at
    /// least one). It spins and never parks; one read takes a few nanoseconds.
    #[must_use]
    pub fn wait_until(&self, mut pred: impl FnMut(u64) -> bool, spin_budget: u32) -> Option<u64> {
        let mut left = spin_budget;
        loop {
            let value = self.load_acquire();
            if pred(value) {
                return Some(value);
            }
            left = left.checked_sub(1).filter(|left| *left != 0)?;
            spin_loop();
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::Flag;
    use crate::sync::AtomicU64;

    #[test]
    fn a_wait_looks_as_often_as_requested_and_at_least_once() {
        let word = AtomicU64::new(7);
        for budget in [0, 1, 2, 5] {
            let mut looks = 0;
            let got = Flag::new(&word).wait_until(
                |v| {
                    looks += 1;
                    v != 7
                },
                budget,
            );
            assert_eq!((got, looks), (None, budget.max(1)));
        }
        assert_eq!(Flag::new(&word).wait_until(|v| v == 7, 0), Some(7));
        assert_eq!(Flag::new(&word).add_release(u64::MAX), 7);
        assert_eq!(Flag::new(&word).load_acquire(), 6);
    }

    #[test]
    fn bytes_before_the_flag_are_seen_after_it() {
        let (data, word) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|s| {
            s.spawn(|| {
                data.store(41, crate::sync::Ordering::Relaxed);
                Flag::new(&word).store_release(1);
            });
            while Flag::new(&word).wait_until(|v| v == 1, 1000).is_none() {
                std::thread::yield_now();
            }
            assert_eq!(data.load(crate::sync::Ordering::Relaxed), 41);
        });
    }
}
