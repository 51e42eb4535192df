//! Table of one peer's requests, from the post until their completion is taken.

use std::collections::VecDeque;

use hmc_core::region::{RegionKey, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::work::{Completion, Failure, WorkRequest};

/// Requests that may be under way to one peer.
pub(super) const MAX_REQUESTS: usize = 256;

/// The index of no record.
const NO_RECORD: u16 = u16::MAX;

/// The operation that a request is of, and what it moves from where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestParts {
    pub(super) op: SlotId,
    /// Memory of this end.
    pub(super) memory: RegionKey,
    /// The peer's window.
    pub(super) window: WindowId,
    pub(super) bytes: u64,
}

impl RequestParts {
    /// Of no request.
    pub(super) const NONE: Self = Self {
        op: SlotId { index: 0, generation: 0 },
        memory: RegionKey { index: 0, generation: 0 },
        window: WindowId(0),
        bytes: 0,
    };

    #[inline]
    pub(super) fn of(work: &WorkRequest) -> Self {
        let (memory, window) = (work.local.key, work.remote.window);
        Self { op: work.op, memory, window, bytes: work.local.span.len() }
    }
}

/// A request with work requests of the device that it waits for.
#[derive(Clone, Copy, Debug)]
struct Request {
    parts: RequestParts,
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
    Bytes {
        /// The tag.
        tag: u64,
    },
    /// Its tag. Its bytes are there.
    Tag,
}

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
enum Record {
    /// With the next one that is free; [`NO_RECORD`] if there is none.
    Free(u16),
    UnderWay(Request),
    /// A put whose bytes are there, and whose tag is to be sent.
    NeedsTag(RequestParts, u64),
    /// Finished, and not taken.
    Finished(Completion),
}

impl Record {
    /// The request, if it is under way.
    fn under_way(&self) -> Option<Request> {
        match *self {
            Self::UnderWay(request) => Some(request),
            Self::Free(_) | Self::NeedsTag(..) | Self::Finished(_) => None,
        }
    }
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
///
/// A short request, which one work request of the device carries as a whole, is counted here and kept by the queue of that: it takes
/// a record only if it fails, or if its completion is kept.
#[derive(Debug)]
pub(super) struct RequestTable {
    records: Box<[Record; MAX_REQUESTS]>,
    /// Requests that are not taken yet, the short ones among them.
    used: usize,
    /// The first record that is free; [`NO_RECORD`] if there is none.
    free: u16,
    /// Finished requests, the oldest first.
    finished: VecDeque<u16>,
    /// Puts whose tags are to be sent, the oldest first.
    notifies: VecDeque<u16>,
    /// Bytes of payload that have moved.
    bytes: u64,
}

impl RequestTable {
    /// A table of [`MAX_REQUESTS`] records.
    pub(super) fn new() -> Self {
        let next_of = |index: usize| match u16::try_from(index.saturating_add(1)) {
            Ok(next) if usize::from(next) < MAX_REQUESTS => next,
            _ => NO_RECORD,
        };
        Self {
            records: Box::new(core::array::from_fn(|index| Record::Free(next_of(index)))),
            used: 0,
            free: 0,
            finished: VecDeque::with_capacity(MAX_REQUESTS),
            notifies: VecDeque::with_capacity(MAX_REQUESTS),
            bytes: 0,
        }
    }

    /// Returns `true` if one more request may be inserted. Finished ones count until they are taken.
    #[inline]
    pub(super) fn has_space(&self) -> bool {
        self.used < MAX_REQUESTS
    }

    /// Inserts a request that waits for `pieces` work requests of the device. Returns its record; `None` if there is no space.
    #[inline]
    pub(super) fn insert(
        &mut self,
        work: &WorkRequest,
        carries: Carries,
        pieces: usize,
    ) -> Option<u16> {
        if !self.has_space() {
            return None;
        }
        let parts = RequestParts::of(work);
        let record = self.take_record()?;
        self.set(record, Record::UnderWay(Request { parts, pieces, failure: None, carries }));
        self.begin_short();
        Some(record)
    }

    /// Counts a short request. The caller has asked [`Self::has_space`].
    #[inline(always)]
    pub(super) fn begin_short(&mut self) {
        self.used = self.used.wrapping_add(1);
    }

