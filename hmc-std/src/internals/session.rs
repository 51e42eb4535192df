//! A session without its own thread, kernel sockets, clock or entropy: its owner drives it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hmc_core::region::WindowDesc;
use hmc_core::time::Instant;
use hmc_core::types::{ConnType, Incarnation, Rank};
use hmc_core::wire::hello::HostId;
use rustix::net::AddressFamily;

use super::link::DrivenLink;
use crate::api::peer::Peer;
use crate::base::address::Address;
pub use crate::base::clock::TimeSource;
use crate::base::config::{Config, Environment, Progress};
pub use crate::base::entropy::RandomSource;
use crate::base::error::Result;
use crate::base::lock::lock;
use crate::base::process::Origin;
use crate::callbacks::wakers::Wakers;
pub use crate::io::byte_stream::ByteStream;
use crate::io::listener::{Listener, PeerAddr, new_socket};
use crate::io::reactor::Reactor;
use crate::io::socket::Socket;
use crate::link::Link;
use crate::memory::{ConnBuffer, HeapBytes, Region, RegionTable};
use crate::node::membership;
use crate::ops::remote::Remote;
use crate::state::inner::{SessionInit, SessionInner};
use crate::state::listeners::Listeners;
use crate::transport::registry::{CustomDomains, Domains};

/// What a driven session is made of.
pub struct SessionParts {
    /// Its rank.
    pub rank: Rank,
    /// Ranks of the job are below it.
    pub ranks: u32,
    /// Where it says that it listens. Nothing is bound there.
    pub listener: SocketAddr,
    /// Bytes of the buffer.
    pub buffer_len: usize,
    /// Operations that a link can have.
    pub slots: usize,
    /// Messages that an inbox holds.
    pub inbox_messages: usize,
    /// How many connections may be unproven at a time.
    pub pending: usize,
    /// The deadline of operations and handshakes.
    pub deadline: Duration,
    /// Time between heartbeats.
    pub heartbeat: Duration,
    /// The name of its host.
    pub host: [u8; 16],
    /// Its first incarnation.
    pub incarnation: Incarnation,
    /// By which it proves that it is of the same user as its peers.
    pub key: [u8; 32],
    /// Its clock.
    pub clock: Arc<dyn TimeSource>,
    /// Its chance.
    pub entropy: Arc<dyn RandomSource>,
}

/// A session that its holder drives.
#[derive(Debug)]
pub struct DrivenSession {
    pub(super) shared: Arc<SessionInner>,
    /// Storage.
    links: Vec<Arc<Link>>,
    queued: VecDeque<u32>,
}

impl DrivenSession {
    /// Starts it.
    ///
    /// # Errors
    /// As starting a session.
    pub fn start(parts: SessionParts) -> Result<Self> {
        let config = Config {
            tcp: Some(parts.listener),
            buffer_bytes: u64::try_from(parts.buffer_len).unwrap_or(u64::MAX),
            ranks: parts.ranks,
            slots: parts.slots,
            deadline: parts.deadline,
            heartbeat: Some(parts.heartbeat),
            spin: Duration::ZERO,
            progress: Progress::Manual,
            inbox_messages: parts.inbox_messages,
            cma: false,
            ..Config::new(parts.rank, &Environment::default())
        };
        config.check()?;
        let regions = Arc::new(RegionTable::default());
        let buffer = ConnBuffer::new(zeros(&regions, parts.buffer_len)?)?;
        let reactor = Arc::new(Reactor::new(config.progress)?);
        let listeners = Listeners::new(&reactor);
        let fd = new_socket(AddressFamily::INET)?;
        listeners.open(Listener::Tcp { fd, addr: parts.listener })?;
        let domains = Domains::new(&config, &reactor, &CustomDomains::default());
        let shared = SessionInner::new(SessionInit {
            config,
            clock: parts.clock.into(),
            entropy: parts.entropy.into(),
            reactor,
            regions,
            buffer,
            listeners,
            secret: parts.key.into(),
            host: HostId(parts.host),
            netns: 0,
            incarnation: parts.incarnation,
            origin: Origin::here()?,
            // No thread holds it.
            life: None,
            domains,
            places: parts.pending,
            // Those that are called are called on the holder's thread.
            wakers: Wakers::new(true),
        });
        // Events are counted although nobody sleeps.
        shared.events.waiting.fetch_add(1, Ordering::SeqCst);
        Ok(Self { shared, links: Vec::new(), queued: VecDeque::new() })
    }

