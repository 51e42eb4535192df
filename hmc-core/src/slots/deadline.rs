//! Deadlines: a lower bound that costs nothing until it passes, and then a search.

use crate::slots::state::SlotState;
use crate::slots::{NONE, Slot, Slots};
use crate::time::Instant;
use crate::work::SlotId;

impl<X: Default, S: AsRef<[Slot<X>]> + AsMut<[Slot<X>]>> Slots<S, X> {
    /// A point before which no pending operation expires; [`Instant::NEVER`] when none is under way.
    /// It may be too early: then [`Slots::next_expired`] finds nothing and moves it.
    #[inline]
    pub const fn next_deadline(&self) -> Instant {
        self.earliest
    }

    /// The first pending operation at place `from` or later whose deadline is `now` or before.
    /// Start at place 0, fail what it gives, and go on behind it until there is none.
    /// [`Instant::NEVER`] is never reached.
    pub fn next_expired(&mut self, now: Instant, from: u16) -> Option<SlotId> {
        if now < self.earliest {
            return None;
        }
        let mut earliest = Instant::NEVER;
        for (index, slot) in (0..NONE).zip(self.entries.as_ref()) {
            if !matches!(slot.state, SlotState::Pending) {
                continue;
            }
            let over = slot.deadline <= now && slot.deadline != Instant::NEVER;
            if over && index >= from {
                return Some(SlotId { index, generation: slot.generation });
            }
            earliest = earliest.min(slot.deadline);
        }
        self.earliest = earliest;
        None
    }

    /// The first operation at place `from` or later that has ended and passed its fence, as events have told, and was not waited for.
    #[must_use]
    pub fn next_ended(&self, from: u16) -> Option<SlotId> {
        let places = (0..NONE).zip(self.entries.as_ref()).skip_while(|(index, _)| *index < from);
        for (index, slot) in places {
            let op = SlotId { index, generation: slot.generation };
            // Of the others somebody waits for the event.
            if matches!(slot.state, SlotState::Reported) {
                return Some(op);
            }
        }
        None
    }
}
