//! Dialing: from an address to a link that is ready, on the caller's thread, within a deadline.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use hmc_core::ctrl::framer::{Framer, Next};
use hmc_core::ctrl::machine::Control;
use hmc_core::ctrl::output::{CloseReason, Event, Output};
use hmc_core::kinds::{ConnType, Incarnation, Rank};
use hmc_core::time::{Duration, Instant};
use hmc_core::wire::advert::{ENDPOINT_SHM, ENDPOINT_TCP, Endpoint};
use hmc_core::wire::hello::{HostId, LinkToken, Welcome};
use hmc_core::wire::reject::RejectReason;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix};

use crate::address::Address;
use crate::clock;
use crate::config::{check_exposure, uds_path};
use crate::error::{Error, ErrorKind, Result};
use crate::link::ctrl::CtrlState;
use crate::link::data::DataState;
use crate::link::{Choice, Life, Link, LinkParts, Watch};
use crate::listen::{local_peer, new_socket, tune_tcp};
use crate::node::registry::{Input, Output as Decision};
use crate::shared::{Route, Shared, lock};
use crate::transport::Port;
use crate::transport::loopback::LoopbackPort;
use crate::transport::socket;

/// How long a dial that met the peer's own dial waits for that one.
const CROSSING_MS: u64 = 1000;

/// What a WELCOME said, kept.
struct Met {
    incarnation: Incarnation,
    host: HostId,
    token: LinkToken,
    shm: Option<PathBuf>,
    tcp: Option<u16>,
}

/// A connection whose first words are being exchanged.
struct Handshake {
    fd: Arc<OwnedFd>,
    control: Control,
    framer: Framer<Vec<u8>>,
}

/// Where a handshake came to.
enum Reached {
    Connected(Met),
    Attached,
    Refused(RejectReason),
}

impl Handshake {
    fn new(fd: OwnedFd, control: Control) -> Self {
        Self {
            fd: Arc::new(fd),
            control,
            framer: CtrlState::new_framer(),
        }
    }

    fn flush(&mut self) -> Result<()> {
        while let Some(output) = self.control.poll_output() {
            match output {
                Output::Transmit(frame) => {
                    // Half a kilobyte into an empty socket buffer.
                    let n = socket::send(&*self.fd, frame.as_bytes())
                        .map_err(|e| Error::io("cannot say hello", e))?;
                    if n != frame.as_bytes().len() {
                        return Err(Error::new(ErrorKind::Io, "the socket took half a hello"));
                    }
                }
                Output::Close(CloseReason::Refused(_)) | Output::WakeAt(_) => {}
                Output::Close(why) => return Err(closed(why)),
            }
        }
        Ok(())
    }

    /// Talks until the machine says that the connection is up, or refused.
    fn run(&mut self, deadline: Instant) -> Result<Reached> {
        loop {
            self.flush()?;
            let now = clock::now();
            match self.framer.next(self.control.frame_limit()) {
                Ok(Next::Frame(header, payload)) => {
                    let event = self.control.receive(header, payload, now);
                    let event = event
                        .map_err(|v| Error::new(ErrorKind::Protocol, format!("the peer: {v}")))?;
                    match event {
                        Some(Event::Connected(w)) => return Ok(Reached::Connected(Met::of(&w))),
                        Some(Event::Attached) => return Ok(Reached::Attached),
                        Some(Event::Refused(why)) => return Ok(Reached::Refused(why)),
                        _ => {}
                    }
                }
                Ok(Next::Need(n)) => {
                    // No byte beyond the frame: what follows may carry descriptors.
                    let space = self.framer.space();
                    let n = n.min(space.len());
                    match socket::recv(&*self.fd, space.get_mut(..n).unwrap_or_default()) {
                        Ok(0) => return Err(closed(self.control.eof())),
                        Ok(n) => self.framer.filled(n, now),
                        Err(Errno::AGAIN) => {
                            wait_for(&self.fd, PollFlags::IN, deadline)?;
                        }
                        Err(e) => return Err(Error::io("the peer hung up", e)),
                    }
                }
                Ok(Next::Grow(n)) => {
                    let _ = self.framer.grow(vec![0; n]);
                }
                Err(e) => {
                    return Err(Error::new(
                        ErrorKind::Protocol,
                        format!("what answers there does not speak HMC: {e}"),
                    ));
                }
            }
        }
    }
}

