//! Requests with pieces that are not posted yet.
//!
//! They share the queue pairs in turn: each request posts one piece and moves behind the others. A request
//! therefore waits for at most one piece of each other request, for any lengths.

use std::collections::VecDeque;

use hmc_core::range::ByteRange;

use super::chain::RdmaAccess;
use super::requests::MAX_REQUESTS;
use super::send_queue::Piece;

/// The longest piece. Eight fill what a queue pair may have under way, so that eight reads, which each NIC can have under way, do. At
/// 400 Gb/s the NIC is at work on one for 5 us, of which posting it takes a hundredth.
pub(super) const PIECE_BYTES: u64 = 256 << 10;
/// Transfers of less are not spread over the queue pairs of a link.
const MIN_STRIPE_BYTES: u64 = 64 << 10;
/// Pieces of a transfer that is spread begin at multiples of this.
const STRIPE_ALIGN: u64 = 4096;

/// Returns into how many pieces a transfer of `len` bytes is cut for `lanes` queue pairs, and the length of each but the last.
pub(super) fn pieces(len: u64, lanes: usize) -> (usize, u32) {
    let lanes = u64::try_from(lanes).unwrap_or(1).max(1);
    let is_one = len <= PIECE_BYTES && (lanes == 1 || len < MIN_STRIPE_BYTES.saturating_mul(2));
    let piece = if is_one {
        len
    } else {
        let share = len.div_ceil(lanes).max(MIN_STRIPE_BYTES).next_multiple_of(STRIPE_ALIGN);
        share.min(PIECE_BYTES)
    };
    let count = if is_one { 1 } else { usize::try_from(len.div_ceil(piece)).unwrap_or(usize::MAX) };
    // At most `PIECE_BYTES`.
    (count, u32::try_from(piece).unwrap_or(u32::MAX))
}

/// What is to be posted of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unposted {
    /// The request's record.
    pub(super) record: u16,
    /// Its first piece.
    pub(super) first: RdmaAccess,
    /// Pieces that are not posted.
    pub(super) pieces: usize,
    /// What they are of the whole transfer.
    pub(super) left: ByteRange,
    /// It is done when a flush behind it completes.
    pub(super) needs_flush: bool,
    /// Some of it was posted.
    pub(super) is_begun: bool,
}

impl Unposted {
    /// Returns the next piece, and what comes behind it.
    fn split(&self) -> (ByteRange, ByteRange) {
        self.left.split_at_most(u64::from(self.first.len))
    }
}

/// Requests of which pieces are still to be posted, in the order of their turns.
#[derive(Debug)]
pub(super) struct Backlog(VecDeque<Unposted>);

impl Backlog {
    /// Has space for all requests of one peer.
    pub(super) fn new() -> Self {
        Self(VecDeque::with_capacity(MAX_REQUESTS))
    }

