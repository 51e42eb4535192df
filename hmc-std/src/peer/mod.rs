//! One peer: everything that can be done with it.

mod ends;
mod many;
mod message;
mod relay;
mod route;
mod span;
pub(crate) mod transfer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hmc_core::kinds::{ConnType, Rank};
use hmc_core::region::RemoteRegion;

use crate::error::{Error, ErrorKind, Result};
use crate::link::{Choice, Life, Link};
use crate::shared::Shared;
use crate::until::Until;

/// A connected peer. Cheap to clone; all methods may be called from any thread.
///
/// Offsets of `put` and `get` address the two ends' [`crate::memory::ConnBuffer`]s, in bytes. A
/// handle belongs to one life of the peer: when that is over every call answers `PeerDead`, also
/// after the peer came back; ask the session for a new handle then.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) link: Arc<Link>,
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.shared.origin.is_child() {
            // Sockets, mappings and UCX's objects are the parent's: in a child neither count reaches zero.
            std::mem::forget((Arc::clone(&self.link), Arc::clone(&self.shared)));
        }
    }
}

/// What `explain` tells.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The transport that moves the bytes; `None` for a peer of the upstream dialect.
    pub conn: Option<ConnType>,
    /// All that were considered, and why.
    pub choices: Vec<Choice>,
    /// Who checks accesses to exposed memory, and what that means.
    pub trust: &'static str,
    /// The target itself judges every access, so that a window that is taken back is out of reach at once, even of a peer
    /// that is stopped.
    pub target_checks: bool,
    /// What moves bytes by a slower path than the transport's own, and why; empty if nothing does.
    pub slower: Vec<String>,
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.conn {
            Some(conn) => writeln!(f, "{conn}")?,
            None => writeln!(f, "control messages only")?,
        }
        for c in &self.choices {
            let mark = if c.chosen { "chosen" } else { "not chosen" };
            writeln!(f, "  {}: {mark}: {}", c.conn, c.why)?;
        }
        for s in &self.slower {
            writeln!(f, "  slower: {s}")?;
        }
        write!(f, "  trust: {}", self.trust)
    }
}

impl Peer {
    /// The peer's rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.link.peer
    }

    /// Names the session whose peer it is among all of the process.
    #[must_use]
    pub fn session_id(&self) -> u64 {
        self.shared.id
    }

    /// The newest life of the peer, of the same session: another one if it came back.
    ///
    /// # Errors
    /// `PeerDead` when it is gone and nothing of it is left.
    pub fn newest(&self) -> Result<Self> {
        let link = self.shared.live_link(self.rank())?;
        Ok(Self { link, shared: Arc::clone(&self.shared) })
    }

    /// Deadline of the session's calls and operations that are given none of their own.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.shared.config.deadline
    }

    /// The peer's address on its control connection, when that is TCP; `None` over a local socket. For a peer that dialed, the
    /// port is the connection's, not one on which it listens.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.link.address
    }

    /// Whether the link can still be used.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shared.check_process().is_ok() && self.link.life() == Life::Ready
    }

    /// Refuses to go on in a forked child of the process whose peer it is.
    ///
    /// # Errors
    /// `Forked`.
    pub fn check_process(&self) -> Result<()> {
        self.shared.check_process()
    }

    /// The transport that moves the bytes, as told by itself.
    #[must_use]
    pub fn conn(&self) -> Option<ConnType> {
        // In a forked child nobody may hold the lock any more.
        if self.shared.origin.is_child() { None } else { self.link.data().port().kind() }
    }

    /// Which transport was chosen, why, and why not the others.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        if self.shared.origin.is_child() {
            let trust = "this is a forked child, which cannot use the connections of its parent";
            let (conn, target_checks) = (None, false);
            return Explanation {
                conn,
                choices: Vec::new(),
                trust,
                target_checks,
                slower: Vec::new(),
            };
        }
        let conn = self.conn();
        let trust = match conn {
            Some(ConnType::Shm) => {
                "the kernel bounds mapped regions; offsets and revocation are checked by this \
                 library in the peer's process (same user)"
            }
            Some(ConnType::Tcp) => "the target checks window, range and epoch of every frame",
            Some(ConnType::Ucx) if self.link.moves_by_messages() => {
                "the target checks window, range and epoch of every message; but whoever can send to UCX's worker \
                 can reach all memory of its process by UCX's own messages, so the peer is trusted"
            }
            Some(ConnType::Ucx) => {
                "lanes with a NIC check memory keys; UCX's lanes of shared memory check nothing at the target: \
                 range, rights and epoch are checked by this library in the peer's process, which is trusted"
            }
            Some(ConnType::Loopback) => "this process",
            _ => "no memory is exposed",
        };
        let target_checks = match conn {
            Some(ConnType::Ucx) => self.link.moves_by_messages(),
            other => matches!(other, Some(ConnType::Tcp | ConnType::Loopback)),
        };
        let mut choices = self.link.choices();
        let lanes = self.link.ucx_lanes();
        if let Some(c) = choices.iter_mut().find(|c| c.chosen && !lanes.is_empty()) {
            c.why = format!("{}; lanes: {}", c.why, lanes.join(", "));
        }
        let slower = self.link.data().port().slower();
        Explanation { conn, choices, trust, target_checks, slower }
    }

    /// Bytes of the peer's buffer.
    ///
    /// # Errors
    /// `NotFound` when it exposes none.
    pub fn remote_len(&self) -> Result<u64> {
        Ok(self.default_remote()?.extent.len())
    }

    fn default_remote(&self) -> Result<RemoteRegion> {
        self.shared.check_process()?;
        self.link.data().default_remote().ok_or_else(|| self.no_buffer())
    }

    fn no_buffer(&self) -> Error {
        if self.link.life() == Life::Dead {
            return self.link.gone();
        }
        Error::new(ErrorKind::NotFound, "the peer exposes no buffer").with_peer(self.rank())
    }

    /// How long a call waits that takes no time of its own.
    fn until(&self) -> Until {
        self.shared.until(self.shared.config.deadline)
    }

    /// Ends the link in order: says BYE, lets both ends finish what was posted, closes.
    ///
    /// # Errors
    /// `DeadlineExceeded` when the peer did not agree in time, `Interrupted`; the link is over all the same.
    pub fn disconnect(&self, timeout: Duration) -> Result<()> {
        self.shared.check_process()?;
        let until = self.shared.until(timeout);
        crate::leave::leave(&self.shared, std::slice::from_ref(&self.link), until)
    }
}

pub(crate) use message::take_message;
pub use route::Route;
