//! Strangers: connections that have not said who they are, and what becomes of them.
//!
//! At most [`MAX_PENDING`] at a time and [`MAX_PER_SOURCE`] from one address; each has two seconds
//! and half a kilobyte for its first words. None of them can delay another.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::ctrl::framer::{Framer, Next};
use hmc_core::ctrl::machine::{Acceptor, Control, Upstream};
use hmc_core::ctrl::output::{Event, Output};
use hmc_core::ctrl::roster::Verdict;
use hmc_core::kinds::{ConnType, Incarnation, Rank};
use hmc_core::limits::MAX_PENDING;
use hmc_core::time::Instant;
use hmc_core::wire::advert::{ENDPOINT_SHM, ENDPOINT_TCP, ENDPOINT_UCX, Endpoint};
use hmc_core::wire::hello::{Features, Hello, HostId, LinkToken};
use hmc_core::wire::reject::RejectReason;
use rustix::io::Errno;

use crate::address::Address;
use crate::clock;
use crate::driver::Token;
use crate::link::ctrl::CtrlState;
use crate::link::data::DataState;
use crate::link::{Life, Link, LinkParts};
use crate::listen::Source;
use crate::node::inbox::Inbox;
use crate::node::registry::{Input, Output as Decision};
use crate::redial::Reach;
use crate::shared::{Shared, lock};
use crate::socket::Socket;
use crate::transport::shm::ShmPort;
use crate::transport::stream::{StreamPort, StreamSetup};
use crate::transport::ucx::UcxPort;
use crate::transport::{Port, SharedInbox};

/// Strangers from one address at a time.
pub(crate) const MAX_PER_SOURCE: usize = 16;

#[derive(Debug)]
pub(crate) struct Pending {
    socket: Arc<Socket>,
    source: Source,
    door: u32,
    control: Control,
    framer: Framer<Vec<u8>>,
}

/// What a stranger turned out to be.
enum Turned {
    /// Still unknown.
    Waiting,
    /// Gone, or refused.
    Away,
    /// Connected or attached: no stranger any more.
    Home,
}

/// A first message, copied out of the buffer.
enum First {
    Native { rank: Rank, incarnation: Incarnation, host: HostId, route: Option<Address> },
    Upstream { rank: Rank },
    Attach { rank: Rank, token: LinkToken, channel: u8 },
}

/// What the data plane of a link is made of.
pub(crate) struct Way {
    pub(crate) serial: u32,
    pub(crate) conn: ConnType,
    /// The link's second connection.
    pub(crate) socket: Arc<Socket>,
    pub(crate) peer: Rank,
    /// The peer's process, when it is one of this host.
    pub(crate) pid: Option<u32>,
    /// The peer says that it runs on this system.
    pub(crate) near: bool,
    pub(crate) features: Features,
    pub(crate) inbox: SharedInbox,
}

impl Shared {
    /// Lets in who waits at a door. `Err` when descriptors are used up: pause.
    pub(crate) fn greet(&self, door: u32) -> std::result::Result<(), Errno> {
        while let Some((fd, source)) = self.doors.accept(door)? {
            self.meet(fd.into(), source, door);
        }
        Ok(())
    }

