//! State machine of a dial: from an address to a link, one step at a time.
//!
//! It opens no connection and never blocks: [`Dialer::advance`] returns the next step ([`DialStep`]), and the
//! driver performs it and passes in the result. [`crate::conn::connect`] drives it on the caller's thread.

use std::sync::Arc;

use hmc_core::ctrl::conn::ControlConn;
use hmc_core::ctrl::ranks::Identity;
use hmc_core::time::Instant;
use hmc_core::types::{ConnType, Rank};
use hmc_core::wire::reject::RejectReason;

use crate::base::address::Address;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock::lock;
use crate::base::private_ranks::is_private;
use crate::conn::admit::DataPlaneInit;
use crate::conn::dial_target::DialTarget;
use crate::conn::handshake::{
    Handshake, HandshakeOutcome, WelcomeInfo, invalid_hello, other_question,
};
use crate::conn::hello::with_shm_reason;
use crate::conn::retry::Retries;
use crate::io::listener::local_peer;
use crate::io::socket::Socket;
use crate::link::{Choice, Link, LinkInit, ctrl::CtrlState, data::DataState};
use crate::node::membership::{Input, Output as Decision};
use crate::state::inner::SessionInner;
use crate::state::reconnect_info::ReconnectInfo;
use crate::transport::domain::{Domain, PeerFacts, Side};

/// What a dial needs next.
#[derive(Debug)]
pub(crate) enum DialStep {
    /// A connection there; hand it in by [`Dialer::opened`].
    Open(DialTarget),
    /// Bytes on [`Dialer::socket`].
    Receive,
    /// Nothing before that time.
    Pause(Instant),
    /// Nothing: this is the link. It still has to become ready.
    Linked(Arc<Link>),
    /// Nothing: the peer refused.
    Refused(RejectReason),
}

#[expect(clippy::large_enum_variant, reason = "one a dial, and dials are few")]
enum DialStage {
    /// The control connection must be opened.
    Control,
    /// First words on it.
    Hello(Handshake),
    /// The data connection must be opened.
    Data(WelcomeInfo, Handshake, ConnType),
    /// The token is shown on it.
    Attach(WelcomeInfo, Handshake, ConnType, Handshake),
    Over,
}

/// One dial. Whoever gives up before it is linked or refused calls [`Dialer::abandon`].
pub(crate) struct Dialer {
    rank: Rank,
    /// The rank that the peer must say it has.
    claims: Rank,
    address: Address,
    conn: ConnType,
    choices: Vec<Choice>,
    stage: DialStage,
    /// How often the data connection was closed unanswered, and before when it is not opened again.
    retries: Retries,
    not_before: Instant,
}

impl Dialer {
    /// Begins to dial. `None` when that rank is connected already, or being dialed.
    pub(crate) fn begin(
        shared: &SessionInner,
        (rank, claims): (Rank, Rank),
        address: &Address,
        conn: ConnType,
    ) -> Result<Option<Self>> {
        if rank == shared.config.rank {
            return Err(Error::config(format!("rank {rank} is this session's own")).with_remedy(
                "for transfers to itself use `loopback()` (Rust: `Session::peer` of its own rank)",
            ));
        }
        shared.check_exposure(address)?;
        if shared.is_leaving() {
            return Err(Error::new(ErrorKind::Closed, "this session is shutting down"));
        }
        // Before anything is begun: it takes a moment, and may not be there.
        let conn = shared.activate(conn)?;
        if !is_private(rank) && shared.update_membership(Input::Dial { rank }) == Decision::No {
            return Ok(None);
        }
        let address = address.clone();
        Ok(Some(Self {
            rank,
            claims,
            address,
            conn,
            choices: Vec::new(),
            stage: DialStage::Control,
            retries: Retries::default(),
            not_before: Instant::ZERO,
        }))
    }

    /// The connection on which an answer is awaited.
    pub(crate) fn socket(&self) -> Option<&Socket> {
        match &self.stage {
            DialStage::Hello(talk) | DialStage::Attach(.., talk) => Some(&talk.socket),
            DialStage::Control | DialStage::Data(..) | DialStage::Over => None,
        }
    }

