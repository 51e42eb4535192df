//! [`SlotWord`]: the one word that threads share for one operation.
//!
//! The high half holds the generation, the low half the state. Every change is one compare-and-swap, so for each generation
//! exactly one party finishes it and exactly one gives the slot back. What an operation owns is kept elsewhere, by index.
//!
//! ```text
//! free --arm--> pending --finish--> ended --free--> free
//! ```
//! Orders: `finish` releases what the finisher wrote (the payload, the result); `is_pending` acquires it. `free` releases
//! the last use of the slot; the next `arm` acquires it.

use crate::sync::{AtomicU64, Ordering, join, low};

const FREE: u32 = 0;
const PENDING: u32 = 1;
const ENDED: u32 = 2;

/// The atomic state word of one slot. All methods may be called by several threads at a time.
#[derive(Debug)]
pub struct SlotWord {
    word: AtomicU64,
}

impl Default for SlotWord {
    fn default() -> Self {
        Self::new()
    }
}

impl SlotWord {
    /// Returns the word of a free slot.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// Returns the word of a free slot.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    fn change(&self, from: u64, to: u64) -> bool {
        // Acquire also on failure: whoever is refused may have to read what the winner wrote.
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Starts an operation of this generation. Returns `false`, without effect, unless the slot is free.
    #[must_use]
    pub fn arm(&self, generation: u32) -> bool {
        let now = self.word.load(Ordering::Acquire);
        low(now) == FREE && self.change(now, join(generation, PENDING))
    }

    /// Ends the operation. Returns `false`, without effect, if it has ended or has another generation.
    pub fn finish(&self, generation: u32) -> bool {
        self.change(join(generation, PENDING), join(generation, ENDED))
    }

    /// Returns `true` while an operation of this generation has not ended.
    #[must_use]
    pub fn is_pending(&self, generation: u32) -> bool {
        self.word.load(Ordering::Acquire) == join(generation, PENDING)
    }

    /// Frees the slot. Returns `false`, without effect, unless the operation has ended and the slot has not been freed.
    pub fn free(&self, generation: u32) -> bool {
        self.change(join(generation, ENDED), join(generation, FREE))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::SlotWord;
    use proptest::prelude::{Just, Strategy, prop_oneof, proptest};

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Arm(u32),
        Finish(u32),
        Poll(u32),
        Free(u32),
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Model {
        Free,
        Pending,
        Ended,
    }

    fn steps() -> impl Strategy<Value = Step> {
        let g = prop_oneof![Just(0u32), Just(1), Just(2), Just(u32::MAX)];
        (g, 0..4u8).prop_map(|(g, kind)| match kind {
            0 => Step::Arm(g),
            1 => Step::Finish(g),
            2 => Step::Poll(g),
            _ => Step::Free(g),
        })
    }

    proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: if cfg!(miri) { 16 } else { 2000 }, failure_persistence: None, ..Default::default()
        })]
        #[test]
        fn a_slot_does_what_its_table_says(script in proptest::collection::vec(steps(), 0..40)) {
            let slot = SlotWord::new();
            let (mut generation, mut state) = (0, Model::Free);
            for step in script {
                match step {
                    Step::Arm(g) => {
                        let free = state == Model::Free;
                        assert_eq!(slot.arm(g), free);
                        if free {
                            (generation, state) = (g, Model::Pending);
                        }
                    }
                    Step::Finish(g) => {
                        let pending = state == Model::Pending && g == generation;
                        assert_eq!(slot.finish(g), pending);
                        if pending {
                            state = Model::Ended;
                        }
                    }
                    Step::Poll(g) => {
                        assert_eq!(slot.is_pending(g), state == Model::Pending && g == generation);
                    }
                    Step::Free(g) => {
                        let ended = state == Model::Ended && g == generation;
                        assert_eq!(slot.free(g), ended);
                        if ended {
                            state = Model::Free;
                        }
                    }
                }
            }
        }
    }
}