impl Met {
    fn of(w: &Welcome<'_>) -> Self {
        let mut met = Self {
            incarnation: w.hello.incarnation,
            host: w.hello.host,
            token: w.token,
            shm: None,
            tcp: None,
        };
        for blob in w.hello.endpoints.iter() {
            match blob.typed() {
                Ok(Endpoint::Shm { path }) => {
                    met.shm = std::str::from_utf8(path).ok().map(PathBuf::from);
                }
                Ok(e @ Endpoint::Tcp { .. }) => met.tcp = e.port(),
                _ => {}
            }
        }
        met
    }
}

fn closed(why: CloseReason) -> Error {
    let kind = match why {
        CloseReason::HelloDeadline | CloseReason::Silent => ErrorKind::DeadlineExceeded,
        CloseReason::Eof | CloseReason::Orderly => ErrorKind::Refused,
        _ => ErrorKind::Protocol,
    };
    Error::new(kind, format!("no connection: {why}"))
}

fn wait_for(fd: &OwnedFd, flags: PollFlags, deadline: Instant) -> Result<()> {
    loop {
        let left = clock::left(deadline);
        if left == Duration::ZERO {
            return Err(Error::deadline("connecting"));
        }
        let timeout = clock::timespec(left);
        match rustix::event::poll(&mut [PollFd::new(fd, flags)], timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(Error::io("poll", e)),
        }
    }
}

fn finish_connect(
    fd: OwnedFd,
    begun: std::result::Result<(), Errno>,
    what: &dyn std::fmt::Display,
    deadline: Instant,
) -> Result<OwnedFd> {
    let fail = |e| Error::io(format_args!("cannot connect to {what}"), e);
    match begun {
        Ok(()) => return Ok(fd),
        Err(Errno::INPROGRESS) => {}
        Err(e) => return Err(fail(e)),
    }
    wait_for(&fd, PollFlags::OUT, deadline)
        .map_err(|_| Error::deadline(format_args!("connecting to {what}")))?;
    match rustix::net::sockopt::socket_error(&fd) {
        Ok(Ok(())) => Ok(fd),
        Ok(Err(e)) | Err(e) => Err(fail(e)),
    }
}

/// A connected socket to an address.
fn open(address: &Address, rank: Rank, deadline: Instant) -> Result<OwnedFd> {
    match address {
        Address::Tcp(addr) => {
            let family = if addr.is_ipv4() {
                AddressFamily::INET
            } else {
                AddressFamily::INET6
            };
            let fd = new_socket(family)?;
            tune_tcp(fd.as_fd());
            let begun = rustix::net::connect(&fd, addr);
            finish_connect(fd, begun, address, deadline)
        }
        Address::Uds(dir) => open_path(&uds_path(dir, rank)?, deadline),
    }
}

fn open_path(path: &std::path::Path, deadline: Instant) -> Result<OwnedFd> {
    let fd = new_socket(AddressFamily::UNIX)?;
    let to = SocketAddrUnix::new(path).map_err(|e| Error::io(path.display(), e))?;
    loop {
        match rustix::net::connect(&fd, &to) {
            // connect(2): the listener's queue is full.
            Err(Errno::AGAIN) if clock::left(deadline) != Duration::ZERO => {
                std::thread::yield_now();
            }
            begun => {
                let fd = finish_connect(fd, begun, &path.display(), deadline)?;
                if local_peer(fd.as_fd()).is_none() {
                    return Err(Error::new(
                        ErrorKind::Refused,
                        format!("{} is served by another user's process", path.display()),
                    ));
                }
                return Ok(fd);
            }
        }
    }
}

