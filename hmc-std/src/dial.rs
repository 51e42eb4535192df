//! Dialing: from an address to a link that is ready, on the caller's thread, within a deadline.

use std::sync::Arc;

use hmc_core::ctrl::machine::Control;
use hmc_core::kinds::{ConnType, Rank};
use hmc_core::time::{Duration, Instant};
use hmc_core::wire::hello::HostId;
use hmc_core::wire::reject::RejectReason;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::address::Address;
use crate::clock;
use crate::config::check_exposure;
use crate::dialing::{Dialing, Step, Target, refusal};
use crate::error::{Error, ErrorKind, Result};
use crate::handshake::{Handshake, open, open_path, wait_for_answer};
use crate::link::ctrl::CtrlState;
use crate::link::data::DataState;
use crate::link::{Life, Link, LinkParts, Watch};
use crate::node::registry::{Input, Output as Decision};
use crate::shared::Shared;
use crate::socket::Socket;
use crate::transport::Port;
use crate::transport::loopback::LoopbackPort;

/// How long a dial that met the peer's own dial waits for that one.
const CROSSING_MS: u64 = 1000;

impl Shared {
    /// Connects to `rank` at `address`. Returns when the link is ready.
    pub(crate) fn dial(
        &self,
        rank: Rank,
        address: &Address,
        conn: ConnType,
        deadline: Instant,
    ) -> Result<Arc<Link>> {
        let Some(mut dialing) = Dialing::begin(self, rank, address, conn)? else {
            return self.join_existing(rank, deadline);
        };
        let link = loop {
            match dialing.advance(self)? {
                Step::Open(target) => {
                    let opened = match &target {
                        Target::Address(address) => open(address, rank, deadline),
                        Target::Path(path) => open_path(path, deadline),
                    };
                    dialing.opened(self, opened.map(Socket::from))?;
                }
                Step::Hear => {
                    let heard = dialing.socket().map(|s| wait_for_answer(s, deadline));
                    if let Some(Err(e)) = heard {
                        dialing.abandon(self);
                        return Err(e.with_peer(rank));
                    }
                }
                Step::Linked(link) => break link,
                Step::Refused(RejectReason::Duplicate) => {
                    // Perhaps the peer is dialing us: its connection is the one that stays then.
                    let wait = deadline.min(clock::now().after(Duration::from_millis(CROSSING_MS)));
                    return self
                        .wait_news(wait, |s| s.link(rank).filter(|l| l.life() == Life::Ready))
                        .ok_or_else(|| refusal(rank, self.config.rank, RejectReason::Duplicate));
                }
                Step::Refused(why) => return Err(refusal(rank, self.config.rank, why)),
            }
        };
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
            let mut talk = Handshake::new(fd.into(), control);
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
        let incarnation = self.next_life();
        self.decide(Input::Welcome { rank, incarnation, host: HostId::default() });
        let link = Link::new(LinkParts {
            serial: self.next_serial(),
            peer: rank,
            incarnation,
            choices: Vec::new(),
            spin: self.config.spin,
            driver: Arc::clone(&self.driver),
            owner: self.owner(),
            ctrl: CtrlState::new(talk.socket, talk.control, talk.framer),
            data: DataState::new(Port::None, 1, true, false),
            data_socket: None,
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
        let socket = Arc::new(fd.into());
        let link = Link::new(LinkParts {
            serial: self.next_serial(),
            peer: rank,
            incarnation: self.next_life(),
            choices: Vec::new(),
            spin: self.config.spin,
            driver: Arc::clone(&self.driver),
            owner: self.owner(),
            ctrl: CtrlState::new(socket, control, CtrlState::new_framer()),
            data: DataState::new(Port::Loopback(port), self.config.slots, true, true),
            data_socket: None,
            inbox,
        });
        link.choose(ConnType::Loopback, "this session itself".into());
        self.publish(&link);
        self.introduce(&link)?;
        link.check_ready();
        Ok(link)
    }
}
