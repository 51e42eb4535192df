//! [`OutcomeWord`]: the outcome of one operation that was over when its call returned, kept under a name.
//!
//! The high half holds the generation, the low half the bytes that moved and one more, or 0 while the word is free. Every
//! change is one compare-exchange, so each generation is given out once, and its outcome is taken once. Threads that share a
//! name have ordered that themselves; nothing else hangs on the word.

use crate::sync::{AtomicU64, Ordering, high, join, low};

/// A place for one outcome.
#[derive(Debug)]
pub struct OutcomeWord {
    word: AtomicU64,
}

impl Default for OutcomeWord {
    fn default() -> Self {
        Self::new()
    }
}

impl OutcomeWord {
    /// A free word.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// A free word. (loom's atomics have no constant constructor.)
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// Keeps that `bytes` moved. Returns the generation of the name, which is never 0; `None` if the word is in use, or if so
    /// many bytes do not fit.
    #[must_use]
    #[inline]
    pub fn keep(&self, bytes: u32) -> Option<u32> {
        let kept = bytes.checked_add(1)?;
        let word = self.word.load(Ordering::Acquire);
        if low(word) != 0 {
            return None;
        }
        let generation = high(word).wrapping_add(1).max(1);
        self.replace(word, join(generation, kept)).then_some(generation)
    }

    /// The bytes that moved, if the outcome of that generation is here.
    #[must_use]
    #[inline]
    pub fn get(&self, generation: u32) -> Option<u32> {
        let word = self.word.load(Ordering::Acquire);
        if high(word) == generation { low(word).checked_sub(1) } else { None }
    }

    /// As [`Self::get`], and the word is free again: `Some` for exactly one caller of each generation.
    #[must_use]
    #[inline]
    pub fn take(&self, generation: u32) -> Option<u32> {
        let bytes = self.get(generation)?;
        let word = join(generation, bytes.checked_add(1)?);
        self.replace(word, join(generation, 0)).then_some(bytes)
    }

    /// Whether no outcome is here.
    #[must_use]
    pub fn is_free(&self) -> bool {
        low(self.word.load(Ordering::Acquire)) == 0
    }

    #[inline]
    fn replace(&self, old: u64, new: u64) -> bool {
        self.word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Ordering, OutcomeWord, join};

    #[test]
    fn an_outcome_is_taken_once_under_its_own_name() {
        let word = OutcomeWord::default();
        assert!(word.is_free());
        assert_eq!((word.get(0), word.take(0), word.get(1)), (None, None, None), "never given out");
        assert_eq!(word.keep(8), Some(1));
        assert_eq!(word.keep(9), None, "it is in use");
        assert!(!word.is_free());
        assert_eq!((word.get(1), word.get(2), word.take(2)), (Some(8), None, None));
        assert_eq!((word.take(1), word.take(1), word.get(1)), (Some(8), None, None));
        assert!(word.is_free());
        assert_eq!((word.keep(0), word.take(1), word.take(2)), (Some(2), None, Some(0)));
        assert_eq!(word.keep(u32::MAX), None, "more than it can say");
        assert_eq!((word.keep(u32::MAX - 1), word.take(3)), (Some(3), Some(u32::MAX - 1)));
    }

    #[test]
    fn no_generation_is_zero() {
        let word = OutcomeWord::new();
        word.word.store(join(u32::MAX, 0), Ordering::Relaxed);
        assert_eq!((word.keep(7), word.take(1)), (Some(1), Some(7)));
    }
}
