//! Ends of an operation other than its completions: cancel, deadline, failure of the transport.

use crate::slots::state::{SlotState, SlotTransition};
use crate::slots::{CompletionEffect, NONE, Slot, Slots, Stale};
use crate::work::{Failure, SlotId};

impl<X: Default, S: AsRef<[Slot<X>]> + AsMut<[Slot<X>]>> Slots<S, X> {
    /// `parts` parts will never be posted; with a `failure`, the operation has failed by it unless it
    /// had failed before. Parts known to be unposted are struck first.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation, its memory is free, or fewer parts are left.
    pub fn reduce(
        &mut self,
        op: SlotId,
        parts: u32,
        failure: Option<Failure>,
    ) -> Result<CompletionEffect, Stale> {
        let slot = self.slot_mut(op)?;
        let from_unposted = parts.min(slot.unposted);
        let from_posted = parts.saturating_sub(from_unposted);
        let (true, Some(posted)) =
            (slot.state.next(SlotTransition::Fence).is_ok(), slot.posted.checked_sub(from_posted))
        else {
            return Err(Stale { op });
        };
        slot.unposted = slot.unposted.saturating_sub(from_unposted);
        slot.posted = posted;
        if let Some(failure) = failure {
            slot.set_failure(failure);
        }
        Ok(self.finish_if_done(op.index))
    }

    /// The operation fails now, whatever is outstanding; parts not posted will never be. Its memory
    /// is free only when the completions due have arrived, or [`Slots::fence`] was called.
    /// An operation that failed or ended before keeps its outcome.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation or nobody waits for it.
    pub fn fail(&mut self, op: SlotId, failure: Failure) -> Result<CompletionEffect, Stale> {
        self.owned(op)?;
        Ok(self.fail_at(op.index, failure))
    }

    fn fail_at(&mut self, index: u16, failure: Failure) -> CompletionEffect {
        let Some(slot) = self.entries.as_mut().get_mut(usize::from(index)) else {
            return CompletionEffect::Fenced;
        };
        let pending = matches!(slot.state, SlotState::Pending);
        if slot.apply(SlotTransition::Fail) && pending {
            slot.set_failure(failure);
            slot.unposted = 0;
            slot.report_done = true;
            if slot.posted != 0 {
                self.push_ready(index);
            }
        }
        self.finish_if_done(index)
    }

    /// No completion will follow for this operation, and nothing accesses its memory.
    /// An operation that was pending fails with `failure`.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation.
    pub fn fence(&mut self, op: SlotId, failure: Failure) -> Result<(), Stale> {
        self.slot(op)?;
        self.fence_failed(op.index, failure);
        Ok(())
    }

    fn fence_failed(&mut self, index: u16, failure: Failure) {
        let Some(slot) = self.entries.as_mut().get_mut(usize::from(index)) else {
            return;
        };
        if matches!(slot.state, SlotState::Pending | SlotState::Draining | SlotState::Abandoned) {
            slot.set_failure(failure);
            slot.posted = 0;
            slot.unposted = 0;
            self.fence_at(index);
        }
    }

    /// The peer is gone: every operation under way fails, and with `fenced` its memory is free too.
    pub fn fail_all(&mut self, failure: Failure, fenced: bool) {
        for index in (0..NONE).take(self.capacity()) {
            if fenced {
                self.fence_failed(index, failure);
            } else {
                self.fail_at(index, failure);
            }
        }
    }
}
