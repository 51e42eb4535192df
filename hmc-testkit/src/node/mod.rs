//! A whole session without sockets, threads or a clock of its own: one input at a time, then its outputs.
//!
//! Everything that a session decides is the real thing: handshakes, registry, links, the stream transport, windows,
//! inbox, redials, goodbyes. Replaced are the kernel's sockets (by simulated connections), the clock and the entropy (handed in).
//! One thread drives a node; several nodes may live in one thread.

mod chance;
mod conn;
mod connects;
mod io;
mod node_request;
mod pending_connect;
mod pending_request;
mod pipe;
mod requests;
mod sending;
mod virtual_clock;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hmc_core::time::{Duration as NanoDuration, Instant};
use hmc_core::types::{Incarnation, Rank};
use hmc_std::error::{Error, ErrorKind, Result};
use hmc_std::internals::link::DrivenLink;
use hmc_std::internals::session::{DrivenSession, SessionParts};
use hmc_std::memory::{Region, Span};
use hmc_std::peer::Peer;
use hmc_std::window::Window;

use chance::Chance;
use conn::{Conn, Server};
pub use io::{ELSEWHERE, Input, Output, Settings};
pub use node_request::NodeRequest;
use pending_connect::PendingConnect;
use pending_request::PendingRequest;
use pipe::{Pipe, Touched};
use virtual_clock::VirtualClock;

/// Where rank 0 listens; the others follow.
const FIRST_PORT: u16 = 20_000;
/// Send buffers of connections: a small one makes partial writes common.
const SEND_SPACES: [usize; 3] = [1 << 10, 8 << 10, 64 << 10];
/// Messages that an inbox holds: a small one is often full.
const INBOX_MESSAGES: [usize; 3] = [2, 16, 4096];
/// Bits of the wall clock below the number of a process's start.
const START_SHIFT: u32 = 50;
/// Ranks of a world are below it.
const RANKS: u32 = 256;
/// Operations of one link: more than an application of a world asks for at a time.
const SLOTS: usize = 96;
/// Connections that may be unproven at a time: few, so that they run out.
const PENDING: usize = 16;
/// Rounds over what is ready after one input; more work waits for the next tick.
const ROUNDS: usize = 64;

/// Memory behind a label.
enum Owned {
    Private(Span),
    Exposed(Window<Span>),
}

/// A session that is driven.
pub struct Node {
    session: DrivenSession,
    clock: Arc<VirtualClock>,
    now: Instant,
    /// Of operations and handshakes.
    deadline: Duration,
    conns: BTreeMap<u32, Conn>,
    /// Connections that have something to say.
    touched: Touched,
    /// Connections with bytes that nobody has received yet.
    unread: BTreeSet<u32>,
    dials: BTreeMap<u32, PendingConnect>,
    /// Which dial awaits the connection of that number.
    numbers: BTreeMap<u32, u32>,
    /// Connect requests that completed with success within this input.
    connected: Vec<(u64, u32)>,
    next_number: u32,
    requests: Vec<PendingRequest>,
    owned: BTreeMap<u64, Owned>,
    up: BTreeMap<u32, DrivenLink>,
    out: VecDeque<Output>,
    next_tick: Instant,
    seen_events: u64,
    /// Storage for the connections that are being looked at.
    looks: Vec<u32>,
    send_space: usize,
}

/// One of three sizes, by two bits of the seed.
fn pick(sizes: [usize; 3], seed: u64, shift: u32) -> usize {
    let [a, b, c] = sizes;
    match seed.wrapping_shr(shift) & 3 {
        0 => a,
        1 => b,
        _ => c,
    }
}

/// Where a rank listens: all on one host.
fn listener(rank: u32) -> SocketAddr {
    let port = FIRST_PORT.wrapping_add(u16::try_from(rank).unwrap_or(0));
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Where a connection comes from.
fn source(from: u32) -> SocketAddr {
    match from {
        ELSEWHERE => SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), FIRST_PORT),
        rank => listener(rank),
    }
}

