//! The operation table: one record for each operation, on the caller's storage.
//!
//! It records which operations are in flight, the number of completions that each still expects, its deadline, its
//! outcome, and what it owns until its fence. It moves no byte, calls no transport and takes no lock: one owner
//! drives it ([`crate::queue::WorkQueue`]). Two facts about an operation are separate: its outcome is *known*, and
//! its memory is *fenced* (nothing can access it). A deadline makes an outcome known; only completions and fences
//! free memory.

mod deadline;
mod fail;
mod leave;
mod list;
pub mod state;

use core::marker::PhantomData;

use crate::limits::MAX_SLOTS;
use crate::slots::state::{SlotState, SlotTransition};
use crate::time::Instant;
pub use crate::work::SlotId;
use crate::work::{Completion, Failure};

/// End of a list of slots.
const NONE: u16 = u16::MAX;
const _: () = assert!(MAX_SLOTS <= 0xFFFF, "0xFFFF ends a list and names no slot");

/// No operation with that id is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The name.
    pub op: SlotId,
}

impl core::fmt::Display for Stale {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let SlotId { index, generation } = self.op;
        write!(f, "operation {index}.{generation} is over: it was waited for, or given up")
    }
}

impl core::error::Error for Stale {}

/// All slots are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// How many there are.
    pub limit: usize,
}

impl core::fmt::Display for Full {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "all {} operations of this work queue are in use; wait for one first", self.limit)
    }
}

impl core::error::Error for Full {}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes moved, or the first failure.
    pub result: Result<u64, Failure>,
    /// `true` if nothing can access the memory of the operation.
    pub fenced: bool,
}

/// What a completion did to its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionEffect {
    /// Other completions must follow before its memory is free.
    Waiting,
    /// It was the last: the memory of the operation is free.
    Fenced,
}

/// An event of one operation. Each of the two facts is reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotEvent<X = ()> {
    /// The operation.
    pub op: SlotId,
    /// Its outcome is known now: wake the waiters. Not reported if it was taken or abandoned before.
    pub done: bool,
    /// Its memory is free now: here is what the operation held.
    pub fenced: Option<X>,
}

/// The record of one operation, an entry of [`Slots`]: its state, and in `X` what it holds until its fence.
#[derive(Clone, Copy, Debug)]
pub struct Slot<X = ()> {
    /// Bytes moved so far, or the first failure.
    result: Result<u64, Failure>,
    deadline: Instant,
    generation: u32,
    /// Completions that are due from the transport.
    posted: u32,
    /// Parts that the transport was not given yet.
    unposted: u32,
    /// The next free slot, when free.
    next_free: u16,
    /// The next slot with an event, if `queued`.
    next_ready: u16,
    /// The next slot in the list of those with parts to be posted, if `waiting`.
    next_waiting: u16,
    /// Whether it is in the list of events. It may be there without an event of its own, left
    /// behind by an operation that was taken first.
    queued: bool,
    /// Whether it is in the list of those with parts to be posted. It may be there without any, left behind by an operation
    /// that ended first.
    waiting: bool,
    /// Whether the outcome must still be reported.
    report_done: bool,
    state: SlotState,
    hold: X,
}

impl Slot {
    /// An unused entry for operations that hold nothing.
    pub const FREE: Self = Self::free(());
}

impl<X> Slot<X> {
    /// An unused entry.
    pub const fn free(hold: X) -> Self {
        Self {
            result: Ok(0),
            deadline: Instant::NEVER,
            generation: 1,
            posted: 0,
            unposted: 0,
            next_free: NONE,
            next_ready: NONE,
            next_waiting: NONE,
            queued: false,
            waiting: false,
            report_done: false,
            state: SlotState::Free,
            hold,
        }
    }

    #[inline]
    fn outcome(&self) -> Option<Outcome> {
        let fenced = match self.state {
            SlotState::Draining => false,
            SlotState::Done | SlotState::Reported => true,
            SlotState::Free
            | SlotState::Pending
            | SlotState::Abandoned
            | SlotState::AbandonedDone => return None,
        };
        Some(Outcome { result: self.result, fenced })
    }

    /// The operation has failed, by `failure` unless it had failed before.
    fn set_failure(&mut self, failure: Failure) {
        if self.result.is_ok() {
            self.result = Err(failure);
        }
    }

    /// Whether somebody may still ask for the outcome.
    #[inline]
    fn is_owned(&self) -> bool {
        matches!(
            self.state,
            SlotState::Pending | SlotState::Draining | SlotState::Done | SlotState::Reported
        )
    }

    /// Applies a transition that the caller knows to be allowed; any other changes nothing.
    #[inline]
    fn apply(&mut self, transition: SlotTransition) -> bool {
        match self.state.next(transition) {
            Ok(state) => {
                self.state = state;
                true
            }
            Err(_) => false,
        }
    }
}

