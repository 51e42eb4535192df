//! Operations that were over when their call returned: small copies into memory that is mapped here. Their names are given out
//! and their outcomes taken without the link's lock.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use hmc_core::limits::MAX_SLOTS;
use hmc_core::slots::SlotId;
use hmc_mem::outcome::OutcomeWord;

/// Outcomes kept at a time. A power of two, so that the hint may wrap.
pub(crate) const PLACES: usize = 128;
const LAST_PLACE: u16 = 127;
/// Places that one operation looks at. Where all of them are in use it takes a slot.
const TRIES: u16 = 4;
/// The index of the last place in a name; that of the place before is one less. No slot has one of them.
const LAST: u16 = u16::MAX;
const _: () = assert!(PLACES == 1 << LAST_PLACE.count_ones() && MAX_SLOTS + PLACES < 1 << 16);

/// The outcomes of one link.
#[derive(Debug)]
pub(crate) struct AtOnce {
    words: [OutcomeWord; PLACES],
    /// Which place to look at next. A hint: what it misses costs time only.
    next: AtomicU16,
    /// No more are kept.
    closed: AtomicBool,
}

impl Default for AtOnce {
    fn default() -> Self {
        Self {
            words: [const { OutcomeWord::new() }; PLACES],
            next: AtomicU16::new(0),
            closed: AtomicBool::new(false),
        }
    }
}

impl AtOnce {
    /// Names an operation that moved `bytes`, if there is a place for it.
    #[inline(always)]
    pub(crate) fn keep(&self, bytes: u64) -> Option<SlotId> {
        // Relaxed, both: they order nothing.
        if self.closed.load(Ordering::Relaxed) {
            return None;
        }
        let bytes = u32::try_from(bytes).ok()?;
        let next = self.next.load(Ordering::Relaxed);
        self.keep_at(next, bytes).or_else(|| self.keep_behind(next, bytes))
    }

    #[inline(always)]
    fn keep_at(&self, next: u16, bytes: u32) -> Option<SlotId> {
        let place = next & LAST_PLACE;
        let generation = self.words.get(usize::from(place))?.keep(bytes)?;
        self.next.store(next.wrapping_add(1), Ordering::Relaxed);
        Some(SlotId { index: LAST.wrapping_sub(place), generation })
    }

    /// The place was in use.
    #[cold]
    #[inline(never)]
    fn keep_behind(&self, next: u16, bytes: u32) -> Option<SlotId> {
        let kept = (1..TRIES).find_map(|n| self.keep_at(next.wrapping_add(n), bytes));
        if kept.is_none() {
            self.next.store(next.wrapping_add(TRIES), Ordering::Relaxed);
        }
        kept
    }

    #[inline(always)]
    fn word(&self, op: SlotId) -> Option<&OutcomeWord> {
        self.words.get(usize::from(LAST.wrapping_sub(op.index)))
    }

    /// The bytes that an operation moved, if its outcome is here.
    pub(crate) fn get(&self, op: SlotId) -> Option<u64> {
        self.word(op)?.get(op.generation).map(u64::from)
    }

    /// As [`AtOnce::get`]; the name is stale then.
    #[inline(always)]
    pub(crate) fn take(&self, op: SlotId) -> Option<u64> {
        self.word(op)?.take(op.generation).map(u64::from)
    }

    /// Frees the place of an operation that was not done after all.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_back(&self, op: SlotId) {
        let _ = self.take(op);
    }

    /// How many are kept.
    pub(crate) fn len(&self) -> usize {
        self.words.iter().filter(|word| !word.is_free()).count()
    }

    /// Whether more may be kept from now on.
    pub(crate) fn open(&self, on: bool) {
        self.closed.store(!on, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests may panic")]

    use std::collections::HashSet;

    use hmc_core::limits::MAX_SLOTS;

    use super::{AtOnce, PLACES};

    #[test]
    fn names_are_good_until_they_are_taken_and_no_slots() {
        let all = AtOnce::default();
        let ops: Vec<_> = (0..128).map(|n| all.keep(n).unwrap()).collect();
        assert_eq!(ops.iter().collect::<HashSet<_>>().len(), PLACES);
        assert!(ops.iter().all(|op| usize::from(op.index) >= MAX_SLOTS && op.generation == 1));
        assert_eq!((all.keep(1), all.len()), (None, PLACES));
        for (op, bytes) in ops.iter().zip(0_u64..) {
            assert_eq!((all.get(*op), all.take(*op)), (Some(bytes), Some(bytes)));
            assert_eq!((all.get(*op), all.take(*op)), (None, None), "taken once");
        }
        assert_eq!(all.len(), 0);
        let again = all.keep(7).unwrap();
        assert!(!ops.contains(&again), "the same place, another name");
        let slot = hmc_core::slots::SlotId { index: 0, generation: 1 };
        assert_eq!((all.get(slot), all.take(slot)), (None, None));
    }

    #[test]
    fn one_free_place_is_found_after_some_calls() {
        let all = AtOnce::default();
        let ops: Vec<_> = (0..PLACES).map(|_| all.keep(8).unwrap()).collect();
        assert_eq!(all.take(ops[77]), Some(8));
        let found = (0..PLACES).find_map(|_| all.keep(9)).unwrap();
        assert_eq!((found.index, found.generation), (ops[77].index, 2));
    }

    #[test]
    fn nothing_is_kept_while_it_is_closed_or_too_long() {
        let all = AtOnce::default();
        let op = all.keep(8).unwrap();
        all.open(false);
        assert_eq!((all.keep(8), all.take(op)), (None, Some(8)));
        all.open(true);
        assert!(all.keep(8).is_some());
        assert_eq!(all.keep(1 << 32), None);
    }
}