    /// Gives a short request under way a record.
    pub(super) fn record_short(&mut self, parts: &RequestParts) -> Option<u16> {
        let record = self.take_record()?;
        let (parts, carries) = (*parts, Carries::All);
        self.set(record, Record::UnderWay(Request { parts, pieces: 1, failure: None, carries }));
        Some(record)
    }

    /// A short request has completed: its completion goes to `out`, or is kept.
    #[inline(always)]
    pub(super) fn complete_short(&mut self, op: SlotId, bytes: u64, out: &mut Places<'_>) {
        self.bytes = self.bytes.wrapping_add(bytes);
        // Those that are kept are older than what goes to `out`.
        if !self.finished.is_empty() {
            return self.keep_short(op, bytes);
        }
        let Some(place) = out.take() else { return self.keep_short(op, bytes) };
        *place = Completion { op, result: Ok(bytes) };
        self.used = self.used.wrapping_sub(1);
    }

    #[cold]
    fn keep_short(&mut self, op: SlotId, bytes: u64) {
        if let Some(record) = self.take_record() {
            self.keep(record, Completion { op, result: Ok(bytes) });
        }
    }

    /// Takes a record that is free. There is one for each request that is counted.
    fn take_record(&mut self) -> Option<u16> {
        let record = self.free;
        let Record::Free(next) = *self.records.get(usize::from(record))? else { return None };
        self.free = next;
        Some(record)
    }

    fn set(&mut self, record: u16, to: Record) {
        if let Some(entry) = self.records.get_mut(usize::from(record)) {
            *entry = to;
        }
    }

    /// A record is no longer used.
    fn remove(&mut self, record: u16) {
        self.set(record, Record::Free(self.free));
        self.free = record;
        self.used = self.used.wrapping_sub(1);
    }

