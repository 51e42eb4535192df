//! The asks of a run: who asked what when, and the shape of what they move.

use std::borrow::Cow;

use super::node::{Area, Ask, Piece};

/// Where an ask stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Asked, not answered.
    Running,
    /// Answered `Done`.
    Done,
    /// Answered otherwise.
    Failed,
    /// Its process is gone: no answer is due.
    Gone,
}

/// One ask.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) rank: u32,
    pub(crate) ask: Ask,
    pub(crate) asked_ns: u64,
    pub(crate) state: State,
    /// Somebody asked to cancel it.
    pub(crate) cancelled: bool,
    /// Nothing known speaks against it: without a fault it must succeed.
    pub(crate) sound: bool,
    /// The asker's link.
    pub(crate) link: u64,
    /// Where its bytes may land.
    pub(crate) shadow: Option<(u32, Area)>,
    /// What was true when its target was fenced before the answer.
    pub(crate) fenced: Option<Result<(), String>>,
    /// The exposure it is about.
    pub(crate) exposure: u64,
}

/// Which way bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the asker.
    Out,
    /// To the asker.
    In,
}

/// What an ask moves.
pub(crate) struct Moves<'a> {
    pub(crate) peer: u32,
    pub(crate) label: Option<u64>,
    pub(crate) way: Way,
    pub(crate) pieces: Cow<'a, [Piece]>,
    /// `Send` or `Recv`: the other end is an ask, not a place.
    pub(crate) relay: bool,
}

/// What `ask` moves, if anything.
pub(crate) fn moves(ask: &Ask) -> Option<Moves<'_>> {
    let (peer, label, way, pieces) = match ask {
        Ask::Put { peer, piece } | Ask::PutNotify { peer, piece, .. } => {
            (peer, None, Way::Out, std::slice::from_ref(piece))
        }
        Ask::PutBatch { peer, list } => (peer, None, Way::Out, list.as_slice()),
        Ask::Get { peer, piece } => (peer, None, Way::In, std::slice::from_ref(piece)),
        Ask::PutWindow { peer, label, piece } => {
            (peer, Some(*label), Way::Out, std::slice::from_ref(piece))
        }
        Ask::GetWindow { peer, label, piece } => {
            (peer, Some(*label), Way::In, std::slice::from_ref(piece))
        }
        Ask::Send { peer, local, len } | Ask::Recv { peer, local, len } => {
            let way = if matches!(ask, Ask::Send { .. }) { Way::Out } else { Way::In };
            let pieces = Cow::Owned(vec![Piece { local: *local, remote: 0, len: *len }]);
            return Some(Moves { peer: *peer, label: None, way, pieces, relay: true });
        }
        _ => return None,
    };
    let pieces = Cow::Borrowed(pieces);
    Some(Moves { peer: *peer, label, way, pieces, relay: false })
}

/// The peer that an ask is about.
pub(crate) const fn peer(ask: &Ask) -> Option<u32> {
    match ask {
        Ask::Connect { rank: peer }
        | Ask::Disconnect { peer }
        | Ask::Put { peer, .. }
        | Ask::Get { peer, .. }
        | Ask::PutNotify { peer, .. }
        | Ask::PutBatch { peer, .. }
        | Ask::Tag { peer, .. }
        | Ask::Int { peer, .. }
        | Ask::Struct { peer, .. }
        | Ask::Expose { peer, .. }
        | Ask::PutWindow { peer, .. }
        | Ask::GetWindow { peer, .. }
        | Ask::Send { peer, .. }
        | Ask::Recv { peer, .. } => Some(*peer),
        Ask::Leave | Ask::Revoke { .. } | Ask::Cancel { .. } => None,
    }
}

/// Sum of lengths.
pub(crate) fn total(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.len).sum()
}

/// The piece lies in `len` bytes.
pub(crate) fn fits(piece: &Piece, len: u64) -> bool {
    piece.remote.checked_add(piece.len).is_some_and(|end| end <= len)
}
