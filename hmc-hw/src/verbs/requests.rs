//! Table of one peer's requests, from the post until their completion is taken.

use std::collections::VecDeque;

use hmc_core::region::{RegionKey, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::work::{Completion, Failure, WorkRequest};

/// Requests that may be under way to one peer.
pub(super) const MAX_REQUESTS: usize = 256;

/// A request with work requests of the device that it waits for.
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
    /// Its bytes, and its tag if it has one.
    All,
    /// Its bytes. Its tag follows.
    Bytes,
    /// Its tag. Its bytes are there.
    Tag,
}

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
enum Record {
    Free,
    UnderWay(Request),
    /// A put whose bytes are there, and whose tag is to be sent.
    NeedsTag(WorkRequest),
    /// Finished, and not taken.
    Finished(Completion),
}

/// Where completions go: to places of a caller while there are some, otherwise to the table until they are taken.
#[derive(Debug, Default)]
pub(super) struct Places<'a> {
    places: &'a mut [Completion],
    used: usize,
}

impl<'a> Places<'a> {
    pub(super) fn new(places: &'a mut [Completion]) -> Self {
        Self { places, used: 0 }
    }

    /// Returns how many are used.
    #[inline]
    pub(super) fn used(&self) -> usize {
        self.used
    }

    #[inline]
    fn take(&mut self) -> Option<&mut Completion> {
        let place = self.places.get_mut(self.used)?;
        self.used = self.used.wrapping_add(1);
        Some(place)
    }
}

/// The requests of one peer. A record is an index of the table.
#[derive(Debug)]
pub(super) struct RequestTable {
    records: Box<[Record]>,
    free: Vec<u16>,
    /// Finished requests, the oldest first.
    finished: VecDeque<u16>,
    /// Puts whose tags are to be sent, the oldest first.
    notifies: VecDeque<u16>,
    /// Records with work requests of the device.
    under_way: usize,
    /// Bytes of payload that have moved.
    bytes: u64,
}

impl RequestTable {
    /// A table of [`MAX_REQUESTS`] records.
    pub(super) fn new() -> Self {
        let count = u16::try_from(MAX_REQUESTS).unwrap_or(u16::MAX);
        Self {
            records: vec![Record::Free; MAX_REQUESTS].into(),
            free: (0..count).rev().collect(),
            finished: VecDeque::with_capacity(MAX_REQUESTS),
            notifies: VecDeque::with_capacity(MAX_REQUESTS),
            under_way: 0,
            bytes: 0,
        }
    }

    /// Returns `true` if one more request may be inserted. Finished ones count until they are taken.
    #[inline]
    pub(super) fn has_space(&self) -> bool {
        !self.free.is_empty()
    }

    /// Inserts a request that waits for `pieces` work requests of the device. Returns its record; `None` if there is no space.
    #[inline]
    pub(super) fn insert(
        &mut self,
        work: &WorkRequest,
        carries: Carries,
        pieces: usize,
    ) -> Option<u16> {
        let record = self.free.pop()?;
        let entry = self.records.get_mut(usize::from(record))?;
        *entry = Record::UnderWay(Request { work: *work, pieces, failure: None, carries });
        self.under_way = self.under_way.wrapping_add(1);
        Some(record)
    }

    /// Inserts a request of that operation that has failed, if there is space.
    pub(super) fn insert_failed(&mut self, op: SlotId, why: Failure) {
        if let Some(record) = self.free.pop() {
            self.keep(record, Completion { op, result: Err(why) });
        }
    }

    /// A request has finished: keeps its completion until it is taken.
    fn keep(&mut self, record: u16, completion: Completion) {
        if let Some(entry) = self.records.get_mut(usize::from(record)) {
            *entry = Record::Finished(completion);
            self.finished.push_back(record);
        }
    }

    /// Returns the request of a record, which is under way.
    pub(super) fn work(&self, record: u16) -> Option<&WorkRequest> {
        match self.records.get(usize::from(record)) {
            Some(Record::UnderWay(request)) => Some(&request.work),
            _ => None,
        }
    }

    /// One of the work requests of a record has completed. If it was the last one, the completion of the request goes to `out`.
    #[inline(always)]
    pub(super) fn complete_piece(&mut self, record: u16, out: &mut Places<'_>) {
        self.end_pieces(record, 1, out);
    }

    /// The last `pieces` work requests of a record are not posted: it fails once the others have completed.
    pub(super) fn cut(&mut self, record: u16, pieces: usize, why: Failure) {
        self.fail(record, why);
        self.end_pieces(record, pieces, &mut Places::default());
    }

    /// Removes a record of which nothing was posted, without a completion.
    pub(super) fn withdraw(&mut self, record: u16) {
        if let Some(entry @ Record::UnderWay(_)) = self.records.get_mut(usize::from(record)) {
            *entry = Record::Free;
            self.free.push(record);
            self.under_way = self.under_way.wrapping_sub(1);
        }
    }

