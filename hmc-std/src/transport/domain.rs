//! A session's part in a transport.

use std::sync::Arc;

use hmc_core::types::{ConnType, Rank};
use hmc_core::window::WindowEntry;
use hmc_core::wire::advert::EndpointBlob;
use hmc_core::wire::hello::Features;
use hmc_mem::os::life::LifePage;

use crate::base::error::Result;
use crate::io::socket::Socket;
use crate::memory::{Region, RegionTable};
use crate::node::inbox::SharedInbox;
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::released::Released;
use crate::transport::side_stream::SideStream;
use crate::transport::stream::{PeerLife, StreamDataPlane, StreamSetup};
use crate::transport::tag_inbox::TagInbox;

/// Which kind of second connection a transport takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A local socket, which passes descriptors.
    Local,
    /// TCP.
    Remote,
    /// A local socket where the peer was reached by one, else TCP.
    Either,
}

/// What is known of a peer when the transport is chosen.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PeerFacts<'a> {
    /// It runs on this host.
    pub same_host: bool,
    /// It has a local socket.
    pub has_local_socket: bool,
    /// The kinds of endpoints that it announced ([`Domain::announcement`]).
    pub endpoints: &'a [u8],
    /// What its session can do.
    pub features: Features,
}

/// What a data plane is made of.
pub struct DataPlaneParams<'a> {
    /// Of the link.
    pub(crate) serial: u32,
    /// The link's second connection.
    pub(crate) socket: Arc<Socket>,
    pub(crate) peer: Rank,
    /// The peer's process, when it is one of this host.
    pub(crate) pid: Option<u32>,
    /// The peer says that it runs on this system.
    pub(crate) near: bool,
    /// Those that both ends have.
    pub(crate) features: Features,
    pub(crate) inbox: SharedInbox,
    /// Windows that can be exposed to the peer.
    pub(crate) windows: usize,
    /// Whether process_vm_readv(2) may be tried.
    pub(crate) cma: bool,
    /// By which peers that map memory of this process see that it has ended.
    pub(crate) life: Option<&'a LifePage>,
}

impl std::fmt::Debug for DataPlaneParams<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataPlaneParams").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl DataPlaneParams<'_> {
    /// Returns the rank of the peer.
    #[must_use]
    pub const fn peer(&self) -> Rank {
        self.peer
    }

    /// Returns the link's second connection. The link waits for it as [`Interest::connection`] says.
    ///
    /// [`Interest::connection`]: hmc_core::transport::Interest::connection
    #[must_use]
    pub fn side_stream(&self) -> SideStream {
        SideStream::new(Arc::clone(&self.socket))
    }

    /// Returns what tells of the end of the peer's process, or of its direction of the second connection.
    #[must_use]
    pub fn peer_life(&self) -> PeerLife {
        PeerLife::of(self.pid, &self.socket)
    }

    /// Returns where tags of the peer are delivered.
    #[must_use]
    pub fn tags(&self) -> TagInbox {
        TagInbox::new(Arc::clone(&self.inbox))
    }

    /// Returns storage for the window table.
    #[must_use]
    pub fn windows(&self) -> Box<[WindowEntry]> {
        vec![WindowEntry::FREE; self.windows].into()
    }

    /// The second connection as a stream.
    pub(crate) fn stream(self, side: Side) -> StreamDataPlane {
        StreamDataPlane::new(StreamSetup {
            socket: self.socket,
            peer: self.peer,
            local: side == Side::Local,
            // A transport of its own may reach the memory of a process of this system without the stream.
            near: side == Side::Either && self.pid.is_some(),
            pid: self.pid,
            cma: self.cma,
            batched_acks: self.features.contains(Features::BATCHED_ACKS),
            generations: self.features.contains(Features::GENERATIONS),
            gathers: self.features.contains(Features::GATHER),
            windows: self.windows,
            inbox: self.inbox,
        })
    }
}

