//! The process at the other end.

use super::wire::Wire;

/// The process at the other end of a connection.
#[derive(Clone, Debug)]
pub struct PeerProcess(Wire);

impl PeerProcess {
    pub(super) const fn new(wire: Wire) -> Self {
        Self(wire)
    }

    /// Returns `true` if it has ended, or has closed the connection.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.has_peer_ended()
    }
}
