//! [`SlotWord`]: the one word that threads share for one operation.
//!
//! The high half holds the generation, the low half the state and a code. Every change is one
//! read-modify-write, so for each generation exactly one party finishes it, exactly one is told to wake
//! the waiter and exactly one gives the slot back. What an operation owns is kept elsewhere, by index.
//!
//! ```text
//! free --arm--> PENDING --finish--> DONE or FAILED --retire--> free
//!                  | abandon                             (the owner retires)
//!                  v
//!               PENDING|ABANDONED --finish--> DONE or FAILED|ABANDONED --retire--> free  (the finisher retires)
//! ```
//! Orders: `finish` releases what the finisher wrote (the payload, the result); `poll`, `set_waiter` and
//! `abandon` acquire it. `retire` releases the last use of the slot; the next `arm` acquires it.

use crate::sync::{AtomicU64, Ordering};

const PENDING: u64 = 1;
const DONE: u64 = 1 << 1;
const FAILED: u64 = 1 << 2;
const ABANDONED: u64 = 1 << 3;
const WAITER: u64 = 1 << 4;
/// The code of a failure lies in bits 16 to 31.
const CODE_SHIFT: u32 = 16;
const GENERATION_SHIFT: u32 = 32;

/// The code of a failure that has no code of its own: `finish(generation, false)`.
pub const GENERIC_FAILURE: u16 = 1;

/// What the thread that finished an operation must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum WakeAction {
    /// Nothing: the owner polls the slot.
    Nobody,
    /// A thread or a task waits for this operation: wake it.
    Waiter,
    /// The operation was abandoned: release what it owns, then retire the slot.
    Abandoned,
    /// Not this caller's to finish: the generation is another one or has ended already. Nothing changed.
    Stale,
}

/// The status of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum SlotStatus {
    /// Not finished.
    Pending,
    /// Finished well.
    Done,
    /// Finished with this code, never 0.
    Failed(u16),
    /// The slot holds another generation, or none.
    Stale,
}

/// What an owner that abandons an operation must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum AbandonAction {
    /// Nothing: the thread that finishes the operation retires the slot.
    Later,
    /// The operation has finished: the owner retires the slot itself.
    Now,
    /// The slot holds another generation, or none, or was abandoned before.
    Stale,
}

/// The shared word of one slot.
#[derive(Debug)]
pub struct SlotWord {
    word: AtomicU64,
}

impl Default for SlotWord {
    fn default() -> Self {
        Self::new()
    }
}

fn tag(generation: u32) -> u64 {
    u64::from(generation) << GENERATION_SHIFT
}

fn is_of(word: u64, generation: u32) -> bool {
    word >> GENERATION_SHIFT == u64::from(generation)
}

impl SlotWord {
    /// A free slot.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// A free slot. (loom's atomics have no constant constructor.)
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// One change: `step` gives the next word, or `None` to leave it. `Ok` holds the word before.
    fn change(&self, step: impl FnMut(u64) -> Option<u64>) -> Result<u64, u64> {
        // AcqRel on every change: it acquires what the last party left and releases this one's writes.
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, step)
    }

    /// Starts an operation in a free slot. `false` when the slot is not free; nothing changed.
    #[must_use]
    pub fn arm(&self, generation: u32) -> bool {
        self.change(|w| (w & (PENDING | DONE | FAILED) == 0).then(|| tag(generation) | PENDING))
            .is_ok()
    }

    /// Ends an operation, well or with [`GENERIC_FAILURE`]. See [`Self::finish_with`].
    pub fn finish(&self, generation: u32, ok: bool) -> WakeAction {
        self.finish_with(generation, if ok { 0 } else { GENERIC_FAILURE })
    }

    /// Ends an operation: well when `code` is 0, else as a failure with that code. Of several parties that
    /// try (a completion, a deadline, a close) the first ends it; the others get [`WakeAction::Stale`].
    pub fn finish_with(&self, generation: u32, code: u16) -> WakeAction {
        let end = if code == 0 { DONE } else { FAILED | (u64::from(code) << CODE_SHIFT) };
        let before = self.change(|w| {
            (is_of(w, generation) && w & PENDING != 0)
                .then(|| tag(generation) | (w & ABANDONED) | end)
        });
        match before {
            Err(_) => WakeAction::Stale,
            Ok(w) if w & ABANDONED != 0 => WakeAction::Abandoned,
            Ok(w) if w & WAITER != 0 => WakeAction::Waiter,
            Ok(_) => WakeAction::Nobody,
        }
    }

    /// How the operation stands. `Acquire`: what the finisher wrote is visible once this is not `Pending`.
    pub fn poll(&self, generation: u32) -> SlotStatus {
        let w = self.word.load(Ordering::Acquire);
        if !is_of(w, generation) {
            return SlotStatus::Stale;
        }
        if w & PENDING != 0 {
            SlotStatus::Pending
        } else if w & DONE != 0 {
            SlotStatus::Done
        } else if w & FAILED != 0 {
            let [.., a, b, _, _] = w.to_be_bytes();
            SlotStatus::Failed(u16::from_be_bytes([a, b]))
        } else {
            SlotStatus::Stale
        }
    }

    /// Says that someone will sleep until this operation ends. `true`: whoever ends it will be told
    /// [`WakeAction::Waiter`]. `false`: it has ended (poll it) or is stale; do not sleep.
    #[must_use]
    pub fn set_waiter(&self, generation: u32) -> bool {
        self.change(|w| (is_of(w, generation) && w & PENDING != 0).then_some(w | WAITER)).is_ok()
    }

    /// The owner abandons the operation (a dropped future), which owns its resources until it ends.
    pub fn abandon(&self, generation: u32) -> AbandonAction {
        let before = self.change(|w| {
            (is_of(w, generation) && w & PENDING != 0 && w & ABANDONED == 0)
                .then_some((w | ABANDONED) & !WAITER)
        });
        match before {
            Ok(_) => AbandonAction::Later,
            Err(w) if is_of(w, generation) && w & ABANDONED == 0 && w & (DONE | FAILED) != 0 => {
                AbandonAction::Now
            }
            Err(_) => AbandonAction::Stale,
        }
    }

    /// Gives a finished slot back. `true` for exactly one caller of each generation; a later [`Self::arm`]
    /// must bring another generation.
    #[must_use]
    pub fn retire(&self, generation: u32) -> bool {
        self.change(|w| (is_of(w, generation) && w & (DONE | FAILED) != 0).then(|| tag(generation)))
            .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::arithmetic_side_effects, reason = "tests may panic")]
