//! The operations of one peer, from the post until their completion is taken.
//!
//! A record is a place of this table; its number is what UCX's callbacks name. Free records, requests that wait for the
//! progress lock, puts that no flush covers yet, the puts of each flush, and what has ended are lists through the
//! records: nothing is copied from one queue to the next, and a flush of any number of puts begins in a few
//! instructions.

use hmc_core::region::{Epoch, LocalSlice, RegionKey, RemoteSlice, WindowId};
use hmc_core::slots::OpId;
use hmc_core::span::Extent;
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};

use crate::ucx::records::{FLUSHES, MAX_REQUESTS};

/// No record.
const NONE: u16 = u16::MAX;
/// Flushes under way, all of them: a bit each.
const ALL: u8 = (1 << FLUSHES) - 1;

/// What stands in a record that was never used.
const NO_WORK: WorkRequest = WorkRequest {
    op: OpId { index: 0, generation: 0 },
    opcode: Opcode::Put,
    when: CompleteWhen::Local,
    local: LocalSlice { key: RegionKey { index: 0, generation: 0 }, span: Extent::new(0).whole() },
    remote: RemoteSlice { window: WindowId(0), epoch: Epoch(0), span: Extent::new(0).whole() },
};

/// A request under way, or about to be.
#[derive(Clone, Copy, Debug)]
pub(in crate::ucx) struct Flight {
    pub(in crate::ucx) work: WorkRequest,
    /// What became of it, or will if nothing fails: all bytes moved.
    pub(in crate::ucx) result: Result<u64, Failure>,
    /// UCX gave the request back.
    pub(in crate::ucx) returned: bool,
    /// A flush that covers it has to pass first.
    pub(in crate::ucx) waits: bool,
    flies: bool,
    /// The record after it on its list.
    next: u16,
}

impl Flight {
    /// It will end with that, unless it has failed already.
    pub(in crate::ucx) fn fail(&mut self, why: Failure) {
        if self.result.is_ok() {
            self.result = Err(why);
        }
    }
}

/// Some records, the oldest first.
#[derive(Clone, Copy, Debug)]
pub(in crate::ucx) struct List {
    head: u16,
    tail: u16,
}

const EMPTY: List = List { head: NONE, tail: NONE };

/// Puts a record at the end of a list. Its own `next` is `NONE`.
#[inline]
fn append(records: &mut [Flight], list: &mut List, record: u16) {
    match records.get_mut(usize::from(list.tail)) {
        Some(last) => last.next = record,
        None => list.head = record,
    }
    list.tail = record;
}

/// Frees the first record of a list. What it was can still be read.
#[inline]
fn take<'a>(records: &'a mut [Flight], list: &mut List, free: &mut u16) -> Option<&'a Flight> {
    let record = list.head;
    let flight = records.get_mut(usize::from(record))?;
    list.head = std::mem::replace(&mut flight.next, *free);
    if list.head == NONE {
        list.tail = NONE;
    }
    *free = record;
    Some(flight)
}

impl Default for List {
    fn default() -> Self {
        EMPTY
    }
}

/// The records.
#[derive(Debug)]
pub(in crate::ucx) struct Flights {
    records: Box<[Flight]>,
    free: u16,
    /// Records of operations that have not ended.
    count: usize,
    /// Requests that UCX was not given yet.
    queued: List,
    /// Puts that want a flush which was not begun.
    unflushed: List,
    flushes: [List; FLUSHES],
    /// Which of them are under way.
    flying: u8,
    /// What has ended.
    done: List,
    /// Puts whose bytes are there and whose tags are to be sent, by the owner.
    notices: List,
    /// Bytes of payload that have moved.
    bytes: u64,
}

impl Flights {
    /// A table of [`MAX_REQUESTS`] records.
    pub(in crate::ucx) fn new() -> Self {
        let record = |next| Flight {
            work: NO_WORK,
            result: Ok(0),
            returned: false,
            waits: false,
            flies: false,
            next,
        };
        let count = u16::try_from(MAX_REQUESTS).unwrap_or(NONE);
        let after =
            |at: u16| if at.saturating_add(1) < count { at.saturating_add(1) } else { NONE };
        Self { records: (0..count).map(|at| record(after(at))).collect(), free: 0, ..Self::none() }
    }

