//! Operations that have ended and whose outcome no call has taken yet. The outcome uses its operation's slot; when
//! slots are short, outcomes move to a table with the operations' ids as keys.

use hmc_core::slots::{Outcome, SlotId, Stale};

use super::op_queue::OpQueue;
use crate::link::op_resources::OpResources;

impl OpQueue {
    /// Takes the outcome of an operation, with what it still holds.
    pub(super) fn take(&mut self, op: SlotId) -> Result<Option<(Outcome, OpResources)>, Stale> {
        let taken = match self.queue.take(op) {
            Ok(taken) => taken,
            Err(stale) => return self.stored.take(op).map(Some).ok_or(stale),
        };
        if taken.as_ref().is_some_and(|(outcome, _)| outcome.fenced) {
            self.free_word(op);
        }
        Ok(taken)
    }

    /// Nobody will take the outcome of an operation. Gives what it held if it has left its slot now; else that goes at its
    /// fence.
    pub(super) fn abandon(&mut self, op: SlotId) -> Option<OpResources> {
        match self.queue.abandon(op) {
            Ok(None) => None,
            Ok(Some(hold)) => {
                // No event follows: the slot is free already.
                self.free_word(op);
                Some(hold)
            }
            Err(_) => self.stored.take(op).map(|(_, hold)| hold),
        }
    }

    #[cfg(test)]
    pub(super) fn slots_in_use(&self) -> usize {
        self.queue.slots().in_use()
    }

    /// Moves outcomes that no call has taken out of their slots. Whether there were any.
    #[cold]
    pub(super) fn free_slots(&mut self) -> bool {
        let mut from = 0;
        let mut any = false;
        let mut space = self.stored.space();
        while space > 0
            && let Some(op) = self.queue.slots().next_ended(from)
        {
            from = op.index.saturating_add(1);
            if let Ok(Some(ended)) = self.take(op) {
                self.stored.insert(op, ended);
                space = space.saturating_sub(1);
                any = true;
            }
        }
        any
    }

    /// Whether no more outcomes are kept beside the slots.
    pub(super) fn is_outcome_store_full(&self) -> bool {
        self.stored.space() == 0
    }
}