impl Node {
    /// A session of that rank, listening.
    ///
    /// # Errors
    /// As starting a session.
    pub fn new(settings: &Settings) -> Result<Self> {
        // Seeds of neighbours may differ in a few bits only.
        let sizes = settings.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_shr(56);
        let mut host = [0; 16];
        for (to, from) in host.iter_mut().zip(settings.rank.to_le_bytes()) {
            *to = from;
        }
        let len = usize::try_from(settings.buffer_len).unwrap_or(0);
        let unix = settings.start.wrapping_shl(START_SHIFT);
        let clock = Arc::new(VirtualClock::new(settings.now, unix));
        let session = DrivenSession::start(SessionParts {
            rank: Rank(settings.rank),
            ranks: RANKS,
            listener: listener(settings.rank),
            buffer_len: len,
            slots: SLOTS,
            inbox_messages: pick(INBOX_MESSAGES, sizes, 2),
            pending: PENDING,
            deadline: settings.deadline,
            heartbeat: settings.heartbeat,
            host,
            incarnation: Incarnation(unix),
            // All of a world are one user's.
            key: [7; 32],
            clock: Arc::<VirtualClock>::clone(&clock),
            entropy: Arc::new(Chance::new(settings.seed)),
        })?;
        Ok(Self {
            session,
            clock,
            now: settings.now,
            deadline: settings.deadline,
            conns: BTreeMap::new(),
            touched: Touched::default(),
            unread: BTreeSet::new(),
            dials: BTreeMap::new(),
            numbers: BTreeMap::new(),
            connected: Vec::new(),
            next_number: 1,
            requests: Vec::new(),
            owned: BTreeMap::new(),
            up: BTreeMap::new(),
            out: VecDeque::new(),
            next_tick: settings.now,
            seen_events: 0,
            looks: Vec::new(),
            // Whoever has much to say has space for it: else the way there and back of each piece adds up.
            send_space: pick(SEND_SPACES, sizes, 0).max((len >> 5).min(64 << 10)),
        })
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.now = now;
        self.clock.set(now);
        let conn = self.take_in(input);
        self.run_until_idle(conn);
    }

    /// The next output, in order.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When it wants [`Input::Tick`] next.
    #[must_use]
    pub fn wake_at(&self) -> Instant {
        let mut at = self.session.reconnect_at();
        if !self.up.is_empty() || !self.dials.is_empty() || self.session.has_peers() {
            at = at.min(self.next_tick);
        }
        let requests =
            self.requests.iter().map(PendingRequest::deadline).min().unwrap_or(Instant::NEVER);
        let dials = self.dials.values().map(PendingConnect::wake).min().unwrap_or(Instant::NEVER);
        at.min(requests).min(dials)
    }

    /// Copies bytes out of the buffer (`None`) or of the memory behind a label. Whether they are there.
    pub fn read(&self, label: Option<u64>, offset: u64, out: &mut [u8]) -> bool {
        match label.map(|l| self.owned.get(&l)) {
            None => self.session.buffer().read_at(offset, out).is_ok(),
            Some(None) => false,
            Some(Some(Owned::Private(span))) => span.read_at(offset, out).is_ok(),
            Some(Some(Owned::Exposed(window))) => window.read_at(offset, out).is_ok(),
        }
    }

    /// Copies bytes in.
    pub fn write(&mut self, label: Option<u64>, offset: u64, bytes: &[u8]) -> bool {
        match label.map(|l| self.owned.get_mut(&l)) {
            None => self.session.buffer().write_at(offset, bytes).is_ok(),
            Some(None) => false,
            Some(Some(Owned::Private(span))) => span.write_at(offset, bytes).is_ok(),
            Some(Some(Owned::Exposed(window))) => window.write_at(offset, bytes).is_ok(),
        }
    }

    /// Applies an input. Gives the connection that has to be served.
    fn take_in(&mut self, input: Input<'_>) -> Option<u32> {
        match input {
            Input::Opened { number, conn } => {
                let pipe = Pipe::new(conn, &self.touched, self.send_space);
                self.conns.insert(conn, Conn { pipe: pipe.clone(), server: None });
                self.opened(number, Ok((conn, pipe)));
                None
            }
            Input::Failed { number } => {
                let e = Error::new(ErrorKind::Unavailable, "nobody answers there");
                self.opened(number, Err(e));
                None
            }
            Input::Accepted { conn, from } => {
                let pipe = Pipe::new(conn, &self.touched, self.send_space);
                let id = self.session.accept(pipe.held(), source(from));
                let server = id.map(Server::PendingConn);
                self.conns.insert(conn, Conn { pipe, server });
                None
            }
            Input::Bytes { conn, bytes } => {
                self.conns.get(&conn)?.pipe.arrive(bytes);
                Some(conn)
            }
            Input::Space { conn, bytes } => {
                self.conns.get(&conn)?.pipe.left(bytes);
                Some(conn)
            }
            Input::Closed { conn, reset } => {
                self.conns.get(&conn)?.pipe.end(reset);
                Some(conn)
            }
            Input::Tick => None,
            Input::Request { number, request } => {
                self.begin_request(number, request);
                None
            }
        }
    }

