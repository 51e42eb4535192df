//! Names of links and operations.

use std::fmt;

use hmc_core::slots;
use hmc_core::types::Rank;

/// One life of one link, of one session of this process: nothing else ever has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkId {
    /// The session, by [`crate::identity::next`].
    pub(crate) session: u64,
    /// Counted by the session.
    pub(crate) serial: u32,
    pub(crate) peer: Rank,
}

impl LinkId {
    /// Whether an operation of that link is one of this link's.
    #[inline]
    pub(crate) fn is(self, named: Self) -> bool {
        self == named
    }
}

/// The name of an operation that was posted and not yet waited for.
///
/// It names one life of one link: after the peer died and came back, old names answer `PeerDead`. For every other session it
/// is `Stale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId {
    pub(crate) link: LinkId,
    pub(crate) op: slots::SlotId,
}

impl OpId {
    /// The peer of the operation.
    #[must_use]
    pub fn peer(self) -> Rank {
        self.link.peer
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}.{}.{}", self.link.serial, self.op.index, self.op.generation)
    }
}
