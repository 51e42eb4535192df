//! The operation table: one slot an operation, on storage of the caller's.
//!
//! It knows which operations are under way, how many completions each still expects, when each
//! expires, and what became of it. It moves no byte, calls no transport and takes no lock: one
//! owner drives it ([`crate::queue::WorkQueue`]). Two facts about an operation are kept apart and must
//! never be mixed up: its outcome is *known*, and its memory is *fenced* (nothing will touch it any
//! more). A deadline makes an outcome known; only completions and fences make memory free.

mod deadline;
mod fail;
pub mod life;
mod list;

use crate::limits::MAX_SLOTS;
#[cfg(hmc_mutants)]
use crate::mutant::{self, Mutant};
use crate::slots::life::{Life, Step};
use crate::time::Instant;
pub use crate::work::OpId;
use crate::work::{Completion, Failure};

/// End of a list of slots.
const NONE: u16 = u16::MAX;
const _: () = assert!(MAX_SLOTS <= 0xFFFF, "0xFFFF ends a list and names no slot");

/// No operation of that name is under way (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The name.
    pub op: OpId,
}

impl core::fmt::Display for Stale {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let OpId { index, generation } = self.op;
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
    /// Whether the memory of the operation will not be touched any more.
    pub fenced: bool,
}

/// What a completion did to its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Others must follow before its memory is free.
    Waiting,
    /// It was the last: the memory of the operation is free.
    Fenced,
}

/// News of one operation. Each of the two facts is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotEvent {
    /// The operation.
    pub op: OpId,
    /// Its outcome is known now: wake whoever waits. Not told when it was taken or given up before.
    pub done: bool,
    /// Its memory is free now: let go of what the operation holds.
    pub fenced: bool,
}

/// One place of [`Slots`].
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Bytes moved so far, or the first failure.
    result: Result<u64, Failure>,
    deadline: Instant,
    generation: u32,
    /// Completions that the transport owes.
    posted: u32,
    /// Parts that the transport was not given yet.
    unposted: u32,
    /// The next free slot, when free.
    next_free: u16,
    /// The next slot with news, when `queued`.
    next_ready: u16,
    /// Whether it stands in the list of news. It may stand there without news of its own, left
    /// behind by an operation that was taken first.
    queued: bool,
    /// Whether the outcome must still be told.
    say_done: bool,
    life: Life,
}

impl Slot {
    /// An unused place.
    pub const FREE: Self = Self {
        result: Ok(0),
        deadline: Instant::NEVER,
        generation: 1,
        posted: 0,
        unposted: 0,
        next_free: NONE,
        next_ready: NONE,
        queued: false,
        say_done: false,
        life: Life::Free,
    };

    #[inline]
    fn outcome(&self) -> Option<Outcome> {
        let fenced = match self.life {
            Life::Draining => false,
            Life::Done | Life::Told => true,
            Life::Free | Life::Pending | Life::Orphan | Life::Retired => return None,
        };
        Some(Outcome { result: self.result, fenced })
    }

    /// The operation has failed, by `failure` unless it had failed before.
    fn blame(&mut self, failure: Failure) {
        if self.result.is_ok() {
            self.result = Err(failure);
        }
    }

    /// Whether somebody may still ask for the outcome.
    #[inline]
    fn is_owned(&self) -> bool {
        matches!(self.life, Life::Pending | Life::Draining | Life::Done | Life::Told)
    }

    /// Applies a step of which the caller knows that it is allowed; any other changes nothing.
    #[inline]
    fn go(&mut self, step: Step) -> bool {
        match self.life.step(step) {
            Ok(life) => {
                self.life = life;
                true
            }
            Err(_) => false,
        }
    }
}

/// The operations of one work queue, on storage of the caller's (at most [`MAX_SLOTS`] places are used).
///
/// Not for several threads: one owner calls. Nothing allocates; every call but [`Slots::new`],
/// [`Slots::fail_all`] and a [`Slots::next_expired`] whose bound has passed takes constant time.
#[derive(Debug)]
pub struct Slots<S> {
    entries: S,
    free: u16,
    ready_head: u16,
    ready_tail: u16,
    in_use: usize,
    in_flight: usize,
    /// No pending operation expires before this. It may be too early, never too late.
    earliest: Instant,
}