/// A session's part in a transport: what its data planes share, and how they are made. The defaults are those of a transport that
/// shares nothing.
///
/// # Threads
/// Any thread may call any method at any time; the value guards its state by itself. [`Self::data_plane`], [`Self::activate`] and
/// [`Self::unfit`] are called without a lock of a link. All methods are called by threads that serve other links, too: none may
/// wait for a peer. [`Self::activate`], [`Self::data_plane`], [`Self::allocate`] and [`Self::register`] may make system calls that
/// take milliseconds; the others return at once.
///
/// # Values
/// One value serves all sessions that are started with it ([`SessionBuilder::transport`](crate::SessionBuilder::transport)).
pub trait Domain: Send + Sync {
    /// The transport. One that an application brings is a [`ConnType::Custom`] of its own name.
    fn kind(&self) -> ConnType;

    /// The number by which a dialer asks for the transport on the second connection. Those of an application's own begin at
    /// [`ENDPOINT_CUSTOM`](hmc_core::wire::advert::ENDPOINT_CUSTOM); both ends use the same one.
    fn endpoint(&self) -> u8;

    /// Which kind of second connection it takes.
    fn side(&self) -> Side;

    /// Whether the session takes part, so that peers can ask for the transport.
    fn is_active(&self) -> bool {
        true
    }

    /// The session takes part from now on. May take some milliseconds.
    ///
    /// # Errors
    /// `Unavailable` when this machine lacks what the transport needs.
    fn activate(&self) -> Result<()> {
        Ok(())
    }

    /// What the session announces to peers when it takes part. The kind is that of [`Self::endpoint`], as a rule.
    fn announcement(&self) -> Option<EndpointBlob<'static>> {
        None
    }

    /// What HELLO says of the session for this transport.
    fn features(&self) -> Features {
        Features::empty()
    }

    /// Why the transport cannot serve a peer, or is not chosen for it unless it was asked for by name.
    fn unfit(&self, peer: &PeerFacts<'_>, by_name: bool) -> Option<String>;

    /// Why it was chosen for a peer that it serves, unless it was asked for by name.
    fn fit(&self) -> &'static str;

    /// Whether its data planes reach the pages of a window by their descriptor, so that memory which the library makes for its own
    /// use should have one.
    fn shares_pages(&self) -> bool {
        false
    }

    /// The data plane of a link. Once it is made, its methods are called under the link's lock.
    ///
    /// # Errors
    /// What the system or the transport's library refuses.
    fn data_plane(&self, params: DataPlaneParams<'_>) -> Result<AnyDataPlane>;

    /// New zeroed memory that this transport reaches better than any other, if there is such, for the buffer of a session.
    ///
    /// # Errors
    /// `NoSpace`.
    fn allocate(&self, table: &Arc<RegionTable>, len: u64) -> Option<Result<Region>> {
        let _ = (table, len);
        None
    }

    /// Registers a region as a put from it does that no link knows, or finds its registration.
    ///
    /// # Errors
    /// `NoSpace`, `Unavailable`.
    fn register(&self, region: &Region) -> Result<()> {
        let _ = region;
        Ok(())
    }

    /// How often memory was registered.
    fn registrations(&self) -> u64 {
        0
    }

    /// The shared worker of that number has something to do. Returns whether anything happened. What is put into `released` is to be
    /// dropped without a lock.
    fn poll_worker(&self, worker: u32, released: &mut Released) -> bool {
        let _ = (worker, released);
        false
    }

    /// Lets all shared workers do what has a time of its own.
    fn tick_workers(&self, released: &mut Released) {
        let _ = released;
    }

    /// Makes progress on all shared workers, whoever watches them. Returns whether anything happened.
    fn progress_workers(&self, released: &mut Released) -> bool {
        let _ = released;
        false
    }

    /// Whether some shared worker cannot be slept on, and is to be polled each millisecond.
    fn must_poll(&self) -> bool {
        false
    }

    /// Whether closed links have left something for a shared worker to do.
    fn has_leftovers(&self) -> bool {
        false
    }

    /// Whether the process ends by exit(3), and the transport's library must not be called any more.
    fn is_ending(&self) -> bool {
        false
    }
}
