//! What was posted to one queue pair and is not complete: which request each work request belongs to, and when it is done.
//!
//! The work requests of a reliable connection complete in the order in which they were posted (InfiniBand specification, volume 1,
//! 10.8.5), so that the completion of one covers those before it that asked for none. A write's own completion says that the peer's NIC
//! has acknowledged it, not that its bytes can be read there: a put that is to be visible is done with the flush behind it, a small read on
//! the same queue pair.
//!
//! A request that one work request carries as a whole is in the place of that: it has no record in the table of requests.

use hmc_core::slots::SlotId;
use hmc_core::work::WorkRequest;

use super::requests::RequestParts;

/// A work request of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A whole request, as `Plain`.
    Short,
    /// A whole request, as `NeedsFlush`.
    ShortNeedsFlush,
    /// Of the request of that record; done when it completes.
    Plain(u16),
    /// Of the request of that record; done when a flush behind it completes.
    NeedsFlush(u16),
    /// As `NeedsFlush`, of a request of which more is to be posted: the last of it is what asks for the flush.
    Part(u16),
    /// A flush.
    Flush,
    /// Of no request: a bind of a window, or a message to the peer's end. Done when it completes.
    Own,
    /// It was done before those in front of it.
    Done,
}

/// Flushes in flight at a time: more would only be behind each other, and each takes one of the few reads that a NIC may have under way.
pub(super) const MAX_FLUSHES: u32 = 4;

/// Places of a queue: as many as a byte has values, so that the low byte of a number is the index of its place.
const PLACES: usize = 256;

/// What is done by a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// A work request of the request of that record.
    Piece(u16),
    /// A whole request: of that operation, with so many bytes.
    Short(SlotId, u64),
}

/// A work request that was posted.
#[derive(Clone, Copy, Debug)]
struct Posted {
    piece: Piece,
    /// Bytes of all that were posted up to it, modulo 2^32.
    end: u32,
    /// Of a whole request.
    parts: RequestParts,
}

impl Posted {
    /// The request that it is as a whole.
    fn short(&self) -> Option<&RequestParts> {
        matches!(self.piece, Piece::Short | Piece::ShortNeedsFlush).then_some(&self.parts)
    }
}

/// The work requests of one queue pair, numbered one after another.
#[derive(Debug)]
pub(super) struct SendQueue {
    /// Work request `n` is in place `n` modulo their number. Those from `first` to `next` are not done.
    places: Box<[Posted; PLACES]>,
    depth: u64,
    /// Bytes of all that were posted, and of those of them that have completed, modulo 2^32: far less are under way.
    posted_bytes: u32,
    completed_bytes: u32,
    /// The number of the oldest.
    first: u64,
    /// The number that the next one gets.
    next: u64,
    /// Those below it have completed.
    completed: u64,
    /// Puts that need a flush that was not posted.
    wants_flush: bool,
    /// There are parts that no flush that was posted covers.
    has_parts: bool,
    flushes: u32,
}

impl SendQueue {
    /// Of at most `depth` work requests, and at most [`PLACES`].
    pub(super) fn new(depth: usize) -> Self {
        Self {
            places: Box::new(
                [Posted { piece: Piece::Done, end: 0, parts: RequestParts::NONE }; PLACES],
            ),
            depth: u64::try_from(depth.min(PLACES)).unwrap_or(0),
            posted_bytes: 0,
            completed_bytes: 0,
            first: 0,
            next: 0,
            completed: 0,
            wants_flush: false,
            has_parts: false,
            flushes: 0,
        }
    }

    /// The number of the first work request, of a queue to which none was posted.
    pub(super) fn set_first(&mut self, number: u64) {
        (self.first, self.next, self.completed) = (number, number, number);
    }

    /// Returns `true` if that many more may be posted. One place is kept for a flush.
    #[inline]
    pub(super) fn has_space_for(&self, count: u32) -> bool {
        self.len().wrapping_add(u64::from(count)) < self.depth
    }

