//! Operations that have ended: who asks takes their outcome. While nobody has asked, an outcome uses its operation's slot;
//! when slots are short, outcomes move to a table beside them, under their names.

use hmc_core::queue::{QueueError, WorkQueue};
use hmc_core::slots::{Outcome, Slot, SlotId, Stale};
use hmc_core::transport::PostErrorKind;

use super::{DataState, retire};
use crate::link::aftermath::{Aftermath, Hold};
use crate::transport::data_plane::AnyDataPlane;

impl DataState {
    /// Takes the outcome of an operation, with what it still holds.
    pub(crate) fn take(&mut self, op: SlotId) -> Result<Option<(Outcome, Hold)>, Stale> {
        let outcome = match self.queue.try_wait(op) {
            Ok(Some(outcome)) => outcome,
            Ok(None) => return Ok(None),
            Err(stale) => return self.unasked.take(op).map(Some).ok_or(stale),
        };
        if !outcome.fenced {
            return Ok(Some((outcome, Hold::default())));
        }
        if let Some(word) = self.words.get(usize::from(op.index)) {
            retire(word, op);
        }
        let hold = self.holds.get_mut(usize::from(op.index)).map(std::mem::take);
        Ok(Some((outcome, hold.unwrap_or_default())))
    }

    /// What became of an operation; `None` while it runs. Changes nothing.
    pub(crate) fn outcome(&self, op: SlotId) -> Result<Option<Outcome>, Stale> {
        self.queue.outcome(op).or_else(|stale| self.unasked.get(op).map(Some).ok_or(stale))
    }

    /// Whether an operation has ended.
    pub(crate) fn test(&self, op: SlotId) -> Result<bool, Stale> {
        self.outcome(op).map(|o| o.is_some())
    }

    /// Nobody will take the outcome of an operation. What it holds goes at its fence; when it has
    /// passed that, now.
    pub(crate) fn abandon(&mut self, op: SlotId, after: &mut Aftermath) {
        if let Some(hold) = self.let_go(op) {
            after.keep(hold);
        }
    }

    /// As [`DataState::abandon`]; gives what the operation held, if it has passed its fence.
    pub(super) fn let_go(&mut self, op: SlotId) -> Option<Hold> {
        let over = self.queue.outcome(op).ok().flatten().is_some_and(|o| o.fenced);
        if self.queue.abandon(op).is_err() {
            return self.unasked.take(op).map(|(_, hold)| hold);
        }
        if !over {
            return None;
        }
        // No event follows: the slot is free already.
        if let Some(word) = self.words.get(usize::from(op.index)) {
            retire(word, op);
        }
        self.holds.get_mut(usize::from(op.index)).map(std::mem::take)
    }

    /// Posts; again when all slots were used and some of their operations have ended.
    pub(super) fn with_room(
        &mut self,
        mut post: impl FnMut(
            &mut WorkQueue<AnyDataPlane, Box<[Slot]>>,
        ) -> Result<SlotId, QueueError<PostErrorKind>>,
    ) -> Result<SlotId, QueueError<PostErrorKind>> {
        let posted = post(&mut self.queue);
        if matches!(posted, Err(QueueError::Full { .. })) && self.free_slots() {
            return post(&mut self.queue);
        }
        posted
    }

    /// Moves outcomes that nobody has asked for out of their slots. Whether there were any.
    #[cold]
    pub(super) fn free_slots(&mut self) -> bool {
        let mut from = 0;
        let mut any = false;
        while !self.has_many_unasked()
            && let Some(op) = self.queue.slots().next_ended(from)
        {
            from = op.index.saturating_add(1);
            if let Ok(Some(ended)) = self.take(op) {
                self.unasked.insert(op, ended);
                any = true;
            }
        }
        any
    }

    /// Whether no more outcomes are kept beside the slots.
    pub(crate) fn has_many_unasked(&self) -> bool {
        self.unasked.is_full()
    }
}