    /// Works until nothing more can be done with what is there.
    fn run_until_idle(&mut self, conn: Option<u32>) {
        if let Some(conn) = conn {
            self.serve(conn);
        }
        if self.now >= self.next_tick {
            self.next_tick = self.session.on_timer(self.now);
        }
        for _ in 0..ROUNDS {
            let mut busy = self.session.run_scheduled();
            busy |= self.serve_paused();
            busy |= self.go_on_dialing();
            while let Some(rank) = self.session.next_reconnect(self.now) {
                self.redial(rank);
                busy = true;
            }
            busy |= self.notify_waiters();
            busy |= self.complete_requests();
            if !busy {
                break;
            }
        }
        self.correct_connected();
        self.collect();
    }

    /// A link that came up and went within one input was never there for the application.
    fn correct_connected(&mut self) {
        for (number, rank) in std::mem::take(&mut self.connected) {
            if self.up.contains_key(&rank) {
                continue;
            }
            let dead = || {
                let e = Error::new(ErrorKind::PeerDead, "it went as soon as it had come");
                e.with_peer(Rank(rank))
            };
            for output in &mut self.out {
                if let Output::Result { number: t, result } = output
                    && *t == number
                {
                    *result = Err(dead());
                }
            }
        }
    }

    /// Gives what is ready on a connection to whoever serves it.
    fn serve(&mut self, conn: u32) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        match &c.server {
            None => return,
            Some(Server::Link(half)) => half.poll(),
            Some(Server::PendingConn(id)) => {
                self.session.poll_pending(*id);
                // It may be one of a link's connections now.
                let links = self.session.links();
                let half = links.iter().find_map(|l| l.half_of(|s| c.pipe.is_behind(s)));
                if let Some(half) = half {
                    c.server = Some(Server::Link(half));
                }
            }
        }
        if c.pipe.is_readable() {
            self.unread.insert(conn);
        }
    }

    /// Connections with unread bytes whose link had to pause (a full inbox, a budget used up).
    fn serve_paused(&mut self) -> bool {
        let mut busy = false;
        for id in std::mem::take(&mut self.unread) {
            let before = self.conns.get(&id).map(|c| c.pipe.unread());
            self.serve(id);
            busy |= self.conns.get(&id).map(|c| c.pipe.unread()) != before;
        }
        busy
    }

    // Events.

    /// Peers that came or went, and what they said. Whether there was anything.
    fn notify_waiters(&mut self) -> bool {
        let events = self.session.events();
        if std::mem::replace(&mut self.seen_events, events) == events {
            return false;
        }
        let mut busy = false;
        let (up, out) = (&mut self.up, &mut self.out);
        self.session.for_each_link(|link| {
            let rank = link.rank().0;
            if link.is_ready() && !up.contains_key(&rank) {
                let start = link.incarnation().0.wrapping_shr(START_SHIFT);
                out.push_back(Output::PeerUp { rank, start });
                up.insert(rank, link);
                busy = true;
            }
        });
        let mut down = Vec::new();
        for (rank, link) in &self.up {
            while let Some(message) = link.take_message() {
                self.out.push_back(Output::Message { from: *rank, message });
                busy = true;
            }
            if link.is_dead() {
                down.push(*rank);
            }
        }
        for rank in down {
            self.up.remove(&rank);
            self.out.push_back(Output::PeerDown { rank });
            busy = true;
        }
        busy
    }

    /// What has to leave this node: bytes, credits, closed connections.
    fn collect(&mut self) {
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *touched, &mut self.looks);
        drop(touched);
        for id in self.looks.drain(..) {
            let Some(c) = self.conns.get(&id) else { continue };
            let look = c.pipe.look();
            if !look.sent.is_empty() {
                self.out.push_back(Output::Send { conn: id, bytes: look.sent });
            }
            if look.taken > 0 {
                self.out.push_back(Output::Taken { conn: id, bytes: look.taken });
            }
            if look.closed {
                self.conns.remove(&id);
                if !look.ended {
                    self.out.push_back(Output::Close { conn: id });
                }
            }
        }
    }

    fn peer(&self, rank: u32) -> Result<Peer> {
        let link = self.session.live_link(Rank(rank)).map_err(|e| e.with_peer(Rank(rank)))?;
        link.check_open()?;
        if !link.is_ready() {
            let e = Error::new(ErrorKind::NotFound, "the peer is not connected yet");
            return Err(e.with_peer(Rank(rank)));
        }
        Ok(self.session.peer(link))
    }

    fn fresh_region(&self, len: u64) -> Result<Region> {
        let long = |_| Error::new(ErrorKind::InvalidConfig, "too long for this machine");
        self.session.zeros(usize::try_from(len).map_err(long)?)
    }

    /// The point `d` from now.
    fn deadline_in(&self, d: Duration) -> Instant {
        self.now.after(NanoDuration::from_nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.requests.clear();
        self.owned.clear();
        self.up.clear();
        for link in self.session.links() {
            link.close("the process ended");
        }
    }
}
