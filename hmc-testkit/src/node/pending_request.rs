//! What the application of a node waits for.

use hmc_core::time::Instant;
use hmc_std::delivery::Delivery;
use hmc_std::internals::link::DrivenLink;
use hmc_std::op::OpId;
use hmc_std::peer::Peer;

use super::sending::Sending;

/// An ask without an answer.
pub(super) enum PendingRequest {
    Operation { ticket: u64, peer: Peer, op: OpId },
    Delivery { ticket: u64, delivery: Delivery },
    Message(Sending),
    Goodbye { ticket: u64, links: Vec<DrivenLink>, until: Instant },
}

impl PendingRequest {
    pub(super) fn ticket(&self) -> u64 {
        match self {
            Self::Operation { ticket, .. }
            | Self::Delivery { ticket, .. }
            | Self::Message(Sending { ticket, .. })
            | Self::Goodbye { ticket, .. } => *ticket,
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