    /// Returns how many bytes are under way.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.posted_bytes.wrapping_sub(self.completed_bytes).into()
    }

    /// Appends one of `bytes` bytes. Returns its number; `None` if there is no space but for a flush.
    #[inline(always)]
    pub(super) fn push(&mut self, piece: Piece, bytes: u32) -> Option<u64> {
        if !self.has_space_for(1) {
            return None;
        }
        match piece {
            Piece::NeedsFlush(_) => self.wants_flush = true,
            Piece::Part(_) => self.has_parts = true,
            _ => {}
        }
        Some(self.append(piece, bytes))
    }

    /// Appends a request as a whole, of few bytes. Returns its number; `None` if there is no space.
    #[inline(always)]
    pub(super) fn push_short(&mut self, work: &WorkRequest, needs_flush: bool) -> Option<u64> {
        if !self.has_space_for(1) {
            return None;
        }
        self.wants_flush |= needs_flush;
        let piece = if needs_flush { Piece::ShortNeedsFlush } else { Piece::Short };
        let number = self.append(piece, 0);
        self.place(number).parts = RequestParts::of(work);
        Some(number)
    }

    /// Appends a flush if puts need one that may be posted now. Returns its number.
    #[inline]
    pub(super) fn push_flush(&mut self) -> Option<u64> {
        if !self.may_flush() {
            return None;
        }
        (self.wants_flush, self.has_parts) = (false, false);
        self.flushes = self.flushes.wrapping_add(1);
        Some(self.append(Piece::Flush, 0))
    }

    #[inline]
    fn append(&mut self, piece: Piece, bytes: u32) -> u64 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.posted_bytes = self.posted_bytes.wrapping_add(bytes);
        let end = self.posted_bytes;
        let place = self.place(number);
        (place.piece, place.end) = (piece, end);
        number
    }

    /// Nothing more comes of the requests whose parts were posted: these need a flush now.
    pub(super) fn want_flush(&mut self) {
        self.wants_flush |= self.has_parts;
    }

    /// Returns `true` if puts need a flush that may be posted now. Parts need one before they fill the queue, one at a time.
    ///
    /// There is space for it: the place that [`Self::push`] leaves is taken by a flush alone, after which none is needed until the next push.
    #[inline]
    pub(super) fn may_flush(&self) -> bool {
        let wants_one = self.wants_flush || self.has_parts && self.fills_with_parts();
        wants_one && self.flushes < MAX_FLUSHES
    }

    #[cold]
    fn fills_with_parts(&self) -> bool {
        self.flushes == 0 && self.is_half_full()
    }

    /// Returns `true` if half of the places are taken.
    #[inline]
    pub(super) fn is_half_full(&self) -> bool {
        self.len() >= self.depth / 2
    }

    /// Returns how many are not done.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.next.wrapping_sub(self.first)
    }

    /// Returns `true` if nothing is under way.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.first
    }

    /// The place of that number, of one that is not done or of the next.
    #[allow(clippy::indexing_slicing, reason = "each byte is the index of a place")]
    fn get(&self, number: u64) -> &Posted {
        let [index, ..] = number.to_le_bytes();
        &self.places[usize::from(index)]
    }

    /// As [`Self::get`].
    #[inline]
    #[allow(clippy::indexing_slicing, reason = "each byte is the index of a place")]
    fn place(&mut self, number: u64) -> &mut Posted {
        let [index, ..] = number.to_le_bytes();
        &mut self.places[usize::from(index)]
    }

    /// All up to `number` have completed: calls `done` with what is done by that. A number that is not under way changes nothing.
    #[inline(always)]
    pub(super) fn complete(&mut self, number: u64, mut done: impl FnMut(Ended)) {
        if number >= self.next || number < self.completed {
            return;
        }
        let Posted { piece, end, .. } = *self.place(number);
        self.completed_bytes = end;
        if piece == Piece::Flush {
            return self.complete_flush(number, &mut done);
        }
        let from = core::mem::replace(&mut self.completed, number.wrapping_add(1));
        for at in from..=number {
            match self.place(at).piece {
                // They wait for a flush, as does `first` for them.
                Piece::NeedsFlush(_) | Piece::Part(_) | Piece::ShortNeedsFlush => continue,
                Piece::Plain(record) => done(Ended::Piece(record)),
                Piece::Short => {
                    let RequestParts { op, bytes, .. } = self.place(at).parts;
                    done(Ended::Short(op, bytes));
                }
                Piece::Flush => self.complete_flush(at, &mut done),
                Piece::Own | Piece::Done => {}
            }
            if self.first == at {
                self.first = at.wrapping_add(1);
            } else {
                self.place(at).piece = Piece::Done;
            }
        }
    }

    /// The flush of that number has completed: it is done, as are all in front of it.
    #[inline(always)]
    fn complete_flush(&mut self, flush: u64, done: &mut impl FnMut(Ended)) {
        let end = flush.wrapping_add(1);
        let from = core::mem::replace(&mut self.first, end);
        self.completed = self.completed.max(end);
        self.flushes = self.flushes.wrapping_sub(1);
        for at in from..flush {
            let Posted { piece, parts: RequestParts { op, bytes, .. }, .. } = *self.place(at);
            if matches!(piece, Piece::ShortNeedsFlush | Piece::Short) {
                done(Ended::Short(op, bytes));
            } else if let Some(record) = self.end_other(piece) {
                done(Ended::Piece(record));
            }
        }
    }

    /// A work request in front of a flush that has completed. Returns its record if it has one.
    #[inline(never)]
    fn end_other(&mut self, piece: Piece) -> Option<u16> {
        match piece {
            Piece::Plain(record) | Piece::NeedsFlush(record) | Piece::Part(record) => Some(record),
            Piece::Flush => {
                self.flushes = self.flushes.wrapping_sub(1);
                None
            }
            Piece::Own | Piece::Done | Piece::Short | Piece::ShortNeedsFlush => None,
        }
    }

    /// Returns the record of a work request under way.
    pub(super) fn record(&mut self, number: u64) -> Option<u16> {
        if number < self.first || number >= self.next {
            return None;
        }
        match self.place(number).piece {
            Piece::Plain(record) | Piece::NeedsFlush(record) | Piece::Part(record) => Some(record),
            _ => None,
        }
    }

    /// The whole requests under way.
    pub(super) fn shorts(&self) -> impl Iterator<Item = &RequestParts> {
        (self.first..self.next).filter_map(|number| self.get(number).short())
    }

    /// Gives each whole request under way a record, which `insert` returns.
    pub(super) fn record_shorts(&mut self, mut insert: impl FnMut(&RequestParts) -> Option<u16>) {
        for number in self.first..self.next {
            let place = self.place(number);
            let Some(record) = place.short().and_then(&mut insert) else { continue };
            place.piece = match place.piece {
                Piece::ShortNeedsFlush => Piece::NeedsFlush(record),
                _ => Piece::Plain(record),
            };
        }
    }

    /// Returns the number below which all have completed.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }
}

#[cfg(test)]
mod tests;