    /// A stranger came by a door. Gives it a number, or turns it away: the connection closes with `socket`.
    pub(crate) fn meet(&self, socket: Socket, source: Source, door: u32) -> Option<u32> {
        let mut pending = lock(&self.pending);
        let same = pending
            .values()
            .filter(|p| source.host().is_some() && p.source.host() == source.host())
            .count();
        if pending.len() >= MAX_PENDING || same >= MAX_PER_SOURCE || self.is_leaving() {
            // Dropped: closed at once. They may come back.
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let acceptor = Acceptor {
            rank: self.config.rank,
            job: self.config.job,
            upstream: if self.config.upstream { Upstream::Allowed } else { Upstream::Refused },
        };
        let id = self.next_pending.fetch_add(1, Ordering::Relaxed);
        let socket = Arc::new(socket);
        if self.driver.watch_socket(&socket, Token::Pending(id)).is_err() {
            return None;
        }
        let control = Control::accepted(&acceptor, clock::now());
        let framer = CtrlState::new_framer();
        pending.insert(id, Pending { socket, source, door, control, framer });
        Some(id)
    }

    /// A stranger's socket is readable.
    pub(crate) fn hear_stranger(&self, id: u32) {
        let Some(mut p) = lock(&self.pending).remove(&id) else {
            return;
        };
        match self.listen_to(&mut p) {
            Turned::Waiting => {
                lock(&self.pending).insert(id, p);
            }
            Turned::Away => {
                self.driver.unwatch_socket(&p.socket);
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            Turned::Home => {}
        }
    }

    /// Turns away strangers whose time is up.
    pub(crate) fn tick_strangers(&self, now: Instant) {
        lock(&self.pending).retain(|_, p| {
            p.control.tick(now);
            let stays = p.control.close_reason().is_none();
            if !stays {
                self.driver.unwatch_socket(&p.socket);
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            stays
        });
    }

    fn listen_to(&self, p: &mut Pending) -> Turned {
        loop {
            let now = clock::now();
            let first = match p.framer.next(p.control.frame_limit()) {
                Ok(Next::Frame(header, payload)) => match p.control.receive(header, payload, now) {
                    Ok(Some(event)) => self.first_words(&event, p.source),
                    Ok(None) => None,
                    Err(v) => {
                        tracing::debug!(why = %v, "refused a stranger");
                        say_last_words(p);
                        return Turned::Away;
                    }
                },
                Ok(Next::Need(n)) => {
                    // Exactly what belongs to the first frame: what follows an ATTACH is payload.
                    let space = p.framer.space();
                    let n = n.min(space.len());
                    match p.socket.recv(space.get_mut(..n).unwrap_or_default()) {
                        Ok(0) => return Turned::Away,
                        Ok(n) => {
                            p.framer.filled(n, now);
                            continue;
                        }
                        Err(Errno::AGAIN) => {
                            p.control.note_received(p.framer.began(), now);
                            return Turned::Waiting;
                        }
                        Err(_) => return Turned::Away,
                    }
                }
                Ok(Next::Grow(n)) => {
                    // At most MAX_HELLO_BYTES and a header: the limit was applied already.
                    if p.framer.grow(vec![0; n]).is_err() {
                        return Turned::Away;
                    }
                    continue;
                }
                Err(e) => {
                    let _ = p.control.malformed(e);
                    say_last_words(p);
                    return Turned::Away;
                }
            };
            let outcome = match first {
                Some(First::Native { rank, incarnation, host, route }) => {
                    self.admit(p, rank, incarnation, host, route)
                }
                Some(First::Upstream { rank }) => self.admit_upstream(p, rank),
                Some(First::Attach { rank, token, channel }) => {
                    self.admit_channel(p, rank, &token, channel)
                }
                None => return Turned::Away,
            };
            return match outcome {
                Ok(()) => Turned::Home,
                Err(why) => {
                    tracing::debug!(?why, "refused a stranger");
                    let _ = p.control.reject(why);
                    say_last_words(p);
                    Turned::Away
                }
            };
        }
    }

    fn first_words(&self, event: &Event<'_>, source: Source) -> Option<First> {
        Some(match event {
            Event::HelloReceived(h) => First::Native {
                rank: h.rank,
                incarnation: h.incarnation,
                host: h.host,
                route: self.route_back(h, source),
            },
            Event::UpstreamHello { rank } => First::Upstream { rank: *rank },
            Event::AttachReceived { rank, token, channel } => {
                First::Attach { rank: *rank, token: *token, channel: *channel }
            }
            _ => return None,
        })
    }

    /// Where the stranger itself listens, should it have to be dialed.
    fn route_back(&self, h: &Hello<'_>, source: Source) -> Option<Address> {
        h.endpoints.iter().find_map(|blob| match (blob.typed(), source) {
            (Ok(Endpoint::Shm { path }), Source::Uds { .. }) if h.host == self.host => {
                let path = std::path::PathBuf::from(std::ffi::OsString::from(
                    std::str::from_utf8(path).ok()?,
                ));
                path.parent().map(|dir| Address::Uds(dir.to_path_buf()))
            }
            (Ok(e @ Endpoint::Tcp { .. }), Source::Tcp(from)) => {
                e.port().map(|port| Address::Tcp((from.ip(), port).into()))
            }
            _ => None,
        })
    }

    fn judge(&self, input: Input) -> std::result::Result<(), RejectReason> {
        if self.is_leaving() {
            return Err(RejectReason::ShuttingDown);
        }
        match self.decide(input) {
            Decision::Judged(verdict) => reason(verdict).map_or(Ok(()), Err),
            _ => Err(RejectReason::Busy),
        }
    }

    fn admit(
        &self,
        p: &mut Pending,
        rank: Rank,
        incarnation: Incarnation,
        host: HostId,
        route: Option<Address>,
    ) -> std::result::Result<(), RejectReason> {
        // A process that was killed and started again may be faster than the news of its death.
        if let Some(old) = self.link(rank)
            && old.incarnation < incarnation
        {
            old.turn_ctrl(false);
        }
        self.judge(Input::Hello { rank, incarnation, host })?;
        let serial = self.next_serial();
        let busy = |_| RejectReason::Busy;
        let token = self.token_for(serial).map_err(busy)?;
        let endpoints = self.endpoints(Some(p.door));
        let ours = self.hello(&endpoints, self.next_life(), Some(rank)).map_err(busy)?;
        p.control.accept(&ours, token, clock::now()).map_err(|_| RejectReason::Busy)?;
        let peer_listens = route.is_some();
        if let Some(address) = route {
            let redial = lock(&self.registry).redials(rank, peer_listens, self.listens());
            let conn = ConnType::Auto;
            lock(&self.routes).insert(rank, Reach { address, conn, redial });
        } else {
            lock(&self.routes).remove(&rank);
        }
        // The data plane comes with the second connection.
        let data = DataState::new(Port::None, self.config.slots, false, true);
        self.open(p, serial, rank, incarnation, host == self.host, data);
        Ok(())
    }

    fn admit_upstream(&self, p: &mut Pending, rank: Rank) -> std::result::Result<(), RejectReason> {
        // Upstream knows no incarnations: a rank that died may come back.
        let incarnation = self.next_life();
        self.judge(Input::Hello { rank, incarnation, host: HostId::default() })?;
        p.control.accept_upstream().map_err(|_| RejectReason::Busy)?;
        let data = DataState::new(Port::None, 1, true, false);
        let serial = self.next_serial();
        self.open(p, serial, rank, incarnation, false, data);
        if let Some(link) = self.link_by_serial(serial) {
            link.check_ready();
        }
        Ok(())
    }

    pub(crate) fn new_inbox(&self) -> SharedInbox {
        let (messages, bytes) = (self.config.inbox_messages, self.config.inbox_bytes);
        Arc::new(std::sync::Mutex::new(Inbox::new(messages, bytes)))
    }

    fn open(
        &self,
        p: &mut Pending,
        serial: u32,
        peer: Rank,
        incarnation: Incarnation,
        near: bool,
        data: DataState,
    ) {
        self.driver.unwatch_socket(&p.socket);
        let acceptor =
            Acceptor { rank: self.config.rank, job: self.config.job, upstream: Upstream::Refused };
        let spare = Control::accepted(&acceptor, clock::now());
        let control = std::mem::replace(&mut p.control, spare);
        let framer = std::mem::replace(&mut p.framer, CtrlState::new_framer());
        let link = Link::new(LinkParts {
            session: self.id,
            serial,
            peer,
            incarnation,
            near,
            choices: Vec::new(),
            spin: self.config.spin,
            driver: Arc::clone(&self.driver),
            owner: self.owner(),
            ctrl: CtrlState::new(Arc::clone(&p.socket), control, framer),
            data,
            data_socket: None,
            inbox: self.new_inbox(),
        });
        self.publish(&link);
        link.ctrl().send_pending(clock::now());
        self.watch(&link);
    }

    /// The second connection of a link that was accepted before.
    fn admit_channel(
        &self,
        p: &mut Pending,
        rank: Rank,
        token: &LinkToken,
        channel: u8,
    ) -> std::result::Result<(), RejectReason> {
        let serial = lock(&self.tokens).take(token).ok_or(RejectReason::BadToken)?;
        let link = self.link_by_serial(serial).ok_or(RejectReason::BadToken)?;
        if link.peer != rank || link.life() != Life::Opening {
            return Err(RejectReason::BadToken);
        }
        let conn = match (channel, p.source) {
            (ENDPOINT_SHM, Source::Uds { .. }) => ConnType::Shm,
            (ENDPOINT_TCP, Source::Tcp(_)) => ConnType::Tcp,
            (ENDPOINT_UCX, _) if self.ucx_begun().is_some() => ConnType::Ucx,
            _ => return Err(RejectReason::NotAuthorised),
        };
        let pid = match p.source {
            Source::Uds { pid } => Some(pid),
            Source::Tcp(_) => None,
        };
        let features = link.ctrl().features();
        let port = self
            .new_port(Way {
                serial,
                conn,
                socket: Arc::clone(&p.socket),
                peer: rank,
                pid,
                near: link.near,
                features,
                inbox: link.inbox_handle(),
            })
            .map_err(|e| {
                tracing::warn!(peer = rank.0, error = %e, "no data plane for a peer that asked for one");
                RejectReason::Busy
            })?;
        p.control.accept_attach().map_err(|_| RejectReason::Busy)?;
        self.driver.unwatch_socket(&p.socket);
        say_last_words(p);
        link.choose(conn, "the peer dialed it".into());
        if let Some(route) = lock(&self.routes).get_mut(&rank) {
            // Should it be lost: as the peer wanted it.
            route.conn = conn;
        }
        if !link.attach(Arc::clone(&p.socket), port) {
            return Err(RejectReason::BadToken);
        }
        if let Err(e) = self.introduce(&link) {
            link.die(false, &format!("its window could not be offered: {e}"));
            return Ok(());
        }
        self.watch(&link);
        link.check_ready();
        Ok(())
    }

    /// The data plane on a connected socket.
    pub(crate) fn new_port(&self, way: Way) -> crate::error::Result<Port> {
        let Way { serial, conn, socket, peer, pid, near, features, inbox } = way;
        let stream = StreamPort::new(StreamSetup {
            socket,
            peer,
            local: conn == ConnType::Shm,
            pid,
            cma: self.config.cma,
            batched_acks: features.contains(Features::BATCHED_ACKS),
            windows: self.config.windows,
            inbox,
        });
        Ok(match conn {
            ConnType::Shm => Port::Shm(Box::new(ShmPort::new(stream, self.life.as_deref())?)),
            ConnType::Ucx => {
                let port = UcxPort::new(stream, self.ucx()?, serial, near, &self.driver)?;
                Port::Ucx(Box::new(port))
            }
            _ => Port::Tcp(Box::new(stream)),
        })
    }
}

/// Why a verdict is a refusal, if it is.
fn reason(verdict: Verdict) -> Option<RejectReason> {
    match verdict {
        Verdict::Accept | Verdict::Replace => None,
        Verdict::Duplicate => Some(RejectReason::Duplicate),
        // It may try again when our own dial has come to nothing.
        Verdict::Crossing => Some(RejectReason::Busy),
        Verdict::Stale { seen } => Some(RejectReason::Stale { seen }),
        Verdict::BadRank { limit } => Some(RejectReason::BadRank { limit }),
    }
}

/// Sends what the machine still has to say. A socket that is full this early is not worth waiting
/// for.
fn say_last_words(p: &mut Pending) {
    while let Some(output) = p.control.poll_output() {
        if let Output::Transmit(frame) = output {
            let _ = p.socket.send(frame.as_bytes());
        }
    }
}
