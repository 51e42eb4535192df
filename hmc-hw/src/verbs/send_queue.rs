//! What was posted to one queue pair and is not complete: which request each work request belongs to, and when it is done.
//!
//! The work requests of a reliable connection complete in the order in which they were posted (InfiniBand specification, volume 1,
//! 10.8.5), so that the completion of one covers those before it that asked for none. A write's own completion says that the peer's NIC
//! has acknowledged it, not that its bytes can be read there: a put that is to be visible is done with the flush behind it, a small read on
//! the same queue pair.

use std::collections::VecDeque;

/// A work request of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Of the request of that record; done when it completes.
    Plain(u16),
    /// Of the request of that record; done when a flush behind it completes.
    NeedsFlush(u16),
    /// A flush.
    Flush,
    /// It was done before those in front of it.
    Done,
}

/// Flushes in flight at a time: more would only be behind each other, and each takes one of the few reads that a NIC may have under way.
pub(super) const MAX_FLUSHES: usize = 4;

/// The work requests of one queue pair, numbered from 0 on.
#[derive(Debug)]
pub(super) struct SendQueue {
    /// Those that are not done, the oldest first.
    pieces: VecDeque<Piece>,
    depth: usize,
    /// The number of the oldest.
    first: u64,
    /// Those below it have completed.
    completed: u64,
    /// The number of the oldest that no flush covers.
    unflushed: u64,
    /// Puts that need a flush that was not posted.
    wants_flush: bool,
    flushes: usize,
}

impl SendQueue {
    /// Of at most `depth` work requests.
    pub(super) fn new(depth: usize) -> Self {
        Self {
            pieces: VecDeque::with_capacity(depth),
            depth,
            first: 0,
            completed: 0,
            unflushed: 0,
            wants_flush: false,
            flushes: 0,
        }
    }

    /// Returns how many more may be posted. One place is kept for a flush.
    #[inline]
    pub(super) fn space(&self) -> usize {
        self.depth.saturating_sub(self.pieces.len()).saturating_sub(1)
    }

