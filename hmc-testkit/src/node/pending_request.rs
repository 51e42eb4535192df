//! What the application of a node waits for.

use hmc_core::time::Instant;
use hmc_std::Op;
use hmc_std::internals::link::DrivenLink;
use hmc_std::peer::Peer;

use super::sending::Sending;

/// A request that has not completed.
pub(super) enum PendingRequest {
    Operation { number: u64, peer: Peer, op: Op },
    Delivery { number: u64, delivery: Op },
    Message(Sending),
    Goodbye { number: u64, links: Vec<DrivenLink>, until: Instant },
}

impl PendingRequest {
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Operation { number, .. }
            | Self::Delivery { number, .. }
            | Self::Message(Sending { number, .. })
            | Self::Goodbye { number, .. } => *number,
        }
    }

    /// When it has to be looked at. The deadlines of operations are the session's own affair.
    pub(super) fn deadline(&self) -> Instant {
        match self {
            Self::Operation { .. } | Self::Delivery { .. } => Instant::NEVER,
            Self::Message(Sending { until, .. }) | Self::Goodbye { until, .. } => *until,
        }
    }
}
