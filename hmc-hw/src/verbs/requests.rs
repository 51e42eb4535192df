//! Table of one peer's requests, from the post until their completion is taken.

use std::collections::VecDeque;

use heapless::Deque;
use hmc_core::region::{RegionKey, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

/// Requests that may be under way to one peer.
pub(super) const MAX_REQUESTS: usize = 256;

/// A request that was posted and is not finished.
#[derive(Clone, Copy, Debug)]
struct Request {
    work: WorkRequest,
    /// Work requests of the device that it still waits for, posted or not.
    pieces: usize,
    failure: Option<Failure>,
    carries: Carries,
}

/// What the work requests of a request carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carries {
    /// Its bytes. Its tag, if it has one, follows.
    Bytes,
    /// Its bytes and its tag.
    All,
    /// Its tag. Its bytes are there.
    Tag,
}

/// Requests that are finished and not taken, [`MAX_REQUESTS`] at most.
#[derive(Debug)]
struct Finished {
    /// The oldest first.
    done: Box<Deque<Completion, MAX_REQUESTS>>,
    /// Puts whose bytes are there, and whose tags are to be sent.
    notifies: VecDeque<WorkRequest>,
    /// Bytes of payload that have moved.
    bytes: u64,
}

impl Finished {
    #[inline]
    fn push(&mut self, op: SlotId, result: Result<u64, Failure>) {
        // There is space: each has left a record, which is not used again before it is taken (`RequestTable::has_space`).
        let pushed = self.done.push_back(Completion { op, result });
        debug_assert!(pushed.is_ok(), "more finished requests than records");
    }

    #[inline]
    fn add(&mut self, work: &WorkRequest, carries: Carries, failure: Option<Failure>) {
        let len = work.local.span.len();
        match failure {
            None => {
                if carries != Carries::Tag {
                    self.bytes = self.bytes.wrapping_add(len);
                }
                let is_tagged = matches!(work.opcode, Opcode::PutNotify { .. });
                if is_tagged && carries == Carries::Bytes {
                    self.notifies.push_back(*work);
                } else {
                    self.push(work.op, Ok(len));
                }
            }
            Some(why) => self.push(work.op, Err(why)),
        }
    }
}

/// The requests of one peer. A record is an index of the table.
#[derive(Debug)]
pub(super) struct RequestTable {
    records: Vec<Option<Request>>,
    free: Vec<u16>,
    finished: Finished,
}

impl RequestTable {
    /// A table of [`MAX_REQUESTS`] records.
    pub(super) fn new() -> Self {
        let count = u16::try_from(MAX_REQUESTS).unwrap_or(u16::MAX);
        Self {
            records: vec![None; MAX_REQUESTS],
            free: (0..count).rev().collect(),
            finished: Finished {
                done: Box::new(Deque::new()),
                notifies: VecDeque::with_capacity(MAX_REQUESTS),
                bytes: 0,
            },
        }
    }

    /// Returns `true` if one more request may be inserted. Finished ones count until they are taken.
    #[inline]
    pub(super) fn has_space(&self) -> bool {
        let ended = self.finished.done.len().wrapping_add(self.finished.notifies.len());
        self.free.len() > ended
    }

    /// Inserts a request that waits for `pieces` work requests of the device. Returns its record.
    #[inline]
    pub(super) fn insert(
        &mut self,
        work: &WorkRequest,
        carries: Carries,
        pieces: usize,
    ) -> Option<u16> {
        let record = self.free.pop()?;
        let entry = self.records.get_mut(usize::from(record))?;
        *entry = Some(Request { work: *work, pieces, failure: None, carries });
        Some(record)
    }

    /// Inserts a request of that operation that has failed.
    pub(super) fn insert_failed(&mut self, op: SlotId, why: Failure) {
        self.finished.push(op, Err(why));
    }

    /// Returns the request of a record.
    pub(super) fn work(&self, record: u16) -> Option<&WorkRequest> {
        self.records.get(usize::from(record))?.as_ref().map(|request| &request.work)
    }

    /// One of the work requests of a record has completed.
    #[inline]
    pub(super) fn complete_piece(&mut self, record: u16) {
        self.end_pieces(record, 1);
    }