impl Shared {
    /// Connects to `rank` at `address`. Returns when the link is ready.
    pub(crate) fn dial(
        &self,
        rank: Rank,
        address: &Address,
        conn: ConnType,
        deadline: Instant,
    ) -> Result<Arc<Link>> {
        if rank == self.config.rank {
            return Err(Error::config(format!(
                "rank {rank} is this session's own; use `loopback()` for transfers to itself"
            )));
        }
        if let Address::Tcp(addr) = address {
            check_exposure(addr.ip(), self.config.insecure)?;
        }
        if self.is_leaving() {
            return Err(Error::new(
                ErrorKind::Closed,
                "this session is shutting down",
            ));
        }
        if self.decide(Input::Dial { rank }) == Decision::No {
            return self.join_existing(rank, deadline);
        }
        let link = match self.dial_fresh(rank, address, conn, deadline) {
            Ok(Ok(link)) => link,
            Ok(Err(RejectReason::Duplicate)) => {
                // Perhaps the peer is dialing us: its connection is the one that stays then.
                self.decide(Input::DialFailed { rank });
                let wait = deadline.min(clock::now().after(Duration::from_millis(CROSSING_MS)));
                return self
                    .wait_news(wait, |s| s.link(rank).filter(|l| l.life() == Life::Ready))
                    .ok_or_else(|| refusal(rank, self.config.rank, RejectReason::Duplicate));
            }
            Ok(Err(why)) => {
                self.decide(Input::DialFailed { rank });
                return Err(refusal(rank, self.config.rank, why));
            }
            Err(e) => {
                self.decide(Input::DialFailed { rank });
                return Err(e.with_peer(rank));
            }
        };
        let redial = lock(&self.registry).redials(rank, true, self.listens());
        let route = Route {
            address: address.clone(),
            conn,
            redial,
        };
        lock(&self.routes).insert(rank, route);
        self.finish(link, deadline)
    }

    /// Waits until both ends have done their part.
    fn finish(&self, link: Arc<Link>, deadline: Instant) -> Result<Arc<Link>> {
        let outcome = link.drive(Watch::Both, deadline, |l| match l.life() {
            Life::Ready => Some(Ok(())),
            Life::Leaving | Life::Dead => Some(Err(l.gone())),
            Life::Opening => None,
        });
        match outcome {
            Some(Ok(())) => Ok(link),
            Some(Err(e)) => Err(e),
            None => {
                link.die(false, "the handshake took too long");
                Err(
                    Error::deadline("connecting: the peer accepted but did not open its memory")
                        .with_peer(link.peer),
                )
            }
        }
    }

    /// The link that exists already or is being made by someone else.
    fn join_existing(&self, rank: Rank, deadline: Instant) -> Result<Arc<Link>> {
        self.wait_news(deadline, |s| match s.link(rank) {
            Some(l) if l.life() == Life::Ready => Some(l),
            _ => None,
        })
        .ok_or_else(|| Error::deadline("waiting for another dial to that rank").with_peer(rank))
    }