    /// Appends a request.
    pub(super) fn push(&mut self, request: Unposted) {
        self.0.push_back(request);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the length of the next piece.
    pub(super) fn next_bytes(&self) -> Option<u64> {
        self.0.front().map(|request| request.split().0.len())
    }

    /// Takes the next piece, which is posted now.
    pub(super) fn take_piece(&mut self) -> Option<(RdmaAccess, Piece)> {
        let mut request = self.0.pop_front()?;
        let Unposted { record, first, needs_flush, .. } = request;
        let (piece, left) = request.split();
        let access = RdmaAccess {
            address: piece.address(first.address),
            remote_address: piece.address(first.remote_address),
            // At most that of the first.
            len: u32::try_from(piece.len()).unwrap_or(first.len),
            ..first
        };
        if left.is_empty() {
            let last = if needs_flush { Piece::NeedsFlush(record) } else { Piece::Plain(record) };
            return Some((access, last));
        }
        request.pieces = request.pieces.saturating_sub(1);
        request.left = left;
        request.is_begun = true;
        self.0.push_back(request);
        let part = if needs_flush { Piece::Part(record) } else { Piece::Plain(record) };
        Some((access, part))
    }

    /// Removes a request whose record `is_meant`: nothing more of it is posted.
    pub(super) fn remove(&mut self, is_meant: impl Fn(u16) -> bool) -> Option<Unposted> {
        let at = self.0.iter().position(|request| is_meant(request.record))?;
        self.0.remove(at)
    }

    /// The link is over.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use hmc_core::range::Extent;

    use super::{Backlog, PIECE_BYTES, Unposted, pieces};
    use crate::verbs::chain::RdmaAccess;
    use crate::verbs::send_queue::Piece;

    fn request(record: u16, len: u64, lanes: usize) -> Unposted {
        let (pieces, piece_bytes) = pieces(len, lanes);
        let first = RdmaAccess {
            is_read: false,
            immediate: None,
            address: 1 << 40,
            lkey: 1,
            len: piece_bytes,
            remote_address: 1 << 50,
            rkey: 2,
        };
        Unposted {
            record,
            first,
            pieces,
            left: Extent::new(len).whole(),
            needs_flush: true,
            is_begun: false,
        }
    }

    /// Pieces are as many as were said, none is too long, and they are the whole transfer in order.
    #[test]
    fn pieces_are_the_whole_transfer() {
        let edges = [1, 4096, 64 << 10, 128 << 10, PIECE_BYTES, 1 << 20, 3 << 20, 1 << 30];
        let lens = edges.iter().flat_map(|edge| [edge - 1, *edge, edge + 1]).filter(|len| *len > 0);
        for (len, lanes) in lens.flat_map(|len| [1, 2, 3, 4, 8].map(|lanes| (len, lanes))) {
            let mut backlog = Backlog::new();
            let all = request(7, len, lanes);
            backlog.push(all);
            let (mut count, mut bytes, mut is_over) = (0, 0, false);
            while let Some((access, piece)) = backlog.take_piece() {
                assert!(!is_over && access.len > 0 && u64::from(access.len) <= PIECE_BYTES);
                assert_eq!(access.address - bytes, 1 << 40);
                assert_eq!(access.remote_address - bytes, 1 << 50);
                bytes += u64::from(access.len);
                count += 1;
                is_over = piece == Piece::NeedsFlush(7);
                assert!(is_over || piece == Piece::Part(7));
            }
            assert!(is_over && (count, bytes) == (all.pieces, len), "{len} over {lanes}");
            assert!(len < 128 << 10 || count >= lanes.min(2), "{len} is spread over {lanes}");
        }
    }

    #[test]
    fn each_request_gives_one_piece_in_turn() {
        let mut backlog = Backlog::new();
        for (record, len) in [(0, 3 * PIECE_BYTES), (1, 1), (2, 2 * PIECE_BYTES), (3, 5)] {
            backlog.push(request(record, len, 1));
        }
        assert_eq!(backlog.next_bytes(), Some(PIECE_BYTES));
        let begun = backlog.take_piece().unwrap();
        assert_eq!(begun.1, Piece::Part(0));
        let unbegun = backlog.remove(|record| record == 3).unwrap();
        assert!(!unbegun.is_begun && backlog.remove(|record| record == 3).is_none());
        let order: Vec<_> = std::iter::from_fn(|| backlog.take_piece())
            .map(|(_, piece)| match piece {
                Piece::Part(record) | Piece::NeedsFlush(record) => record,
                other => panic!("{other:?}"),
            })
            .take(3)
            .collect();
        assert_eq!(order, [1, 2, 0]);
        let cut = backlog.remove(|record| record == 0).unwrap();
        assert!(cut.is_begun && (cut.pieces, cut.left.len()) == (1, PIECE_BYTES));
        assert_eq!(backlog.take_piece().unwrap().1, Piece::NeedsFlush(2));
        assert!(backlog.is_empty() && backlog.next_bytes().is_none());
    }
}
