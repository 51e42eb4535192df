//! The operations of a link: the core's work queue, whose records own the memory they use, and a word for each
//! record that waiting threads read without the link's lock.

use std::sync::Arc;

use hmc_core::queue::{QueueError, Transfer, WorkQueue};
use hmc_core::slots::{Outcome, Slot, SlotId, Stale};
use hmc_core::time::Instant;
use hmc_core::transport::PostErrorKind;
use hmc_core::work::Failure;
use hmc_mem::slot::SlotWord;

use super::stored_outcomes::StoredOutcomes;
use crate::callbacks::wakers::Notice;
use crate::io::eventfd::EventfdWaker;
use crate::link::op_resources::OpResources;
use crate::transport::data_plane::AnyDataPlane;

/// The core's work queue over a data plane.
pub(super) type Queue = WorkQueue<AnyDataPlane, Vec<Slot<OpResources>>, OpResources>;

/// Records that a link has at first. It gets more as more operations are under way: most links of many have few.
const FIRST_RECORDS: usize = 16;

/// The name of an operation, or why it was not begun.
pub(crate) type Begun = Result<SlotId, QueueError<PostErrorKind>>;

/// An operation that has ended, passed its fence, or both.
pub(super) struct OpEvent {
    /// Its outcome is known only now.
    pub(super) done: bool,
    /// It has passed its fence only now: its slot may be free.
    pub(super) fenced: bool,
    /// Its peer has ended.
    pub(super) peer_dead: bool,
    /// What it has let go of.
    pub(super) freed: OpResources,
}

pub(crate) struct OpQueue {
    pub(super) queue: Queue,
    pub(super) stored: StoredOutcomes,
    words: Arc<[SlotWord]>,
}

impl OpQueue {
    pub(super) fn new(plane: AnyDataPlane, slots: usize) -> Self {
        let mut records = Vec::new();
        append(&mut records, slots.min(FIRST_RECORDS));
        Self {
            queue: WorkQueue::new(plane, records),
            stored: StoredOutcomes::default(),
            words: std::iter::repeat_with(SlotWord::new).take(slots).collect(),
        }
    }

    /// How many operations may run at a time.
    pub(super) fn limit(&self) -> usize {
        self.words.len()
    }

    /// Doubles the records, up to the limit. Whether there are more now.
    #[cold]
    fn grow(&mut self) -> bool {
        let now = self.queue.slots().capacity();
        let more = self.limit().saturating_sub(now).min(now);
        self.queue.grow(|records| append(records, more));
        more > 0
    }

    /// One word an operation, shared with those who wait: they look at it without the lock.
    pub(super) fn words(&self) -> Arc<[SlotWord]> {
        Arc::clone(&self.words)
    }

    #[inline]
    pub(crate) fn transport(&self) -> &AnyDataPlane {
        self.queue.transport()
    }

    #[inline]
    pub(super) fn transport_mut(&mut self) -> &mut AnyDataPlane {
        self.queue.transport_mut()
    }

