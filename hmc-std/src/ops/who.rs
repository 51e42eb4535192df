//! Which peers a request of a session is about.

use std::sync::Arc;

use hmc_core::types::Rank;

use crate::base::error::{Error, ErrorKind};
use crate::link::Link;
use crate::state::inner::SessionInner;

/// One peer, or any. A rank converts into it: `session.accept(1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Whichever peer comes first.
    Any,
    /// The peer of that rank.
    Rank(u32),
    /// The peer that connected last of those that have this session's own rank
    /// ([`private_ranks`](crate::session::SessionBuilder::private_ranks)).
    Namesake,
}

impl From<u32> for Who {
    fn from(rank: u32) -> Self {
        Self::Rank(rank)
    }
}

impl From<Rank> for Who {
    fn from(rank: Rank) -> Self {
        Self::Rank(rank.0)
    }
}

/// The error of a wait for a peer of a session that ends.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "this session is shutting down")
}

impl Who {
    /// The rank, if it is about one peer.
    fn rank(self, shared: &SessionInner) -> Option<Rank> {
        match self {
            Self::Any => None,
            Self::Rank(rank) => Some(Rank(rank)),
            Self::Namesake => Some(shared.config.rank),
        }
    }

    /// The newest link of the one peer.
    pub(crate) fn link(self, shared: &SessionInner) -> Option<Arc<Link>> {
        match self {
            Self::Any => None,
            Self::Rank(rank) => shared.link(Rank(rank)),
            Self::Namesake => shared.last_private(),
        }
    }

    /// What is waited for until the peer is there.
    pub(crate) fn appearing(self, shared: &SessionInner) -> String {
        match self {
            Self::Any => "waiting for a peer to connect".into(),
            Self::Rank(rank) => format!("waiting for rank {rank} to connect"),
            Self::Namesake => format!("waiting for another peer of rank {}", shared.config.rank),
        }
    }

    /// The error with the peer that it is about.
    pub(crate) fn blame(self, error: Error, shared: &SessionInner) -> Error {
        match self.rank(shared) {
            Some(rank) => error.with_peer(rank),
            None => error,
        }
    }
}