    #[inline(always)]
    fn end_pieces(&mut self, record: u16, pieces: usize, out: &mut Places<'_>) {
        let Some(entry) = self.records.get_mut(usize::from(record)) else { return };
        let Record::UnderWay(request) = entry else { return };
        if request.pieces > pieces {
            request.pieces = request.pieces.wrapping_sub(pieces);
            return;
        }
        self.under_way = self.under_way.wrapping_sub(1);
        // Those that are kept are older than what goes to `out`.
        let is_plain = request.failure.is_none() && request.carries == Carries::All;
        if is_plain
            && self.finished.is_empty()
            && let Some(place) = out.take()
        {
            let bytes = request.work.local.span.len();
            *place = Completion { op: request.work.op, result: Ok(bytes) };
            self.bytes = self.bytes.wrapping_add(bytes);
            *entry = Record::Free;
            self.free.push(record);
        } else {
            let request = *request;
            self.end(record, &request, request.failure);
        }
    }

    /// A request is no longer under way.
    #[inline(never)]
    fn end(&mut self, record: u16, request: &Request, failure: Option<Failure>) {
        let Request { work, carries, .. } = request;
        let bytes = work.local.span.len();
        if failure.is_none() && *carries != Carries::Tag {
            self.bytes = self.bytes.wrapping_add(bytes);
        }
        match (failure, carries) {
            (None, Carries::Bytes) => {
                if let Some(entry) = self.records.get_mut(usize::from(record)) {
                    *entry = Record::NeedsTag(*work);
                    self.notifies.push_back(record);
                }
            }
            (None, _) => self.keep(record, Completion { op: work.op, result: Ok(bytes) }),
            (Some(why), _) => self.keep(record, Completion { op: work.op, result: Err(why) }),
        }
    }

    /// A work request of a record has failed: the others of the record may still be under way.
    pub(super) fn fail(&mut self, record: u16, why: Failure) {
        if let Some(Record::UnderWay(request)) = self.records.get_mut(usize::from(record)) {
            request.failure = request.failure.or(Some(why));
        }
    }

    /// Fails all requests that are not finished, each with what `why` says of it unless it has failed already.
    pub(super) fn fail_all(&mut self, why: impl Fn(&WorkRequest) -> Failure) {
        for record in (0..).take(self.records.len()) {
            let Some(&Record::UnderWay(request)) = self.records.get(usize::from(record)) else {
                continue;
            };
            self.under_way = self.under_way.wrapping_sub(1);
            let failure = request.failure.unwrap_or_else(|| why(&request.work));
            self.end(record, &request, Some(failure));
        }
        while let Some((record, work)) = self.pop_notify() {
            self.keep(record, Completion { op: work.op, result: Err(why(&work)) });
        }
    }

    /// Takes finished requests that are kept, the oldest first.
    #[inline]
    pub(super) fn take_done(&mut self, out: &mut Places<'_>) {
        if !self.finished.is_empty() {
            // The address of `out` is not given away: it may stay in registers.
            let mut places = core::mem::take(out);
            self.take_kept(&mut places);
            *out = places;
        }
    }

    #[inline(never)]
    fn take_kept(&mut self, out: &mut Places<'_>) {
        while let Some(&record) = self.finished.front() {
            let (Some(entry), Some(place)) =
                (self.records.get_mut(usize::from(record)), out.take())
            else {
                return;
            };
            if let Record::Finished(completion) = *entry {
                *place = completion;
            }
            *entry = Record::Free;
            self.free.push(record);
            self.finished.pop_front();
        }
    }

    /// Returns the oldest put whose bytes are there and whose tag is to be sent.
    #[inline]
    pub(super) fn next_notify(&self) -> Option<&WorkRequest> {
        match self.records.get(usize::from(*self.notifies.front()?)) {
            Some(Record::NeedsTag(work)) => Some(work),
            _ => None,
        }
    }

    fn pop_notify(&mut self) -> Option<(u16, WorkRequest)> {
        let work = *self.next_notify()?;
        Some((self.notifies.pop_front()?, work))
    }

    /// The tag of that put is posted, as one work request of the device. Returns its record.
    pub(super) fn begin_next_tag(&mut self) -> Option<u16> {
        let (record, work) = self.pop_notify()?;
        let entry = self.records.get_mut(usize::from(record))?;
        let carries = Carries::Tag;
        *entry = Record::UnderWay(Request { work, pieces: 1, failure: None, carries });
        self.under_way = self.under_way.wrapping_add(1);
        Some(record)
    }

    /// Returns `true` if a finished request was not taken yet.
    #[inline]
    pub(super) fn has_any_done(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Returns `true` if no work request of the device is under way. Tags may wait until the peer takes some.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Those whose bytes are under way.
    fn moving(&self) -> impl Iterator<Item = &WorkRequest> {
        self.records.iter().filter_map(|record| match record {
            Record::UnderWay(request) if request.carries != Carries::Tag => Some(&request.work),
            _ => None,
        })
    }

    /// Returns `true` if a request of that operation is not taken yet.
    pub(super) fn has_op(&self, op: SlotId) -> bool {
        self.records.iter().any(|record| match record {
            Record::Free => false,
            Record::UnderWay(request) => request.work.op == op,
            Record::NeedsTag(work) => work.op == op,
            Record::Finished(completion) => completion.op == op,
        })
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
        self.bytes
    }
}

#[cfg(test)]
mod tests;