    /// Goes on as far as what has come allows.
    ///
    /// # Errors
    /// The dial is over.
    pub(crate) fn advance(&mut self, shared: &SessionInner) -> Result<DialStep> {
        let step = self.step(shared);
        match &step {
            Ok(DialStep::Open(_) | DialStep::Receive | DialStep::Pause(_)) => {}
            Ok(DialStep::Linked(_)) => self.stage = DialStage::Over,
            Ok(DialStep::Refused(_)) | Err(_) => self.abandon(shared),
        }
        step.map_err(|e| with_shm_reason(e, self.rank, &self.choices))
    }

    /// What [`DialStep::Open`] asked for: a connection, or why there is none.
    ///
    /// # Errors
    /// The dial is over.
    pub(crate) fn opened(&mut self, shared: &SessionInner, opened: Result<Socket>) -> Result<()> {
        let done = self.take_in(shared, opened);
        if done.is_err() {
            self.abandon(shared);
        }
        done.map_err(|e| with_shm_reason(e, self.rank, &self.choices))
    }

    /// The dial is given up: the rank may be dialed again.
    pub(crate) fn abandon(&mut self, shared: &SessionInner) {
        let rank = self.rank;
        match std::mem::replace(&mut self.stage, DialStage::Over) {
            DialStage::Control | DialStage::Hello(_) => {
                shared.update_membership(Input::DialFailed { rank });
            }
            // The peer lives, but the link never will.
            DialStage::Data(met, ..) | DialStage::Attach(met, ..) => {
                shared.update_membership(Input::Over {
                    rank,
                    incarnation: met.incarnation,
                    redial: false,
                });
                shared.update_membership(Input::DialFailed { rank });
            }
            DialStage::Over => {}
        }
    }

    fn step(&mut self, shared: &SessionInner) -> Result<DialStep> {
        loop {
            let now = shared.clock.now();
            match &mut self.stage {
                DialStage::Control => {
                    return Ok(DialStep::Open(DialTarget::Address(self.address.clone())));
                }
                DialStage::Hello(talk) => {
                    let met = match talk.advance(now)? {
                        None => return Ok(DialStep::Receive),
                        Some(HandshakeOutcome::Connected(met)) => met,
                        Some(HandshakeOutcome::Refused(why)) => return Ok(DialStep::Refused(why)),
                        Some(HandshakeOutcome::Attached) => return Err(other_question()),
                    };
                    // The kernel knows the users of local sockets.
                    let proven = talk.prover.is_some() || self.address.folder().is_some();
                    let who = Identity { host: met.host.0, proven };
                    let (rank, incarnation) = (self.rank, met.incarnation);
                    let welcome = Input::Welcome { rank, incarnation, who };
                    if shared.is_leaving() {
                        return Err(Error::new(ErrorKind::Closed, "this session is shutting down"));
                    }
                    if !is_private(rank)
                        && let Err(why) = shared.admission(welcome)
                    {
                        return Ok(DialStep::Refused(why));
                    }
                    let DialStage::Hello(talk) =
                        std::mem::replace(&mut self.stage, DialStage::Over)
                    else {
                        return Err(other_question());
                    };
                    // From here on who gives up gives the rank back, too.
                    let first = match self.conn {
                        ConnType::Auto => shared.domains.next(None).map_or(self.conn, Domain::kind),
                        named => named,
                    };
                    self.stage = DialStage::Data(met, talk, first);
                    self.skip_unfit(shared)?;
                }
                DialStage::Data(..) if now < self.not_before => {
                    return Ok(DialStep::Pause(self.not_before));
                }
                DialStage::Data(met, _, kind) => {
                    return Ok(DialStep::Open(DialTarget::of_data(
                        &self.address,
                        met.shm.as_deref(),
                        met.tcp,
                        shared.domains.find(*kind)?.side(),
                    )?));
                }
                DialStage::Attach(_, first, kind, talk) => match (talk.advance(now), *kind) {
                    (Ok(None), _) => return Ok(DialStep::Receive),
                    (Ok(Some(HandshakeOutcome::Attached)), _) => {
                        return self.link(shared).map(DialStep::Linked);
                    }
                    (Ok(Some(HandshakeOutcome::Refused(RejectReason::BadToken))), _)
                        if first.socket.has_ended() =>
                    {
                        let what = "the peer ended the connection before its second one came";
                        return Err(Error::new(ErrorKind::PeerDead, what));
                    }
                    (Ok(Some(HandshakeOutcome::Refused(why))), kind) => {
                        let refused = shared.refusal(self.claims, why);
                        self.not_by(shared, kind, refused)?;
                    }
                    (Ok(Some(HandshakeOutcome::Connected(_))), _) => return Err(other_question()),
                    (Err(e), kind) => self.not_by(shared, kind, e)?,
                },
                DialStage::Over => return Err(Error::new(ErrorKind::Closed, "this dial is over")),
            }
        }
    }