impl<S: AsRef<[Slot]> + AsMut<[Slot]>> Slots<S> {
    /// A table on `entries`, all of which are overwritten with [`Slot::FREE`].
    pub fn new(mut entries: S) -> Self {
        let all = entries.as_mut();
        all.fill(Slot::FREE);
        let used = all.len().min(MAX_SLOTS);
        for (next, slot) in (1..=NONE).zip(all.iter_mut().take(used.saturating_sub(1))) {
            slot.next_free = next;
        }
        Self {
            free: if used == 0 { NONE } else { 0 },
            entries,
            ready_head: NONE,
            ready_tail: NONE,
            in_use: 0,
            in_flight: 0,
            earliest: Instant::NEVER,
        }
    }

    /// How many operations fit.
    pub fn capacity(&self) -> usize {
        self.entries.as_ref().len().min(MAX_SLOTS)
    }

    /// Slots that are not free: under way, not yet taken, or with news not yet told.
    #[inline]
    pub const fn in_use(&self) -> usize {
        self.in_use
    }

    /// Operations whose memory is not free yet.
    #[inline]
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Begins an operation of which the transport owes `parts` completions. It expires at
    /// `deadline`. With no parts it is done at once.
    ///
    /// # Errors
    /// [`Full`] when no slot is free.
    #[inline]
    pub fn acquire(&mut self, deadline: Instant, parts: u32) -> Result<OpId, Full> {
        self.begin(deadline, parts, 0)
    }

    /// Begins an operation of `parts` completions of which the transport was given none yet; see
    /// [`Slots::mark_posted`]. With no parts it is done at once.
    ///
    /// # Errors
    /// [`Full`] when no slot is free.
    pub fn acquire_unposted(&mut self, deadline: Instant, parts: u32) -> Result<OpId, Full> {
        self.begin(deadline, 0, parts)
    }

    /// An operation that has moved `bytes` and is over already: only its outcome is to be taken.
    ///
    /// # Errors
    /// [`Full`] when no slot is free.
    #[inline]
    pub fn record(&mut self, bytes: u64) -> Result<OpId, Full> {
        let op = self.begin(Instant::NEVER, 0, 0)?;
        if let Ok(slot) = self.slot_mut(op) {
            slot.result = Ok(bytes);
        }
        Ok(op)
    }

    #[inline]
    fn begin(&mut self, deadline: Instant, posted: u32, unposted: u32) -> Result<OpId, Full> {
        let Some((index, slot)) = self.pop_free() else {
            return Err(Full { limit: self.capacity() });
        };
        slot.go(Step::Begin);
        slot.result = Ok(0);
        slot.deadline = deadline;
        slot.posted = posted;
        slot.unposted = unposted;
        let op = OpId { index, generation: slot.generation };
        // Neither count can wrap: each slot counts once.
        self.in_flight = self.in_flight.wrapping_add(1);
        self.earliest = self.earliest.min(deadline);
        if posted == 0 && unposted == 0 {
            self.fence_at(index);
        }
        Ok(op)
    }

    #[inline]
    fn slot(&self, op: OpId) -> Result<&Slot, Stale> {
        match self.entries.as_ref().get(usize::from(op.index)) {
            Some(slot) if slot.generation == op.generation => Ok(slot),
            _ => Err(Stale { op }),
        }
    }

    #[inline]
    fn slot_mut(&mut self, op: OpId) -> Result<&mut Slot, Stale> {
        match self.entries.as_mut().get_mut(usize::from(op.index)) {
            Some(slot) if slot.generation == op.generation => Ok(slot),
            _ => Err(Stale { op }),
        }
    }

    /// The slot of an operation whose outcome somebody may still ask for.
    #[inline]
    fn owned(&self, op: OpId) -> Result<&Slot, Stale> {
        self.slot(op).and_then(|slot| if slot.is_owned() { Ok(slot) } else { Err(Stale { op }) })
    }

    /// Forgets an operation that the transport refused: it never was, and nothing is told of it.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation or it is not pending any more.
    pub fn give_back(&mut self, op: OpId) -> Result<(), Stale> {
        let slot = self.slot_mut(op)?;
        if !slot.go(Step::Refuse) {
            return Err(Stale { op });
        }
        slot.posted = 0;
        slot.unposted = 0;
        self.count_fence();
        self.push_free(op.index);
        Ok(())
    }

