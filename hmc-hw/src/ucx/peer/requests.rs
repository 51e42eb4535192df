//! Table of one peer's requests, from the post until their completion is taken.
//!
//! A record is an entry of this table, and UCX's callbacks name its index. Free records, requests that wait for the
//! progress lock, puts that no flush covers yet, the puts of each flush, and finished requests are linked lists of
//! records: nothing is copied from one list to the next, and a flush of any number of puts begins in a few
//! instructions.

use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalSlice, RegionKey, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};

use crate::ucx::records::{FLUSHES, MAX_REQUESTS};

/// No record.
const NONE: u16 = u16::MAX;
/// A bit for each flush, all of them in flight.
const ALL: u8 = (1 << FLUSHES) - 1;

/// The request of a record that was never used.
const NO_WORK: WorkRequest = WorkRequest {
    op: SlotId { index: 0, generation: 0 },
    opcode: Opcode::Put,
    when: CompleteWhen::Local,
    local: LocalSlice { key: RegionKey { index: 0, generation: 0 }, span: Extent::new(0).whole() },
    remote: WindowSlice {
        window: WindowId(0),
        epoch: Epoch(0),
        span: Extent::new(0).whole(),
        expected: None,
    },
};

/// A request that is queued, in flight or finished.
#[derive(Clone, Copy, Debug)]
pub(in crate::ucx) struct Request {
    pub(in crate::ucx) work: WorkRequest,
    /// Its result, or the result that it will have if nothing fails: all bytes moved.
    pub(in crate::ucx) result: Result<u64, Failure>,
    /// UCX has completed the request.
    pub(in crate::ucx) request_done: bool,
    /// A flush that covers it has to complete first.
    pub(in crate::ucx) needs_flush: bool,
    in_use: bool,
    /// The record after it in its list.
    next: u16,
}

impl Request {
    /// Sets its failure, unless it has failed already.
    pub(in crate::ucx) fn fail(&mut self, why: Failure) {
        if self.result.is_ok() {
            self.result = Err(why);
        }
    }
}

/// A list of records, the oldest first.
#[derive(Clone, Copy, Debug)]
pub(in crate::ucx) struct RequestList {
    head: u16,
    tail: u16,
}

const EMPTY: RequestList = RequestList { head: NONE, tail: NONE };

/// Appends a record to a list. Its own `next` is `NONE`.
#[inline]
fn append(records: &mut [Request], list: &mut RequestList, record: u16) {
    match records.get_mut(usize::from(list.tail)) {
        Some(last) => last.next = record,
        None => list.head = record,
    }
    list.tail = record;
}

/// Frees the first record of a list. The caller may still read it.
#[inline]
fn take<'a>(
    records: &'a mut [Request],
    list: &mut RequestList,
    free: &mut u16,
) -> Option<&'a Request> {
    let record = list.head;
    let request = records.get_mut(usize::from(record))?;
    list.head = std::mem::replace(&mut request.next, *free);
    if list.head == NONE {
        list.tail = NONE;
    }
    *free = record;
    Some(request)
}

impl Default for RequestList {
    fn default() -> Self {
        EMPTY
    }
}

/// The requests of one peer.
#[derive(Debug)]
pub(in crate::ucx) struct RequestTable {
    records: Box<[Request]>,
    free: u16,
    /// Requests that are not finished.
    count: usize,
    /// Requests that were not submitted to UCX yet.
    queued: RequestList,
    /// Puts that need a flush that was not begun.
    unflushed: RequestList,
    flushes: [RequestList; FLUSHES],
    /// A bit for each of them that is in flight.
    flushing: u8,
    /// Finished requests.
    done: RequestList,
    /// Finished puts whose tags the owner has to send.
    notifies: RequestList,
    /// Bytes of payload that have moved.
    bytes: u64,
}

impl RequestTable {
    /// A table of [`MAX_REQUESTS`] records.
    pub(in crate::ucx) fn new() -> Self {
        let record = |next| Request {
            work: NO_WORK,
            result: Ok(0),
            request_done: false,
            needs_flush: false,
            in_use: false,
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
            flushing: 0,
            done: EMPTY,
            notifies: EMPTY,
            bytes: 0,
        }
    }