    fn take_in(&mut self, shared: &SessionInner, opened: Result<Socket>) -> Result<()> {
        match std::mem::replace(&mut self.stage, DialStage::Over) {
            DialStage::Control => {
                let socket = match opened {
                    Ok(socket) => socket,
                    Err(e) => {
                        self.stage = DialStage::Control;
                        return Err(e);
                    }
                };
                // Whoever dials again begins a new incarnation, so that the other end can tell it from the last.
                let incarnation = shared.next_incarnation();
                let endpoints = shared.endpoints(None, false);
                let talk = shared.begin_handshake(
                    socket,
                    &self.address,
                    &endpoints,
                    incarnation,
                    self.claims,
                );
                match talk {
                    Ok(mut talk) => {
                        let sent = talk.flush();
                        self.stage = DialStage::Hello(talk);
                        sent
                    }
                    Err(e) => {
                        self.stage = DialStage::Control;
                        Err(e)
                    }
                }
            }
            DialStage::Data(met, first, kind) => {
                let domain = shared.domains.find(kind)?;
                let (channel, is_local) = (domain.endpoint(), domain.side() == Side::Local);
                let token = met.token;
                self.stage = DialStage::Data(met, first, kind);
                let attached = opened.and_then(|socket| {
                    if is_local {
                        socket.let_descriptors_in();
                    }
                    let control =
                        ControlConn::attach(shared.config.rank, token, channel, shared.clock.now())
                            .map_err(invalid_hello)?;
                    let mut talk = Handshake::new(socket, control);
                    talk.flush()?;
                    Ok(talk)
                });
                match attached {
                    Ok(talk) => {
                        if let DialStage::Data(met, first, kind) =
                            std::mem::replace(&mut self.stage, DialStage::Over)
                        {
                            self.stage = DialStage::Attach(met, first, kind, talk);
                        }
                        Ok(())
                    }
                    Err(e) => self.not_by(shared, kind, e),
                }
            }
            stage => {
                self.stage = stage;
                Err(other_question())
            }
        }
    }

    /// Passes over the transports that do not serve this peer.
    ///
    /// # Errors
    /// `Unavailable`: the one that was asked for by name does not.
    fn skip_unfit(&mut self, shared: &SessionInner) -> Result<()> {
        while let DialStage::Data(met, _, kind) | DialStage::Attach(met, _, kind, _) = &self.stage {
            let (kind, by_name) = (*kind, self.conn != ConnType::Auto);
            let peer = PeerFacts {
                same_host: met.host == shared.host,
                has_local_socket: met.shm.is_some(),
                endpoints: &met.endpoints,
                features: met.features,
            };
            let Some(why) = shared.domains.find(kind)?.unfit(&peer, by_name) else { break };
            self.pass_over(shared, kind, why)?;
        }
        Ok(())
    }

    /// The data connection of that kind came to nothing.
    fn not_by(&mut self, shared: &SessionInner, kind: ConnType, why: Error) -> Result<()> {
        if Retries::is_worth_it(&why) && !self.retries.is_hopeless() {
            self.not_before = self.retries.next(shared.clock.now());
            self.again_by(kind);
            return Ok(());
        }
        let is_last = shared.domains.next(Some(kind)).is_none();
        if self.conn == ConnType::Auto && !is_last {
            self.pass_over(shared, kind, why.to_string())?;
            return self.skip_unfit(shared);
        }
        let is_local = shared.domains.find(kind)?.side() == Side::Local;
        // What this end lacks is reported as it is.
        if is_local && why.kind() != ErrorKind::SystemLimit {
            return Err(unavailable(kind, &why.to_string()));
        }
        Err(why)
    }

