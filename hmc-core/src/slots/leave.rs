//! How an operation leaves its record: its outcome is taken, it is abandoned, and its fence is reported. The last
//! of these steps returns what the operation owns.

use crate::slots::state::{SlotState, SlotTransition};
use crate::slots::{Outcome, Slot, SlotEvent, Slots, Stale};
use crate::work::SlotId;

impl<X: Default, S: AsRef<[Slot<X>]> + AsMut<[Slot<X>]>> Slots<S, X> {
    /// Takes the outcome once it is known; the name is stale then. When the outcome says `fenced`,
    /// the slot is free again and no event of the operation follows. Else a [`SlotEvent`] with
    /// `fenced` follows.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation or nobody may ask for it.
    #[inline]
    pub fn take(&mut self, op: SlotId) -> Result<Option<Outcome>, Stale> {
        self.take_held(op).map(|taken| taken.map(|(outcome, _)| outcome))
    }

    /// As [`Slots::take`], with what the operation still holds when the outcome says `fenced`.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn take_held(&mut self, op: SlotId) -> Result<Option<(Outcome, X)>, Stale> {
        let slot = self.slot_mut(op)?;
        if !slot.is_owned() {
            return Err(Stale { op });
        }
        let Some(outcome) = slot.outcome() else {
            return Ok(None);
        };
        let held = self.leave(op.index, SlotTransition::Take);
        Ok(Some((outcome, held.unwrap_or_default())))
    }

    /// Abandons an operation: its id is stale now for all but the transport, and unposted parts are
    /// dropped. Returns what it still holds if its slot is free now. Else that is so after a [`SlotEvent`] with `fenced` was
    /// returned, and the caller must continue to call [`Slots::next_event`].
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation or nobody may ask for it.
    pub fn abandon(&mut self, op: SlotId) -> Result<Option<X>, Stale> {
        self.owned(op)?;
        Ok(self.leave(op.index, SlotTransition::Abandon))
    }

    /// Returns what the operation holds, if its slot is free now.
    #[inline]
    fn leave(&mut self, index: u16, transition: SlotTransition) -> Option<X> {
        let slot = self.entries.as_mut().get_mut(usize::from(index))?;
        slot.apply(transition);
        slot.report_done = false;
        match slot.state {
            SlotState::Free => {
                let held = core::mem::take(&mut slot.hold);
                // Most often it is the only one with an event.
                if self.ready_head == index {
                    self.pop_ready();
                }
                self.push_free(index);
                return Some(held);
            }
            SlotState::Abandoned => {
                slot.unposted = 0;
                self.finish_if_done(index);
            }
            SlotState::Pending
            | SlotState::Draining
            | SlotState::Done
            | SlotState::Reported
            | SlotState::AbandonedDone => {}
        }
        None
    }

    /// Returns the next event, in the order in which they happened.
    pub fn next_event(&mut self) -> Option<SlotEvent<X>> {
        // Ends: each turn takes one slot off the list.
        loop {
            let (index, slot) = self.pop_ready()?;
            let op = SlotId { index, generation: slot.generation };
            let done = core::mem::take(&mut slot.report_done);
            let is_fenced = matches!(slot.state, SlotState::Done | SlotState::AbandonedDone);
            if done || is_fenced {
                let fenced = is_fenced.then(|| core::mem::take(&mut slot.hold));
                slot.apply(SlotTransition::Report);
                if matches!(slot.state, SlotState::Free) {
                    self.push_free(index);
                }
                return Some(SlotEvent { op, done, fenced });
            }
        }
    }
}