    /// The buffer.
    #[must_use]
    pub fn buffer(&self) -> &ConnBuffer {
        &self.shared.buffer
    }

    /// Another region; zeros.
    ///
    /// # Errors
    /// As adopting memory.
    pub fn zeros(&self, len: usize) -> Result<Region> {
        zeros(&self.shared.regions, len)
    }

    /// Whether the range lies in the buffer.
    ///
    /// # Errors
    /// `Range`.
    pub fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        self.shared.buffer.region().slice(offset, len).map(|_| ())
    }

    /// Changes whenever a peer came, went or sent something.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.shared.events.sequence.load(Ordering::SeqCst)
    }

    /// Looks at all deadlines. When it is to be called next.
    pub fn on_timer(&mut self, now: Instant) -> Instant {
        self.shared.on_timer(now, hmc_core::time::Duration::ZERO, &mut self.links)
    }

    /// Polls the links that asked for it. Whether there was anything.
    pub fn run_scheduled(&mut self) -> bool {
        self.shared.run_scheduled(&mut self.queued)
    }

    /// Whether there is somebody for whom time has to be kept.
    #[must_use]
    pub fn has_peers(&self) -> bool {
        self.shared.has_peers()
    }

    /// Somebody connected. The number of the pending connection, unless it is refused at once.
    pub fn accept(&self, stream: Box<dyn ByteStream>, from: SocketAddr) -> Option<u32> {
        self.shared.add_pending(Socket::from(stream), PeerAddr::Tcp(from), 0)
    }

    /// Receives what a pending connection has sent.
    pub fn poll_pending(&self, number: u32) {
        self.shared.poll_pending(number);
    }

    /// When a lost peer has to be dialed again.
    #[must_use]
    pub fn reconnect_at(&self) -> Instant {
        self.shared.reconnect_at()
    }

    /// A lost peer whose time to be dialed again has come.
    #[must_use]
    pub fn next_reconnect(&self, now: Instant) -> Option<Rank> {
        self.shared.next_reconnect(now)
    }

    /// How a peer was dialed.
    #[must_use]
    pub fn route(&self, rank: Rank) -> Option<(Address, ConnType)> {
        lock(&self.shared.routes).get(&rank).map(|route| (route.address.clone(), route.conn))
    }

    /// Nobody dials that rank any more.
    pub fn note_dial_failed(&self, rank: Rank) {
        self.shared.update_membership(membership::Input::DialFailed { rank });
    }

    /// Makes no more links.
    pub fn stop_links(&self) {
        self.shared.stopping_links.store(true, Ordering::Release);
    }

    /// The newest link of a rank.
    #[must_use]
    pub fn link(&self, rank: Rank) -> Option<DrivenLink> {
        self.shared.link(rank).map(DrivenLink)
    }

    /// The live link of a rank.
    ///
    /// # Errors
    /// `PeerDead`, `NotFound`.
    pub fn live_link(&self, rank: Rank) -> Result<DrivenLink> {
        self.shared.live_link(rank).map(DrivenLink)
    }

    /// The links that are not over.
    #[must_use]
    pub fn links(&self) -> Vec<DrivenLink> {
        self.shared.links().into_iter().map(DrivenLink).collect()
    }

    /// Calls `f` with each link that is not over.
    pub fn for_each_link(&mut self, f: impl FnMut(DrivenLink)) {
        self.shared.links_into(&mut self.links);
        self.links.drain(..).map(DrivenLink).for_each(f);
    }

    /// The handle of the peer of a link.
    #[must_use]
    pub fn peer(&self, link: DrivenLink) -> Peer {
        Peer { link: link.0, shared: Arc::clone(&self.shared) }
    }

    /// A window of a peer that was described by other means than its label.
    #[must_use]
    pub fn remote(&self, peer: &Peer, window: WindowDesc) -> Remote {
        Remote::new(peer.clone(), window)
    }
}

fn zeros(regions: &Arc<RegionTable>, len: usize) -> Result<Region> {
    regions.adopt(Box::new(HeapBytes::from(vec![0; len])))
}