    /// A table without records.
    pub(in crate::ucx) fn none() -> Self {
        Self {
            records: Box::default(),
            free: NONE,
            count: 0,
            queued: EMPTY,
            unflushed: EMPTY,
            flushes: [EMPTY; FLUSHES],
            flying: 0,
            done: EMPTY,
            notices: EMPTY,
            bytes: 0,
        }
    }

    /// How many operations have not ended.
    #[inline]
    pub(in crate::ucx) fn len(&self) -> usize {
        self.count
    }

    /// Bytes of payload that have moved.
    pub(in crate::ucx) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts bytes that have moved without an operation.
    #[inline]
    pub(in crate::ucx) fn count_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.wrapping_add(bytes);
    }

    /// Whether something that has ended was not taken yet.
    pub(in crate::ucx) fn has_ended(&self) -> bool {
        self.done.head != NONE || self.notices.head != NONE
    }

    /// Whether an operation has ended, and was not taken yet.
    pub(in crate::ucx) fn keeps(&self, op: OpId) -> bool {
        [self.done, self.notices].into_iter().any(|mut list| {
            std::iter::from_fn(|| self.pop(&mut list))
                .any(|r| self.records.get(usize::from(r)).is_some_and(|f| f.work.op == op))
        })
    }

    /// Whether a flush is under way.
    #[inline]
    pub(in crate::ucx) fn is_flushing(&self) -> bool {
        self.flying != 0
    }

    /// Whether puts want a flush that was not begun.
    #[inline]
    pub(in crate::ucx) fn wants_flush(&self) -> bool {
        self.unflushed.head != NONE
    }

    /// Whether one more flush may be begun.
    #[inline]
    pub(in crate::ucx) fn may_flush(&self) -> bool {
        self.flying != ALL
    }

    /// All that have not ended.
    pub(in crate::ucx) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.records.iter().filter(|f| f.flies)
    }

    /// The operation of that record, if it has not ended.
    #[inline]
    pub(in crate::ucx) fn get(&mut self, record: u16) -> Option<&mut Flight> {
        self.records.get_mut(usize::from(record)).filter(|f| f.flies)
    }

    /// Whether one more operation would find room.
    #[inline]
    pub(in crate::ucx) fn has_room(&self) -> bool {
        self.free != NONE
    }

    /// An operation that is over already. `false`: there is no room.
    #[inline]
    pub(in crate::ucx) fn enter_ended(
        &mut self,
        work: &WorkRequest,
        result: Result<u64, Failure>,
    ) -> bool {
        let Some(record) = self.occupy(work, result) else { return false };
        self.end(record);
        true
    }

    #[inline]
    fn occupy(&mut self, work: &WorkRequest, result: Result<u64, Failure>) -> Option<u16> {
        let record = self.free;
        let flight = self.records.get_mut(usize::from(record))?;
        self.free = flight.next;
        let (returned, waits, flies) = (false, false, true);
        *flight = Flight { work: *work, result, returned, waits, flies, next: NONE };
        // As many as there are records at the most.
        self.count = self.count.wrapping_add(1);
        Some(record)
    }

    /// A request is to be given to UCX. `false`: there is no room.
    #[inline]
    pub(in crate::ucx) fn enter(&mut self, work: &WorkRequest) -> bool {
        let all = Ok(work.local.span.len());
        let Some(record) = self.occupy(work, all) else { return false };
        append(&mut self.records, &mut self.queued, record);
        true
    }

    /// Whether some wait for the progress lock.
    #[inline]
    pub(in crate::ucx) fn has_queued(&self) -> bool {
        self.queued.head != NONE
    }

    /// The oldest of those, which is UCX's from now on, with its record.
    #[inline]
    pub(in crate::ucx) fn next_queued(&mut self) -> Option<(u16, &mut Flight)> {
        let record = self.queued.head;
        let flight = self.records.get_mut(usize::from(record))?;
        self.queued.head = std::mem::replace(&mut flight.next, NONE);
        if self.queued.head == NONE {
            self.queued.tail = NONE;
        }
        Some((record, flight))
    }

    /// Takes those of an operation out that wait for the progress lock. How many there were.
    pub(in crate::ucx) fn withdraw(&mut self, op: OpId) -> usize {
        let before = self.count;
        let mut rest = EMPTY;
        while let Some((record, flight)) = self.next_queued() {
            if flight.work.op == op {
                flight.flies = false;
                self.count = self.count.wrapping_sub(1);
                self.give_back(record);
            } else {
                append(&mut self.records, &mut rest, record);
            }
        }
        self.queued = rest;
        before.saturating_sub(self.count)
    }

    /// A put wants a flush.
    #[inline]
    pub(in crate::ucx) fn want_flush(&mut self, record: u16) {
        append(&mut self.records, &mut self.unflushed, record);
    }

    /// The operation is over: it waits to be taken.
    #[inline]
    pub(in crate::ucx) fn end(&mut self, record: u16) {
        let Some(flight) = self.get(record) else { return };
        (flight.flies, flight.next) = (false, NONE);
        let (result, opcode) = (flight.result, flight.work.opcode);
        self.count = self.count.wrapping_sub(1);
        self.bytes = self.bytes.wrapping_add(result.unwrap_or(0));
        // The tag of what has arrived follows, by the owner's way.
        let tagged = matches!(opcode, Opcode::PutNotify { .. }) && result.is_ok();
        let list = if tagged { &mut self.notices } else { &mut self.done };
        append(&mut self.records, list, record);
    }

    /// A flush has passed: what it covered waits for it no more, and what has come back, too, is over.
    #[inline]
    pub(in crate::ucx) fn pass(&mut self, number: u16) {
        let mut list = self.end_flush(number);
        while let Some(record) = self.pop(&mut list) {
            if let Some(flight) = self.get(record) {
                flight.waits = false;
                if flight.returned {
                    self.end(record);
                }
            }
        }
    }

    /// The record is free again.
    #[inline]
    fn give_back(&mut self, record: u16) {
        if let Some(flight) = self.records.get_mut(usize::from(record)) {
            flight.next = std::mem::replace(&mut self.free, record);
        }
    }

    /// What became of operations, each once, the oldest first. How many were written.
    #[inline]
    pub(in crate::ucx) fn take_done(&mut self, out: &mut [Completion]) -> usize {
        let mut n: usize = 0;
        for place in out {
            let Some(flight) = take(&mut self.records, &mut self.done, &mut self.free) else {
                break;
            };
            place.op = flight.work.op;
            place.result = flight.result;
            n = n.wrapping_add(1);
        }
        n
    }

    /// A put whose bytes are there and whose tag is to be sent now.
    pub(in crate::ucx) fn take_notice(&mut self) -> Option<WorkRequest> {
        let flight = take(&mut self.records, &mut self.notices, &mut self.free)?;
        Some(flight.work)
    }

    /// The oldest of a list, which may go on another one then.
    #[inline]
    pub(in crate::ucx) fn pop(&self, list: &mut List) -> Option<u16> {
        let record = list.head;
        list.head = self.records.get(usize::from(record))?.next;
        Some(record)
    }

    /// A flush of all that want one is begun: its number. `None` when too many are under way.
    #[inline]
    pub(in crate::ucx) fn begin_flush(&mut self) -> Option<u16> {
        let at = (!self.flying).trailing_zeros();
        let place = self.flushes.get_mut(usize::try_from(at).ok()?)?;
        *place = std::mem::take(&mut self.unflushed);
        self.flying |= 1 << at;
        u16::try_from(at).ok()
    }

    /// That flush is over: what it covers.
    #[inline]
    pub(in crate::ucx) fn end_flush(&mut self, number: u16) -> List {
        let Some(place) = self.flushes.get_mut(usize::from(number)) else { return EMPTY };
        self.flying &= !(1 << number);
        std::mem::take(place)
    }

    /// What that flush would have covered wants one anew.
    pub(in crate::ucx) fn fail_flush(&mut self, number: u16) {
        let mut list = self.end_flush(number);
        while let Some(record) = self.pop(&mut list) {
            if let Some(flight) = self.get(record) {
                flight.next = NONE;
            }
            self.want_flush(record);
        }
    }

    /// No flush will be begun any more: what wanted one.
    pub(in crate::ucx) fn take_unflushed(&mut self) -> List {
        std::mem::take(&mut self.unflushed)
    }
}

#[cfg(test)]
mod tests;