    /// Inserts a request of that operation that has failed, if there is space.
    pub(super) fn insert_failed(&mut self, op: SlotId, why: Failure) {
        if self.has_space()
            && let Some(record) = self.take_record()
        {
            self.used = self.used.wrapping_add(1);
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

    /// Returns the parts of the request of a record, which is under way.
    pub(super) fn parts(&self, record: u16) -> Option<&RequestParts> {
        match self.records.get(usize::from(record)) {
            Some(Record::UnderWay(Request { parts, .. })) => Some(parts),
            _ => None,
        }
    }

    /// One of the work requests of a record has completed. If it was the last one, the completion of the request is kept.
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
        if let Some(Record::UnderWay(_)) = self.records.get(usize::from(record)) {
            self.remove(record);
        }
    }

    #[inline(never)]
    fn end_pieces(&mut self, record: u16, pieces: usize) {
        let Some(entry) = self.records.get_mut(usize::from(record)) else { return };
        if let Record::UnderWay(request) = entry
            && request.pieces > pieces
        {
            request.pieces = request.pieces.wrapping_sub(pieces);
        } else if let Some(request) = entry.under_way() {
            self.end(record, &request, request.failure);
        }
    }

    /// A request is no longer under way.
    #[inline(never)]
    fn end(&mut self, record: u16, request: &Request, failure: Option<Failure>) {
        let Request { parts, carries, .. } = *request;
        let RequestParts { op, bytes, .. } = parts;
        if failure.is_none() && carries != Carries::Tag {
            self.bytes = self.bytes.wrapping_add(bytes);
        }
        match (failure, carries) {
            (None, Carries::Bytes { tag }) => {
                if let Some(entry) = self.records.get_mut(usize::from(record)) {
                    *entry = Record::NeedsTag(parts, tag);
                    self.notifies.push_back(record);
                }
            }
            (None, _) => self.keep(record, Completion { op, result: Ok(bytes) }),
            (Some(why), _) => self.keep(record, Completion { op, result: Err(why) }),
        }
    }

    /// A work request of a record has failed: the others of the record may still be under way.
    pub(super) fn fail(&mut self, record: u16, why: Failure) {
        if let Some(entry) = self.records.get_mut(usize::from(record))
            && let Some(request) = entry.under_way()
        {
            let failure = request.failure.or(Some(why));
            *entry = Record::UnderWay(Request { failure, ..request });
        }
    }

    /// Fails all requests that are not finished, each with what `why` says of its window unless it has failed already.
    pub(super) fn fail_all(&mut self, why: impl Fn(WindowId) -> Failure) {
        for record in (0..).take(self.records.len()) {
            let entry = self.records.get(usize::from(record));
            let Some(request) = entry.and_then(Record::under_way) else { continue };
            let failure = request.failure.unwrap_or_else(|| why(request.parts.window));
            self.end(record, &request, Some(failure));
        }
        while let Some((record, parts)) = self.pop_notify() {
            self.keep(record, Completion { op: parts.op, result: Err(why(parts.window)) });
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
            let (Some(entry), Some(place)) = (self.records.get(usize::from(record)), out.take())
            else {
                return;
            };
            if let Record::Finished(completion) = *entry {
                *place = completion;
            }
            self.remove(record);
            self.finished.pop_front();
        }
    }

    /// Returns `true` if the tag of a put whose bytes are there is to be sent.
    #[inline]
    pub(super) fn has_notifies(&self) -> bool {
        !self.notifies.is_empty()
    }

    /// Returns the tag that is to be sent next: that of the oldest put whose bytes are there.
    #[inline]
    pub(super) fn next_tag(&self) -> Option<u64> {
        match self.records.get(usize::from(*self.notifies.front()?)) {
            Some(Record::NeedsTag(_, tag)) => Some(*tag),
            _ => None,
        }
    }

    fn pop_notify(&mut self) -> Option<(u16, RequestParts)> {
        let record = self.notifies.pop_front()?;
        match self.records.get(usize::from(record)) {
            Some(Record::NeedsTag(parts, _)) => Some((record, *parts)),
            _ => None,
        }
    }

    /// The tag of that put is posted, as one work request of the device. Returns its record.
    pub(super) fn begin_next_tag(&mut self) -> Option<u16> {
        let (record, parts) = self.pop_notify()?;
        let entry = self.records.get_mut(usize::from(record))?;
        let carries = Carries::Tag;
        *entry = Record::UnderWay(Request { parts, pieces: 1, failure: None, carries });
        Some(record)
    }

    /// Returns 0 if no completion is kept and no tag is to be sent.
    #[inline]
    pub(super) fn rest(&self) -> usize {
        self.finished.len() | self.notifies.len()
    }

    /// Returns `true` if a finished request was not taken yet.
    #[inline]
    pub(super) fn has_any_done(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Returns `true` if no work request of the device is under way. Tags may wait until the peer takes some.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        // The others are finished, or have a tag to send.
        self.used == self.finished.len().wrapping_add(self.notifies.len())
    }

    /// Returns `true` if there is no request at all.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Those with a record whose bytes are under way.
    fn moving(&self) -> impl Iterator<Item = &RequestParts> {
        self.records.iter().filter_map(|record| match record {
            Record::UnderWay(request) if request.carries != Carries::Tag => Some(&request.parts),
            _ => None,
        })
    }

    /// Returns `true` if a request of that operation with a record is not taken yet.
    pub(super) fn has_op(&self, op: SlotId) -> bool {
        self.records.iter().any(|record| match record {
            Record::Free(_) => false,
            Record::UnderWay(request) => request.parts.op == op,
            Record::NeedsTag(parts, _) => parts.op == op,
            Record::Finished(completion) => completion.op == op,
        })
    }

    /// Returns `true` if bytes of that operation are under way, by a record.
    pub(super) fn uses_memory_of(&self, op: SlotId) -> bool {
        self.moving().any(|parts| parts.op == op)
    }

    /// Returns `true` if a request under way that has a record names that memory.
    pub(super) fn uses_memory(&self, key: RegionKey) -> bool {
        self.moving().any(|parts| parts.memory == key)
    }

    /// Returns `true` if a request under way that has a record names that window of the peer.
    pub(super) fn uses_window(&self, id: WindowId) -> bool {
        self.moving().any(|parts| parts.window == id)
    }

    /// Bytes of payload that have moved.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
pub(super) mod tests;
