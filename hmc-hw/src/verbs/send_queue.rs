//! What was posted to one queue pair and is not complete: which request each work request belongs to, and when it is done.
//!
//! The work requests of a reliable connection complete in the order in which they were posted (InfiniBand specification, volume 1,
//! 10.8.5), so that the completion of one covers those before it that asked for none. A write's own completion says that the peer's NIC
//! has acknowledged it, not that its bytes can be read there: a put that is to be visible is done with the flush behind it, a small read on
//! the same queue pair.

/// A work request of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
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

/// A work request that was posted.
#[derive(Clone, Copy, Debug)]
struct Posted {
    piece: Piece,
    /// Bytes of all that were posted up to it, modulo 2^32.
    end: u32,
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
            places: Box::new([Posted { piece: Piece::Done, end: 0 }; PLACES]),
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
            Piece::Plain(_) | Piece::Flush | Piece::Own | Piece::Done => {}
        }
        Some(self.append(piece, bytes))
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
        *self.place(number) = Posted { piece, end };
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
    #[inline]
    #[allow(clippy::indexing_slicing, reason = "each byte is the index of a place")]
    fn place(&mut self, number: u64) -> &mut Posted {
        let [index, ..] = number.to_le_bytes();
        &mut self.places[usize::from(index)]
    }

    /// All up to `number` have completed: calls `done` with the record of each that is done by that. A number that is not under way
    /// changes nothing.
    #[inline(always)]
    pub(super) fn complete(&mut self, number: u64, mut done: impl FnMut(u16)) {
        if number >= self.next || number < self.completed {
            return;
        }
        let Posted { piece, end } = *self.place(number);
        self.completed_bytes = end;
        if piece == Piece::Flush {
            return self.complete_flush(number, &mut done);
        }
        let from = core::mem::replace(&mut self.completed, number.wrapping_add(1));
        for at in from..=number {
            match self.place(at).piece {
                // They wait for a flush, as does `first` for them.
                Piece::NeedsFlush(_) | Piece::Part(_) => continue,
                Piece::Plain(record) => done(record),
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
    fn complete_flush(&mut self, flush: u64, done: &mut impl FnMut(u16)) {
        let end = flush.wrapping_add(1);
        let from = core::mem::replace(&mut self.first, end);
        self.completed = self.completed.max(end);
        self.flushes = self.flushes.wrapping_sub(1);
        for at in from..flush {
            match self.place(at).piece {
                Piece::Plain(record) | Piece::NeedsFlush(record) | Piece::Part(record) => {
                    done(record)
                }
                Piece::Flush => self.flushes = self.flushes.wrapping_sub(1),
                Piece::Own | Piece::Done => {}
            }
        }
    }

    /// Returns the record of a work request under way.
    pub(super) fn record(&mut self, number: u64) -> Option<u16> {
        if number < self.first || number >= self.next {
            return None;
        }
        match self.place(number).piece {
            Piece::Plain(record) | Piece::NeedsFlush(record) | Piece::Part(record) => Some(record),
            Piece::Flush | Piece::Own | Piece::Done => None,
        }
    }

    /// Returns the number below which all have completed.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }
}

#[cfg(test)]
mod tests;