/// The operations of one work queue, on storage of the caller's (at most [`MAX_SLOTS`] places are used).
///
/// Not for several threads: one owner calls. Nothing allocates but the `extend` of [`Slots::grow`]. Every call but [`Slots::new`],
/// [`Slots::grow`], [`Slots::fail_all`] and a [`Slots::next_expired`] whose bound has passed takes constant time.
#[derive(Debug)]
pub struct Slots<S, X = ()> {
    entries: S,
    holds: PhantomData<fn() -> X>,
    free: u16,
    ready_head: u16,
    ready_tail: u16,
    waiting_head: u16,
    waiting_tail: u16,
    in_use: usize,
    in_flight: usize,
    /// No pending operation expires before this. It may be too early, never too late.
    earliest: Instant,
}

impl<X: Default, S: AsRef<[Slot<X>]> + AsMut<[Slot<X>]>> Slots<S, X> {
    /// A table on `entries`, all of which are overwritten with unused ones.
    pub fn new(entries: S) -> Self {
        let mut table = Self {
            free: NONE,
            entries,
            holds: PhantomData,
            ready_head: NONE,
            ready_tail: NONE,
            waiting_head: NONE,
            waiting_tail: NONE,
            in_use: 0,
            in_flight: 0,
            earliest: Instant::NEVER,
        };
        table.free_from(0);
        table
    }

    /// Has `extend` append entries to the storage, which are overwritten with unused ones. The operations stay as they are.
    pub fn grow(&mut self, extend: impl FnOnce(&mut S)) {
        let before = self.capacity();
        extend(&mut self.entries);
        self.free_from(before);
    }

    /// Overwrites the entries from `first` on with unused ones, and puts them before the free ones.
    fn free_from(&mut self, first: usize) {
        let used = self.capacity();
        let Ok(mut next) = u16::try_from(first) else { return };
        let Some(new) = self.entries.as_mut().get_mut(first..used) else { return };
        let lowest = next;
        for slot in new.iter_mut() {
            // Cannot wrap: `NONE` is larger than any index.
            next = next.wrapping_add(1);
            *slot = Slot { next_free: next, ..Slot::free(X::default()) };
        }
        if let Some(last) = new.last_mut() {
            last.next_free = core::mem::replace(&mut self.free, lowest);
        }
    }

    /// How many operations fit.
    pub fn capacity(&self) -> usize {
        self.entries.as_ref().len().min(MAX_SLOTS)
    }

    /// Slots that are not free: in flight, not yet taken, or with an event not yet reported.
    #[inline]
    pub const fn in_use(&self) -> usize {
        self.in_use
    }

    /// Operations whose memory is not free yet.
    #[inline]
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Begins an operation of which `parts` completions are due from the transport. It expires at
    /// `deadline`. With no parts it is done at once.
    ///
    /// # Errors
    /// [`Full`] when no slot is free.
    #[inline]
    pub fn acquire(&mut self, deadline: Instant, parts: u32) -> Result<SlotId, Full> {
        self.begin(deadline, parts, 0)
    }

    /// Begins an operation of `parts` completions of which the transport was given none yet; see
    /// [`Slots::mark_posted`]. With no parts it is done at once.
    ///
    /// # Errors
    /// [`Full`] when no slot is free.
    pub fn acquire_unposted(&mut self, deadline: Instant, parts: u32) -> Result<SlotId, Full> {
        self.begin(deadline, 0, parts)
    }

    #[inline]
    fn begin(&mut self, deadline: Instant, posted: u32, unposted: u32) -> Result<SlotId, Full> {
        let Some((index, slot)) = self.pop_free() else {
            return Err(Full { limit: self.capacity() });
        };
        slot.apply(SlotTransition::Begin);
        slot.result = Ok(0);
        slot.deadline = deadline;
        slot.posted = posted;
        slot.unposted = unposted;
        let op = SlotId { index, generation: slot.generation };
        // Neither count can wrap: each slot counts once.
        self.in_flight = self.in_flight.wrapping_add(1);
        self.earliest = self.earliest.min(deadline);
        if posted == 0 && unposted == 0 {
            self.fence_at(index);
        }
        Ok(op)
    }

    #[inline]
    fn slot(&self, op: SlotId) -> Result<&Slot<X>, Stale> {
        match self.entries.as_ref().get(usize::from(op.index)) {
            Some(slot) if slot.generation == op.generation => Ok(slot),
            _ => Err(Stale { op }),
        }
    }

    #[inline]
    fn slot_mut(&mut self, op: SlotId) -> Result<&mut Slot<X>, Stale> {
        match self.entries.as_mut().get_mut(usize::from(op.index)) {
            Some(slot) if slot.generation == op.generation => Ok(slot),
            _ => Err(Stale { op }),
        }
    }

    /// The slot of an operation whose outcome somebody may still ask for.
    #[inline]
    fn owned(&self, op: SlotId) -> Result<&Slot<X>, Stale> {
        self.slot(op).and_then(|slot| if slot.is_owned() { Ok(slot) } else { Err(Stale { op }) })
    }

    /// What an operation holds.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation.
    #[inline]
    pub fn hold(&self, op: SlotId) -> Result<&X, Stale> {
        self.slot(op).map(|slot| &slot.hold)
    }

