//! Dialing: from an address to a link that is ready, on the caller's thread, within a deadline.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use hmc_core::ctrl::machine::Control;
use hmc_core::kinds::{ConnType, Incarnation, Rank};
use hmc_core::time::{Duration, Instant};
use hmc_core::wire::advert::{ENDPOINT_SHM, ENDPOINT_TCP};
use hmc_core::wire::hello::HostId;
use hmc_core::wire::reject::RejectReason;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::address::Address;
use crate::clock;
use crate::config::check_exposure;
use crate::error::{Error, ErrorKind, Result};
use crate::handshake::{Handshake, Met, Reached, open, open_path};
use crate::link::ctrl::CtrlState;
use crate::link::data::DataState;
use crate::link::{Choice, Life, Link, LinkParts, Watch};
use crate::listen::local_peer;
use crate::node::registry::{Input, Output as Decision};
use crate::shared::{Route, Shared, lock};
use crate::transport::loopback::LoopbackPort;
use crate::transport::{Port, SharedInbox};

/// How long a dial that met the peer's own dial waits for that one.
const CROSSING_MS: u64 = 1000;

/// The second connection of a link to be.
struct Attached {
    kind: ConnType,
    fd: Arc<OwnedFd>,
    choices: Vec<Choice>,
    /// The peer's process, as the kernel names it.
    pid: Option<u32>,
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
            return Err(Error::new(ErrorKind::Closed, "this session is shutting down"));
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
        let route = Route { address: address.clone(), conn, redial };
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
                Err(Error::deadline("connecting: the peer accepted but did not open its memory")
                    .with_peer(link.peer))
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
                return Err(Error::new(ErrorKind::Protocol, "an answer to another question"));
            }
        };
        let judged =
            self.decide(Input::Welcome { rank, incarnation: met.incarnation, host: met.host });
        if !matches!(judged, Decision::Judged(v) if v.accepted()) {
            return Ok(Err(RejectReason::Duplicate));
        }
        let inbox = self.new_inbox();
        let attached = self
            .attach(rank, address, conn, &met, deadline)
            .and_then(|a| self.plug_in(rank, a, &inbox));
        let (port, Attached { kind, fd: data_fd, choices, .. }) = match attached {
            Ok(a) => a,
            Err(e) => {
                // The peer lives, but the link never will.
                self.decide(Input::Over { rank, incarnation: met.incarnation, redial: false });
                return Err(e);
            }
        };
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
        if let Err(e) = self.introduce(&link) {
            link.die(false, &format!("its window could not be offered: {e}"));
            return Err(e);
        }
        self.watch(&link);
        Ok(Ok(link))
    }

    fn plug_in(&self, rank: Rank, a: Attached, inbox: &SharedInbox) -> Result<(Port, Attached)> {
        let port = self.new_port(a.kind, Arc::clone(&a.fd), rank, a.pid, Arc::clone(inbox))?;
        Ok((port, a))
    }

    /// Chooses the transport and opens the second connection for it.
    fn attach(
        &self,
        rank: Rank,
        address: &Address,
        conn: ConnType,
        met: &Met,
        deadline: Instant,
    ) -> Result<Attached> {
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
                    note(ConnType::Shm, true, "same host, proven by a passed descriptor".into());
                    if conn == ConnType::Auto {
                        note(ConnType::Tcp, false, "shm is faster".into());
                    }
                    let pid = local_peer(fd.as_fd());
                    return Ok(Attached { kind: ConnType::Shm, fd, choices, pid });
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
            let why = if conn == ConnType::Tcp { "asked for by name" } else { "what is left" };
            note(ConnType::Tcp, true, why.into());
            return Ok(Attached { kind: ConnType::Tcp, fd, choices, pid: None });
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
            Reached::Connected(_) => {
                Err(Error::new(ErrorKind::Protocol, "an answer to another question"))
            }
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
        self.decide(Input::Welcome { rank, incarnation, host: HostId::default() });
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
        // A socket that never says anything stands for the control connection. One of datagrams: a
        // stream that is connected to nobody counts as hung up (EINVAL and POLLHUP).
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
            .map_err(|e| Error::io("cannot make a socket", e))?;
        let fd = Arc::new(fd);
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
    Error::new(kind, format!("the peer refused this process (rank {ours}): {why}")).with_peer(peer)
}