    /// Returns the number of requests that are not finished.
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

    /// Returns `true` if a finished request was not taken yet.
    pub(in crate::ucx) fn has_any_done(&self) -> bool {
        self.done.head != NONE || self.notifies.head != NONE
    }

    /// Returns `true` if a request of that operation is finished and was not taken yet.
    pub(in crate::ucx) fn has_done(&self, op: SlotId) -> bool {
        [self.done, self.notifies].into_iter().any(|mut list| {
            std::iter::from_fn(|| self.pop(&mut list))
                .any(|r| self.records.get(usize::from(r)).is_some_and(|f| f.work.op == op))
        })
    }

    /// Returns `true` if a flush is in flight.
    #[inline]
    pub(in crate::ucx) fn is_flushing(&self) -> bool {
        self.flushing != 0
    }

    /// Returns `true` if puts need a flush that was not begun.
    #[inline]
    pub(in crate::ucx) fn needs_flush(&self) -> bool {
        self.unflushed.head != NONE
    }

    /// Returns `true` if one more flush may be begun.
    #[inline]
    pub(in crate::ucx) fn may_flush(&self) -> bool {
        self.flushing != ALL
    }

    /// Iterates over the requests that are not finished.
    pub(in crate::ucx) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.records.iter().filter(|f| f.in_use)
    }

    /// Returns the request of that record, if it is not finished.
    #[inline]
    pub(in crate::ucx) fn get(&mut self, record: u16) -> Option<&mut Request> {
        self.records.get_mut(usize::from(record)).filter(|f| f.in_use)
    }

    /// Returns `true` if a record is free.
    #[inline]
    pub(in crate::ucx) fn has_free_record(&self) -> bool {
        self.free != NONE
    }

    /// Inserts a finished request. Returns `false` if no record is free.
    #[inline]
    pub(in crate::ucx) fn insert_done(
        &mut self,
        work: &WorkRequest,
        result: Result<u64, Failure>,
    ) -> bool {
        let Some(record) = self.occupy(work, result) else { return false };
        self.finish(record);
        true
    }

    #[inline]
    fn occupy(&mut self, work: &WorkRequest, result: Result<u64, Failure>) -> Option<u16> {
        let record = self.free;
        let request = self.records.get_mut(usize::from(record))?;
        self.free = request.next;
        let (request_done, needs_flush, in_use) = (false, false, true);
        *request = Request { work: *work, result, request_done, needs_flush, in_use, next: NONE };
        // At most the number of records.
        self.count = self.count.wrapping_add(1);
        Some(record)
    }

    /// Inserts a request that is to be submitted to UCX. Returns `false` if no record is free.
    #[inline]
    pub(in crate::ucx) fn insert(&mut self, work: &WorkRequest) -> bool {
        let all = Ok(work.local.span.len());
        let Some(record) = self.occupy(work, all) else { return false };
        append(&mut self.records, &mut self.queued, record);
        true
    }

    /// Returns `true` if requests wait for the progress lock.
    #[inline]
    pub(in crate::ucx) fn has_queued(&self) -> bool {
        self.queued.head != NONE
    }

    /// Takes the oldest request that waits for the progress lock, with its record.
    #[inline]
    pub(in crate::ucx) fn next_queued(&mut self) -> Option<(u16, &mut Request)> {
        let record = self.queued.head;
        let request = self.records.get_mut(usize::from(record))?;
        self.queued.head = std::mem::replace(&mut request.next, NONE);
        if self.queued.head == NONE {
            self.queued.tail = NONE;
        }
        Some((record, request))
    }

    /// Removes the requests of an operation that wait for the progress lock. Returns their number.
    pub(in crate::ucx) fn cancel_queued(&mut self, op: SlotId) -> usize {
        let before = self.count;
        let mut rest = EMPTY;
        while let Some((record, request)) = self.next_queued() {
            if request.work.op == op {
                request.in_use = false;
                self.count = self.count.wrapping_sub(1);
                self.free_record(record);
            } else {
                append(&mut self.records, &mut rest, record);
            }
        }
        self.queued = rest;
        before.saturating_sub(self.count)
    }

    /// Queues a put for the next flush.
    #[inline]
    pub(in crate::ucx) fn queue_for_flush(&mut self, record: u16) {
        append(&mut self.records, &mut self.unflushed, record);
    }

    /// Finishes a request, which is taken later.
    #[inline]
    pub(in crate::ucx) fn finish(&mut self, record: u16) {
        let Some(request) = self.get(record) else { return };
        (request.in_use, request.next) = (false, NONE);
        let (result, opcode) = (request.result, request.work.opcode);
        self.count = self.count.wrapping_sub(1);
        self.bytes = self.bytes.wrapping_add(result.unwrap_or(0));
        // The owner sends the tag after the bytes have arrived.
        let tagged = matches!(opcode, Opcode::PutNotify { .. }) && result.is_ok();
        let list = if tagged { &mut self.notifies } else { &mut self.done };
        append(&mut self.records, list, record);
    }

    /// Completes a flush: finishes the puts that it covered and that UCX has completed.
    #[inline]
    pub(in crate::ucx) fn complete_flush(&mut self, number: u16) {
        let mut list = self.end_flush(number);
        while let Some(record) = self.pop(&mut list) {
            if let Some(request) = self.get(record) {
                request.needs_flush = false;
                if request.request_done {
                    self.finish(record);
                }
            }
        }
    }

    /// Frees a record.
    #[inline]
    fn free_record(&mut self, record: u16) {
        if let Some(request) = self.records.get_mut(usize::from(record)) {
            request.next = std::mem::replace(&mut self.free, record);
        }
    }

    /// Takes finished requests, the oldest first. Returns how many were written to `out`.
    #[inline]
    pub(in crate::ucx) fn take_done(&mut self, out: &mut [Completion]) -> usize {
        let mut n: usize = 0;
        for slot in out {
            let Some(request) = take(&mut self.records, &mut self.done, &mut self.free) else {
                break;
            };
            slot.op = request.work.op;
            slot.result = request.result;
            n = n.wrapping_add(1);
        }
        n
    }

    /// Takes a finished put whose tag is to be sent now.
    pub(in crate::ucx) fn take_notify(&mut self) -> Option<WorkRequest> {
        let request = take(&mut self.records, &mut self.notifies, &mut self.free)?;
        Some(request.work)
    }

    /// Removes the oldest of a list. The caller may append it to another one.
    #[inline]
    pub(in crate::ucx) fn pop(&self, list: &mut RequestList) -> Option<u16> {
        let record = list.head;
        list.head = self.records.get(usize::from(record))?.next;
        Some(record)
    }

    /// Begins a flush of all puts that need one and returns its number. Returns `None` if too many are in flight.
    #[inline]
    pub(in crate::ucx) fn begin_flush(&mut self) -> Option<u16> {
        let at = (!self.flushing).trailing_zeros();
        let slot = self.flushes.get_mut(usize::try_from(at).ok()?)?;
        *slot = std::mem::take(&mut self.unflushed);
        self.flushing |= 1 << at;
        u16::try_from(at).ok()
    }

    /// Ends a flush and returns the puts that it covers.
    #[inline]
    pub(in crate::ucx) fn end_flush(&mut self, number: u16) -> RequestList {
        let Some(slot) = self.flushes.get_mut(usize::from(number)) else { return EMPTY };
        self.flushing &= !(1 << number);
        std::mem::take(slot)
    }

    /// Ends a failed flush. The puts that it covers need another one.
    pub(in crate::ucx) fn fail_flush(&mut self, number: u16) {
        let mut list = self.end_flush(number);
        while let Some(record) = self.pop(&mut list) {
            if let Some(request) = self.get(record) {
                request.next = NONE;
            }
            self.queue_for_flush(record);
        }
    }

    /// Takes the puts that need a flush: none will be begun any more.
    pub(in crate::ucx) fn take_unflushed(&mut self) -> RequestList {
        std::mem::take(&mut self.unflushed)
    }
}

#[cfg(test)]
mod tests;