    /// The transport was given `parts` more parts of an operation from [`Slots::acquire_unposted`].
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation, or fewer parts were left; nothing changed.
    pub fn mark_posted(&mut self, op: OpId, parts: u32) -> Result<(), Stale> {
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

    /// Parts that the transport was not given yet, and completions that it owes.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation.
    pub fn parts(&self, op: OpId) -> Result<(u32, u32), Stale> {
        self.slot(op).map(|slot| (slot.unposted, slot.posted))
    }

    /// One completion arrived. Bytes are summed (saturating); the first failure stays.
    ///
    /// # Errors
    /// [`Stale`] when no completion is owed under that name: it is late or came twice. (A completion
    /// that comes twice within an operation of several parts cannot be told from another part.)
    #[inline]
    pub fn complete(&mut self, op: OpId, result: Result<u64, Failure>) -> Result<Progress, Stale> {
        self.bring(&Completion { op, result })
    }

    /// As [`Slots::complete`].
    #[inline]
    pub(crate) fn bring(&mut self, done: &Completion) -> Result<Progress, Stale> {
        let op = done.op;
        #[cfg(hmc_mutants)]
        let op = match self.entries.as_ref().get(usize::from(op.index)) {
            Some(slot) if mutant::is(Mutant::SkipGeneration) => {
                OpId { generation: slot.generation, ..op }
            }
            _ => op,
        };
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
        #[cfg(hmc_mutants)]
        let left = if mutant::is(Mutant::BatchForgetsPart) { left.saturating_sub(1) } else { left };
        if left != 0 || slot.unposted != 0 {
            slot.go(Step::Part);
            return Ok(Progress::Waiting);
        }
        self.fence_at(op.index);
        Ok(Progress::Fenced)
    }

    /// Fences the operation when nothing is outstanding.
    fn settle(&mut self, index: u16) -> Progress {
        match self.entries.as_ref().get(usize::from(index)) {
            Some(slot) if slot.posted != 0 || slot.unposted != 0 => Progress::Waiting,
            _ => {
                self.fence_at(index);
                Progress::Fenced
            }
        }
    }

    #[inline]
    fn fence_at(&mut self, index: u16) {
        let Some(slot) = self.entries.as_mut().get_mut(usize::from(index)) else {
            return;
        };
        let pending = matches!(slot.life, Life::Pending);
        if !slot.go(Step::Fence) {
            return;
        }
        slot.say_done |= pending;
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
    pub fn outcome(&self, op: OpId) -> Result<Option<Outcome>, Stale> {
        self.owned(op).map(Slot::outcome)
    }

    /// Takes the outcome once it is known; the name is stale then. When the outcome says `fenced`,
    /// the slot is free again and nothing more is told of the operation. Else a [`SlotEvent`] with
    /// `fenced` follows.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation or nobody may ask for it.
    #[inline]
    pub fn take(&mut self, op: OpId) -> Result<Option<Outcome>, Stale> {
        let slot = self.slot_mut(op)?;
        if !slot.is_owned() {
            return Err(Stale { op });
        }
        let outcome = slot.outcome();
        if outcome.is_some() {
            self.leave(op.index, Step::Take);
        }
        Ok(outcome)
    }

    /// Nobody will ask for the outcome; the name is stale now for all but the transport. Parts not
    /// posted will never be. The slot is free again once a [`SlotEvent`] with `fenced` was told, so
    /// whoever abandons must go on to call [`Slots::next_event`].
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation or nobody may ask for it.
    pub fn abandon(&mut self, op: OpId) -> Result<(), Stale> {
        self.owned(op)?;
        self.leave(op.index, Step::Abandon);
        Ok(())
    }

    #[inline]
    fn leave(&mut self, index: u16, step: Step) {
        let Some(slot) = self.entries.as_mut().get_mut(usize::from(index)) else {
            return;
        };
        slot.go(step);
        slot.say_done = false;
        match slot.life {
            Life::Free => {
                // Most often it is the only one with news.
                if self.ready_head == index {
                    self.pop_ready();
                }
                self.push_free(index);
            }
            Life::Orphan => {
                slot.unposted = 0;
                self.settle(index);
            }
            Life::Pending | Life::Draining | Life::Done | Life::Told | Life::Retired => {}
        }
    }

    /// The next piece of news, in the order in which things happened.
    pub fn next_event(&mut self) -> Option<SlotEvent> {
        // Ends: each turn takes one slot off the list.
        loop {
            let (index, slot) = self.pop_ready()?;
            let op = OpId { index, generation: slot.generation };
            let done = core::mem::take(&mut slot.say_done);
            let fenced = matches!(slot.life, Life::Done | Life::Retired);
            if done || fenced {
                slot.go(Step::Tell);
                if matches!(slot.life, Life::Free) {
                    self.push_free(index);
                }
                return Some(SlotEvent { op, done, fenced });
            }
        }
    }
}
