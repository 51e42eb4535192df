//! Names of operations in errors and logs.

use std::fmt;

use hmc_core::slots::SlotId;
use hmc_core::types::Rank;

/// The name of an operation, unique in its session, for errors and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpName {
    /// The link, counted by the session.
    pub(crate) link: u32,
    pub(crate) op: SlotId,
    pub(crate) peer: Rank,
}

impl OpName {
    /// Returns the peer of the operation.
    #[must_use]
    pub fn peer(self) -> Rank {
        self.peer
    }
}

impl fmt::Display for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}.{}.{}", self.link, self.op.index, self.op.generation)
    }
}