    /// Passes one kind over and tries the next, unless it was asked for by name.
    fn pass_over(&mut self, shared: &SessionInner, kind: ConnType, why: String) -> Result<()> {
        let next = shared.domains.next(Some(kind)).filter(|_| self.conn == ConnType::Auto);
        let Some(next) = next else { return Err(unavailable(kind, &why)) };
        self.choices.push(Choice { conn: kind, chosen: false, why });
        self.again_by(next.kind());
        Ok(())
    }

    /// The data connection has to be opened, of that kind.
    fn again_by(&mut self, next: ConnType) {
        self.stage = match std::mem::replace(&mut self.stage, DialStage::Over) {
            DialStage::Data(met, first, _) | DialStage::Attach(met, first, ..) => {
                DialStage::Data(met, first, next)
            }
            stage => stage,
        };
    }

    /// Both connections are there: makes the link of them.
    fn link(&mut self, shared: &SessionInner) -> Result<Arc<Link>> {
        if shared.is_leaving() {
            return Err(Error::new(ErrorKind::Closed, "this session is shutting down"));
        }
        let DialStage::Attach(met, .., kind, second) = &self.stage else {
            return Err(other_question());
        };
        let (incarnation, kind, second) = (met.incarnation, *kind, Arc::clone(&second.socket));
        let side = shared.domains.find(kind)?.side();
        let near = met.host == shared.host;
        let features = met.features;
        let pid = second.fd().filter(|_| side != Side::Remote).and_then(local_peer);
        let inbox = shared.new_inbox();
        let serial = shared.next_serial();
        let plane = shared.new_data_plane(DataPlaneInit {
            serial,
            conn: kind,
            socket: Arc::clone(&second),
            peer: self.rank,
            pid,
            near,
            features,
            inbox: Arc::clone(&inbox),
        })?;
        let DialStage::Attach(_, first, ..) = std::mem::replace(&mut self.stage, DialStage::Over)
        else {
            return Err(other_question());
        };
        self.note_choice(shared, kind);
        let link = Link::new(LinkInit {
            dialed: true,
            session: shared.id,
            serial,
            peer: self.rank,
            incarnation,
            near,
            choices: std::mem::take(&mut self.choices),
            spin: shared.config.spin,
            reactor: Arc::clone(&shared.reactor),
            owner: shared.owner(),
            ctrl: CtrlState::new(first.socket, first.control, first.framer),
            data: DataState::new(plane, shared.config.slots, true, true),
            data_socket: Some(second),
            inbox,
        });
        link.choose(kind, String::new());
        shared.publish(&link);
        shared.update_membership(Input::Linked { rank: self.rank });
        if let Err(e) = shared.announce_buffer(&link) {
            link.close(false, &format!("its window could not be offered: {e}"));
            return Err(e);
        }
        shared.watch(&link);
        if !is_private(self.rank) {
            let redial = lock(&shared.registry).redials(self.rank, true, shared.listens());
            let route = ReconnectInfo { address: self.address.absolute(), conn: self.conn, redial };
            lock(&shared.routes).insert(self.rank, route);
        }
        Ok(link)
    }

    fn note_choice(&mut self, shared: &SessionInner, kind: ConnType) {
        let mut note = |conn, chosen, why: &str| {
            self.choices.push(Choice { conn, chosen, why: why.to_owned() });
        };
        let Ok(domain) = shared.domains.find(kind) else { return };
        let by_name = self.conn != ConnType::Auto && domain.side() != Side::Local;
        note(kind, true, if by_name { "asked for by name" } else { domain.fit() });
        let last = shared.domains.iter().last().filter(|last| last.kind() != kind);
        if let (ConnType::Auto, Some(last)) = (self.conn, last) {
            note(last.kind(), false, &format!("{kind} is faster"));
        }
    }
}

/// A transport that was asked for does not serve the peer.
fn unavailable(kind: ConnType, why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("no {kind}: {why}"))
}