    /// The last `pieces` work requests of a record are not posted: it fails once the others have completed.
    pub(super) fn cut(&mut self, record: u16, pieces: usize, why: Failure) {
        self.fail(record, why);
        self.end_pieces(record, pieces);
    }

    /// Removes a record of which nothing was posted, without a completion.
    pub(super) fn withdraw(&mut self, record: u16) {
        let entry = self.records.get_mut(usize::from(record));
        if entry.and_then(Option::take).is_some() {
            self.free.push(record);
        }
    }

    #[inline]
    fn end_pieces(&mut self, record: u16, pieces: usize) {
        let Some(entry) = self.records.get_mut(usize::from(record)) else { return };
        let Some(request) = entry else { return };
        request.pieces = request.pieces.saturating_sub(pieces);
        if request.pieces != 0 {
            return;
        }
        self.finished.add(&request.work, request.carries, request.failure);
        *entry = None;
        self.free.push(record);
    }

    /// A work request of a record has failed: the others of the record may still be under way.
    pub(super) fn fail(&mut self, record: u16, why: Failure) {
        if let Some(Some(request)) = self.records.get_mut(usize::from(record)) {
            request.failure = request.failure.or(Some(why));
        }
    }

    /// Fails all requests that are not finished, each with what `why` says of it unless it has failed already.
    pub(super) fn fail_all(&mut self, why: impl Fn(&WorkRequest) -> Failure) {
        for record in (0..).take(self.records.len()) {
            let entry = self.records.get_mut(usize::from(record)).and_then(Option::take);
            if let Some(Request { work, failure, carries, .. }) = entry {
                self.free.push(record);
                self.finished.add(&work, carries, Some(failure.unwrap_or_else(|| why(&work))));
            }
        }
        while let Some(work) = self.finished.notifies.pop_front() {
            self.finished.push(work.op, Err(why(&work)));
        }
    }

    /// Takes finished requests, the oldest first. Returns how many were written to `out`.
    #[inline]
    pub(super) fn take_done(&mut self, out: &mut [Completion]) -> usize {
        let mut n: usize = 0;
        for place in out {
            let Some(completion) = self.finished.done.pop_front() else { break };
            *place = completion;
            n = n.saturating_add(1);
        }
        n
    }

    /// Returns the oldest put whose bytes are there and whose tag is to be sent.
    #[inline]
    pub(super) fn next_notify(&self) -> Option<&WorkRequest> {
        self.finished.notifies.front()
    }

    /// Inserts a request for the tag of that put, of one work request of the device. Returns its record.
    pub(super) fn insert_next_tag(&mut self) -> Option<u16> {
        let work = self.finished.notifies.pop_front()?;
        self.insert(&work, Carries::Tag, 1)
    }

    /// Returns `true` if a finished request was not taken yet.
    #[inline]
    pub(super) fn has_any_done(&self) -> bool {
        !self.finished.done.is_empty()
    }

    /// Returns `true` if no work request of the device is under way. Tags may wait until the peer takes some.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.records.len()
    }

    fn iter(&self) -> impl Iterator<Item = &Request> {
        self.records.iter().flatten()
    }

    /// Those whose bytes are under way.
    fn moving(&self) -> impl Iterator<Item = &WorkRequest> {
        self.iter().filter(|request| request.carries != Carries::Tag).map(|request| &request.work)
    }

    /// Returns `true` if a request of that operation is not taken yet.
    pub(super) fn has_op(&self, op: SlotId) -> bool {
        self.iter().any(|request| request.work.op == op)
            || self.finished.done.iter().any(|completion| completion.op == op)
            || self.finished.notifies.iter().any(|work| work.op == op)
    }

    /// Returns `true` if bytes of that operation are under way.
    pub(super) fn uses_memory_of(&self, op: SlotId) -> bool {
        self.moving().any(|work| work.op == op)
    }

    /// Returns `true` if a request under way names that memory.
    pub(super) fn uses_memory(&self, key: RegionKey) -> bool {
        self.moving().any(|work| work.local.key == key)
    }

    /// Returns `true` if a request under way names that window of the peer.
    pub(super) fn uses_window(&self, id: WindowId) -> bool {
        self.moving().any(|work| work.remote.window == id)
    }

    /// Bytes of payload that have moved.
    pub(super) fn bytes(&self) -> u64 {
        self.finished.bytes
    }
}