    fn dial_fresh(
        &self,
        rank: Rank,
        address: &Address,
        conn: ConnType,
        deadline: Instant,
    ) -> Result<std::result::Result<Arc<Link>, RejectReason>> {
        let fd = open(address, rank, deadline)?;
        // Whoever dials again begins a new life, so that the other end can tell it from the last.
        let incarnation = Incarnation(wall_nanos());
        let endpoints = self.endpoints();
        let hello = self.hello(&endpoints, incarnation, Some(rank))?;
        let control = Control::dial(&hello, clock::now())
            .map_err(|e| Error::new(ErrorKind::InvalidConfig, e.to_string()))?;
        let mut talk = Handshake::new(fd, control);
        let met = match talk.run(deadline)? {
            Reached::Connected(met) => met,
            Reached::Refused(why) => return Ok(Err(why)),
            Reached::Attached => {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    "an answer to another question",
                ));
            }
        };
        let judged = self.decide(Input::Welcome {
            rank,
            incarnation: met.incarnation,
            host: met.host,
        });
        if !matches!(judged, Decision::Judged(v) if v.accepted()) {
            return Ok(Err(RejectReason::Duplicate));
        }
        let inbox = self.new_inbox();
        let attached = self.attach(rank, address, conn, &met, deadline);
        let (kind, data_fd, choices, pid) = match attached {
            Ok(a) => a,
            Err(e) => {
                self.decide(Input::Over {
                    rank,
                    incarnation: met.incarnation,
                    redial: false,
                });
                return Err(e);
            }
        };
        let port = self.new_port(kind, Arc::clone(&data_fd), rank, pid, Arc::clone(&inbox))?;
        let link = Link::new(LinkParts {
            serial: self.next_serial(),
            peer: rank,
            incarnation: met.incarnation,
            choices,
            spin: self.config.spin,
            driver: Arc::clone(&self.driver),
            owner: self.owner(),
            ctrl: CtrlState::new(talk.fd, talk.control, talk.framer),
            data: DataState::new(port, self.config.slots, true, true),
            data_fd: Some(data_fd),
            inbox,
        });
        link.choose(kind, String::new());
        self.publish(&link);
        self.introduce(&link)?;
        self.watch(&link);
        Ok(Ok(link))
    }

    /// Chooses the transport and opens the second connection for it.
    #[allow(clippy::type_complexity, reason = "named where it is taken apart")]
    fn attach(
        &self,
        rank: Rank,
        address: &Address,
        conn: ConnType,
        met: &Met,
        deadline: Instant,
    ) -> Result<(ConnType, Arc<OwnedFd>, Vec<Choice>, Option<u32>)> {
        let mut choices = Vec::new();
        let mut note = |conn, chosen, why: String| choices.push(Choice { conn, chosen, why });
        let wants = |kind| conn == ConnType::Auto || conn == kind;
        if wants(ConnType::Shm) {
            let tried = match &met.shm {
                _ if met.host != self.host => Err("the peer is on another host".to_owned()),
                None => Err("the peer has no local socket (start it with a UDS folder)".to_owned()),
                Some(path) => self
                    .attach_to(open_path(path, deadline), rank, met, ENDPOINT_SHM, deadline)
                    .map_err(|e| e.to_string()),
            };
            match tried {
                Ok(fd) => {
                    note(
                        ConnType::Shm,
                        true,
                        "same host, proven by a passed descriptor".into(),
                    );
                    if conn == ConnType::Auto {
                        note(ConnType::Tcp, false, "shm is faster".into());
                    }
                    let pid = local_peer(fd.as_fd());
                    return Ok((ConnType::Shm, fd, choices, pid));
                }
                Err(why) if conn == ConnType::Shm => {
                    return Err(Error::new(ErrorKind::Unavailable, format!("no shm: {why}")));
                }
                Err(why) => note(ConnType::Shm, false, why),
            }
        }
        if wants(ConnType::Tcp) {
            let port = met.tcp.ok_or_else(|| {
                Error::new(
                    ErrorKind::Unavailable,
                    "no tcp: the peer has no TCP listener (start it with an address)",
                )
            })?;
            let ip = match address {
                Address::Tcp(a) => a.ip(),
                Address::Uds(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            };
            let to = Address::Tcp((ip, port).into());
            let fd = open(&to, rank, deadline);
            let fd = self.attach_to(fd, rank, met, ENDPOINT_TCP, deadline)?;
            let why = if conn == ConnType::Tcp {
                "asked for by name"
            } else {
                "what is left"
            };
            note(ConnType::Tcp, true, why.into());
            return Ok((ConnType::Tcp, fd, choices, None));
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            format!("{conn} is not in this build; use auto, shm or tcp"),
        ))
    }

    fn attach_to(
        &self,
        fd: Result<OwnedFd>,
        rank: Rank,
        met: &Met,
        channel: u8,
        deadline: Instant,
    ) -> Result<Arc<OwnedFd>> {
        let control = Control::attach(self.config.rank, met.token, channel, clock::now())
            .map_err(|e| Error::new(ErrorKind::InvalidConfig, e.to_string()))?;
        let mut talk = Handshake::new(fd?, control);
        match talk.run(deadline)? {
            Reached::Attached => Ok(talk.fd),
            Reached::Refused(why) => Err(refusal(rank, self.config.rank, why)),
            Reached::Connected(_) => Err(Error::new(
                ErrorKind::Protocol,
                "an answer to another question",
            )),
        }
    }

    /// Connects to a node of the C++ HMC, on the control plane only. Its HELLO has no answer, so
    /// this returns when the words were sent.
    pub(crate) fn dial_upstream(
        &self,
        rank: Rank,
        address: &Address,
        deadline: Instant,
    ) -> Result<Arc<Link>> {
        if let Address::Tcp(addr) = address {
            check_exposure(addr.ip(), self.config.insecure)?;
        }
        if self.decide(Input::Dial { rank }) == Decision::No {
            return Err(refusal(rank, self.config.rank, RejectReason::Duplicate));
        }
        let made = open(address, rank, deadline).and_then(|fd| {
            let control = Control::dial_upstream(self.config.rank, rank, clock::now())
                .map_err(|e| Error::new(ErrorKind::InvalidConfig, e.to_string()))?;
            let mut talk = Handshake::new(fd, control);
            talk.flush()?;
            Ok(talk)
        });
        let talk = match made {
            Ok(talk) => talk,
            Err(e) => {
                self.decide(Input::DialFailed { rank });
                return Err(e.with_peer(rank));
            }
        };
        let incarnation = Incarnation(wall_nanos());
        self.decide(Input::Welcome {
            rank,
            incarnation,
            host: HostId::default(),
        });
        let link = Link::new(LinkParts {
            serial: self.next_serial(),
            peer: rank,
            incarnation,
            choices: Vec::new(),
            spin: self.config.spin,
            driver: Arc::clone(&self.driver),
            owner: self.owner(),
            ctrl: CtrlState::new(talk.fd, talk.control, talk.framer),
            data: DataState::new(Port::None, 1, true, false),
            data_fd: None,
            inbox: self.new_inbox(),
        });
        self.publish(&link);
        self.watch(&link);
        link.check_ready();
        Ok(link)
    }

    /// The link of this session to itself.
    pub(crate) fn dial_self(&self) -> Result<Arc<Link>> {
        let rank = self.config.rank;
        if let Some(link) = self.link(rank) {
            return Ok(link);
        }
        let inbox = self.new_inbox();
        let port = LoopbackPort::new(self.config.windows, Arc::clone(&inbox));
        let control = Control::dial_upstream(rank, rank, clock::now())
            .map_err(|e| Error::new(ErrorKind::InvalidConfig, e.to_string()))?;
        // A socket that never says anything stands for the control connection.
        let fd = Arc::new(new_socket(AddressFamily::UNIX)?);
        let link = Link::new(LinkParts {
            serial: self.next_serial(),
            peer: rank,
            incarnation: self.incarnation,
            choices: Vec::new(),
            spin: self.config.spin,
            driver: Arc::clone(&self.driver),
            owner: self.owner(),
            ctrl: CtrlState::new(fd, control, CtrlState::new_framer()),
            data: DataState::new(Port::Loopback(port), self.config.slots, true, true),
            data_fd: None,
            inbox,
        });
        link.choose(ConnType::Loopback, "this session itself".into());
        self.publish(&link);
        self.introduce(&link)?;
        link.check_ready();
        Ok(link)
    }
}

/// Nanoseconds of the wall clock: later lives of a process have higher numbers. Never compared with
/// a deadline.
pub(crate) fn wall_nanos() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

fn refusal(peer: Rank, ours: Rank, why: RejectReason) -> Error {
    let kind = match why {
        RejectReason::Version { .. } => ErrorKind::Version,
        RejectReason::Duplicate => ErrorKind::DuplicateRank,
        RejectReason::WrongJob | RejectReason::WrongRank { .. } | RejectReason::BadRank { .. } => {
            ErrorKind::InvalidConfig
        }
        RejectReason::ShuttingDown => ErrorKind::Closed,
        RejectReason::NotAuthorised => ErrorKind::NoCredentials,
        _ => ErrorKind::Refused,
    };
    Error::new(
        kind,
        format!("the peer refused this process (rank {ours}): {why}"),
    )
    .with_peer(peer)
}
