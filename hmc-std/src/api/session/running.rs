//! A session that was started.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use crate::api::communicator::Communicator;
use crate::base::error::Result;
use crate::memory::ConnBuffer;

/// A process's part in a job: its rank, its buffer, its listeners, its peers.
///
/// The buffer is exposed, for reading and writing, to every peer that connects. Dropping the
/// session says goodbye to the peers and stops its thread within 200 ms.
#[derive(Debug)]
pub struct Session {
    communicator: Communicator,
}

impl Deref for Session {
    type Target = Communicator;

    fn deref(&self) -> &Communicator {
        &self.communicator
    }
}

impl Session {
    pub(crate) fn of(communicator: Communicator) -> Self {
        Self { communicator }
    }

    /// Names it among all sessions of the process; see [`Peer::session_id`](crate::peer::Peer::session_id).
    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// The job that it belongs to; see [`SessionBuilder::job`](crate::session::SessionBuilder::job).
    #[must_use]
    pub fn job(&self) -> u64 {
        self.shared.config.job
    }

    /// The buffer that offsets of `put` and `get` address.
    #[must_use]
    pub fn buffer(&self) -> &ConnBuffer {
        &self.shared.buffer
    }

    /// Where the TCP listener is, with the port that the system chose for port 0: the oldest of several.
    #[must_use]
    pub fn tcp_addr(&self) -> Option<SocketAddr> {
        self.tcp_addrs().first().copied()
    }

    /// Where all TCP listeners are, oldest first.
    #[must_use]
    pub fn tcp_addrs(&self) -> Vec<SocketAddr> {
        if self.shared.origin.is_child() { Vec::new() } else { self.shared.listeners.tcp_addrs() }
    }

    /// Where the control socket is: the oldest of several.
    #[must_use]
    pub fn uds_path(&self) -> Option<PathBuf> {
        self.uds_paths().into_iter().next()
    }

    /// Where all control sockets are, oldest first.
    #[must_use]
    pub fn uds_paths(&self) -> Vec<PathBuf> {
        if self.shared.origin.is_child() { Vec::new() } else { self.shared.listeners.uds_paths() }
    }

    /// Ends the session in order; see [`Communicator::shutdown`].
    ///
    /// # Errors
    /// As there.
    pub fn shutdown(self, timeout: Duration) -> Result<()> {
        self.communicator.shutdown(timeout)
    }
}