#[cfg(test)]
mod tests {
    use hmc_core::range::Extent;
    use hmc_core::region::{Epoch, LocalRegion, RegionKey, WindowDesc, WindowId};
    use hmc_core::slots::SlotId;
    use hmc_core::types::{Access, MemoryKind};
    use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};

    use super::{Carries, RequestTable};

    fn work(index: u16, opcode: Opcode) -> WorkRequest {
        let (extent, kind) = (Extent::new(64), MemoryKind::Cpu);
        let key = RegionKey { index: 0, generation: 1 };
        let (window, epoch, access) = (WindowId::new(0, 1), Epoch(1), Access::all());
        WorkRequest {
            op: SlotId { index, generation: 1 },
            opcode,
            when: CompleteWhen::Visible,
            local: LocalRegion { key, extent, kind }.slice(0, 8).expect("in range"),
            remote: WindowDesc { window, epoch, extent, access, kind }
                .slice(0, 8)
                .expect("in range"),
        }
    }

    /// An operation has requests until the last of them was taken: under way, done, or with a tag to send.
    #[test]
    fn an_operation_has_requests_until_they_are_taken() {
        for opcode in [Opcode::Put, Opcode::PutNotify { tag: 1 }] {
            let mut table = RequestTable::new();
            let [one, other] = [1, 2].map(|index| work(index, opcode));
            let has = |table: &RequestTable| [one, other].map(|work| table.has_op(work.op));
            assert_eq!(has(&table), [false, false]);
            let record = table.insert(&one, Carries::Bytes, 1).expect("space");
            assert_eq!((has(&table), table.uses_memory_of(one.op)), ([true, false], true));
            table.complete_piece(record);
            assert_eq!((has(&table), table.uses_memory_of(one.op)), ([true, false], false));
            let mut out = [Completion { op: other.op, result: Ok(0) }; 2];
            if opcode != Opcode::Put {
                assert_eq!(table.take_done(&mut out), 0);
                assert_eq!(table.next_notify(), Some(&one));
                let record = table.insert_next_tag().expect("space");
                assert_eq!((has(&table), table.uses_memory_of(one.op)), ([true, false], false));
                assert_eq!(table.next_notify(), None);
                table.complete_piece(record);
            }
            assert_eq!((table.take_done(&mut out), table.bytes()), (1, 8));
            assert_eq!(out[0], Completion { op: one.op, result: Ok(8) });
            assert_eq!(has(&table), [false, false]);
        }
    }

    /// One whose tag goes along is done with its bytes.
    #[test]
    fn a_tag_that_goes_along_does_not_wait() {
        let mut table = RequestTable::new();
        let one = work(1, Opcode::PutNotify { tag: 1 });
        let record = table.insert(&one, Carries::All, 1).expect("space");
        table.complete_piece(record);
        let mut out = [Completion { op: one.op, result: Ok(0) }];
        assert_eq!(table.next_notify(), None);
        assert_eq!(table.take_done(&mut out), 1);
        assert_eq!(out[0].result, Ok(8));
    }

    /// The end of a link ends a put whose tag was to be sent.
    #[test]
    fn tags_that_wait_fail_with_the_rest() {
        let mut table = RequestTable::new();
        let works = [1, 2].map(|index| work(index, Opcode::PutNotify { tag: 1 }));
        for work in &works {
            let record = table.insert(work, Carries::Bytes, 1).expect("space");
            table.complete_piece(record);
        }
        assert!(table.insert_next_tag().is_some() && table.next_notify() == Some(&works[1]));
        table.fail_all(|_| Failure::PeerDead);
        let mut out = [Completion { op: works[0].op, result: Ok(0) }; 3];
        assert_eq!(table.take_done(&mut out), 2);
        assert_eq!(table.next_notify(), None);
        for (got, work) in out.iter().zip(&works) {
            assert_eq!(*got, Completion { op: work.op, result: Err(Failure::PeerDead) });
        }
    }
}