    /// What an operation holds, to be changed.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation.
    #[inline]
    pub fn hold_mut(&mut self, op: SlotId) -> Result<&mut X, Stale> {
        self.slot_mut(op).map(|slot| &mut slot.hold)
    }

    /// What the operations hold whose memory is not free, in no order.
    pub fn unfenced(&self) -> impl Iterator<Item = &X> {
        let is_unfenced = |slot: &&Slot<X>| {
            matches!(slot.state, SlotState::Pending | SlotState::Draining | SlotState::Abandoned)
        };
        self.entries.as_ref().iter().filter(is_unfenced).map(|slot| &slot.hold)
    }

    /// Removes an operation that the transport rejected: no event follows. Returns what it held.
    ///
    /// # Errors
    /// [`Stale`] if there is no such operation or it is no longer pending.
    pub fn unpost(&mut self, op: SlotId) -> Result<X, Stale> {
        let slot = self.slot_mut(op)?;
        if !slot.apply(SlotTransition::Reject) {
            return Err(Stale { op });
        }
        slot.posted = 0;
        slot.unposted = 0;
        let held = core::mem::take(&mut slot.hold);
        self.count_fence();
        self.push_free(op.index);
        Ok(held)
    }

    /// The transport was given `parts` more parts of an operation from [`Slots::acquire_unposted`].
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation, or fewer parts were left; nothing changed.
    pub fn mark_posted(&mut self, op: SlotId, parts: u32) -> Result<(), Stale> {
        let slot = self.slot_mut(op)?;
        let (Some(left), Some(posted)) =
            (slot.unposted.checked_sub(parts), slot.posted.checked_add(parts))
        else {
            return Err(Stale { op });
        };
        slot.unposted = left;
        slot.posted = posted;
        Ok(())
    }

    /// Parts that the transport was not given yet, and completions that are due from it.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation.
    pub fn parts(&self, op: SlotId) -> Result<(u32, u32), Stale> {
        self.slot(op).map(|slot| (slot.unposted, slot.posted))
    }

    /// Whether a part of an operation has failed.
    #[must_use]
    pub fn has_failed(&self, op: SlotId) -> bool {
        self.slot(op).is_ok_and(|slot| slot.result.is_err())
    }

    /// One completion arrived. Bytes are summed (saturating); the first failure stays.
    ///
    /// # Errors
    /// [`Stale`] when no completion is due under that name: it is late or came twice. (A completion
    /// that comes twice within an operation of several parts cannot be told from another part.)
    #[inline]
    pub fn complete(
        &mut self,
        op: SlotId,
        result: Result<u64, Failure>,
    ) -> Result<CompletionEffect, Stale> {
        self.complete_one(&Completion { op, result })
    }

    /// As [`Slots::complete`].
    #[inline]
    pub(crate) fn complete_one(&mut self, done: &Completion) -> Result<CompletionEffect, Stale> {
        let op = done.op;
        let slot = self.slot_mut(op)?;
        let Some(left) = slot.posted.checked_sub(1) else {
            return Err(Stale { op });
        };
        slot.posted = left;
        match (&mut slot.result, &done.result) {
            (Ok(sum), Ok(bytes)) => *sum = sum.saturating_add(*bytes),
            (Ok(_), Err(failure)) => slot.result = Err(*failure),
            (Err(_), _) => {}
        }
        if left != 0 || slot.unposted != 0 {
            slot.apply(SlotTransition::Partial);
            return Ok(CompletionEffect::Waiting);
        }
        self.fence_at(op.index);
        Ok(CompletionEffect::Fenced)
    }

    /// Fences the operation when nothing is outstanding.
    fn finish_if_done(&mut self, index: u16) -> CompletionEffect {
        match self.entries.as_ref().get(usize::from(index)) {
            Some(slot) if slot.posted != 0 || slot.unposted != 0 => CompletionEffect::Waiting,
            _ => {
                self.fence_at(index);
                CompletionEffect::Fenced
            }
        }
    }

    #[inline]
    fn fence_at(&mut self, index: u16) {
        let Some(slot) = self.entries.as_mut().get_mut(usize::from(index)) else {
            return;
        };
        let pending = matches!(slot.state, SlotState::Pending);
        if !slot.apply(SlotTransition::Fence) {
            return;
        }
        slot.report_done |= pending;
        self.count_fence();
        self.push_ready(index);
    }

    #[inline]
    fn count_fence(&mut self) {
        // Cannot wrap: the operation was counted when it began.
        self.in_flight = self.in_flight.wrapping_sub(1);
        if self.in_flight == 0 {
            self.earliest = Instant::NEVER;
        }
    }

    /// What became of an operation; `None` while it is not known. Changes nothing.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation or nobody may ask for it.
    #[inline]
    pub fn outcome(&self, op: SlotId) -> Result<Option<Outcome>, Stale> {
        self.owned(op).map(Slot::outcome)
    }
}
