//! A connect of a sans-IO session that has not ended.

use hmc_core::time::Instant;
use hmc_std::internals::connect::DrivenConnect;

/// A wish to be connected, and the connections that it has.
pub(super) struct PendingConnect {
    pub(super) machine: DrivenConnect,
    pub(super) deadline: Instant,
    /// The request behind it; none for a redial.
    pub(super) number: Option<u64>,
    /// The number of the connection that is awaited.
    pub(super) opening: Option<u32>,
    /// The connection whose answer is awaited.
    pub(super) hears: Option<u32>,
    /// The connections that it had, oldest first.
    pub(super) conns: Vec<u32>,
    /// It waits for events, of which it has seen that number.
    pub(super) seen_events: Option<u64>,
    pub(super) wake: Instant,
}

impl PendingConnect {
    /// When it has to be looked at.
    pub(super) fn wake(&self) -> Instant {
        self.wake.min(self.deadline)
    }
}