    /// Operations whose memory is not free yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    /// When to call [`OpQueue::expire`] next.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Instant {
        self.queue.next_deadline()
    }

    /// Ends the operations whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) {
        self.queue.expire(now);
    }

    /// The peer is gone; `fenced` says whether it can touch no memory any more.
    pub(super) fn fail_all(&mut self, fenced: bool) {
        self.queue.fail_all(Failure::PeerDead, fenced);
    }

    /// Whether transfers may wait for the transport.
    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        self.queue.has_waiting()
    }

    /// Makes progress, and while transfers wait for the transport, as much as copies by this thread make space for.
    pub(super) fn progress(&mut self) {
        let waited = self.has_waiting();
        self.queue.progress();
        if waited {
            while self.has_waiting() && self.brings() {}
            self.queue.progress();
        }
    }

    /// Brings all completions that there are.
    pub(super) fn collect(&mut self) {
        while self.brings() {}
    }

    /// Makes progress. Returns whether a completion came of an operation that there is: a transport that repeats itself has no end.
    fn brings(&mut self) -> bool {
        let before = self.queue.stale();
        let came = self.queue.progress();
        let stale = self.queue.stale().saturating_sub(before);
        u64::try_from(came).is_ok_and(|came| came > stale)
    }

    /// Posts one transfer, and takes `hold` if that was done. The transfer waits in its record if the transport is full.
    #[inline]
    pub(super) fn post(
        &mut self,
        t: &Transfer,
        deadline: Instant,
        hold: &mut OpResources,
    ) -> Begun {
        self.begin(|queue| queue.post_holding(t, deadline, hold))
    }

    /// Posts the list that `hold` has, of so many transfers, as one operation.
    pub(super) fn post_list(
        &mut self,
        parts: u32,
        deadline: Instant,
        hold: &mut OpResources,
    ) -> Begun {
        self.begin(|queue| queue.post_list(parts, deadline, hold))
    }

    /// Begins an operation; again when all slots were used, and there are more now or some of their operations have ended.
    #[inline]
    fn begin(&mut self, mut begin: impl FnMut(&mut Queue) -> Begun) -> Begun {
        let op = match begin(&mut self.queue) {
            Err(QueueError::Full { .. }) if self.grow() || self.free_slots() => {
                begin(&mut self.queue)?
            }
            begun => begun?,
        };
        if let Some(word) = self.words.get(usize::from(op.index)) {
            let armed = word.arm(op.generation);
            debug_assert!(armed, "the word of the slot's last operation was retired");
            // What has no bytes is over, and may have nobody who reads its event.
            if self.queue.test(op) == Ok(true) {
                word.finish(op.generation);
            }
        }
        Ok(op)
    }

    /// The next event. Read until there is none.
    #[inline]
    pub(super) fn next_event(&mut self) -> Option<OpEvent> {
        let event = self.queue.next_event()?;
        let op = event.op;
        let outcome = self.queue.outcome(op).ok().flatten();
        let result = outcome.map(|o| o.result);
        let fenced = event.fenced.is_some();
        if event.done
            && let Some(word) = self.words.get(usize::from(op.index))
        {
            word.finish(op.generation);
        }
        let freed = match event.fenced {
            Some(mut freed) if outcome.is_some() => {
                // The span waits for whoever takes the outcome; the rest goes now.
                if let Some(span) = freed.take_span()
                    && let Ok(hold) = self.queue.hold_mut(op)
                {
                    *hold = OpResources::span(span);
                }
                freed
            }
            Some(freed) => {
                // Nobody will take it: the slot is free with this event.
                self.free_word(op);
                freed
            }
            None => {
                OpResources::waker(self.queue.hold_mut(op).ok().and_then(|hold| hold.waker.take()))
            }
        };
        Some(OpEvent {
            done: event.done,
            fenced,
            peer_dead: result == Some(Err(Failure::PeerDead)),
            freed,
        })
    }

    /// Gives the word of an operation that has left its slot to the slot's next one.
    pub(super) fn free_word(&self, op: SlotId) {
        if let Some(word) = self.words.get(usize::from(op.index)) {
            word.finish(op.generation);
            word.free(op.generation);
        }
    }

    /// Registers who is to be woken when the operation ends. Gives back a waker to drop.
    pub(super) fn set_waker(&mut self, op: SlotId, waker: Notice) -> Option<Notice> {
        match self.queue.hold_mut(op) {
            Ok(hold) => hold.waker.replace(waker),
            Err(_) => Some(waker),
        }
    }

    /// As [`Self::set_waker`], but leaves the waker of another waiting call or of a future: `Err` gives back `waker` then.
    pub(super) fn add_waker(
        &mut self,
        op: SlotId,
        waker: Arc<EventfdWaker>,
    ) -> Result<Option<Notice>, Arc<EventfdWaker>> {
        match self.queue.hold_mut(op).ok().and_then(|hold| hold.waker.as_ref()) {
            Some(Notice::Own(other)) if !Arc::ptr_eq(other, &waker) => Err(waker),
            Some(Notice::User(_)) => Err(waker),
            _ => Ok(self.set_waker(op, Notice::Own(waker))),
        }
    }

    /// Takes off `waker`, if it was to be woken when the operation ends and that still runs.
    pub(super) fn take_waker(&mut self, op: SlotId, waker: &Arc<EventfdWaker>) -> Option<Notice> {
        self.queue.test(op).ok()?;
        let is_it = |n: &mut Notice| matches!(n, Notice::Own(own) if Arc::ptr_eq(own, waker));
        self.queue.hold_mut(op).ok()?.waker.take_if(is_it)
    }

    /// What the operations hold that have not passed their fence.
    pub(super) fn unfenced(&self) -> impl Iterator<Item = &OpResources> {
        self.queue.slots().unfenced()
    }

    /// Withdraws an operation.
    pub(super) fn cancel(&mut self, op: SlotId) -> Result<(), Stale> {
        self.queue.cancel(op).or_else(|stale| self.outcome(op).map(drop).map_err(|_| stale))
    }

    /// What became of an operation; `None` while it runs. Changes nothing.
    pub(super) fn outcome(&self, op: SlotId) -> Result<Option<Outcome>, Stale> {
        self.queue.outcome(op).or_else(|stale| self.stored.get(op).map(Some).ok_or(stale))
    }
}

/// Appends unused records.
fn append(records: &mut Vec<Slot<OpResources>>, more: usize) {
    records.reserve_exact(more);
    records.extend(std::iter::repeat_with(|| Slot::free(OpResources::default())).take(more));
}

#[cfg(test)]
mod tests;