    /// Returns the number that the next one gets.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.first.saturating_add(u64::try_from(self.pieces.len()).unwrap_or(0))
    }

    /// Appends one. Returns its number; `None` if there is no space.
    #[inline]
    pub(super) fn push(&mut self, piece: Piece) -> Option<u64> {
        if self.pieces.len() >= self.depth {
            return None;
        }
        let number = self.next();
        match piece {
            Piece::NeedsFlush(_) => self.wants_flush = true,
            Piece::Flush => {
                self.wants_flush = false;
                self.flushes = self.flushes.saturating_add(1);
            }
            Piece::Plain(_) | Piece::Done => {}
        }
        self.pieces.push_back(piece);
        Some(number)
    }

    /// Returns `true` if puts need a flush that may be posted now.
    #[inline]
    pub(super) fn may_flush(&self) -> bool {
        self.wants_flush && self.flushes < MAX_FLUSHES && self.pieces.len() < self.depth
    }

    /// Returns how many are not done.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Returns `true` if nothing is under way.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn at(&mut self, number: u64) -> Option<&mut Piece> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.pieces.get_mut(index)
    }

    /// Marks one as done. Returns its record, if it is still open.
    #[inline]
    fn close(&mut self, number: u64) -> Option<u16> {
        match std::mem::replace(self.at(number)?, Piece::Done) {
            Piece::Plain(record) | Piece::NeedsFlush(record) => Some(record),
            Piece::Flush | Piece::Done => None,
        }
    }

    /// All up to `number` have completed: calls `done` with the record of each that is done by that. A number that is not under way
    /// changes nothing.
    #[inline]
    pub(super) fn complete(&mut self, number: u64, mut done: impl FnMut(u16)) {
        if number >= self.next() {
            return;
        }
        while self.completed <= number {
            let at = self.completed;
            self.completed = at.saturating_add(1);
            match self.at(at).copied() {
                Some(Piece::Plain(_)) => {
                    if let Some(record) = self.close(at) {
                        done(record);
                    }
                }
                Some(Piece::Flush) => {
                    self.flushes = self.flushes.saturating_sub(1);
                    while self.unflushed <= at {
                        let covered = self.unflushed;
                        self.unflushed = covered.saturating_add(1);
                        if let Some(record) = self.close(covered) {
                            done(record);
                        }
                    }
                }
                Some(Piece::NeedsFlush(_) | Piece::Done) | None => {}
            }
        }
        while self.first < self.completed && self.pieces.front() == Some(&Piece::Done) {
            self.pieces.pop_front();
            self.first = self.first.saturating_add(1);
            self.unflushed = self.unflushed.max(self.first);
        }
    }

    /// Returns the record of a work request under way.
    pub(super) fn record(&mut self, number: u64) -> Option<u16> {
        match *self.at(number)? {
            Piece::Plain(record) | Piece::NeedsFlush(record) => Some(record),
            Piece::Flush | Piece::Done => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_FLUSHES, Piece, SendQueue};

    fn completed(queue: &mut SendQueue, number: u64) -> Vec<u16> {
        let mut done = Vec::new();
        queue.complete(number, |record| done.push(record));
        done
    }

    #[test]
    fn a_completion_covers_all_before_it() {
        let mut queue = SendQueue::new(8);
        for record in 0..3 {
            assert_eq!(queue.push(Piece::Plain(record)), Some(u64::from(record)));
        }
        assert_eq!(completed(&mut queue, 1), [0, 1]);
        assert!(completed(&mut queue, 1).is_empty(), "once");
        assert!(completed(&mut queue, 3).is_empty(), "it was never posted");
        assert_eq!(completed(&mut queue, 2), [2]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_visible_put_is_done_with_the_flush_behind_it() {
        let mut queue = SendQueue::new(8);
        queue.push(Piece::NeedsFlush(0));
        queue.push(Piece::Plain(1));
        assert!(queue.may_flush());
        assert_eq!(completed(&mut queue, 1), [1]);
        assert_eq!(queue.push(Piece::Flush), Some(2));
        assert!(!queue.may_flush());
        queue.push(Piece::NeedsFlush(3));
        assert_eq!(completed(&mut queue, 2), [0]);
        assert!(queue.may_flush(), "the flush was in front of it");
        assert_eq!(queue.push(Piece::Flush), Some(4));
        assert_eq!(completed(&mut queue, 4), [3]);
        assert!(queue.is_empty() && !queue.may_flush());
    }

    #[test]
    fn flushes_are_few() {
        let mut queue = SendQueue::new(64);
        for record in 0..u16::try_from(MAX_FLUSHES).unwrap() {
            queue.push(Piece::NeedsFlush(record));
            assert!(queue.may_flush());
            queue.push(Piece::Flush);
        }
        queue.push(Piece::NeedsFlush(9));
        assert!(!queue.may_flush());
        assert_eq!(completed(&mut queue, 1), [0]);
        assert!(queue.may_flush());
    }

    #[test]
    fn one_place_is_kept_for_a_flush() {
        let mut queue = SendQueue::new(3);
        assert_eq!(queue.space(), 2);
        queue.push(Piece::NeedsFlush(0));
        queue.push(Piece::NeedsFlush(1));
        assert_eq!(queue.space(), 0);
        assert!(queue.may_flush());
        assert!(queue.push(Piece::Flush).is_some());
        assert_eq!(queue.push(Piece::Plain(2)), None);
        assert_eq!(completed(&mut queue, 2), [0, 1]);
        assert_eq!(queue.space(), 2);
    }

    /// Each record is done once and never before what covers it, whatever completes when.
    #[test]
    fn any_order_of_posts_and_completions() {
        let mut seed = 0x9e37_79b9_u32;
        let mut next = move || {
            seed ^= seed << 13;
            seed ^= seed >> 17;
            seed ^= seed << 5;
            seed
        };
        for _ in 0..500 {
            let mut queue = SendQueue::new(16);
            let (mut posted, mut finished) = (0_u16, Vec::new());
            let mut flush_at: Vec<Option<u64>> = Vec::new();
            let mut done_up_to = 0;
            for _ in 0..60 {
                match next() % 4 {
                    0 if queue.space() > 0 => {
                        queue.push(Piece::Plain(posted));
                        flush_at.push(None);
                        posted += 1;
                    }
                    1 if queue.space() > 0 => {
                        queue.push(Piece::NeedsFlush(posted));
                        flush_at.push(None);
                        posted += 1;
                    }
                    2 if queue.may_flush() => {
                        queue.push(Piece::Flush);
                    }
                    _ if queue.next() > done_up_to => {
                        done_up_to += 1 + u64::from(next()) % (queue.next() - done_up_to);
                        queue.complete(done_up_to - 1, |record| finished.push(record));
                    }
                    _ => {}
                }
            }
            while !queue.is_empty() {
                if queue.may_flush() {
                    queue.push(Piece::Flush);
                }
                let last = queue.next() - 1;
                queue.complete(last, |record| finished.push(record));
            }
            let mut all = finished.clone();
            all.sort_unstable();
            assert_eq!(all, (0..posted).collect::<Vec<u16>>());
        }
    }
}
