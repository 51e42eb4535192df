//! A session that was started.

use std::sync::Arc;
use std::thread::JoinHandle;

use hmc_core::types::{ConnType, Rank};

use super::info::SessionInfo;
use super::owner::Owner;
use crate::api::peer::Peer;
use crate::base::address::Address;
use crate::base::error::Result;
use crate::link::Link;
use crate::memory::{ConnBuffer, Memory, Region};
use crate::ops::accept::Accept;
use crate::ops::connect::Connect;
use crate::ops::recv::RecvFrom;
use crate::ops::request::Request;
use crate::ops::want::Want;
use crate::ops::who::Who;
use crate::state::inner::SessionInner;
use crate::state::metrics::Stats;

/// A process's part in a job: its rank, its buffer, its listeners, its peers.
///
/// The buffer is exposed, for reading and writing, to every peer that connects. Cheap to clone; all methods may be called from
/// any thread. Dropping the last handle says goodbye to the peers and stops the session's thread within 200 ms.
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) shared: Arc<SessionInner>,
    pub(super) owner: Arc<Owner>,
    memory: Memory,
}

impl Session {
    pub(crate) fn new(shared: Arc<SessionInner>, thread: JoinHandle<()>) -> Self {
        let memory = Memory::of(&shared.regions, shared.origin);
        let owner = Arc::new(Owner::new(Arc::clone(&shared), thread));
        Self { shared, owner, memory }
    }

    /// Returns this process's rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.shared.config.rank
    }

    /// Returns the table of the session's registered memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the session buffer, which every peer can read and write ([`Peer::buffer`]).
    #[must_use]
    pub fn buffer(&self) -> &ConnBuffer {
        &self.shared.buffer
    }

    /// Connects to a peer that listens at `address`, over the best transport that both ends have. The request is
    /// complete when both ends can transfer. If a peer of that rank is already connected, the result is that peer.
    ///
    /// # Errors
    /// Of the request: `Unavailable` if no process answers at the address, or the selected transport is unavailable;
    /// `InvalidConfig` for a rank above the maximum, or if this session itself listens there; `DuplicateRank`,
    /// `Version`, `NoCredentials` (no loopback address and not [`Address::unauthenticated`]), `DeadlineExceeded`, `Interrupted`, `Protocol`,
    /// `Refused`.
    pub fn connect(&self, address: &Address) -> Request<Connect<'_>> {
        Request::connect(&self.shared, address)
    }

    /// Waits for a peer that connects: the one with the given rank, connected now or later, or any peer that connected
    /// to this session and was not returned by an earlier `accept`.
    ///
    /// # Errors
    /// Of the request: `DeadlineExceeded`; `Interrupted`; `InvalidConfig` for a rank above the maximum.
    pub fn accept(&self, who: impl Into<Who>) -> Request<Accept<'_>> {
        Request::accept(&self.shared, who.into())
    }

    /// Receives a small message of one peer, which need not have connected yet, or of any peer; peers with messages
    /// take turns. The result names the sender. Of a rank that a new process holds, only that one's messages are looked at:
    /// what the old one left unread is received through the old one's [`Peer`].
    ///
    /// # Errors
    /// Of the request: those of [`Peer::recv`].
    pub fn recv<W: Want>(&self, who: impl Into<Who>, want: W) -> Request<RecvFrom<'_, W>> {
        Request::new(RecvFrom::new(&self.shared, who.into(), want))
    }

    pub(crate) fn peer_over(&self, link: Arc<Link>) -> Peer {
        Peer { link, shared: Arc::clone(&self.shared) }
    }

    /// Returns the peer of that rank, connected or not. That of the session's own rank is the session itself, for transfers
    /// within its own memory; it needs no `connect`.
    ///
    /// # Errors
    /// `NotFound` if it was never connected; `PeerDead` if it has disconnected and left no message; `SystemLimit` if no
    /// descriptor is left for the session's own.
    pub fn peer(&self, rank: u32) -> Result<Peer> {
        self.shared.check_process()?;
        let is_own = Rank(rank) == self.shared.config.rank;
        let link = if is_own { self.shared.dial_self() } else { self.shared.live_link(Rank(rank)) };
        Ok(self.peer_over(link?))
    }

    /// Returns the connected peers; none in a forked child.
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        let ready = |l: &Arc<Link>| l.is_ready_now();
        self.shared.links().into_iter().filter(ready).map(|l| self.peer_over(l)).collect()
    }

    /// Returns what the session was started with, and the ranks whose connections are being set up.
    #[must_use]
    pub fn info(&self) -> SessionInfo {
        SessionInfo::of(&self.shared)
    }

    /// Returns the counters of this session and its peers; none in a forked child.
    #[must_use]
    pub fn stats(&self) -> Stats {
        if self.shared.origin.is_child() { Stats::default() } else { Stats::of(&self.shared) }
    }

    /// Finds the registration of a region with UCX, or creates it, as the first put from the region on a link does. For
    /// measurements: a registration without a user is released at once.
    ///
    /// # Errors
    /// `Unavailable` if UCX is missing; `NoSpace`.
    #[doc(hidden)]
    pub fn find_ucx_registration(&self, region: &Region) -> Result<()> {
        self.shared.check_process()?;
        self.shared.domains.find(ConnType::Ucx)?.register(region)
    }

    /// Makes progress once, for [`crate::config::Progress::Manual`]: serves puts of peers and wakes futures. Never
    /// blocks. Returns `true` if anything happened. Has no harmful effect with other settings.
    pub fn progress(&self) -> bool {
        !self.shared.origin.is_child() && self.shared.run_data_planes()
    }
}
