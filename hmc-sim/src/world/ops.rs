//! The requests of a run: rank, time and content of each, and the ranges that it moves.

use std::borrow::Cow;

use super::node::{BatchPart, MemoryArea, Request};

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Submitted, not completed.
    Running,
    /// Completed with `Done`.
    Done,
    /// Completed with an error.
    Failed,
    /// Its process exited: no result is due.
    Gone,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) rank: u32,
    pub(crate) request: Request,
    pub(crate) submitted_ns: u64,
    pub(crate) state: State,
    /// A cancellation of it was requested.
    pub(crate) cancelled: bool,
    /// No reason for a failure is known: without a fault it must succeed.
    pub(crate) sound: bool,
    /// The requester's link.
    pub(crate) link: u64,
    /// The memory that its bytes may reach.
    pub(crate) shadow: Option<(u32, MemoryArea)>,
    /// The check at a fence of its target before its result.
    pub(crate) fenced: Option<Result<(), String>>,
    /// The exposure that it refers to.
    pub(crate) exposure: u64,
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the requester.
    Out,
    /// To the requester.
    In,
}

/// The ranges that a request moves.
pub(crate) struct TransferShape<'a> {
    pub(crate) peer: u32,
    pub(crate) label: Option<u64>,
    pub(crate) direction: Direction,
    pub(crate) pieces: Cow<'a, [BatchPart]>,
    /// `Send` or `Recv`: the other end is a request, not a range.
    pub(crate) rndv: bool,
}

/// Returns the ranges that a request moves, if any.
pub(crate) fn moves(request: &Request) -> Option<TransferShape<'_>> {
    let (peer, label, direction, pieces) = match request {
        Request::Put { peer, piece } | Request::PutNotify { peer, piece, .. } => {
            (peer, None, Direction::Out, std::slice::from_ref(piece))
        }
        Request::PutBatch { peer, list } => (peer, None, Direction::Out, list.as_slice()),
        Request::Get { peer, piece } => (peer, None, Direction::In, std::slice::from_ref(piece)),
        Request::PutWindow { peer, label, piece } => {
            (peer, Some(*label), Direction::Out, std::slice::from_ref(piece))
        }
        Request::GetWindow { peer, label, piece } => {
            (peer, Some(*label), Direction::In, std::slice::from_ref(piece))
        }
        Request::Send { peer, local, len } | Request::Recv { peer, local, len } => {
            let direction = if matches!(request, Request::Send { .. }) {
                Direction::Out
            } else {
                Direction::In
            };
            let pieces = Cow::Owned(vec![BatchPart { local: *local, remote: 0, len: *len }]);
            return Some(TransferShape { peer: *peer, label: None, direction, pieces, rndv: true });
        }
        _ => return None,
    };
    let pieces = Cow::Borrowed(pieces);
    Some(TransferShape { peer: *peer, label, direction, pieces, rndv: false })
}

/// Returns the peer of a request.
pub(crate) const fn peer(request: &Request) -> Option<u32> {
    match request {
        Request::Connect { rank: peer }
        | Request::Disconnect { peer }
        | Request::Put { peer, .. }
        | Request::Get { peer, .. }
        | Request::PutNotify { peer, .. }
        | Request::PutBatch { peer, .. }
        | Request::Tag { peer, .. }
        | Request::Int { peer, .. }
        | Request::Struct { peer, .. }
        | Request::Expose { peer, .. }
        | Request::PutWindow { peer, .. }
        | Request::GetWindow { peer, .. }
        | Request::Send { peer, .. }
        | Request::Recv { peer, .. } => Some(*peer),
        Request::Leave | Request::Revoke { .. } | Request::Cancel { .. } => None,
    }
}

/// Returns the sum of lengths.
pub(crate) fn total(pieces: &[BatchPart]) -> u64 {
    pieces.iter().map(|piece| piece.len).sum()
}

/// Returns `true` if the part lies in `len` bytes.
pub(crate) fn fits(piece: &BatchPart, len: u64) -> bool {
    piece.remote.checked_add(piece.len).is_some_and(|end| end <= len)
}
