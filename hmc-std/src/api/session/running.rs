//! A session that was started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hmc_core::types::{ConnType, Rank};

use super::owner::Owner;
use crate::api::peer::Peer;
use crate::base::address::Address;
use crate::base::error::Result;
use crate::link::{Link, LinkState};
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

    /// This process's rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.shared.config.rank
    }

    /// The time of requests and calls that are given none of their own.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.shared.config.deadline
    }

    /// The memory that is registered with it.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The session buffer, which every peer can read and write ([`Peer::buffer`]).
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

    /// Where all control sockets are, oldest first.
    #[must_use]
    pub fn uds_paths(&self) -> Vec<PathBuf> {
        if self.shared.origin.is_child() { Vec::new() } else { self.shared.listeners.uds_paths() }
    }

    /// Connects to a peer that listens at `address`, over the best transport that both ends have. It is done when both ends can
    /// transfer. If a peer of that rank is connected already, that is it.
    ///
    /// # Errors
    /// Of the request: `Unavailable` when nobody answers there, or the transport asked for cannot be had; `InvalidConfig` for
    /// a rank beyond the last one, or when this session itself listens there; `DuplicateRank`, `Version`, `NoCredentials` (not
    /// loopback and not `insecure`), `DeadlineExceeded`, `Interrupted`, `Protocol`, `Refused`.
    pub fn connect(&self, address: &Address) -> Request<Connect<'_>> {
        Request::connect(&self.shared, address)
    }

    /// This session as a peer of itself: transfers within its own buffer.
    ///
    /// # Errors
    /// `SystemLimit` when descriptors are used up.
    pub fn loopback(&self) -> Result<Peer> {
        self.shared.check_process()?;
        Ok(self.peer_over(self.shared.dial_self()?))
    }

    /// Waits for a peer that connects: for that of a rank, now or later, or for any that connected to
    /// this session and that no `accept` gave before.
    ///
    /// # Errors
    /// Of the request: `DeadlineExceeded`; `Interrupted`; `InvalidConfig` for a rank beyond the last one.
    pub fn accept(&self, who: impl Into<Who>) -> Request<Accept<'_>> {
        Request::accept(&self.shared, who.into())
    }

    /// Receives a small message of a peer, waiting for the peer to appear if need be, or of any peer: those that have one take
    /// turns. Says whose it is.
    ///
    /// # Errors
    /// Of the request: as [`Peer::recv`].
    pub fn recv<W: Want>(&self, who: impl Into<Who>, want: W) -> Request<RecvFrom<'_, W>> {
        Request::new(RecvFrom::new(&self.shared, who.into(), want))
    }

    pub(crate) fn peer_over(&self, link: Arc<Link>) -> Peer {
        Peer { link, shared: Arc::clone(&self.shared) }
    }

    /// The peer of that rank, alive or dead.
    ///
    /// # Errors
    /// `NotFound` when it was never connected; `PeerDead` when it is gone and nothing of it is left.
    pub fn peer(&self, rank: u32) -> Result<Peer> {
        Ok(self.peer_over(self.shared.live_link(Rank(rank))?))
    }

    /// The peers that are connected now; none in a forked child.
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        let ready = |l: &Arc<Link>| l.is_ready_now();
        self.shared.links().into_iter().filter(ready).map(|l| self.peer_over(l)).collect()
    }

    /// Ranks whose connections are being set up. Their messages may be here already; [`Session::accept`] waits until transfers
    /// can be.
    #[must_use]
    pub fn arriving(&self) -> Vec<u32> {
        let opening = |l: &Arc<Link>| l.state() == LinkState::Opening;
        self.shared.links().into_iter().filter(opening).map(|l| l.peer.0).collect()
    }

    /// Counters of this session and its peers; none in a forked child.
    #[must_use]
    pub fn stats(&self) -> Stats {
        if self.shared.origin.is_child() { Stats::default() } else { Stats::of(&self.shared) }
    }

    /// Finds the registration of a region with UCX, as a put from it does that no link knows, or makes it. For
    /// measurements: a registration that nothing uses goes at once.
    ///
    /// # Errors
    /// `Unavailable` when there is no UCX; `NoSpace`.
    #[doc(hidden)]
    pub fn find_ucx_registration(&self, region: &Region) -> Result<()> {
        self.shared.check_process()?;
        self.shared.domains.find(ConnType::Ucx)?.register(region)
    }

    /// One round of progress, for [`crate::config::Progress::Manual`]: puts of peers land and
    /// futures wake in here. Returns whether anything happened. Harmless otherwise.
    pub fn progress(&self) -> bool {
        !self.shared.origin.is_child() && self.shared.run_data_planes()
    }
}