mod tests {
    use super::{AbandonAction, GENERIC_FAILURE, SlotStatus, SlotWord, WakeAction};
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Arm(u32),
        Finish(u32, u16),
        Poll(u32),
        Wait(u32),
        Abandon(u32),
        Retire(u32),
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Model {
        Free,
        Pending { waiter: bool, abandoned: bool },
        Ended { code: u16, abandoned: bool },
    }

    fn steps() -> impl Strategy<Value = Step> {
        let g = prop_oneof![Just(0u32), Just(1), Just(2), Just(u32::MAX)];
        (g, 0..6u8, prop_oneof![Just(0u16), Just(1), any::<u16>()]).prop_map(|(g, kind, code)| {
            match kind {
                0 => Step::Arm(g),
                1 => Step::Finish(g, code),
                2 => Step::Poll(g),
                3 => Step::Wait(g),
                4 => Step::Abandon(g),
                _ => Step::Retire(g),
            }
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
                            (generation, state) = (g, Model::Pending { waiter: false, abandoned: false });
                        }
                    }
                    Step::Finish(g, code) => {
                        let want = match state {
                            Model::Pending { abandoned: true, .. } if g == generation => WakeAction::Abandoned,
                            Model::Pending { waiter: true, .. } if g == generation => WakeAction::Waiter,
                            Model::Pending { .. } if g == generation => WakeAction::Nobody,
                            _ => WakeAction::Stale,
                        };
                        assert_eq!(slot.finish_with(g, code), want);
                        if let (Model::Pending { abandoned, .. }, true) = (state, want != WakeAction::Stale) {
                            state = Model::Ended { code, abandoned };
                        }
                    }
                    Step::Poll(g) => {
                        let want = match state {
                            _ if g != generation => SlotStatus::Stale,
                            Model::Free => SlotStatus::Stale,
                            Model::Pending { .. } => SlotStatus::Pending,
                            Model::Ended { code: 0, .. } => SlotStatus::Done,
                            Model::Ended { code, .. } => SlotStatus::Failed(code),
                        };
                        assert_eq!(slot.poll(g), want);
                    }
                    Step::Wait(g) => {
                        let pending = matches!(state, Model::Pending { .. }) && g == generation;
                        assert_eq!(slot.set_waiter(g), pending);
                        if let (Model::Pending { abandoned, .. }, true) = (state, pending) {
                            state = Model::Pending { waiter: true, abandoned };
                        }
                    }
                    Step::Abandon(g) => {
                        let want = match state {
                            _ if g != generation => AbandonAction::Stale,
                            Model::Pending { abandoned: false, .. } => AbandonAction::Later,
                            Model::Ended { abandoned: false, .. } => AbandonAction::Now,
                            _ => AbandonAction::Stale,
                        };
                        assert_eq!(slot.abandon(g), want);
                        if want == AbandonAction::Later {
                            state = Model::Pending { waiter: false, abandoned: true };
                        }
                    }
                    Step::Retire(g) => {
                        let ended = matches!(state, Model::Ended { .. }) && g == generation;
                        assert_eq!(slot.retire(g), ended);
                        if ended {
                            state = Model::Free;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_generic_failure_has_the_generic_code() {
        let slot = SlotWord::new();
        assert!(slot.arm(9));
        assert_eq!(slot.finish(9, false), WakeAction::Nobody);
        assert_eq!(slot.poll(9), SlotStatus::Failed(GENERIC_FAILURE));
    }
}
