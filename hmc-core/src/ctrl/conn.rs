//! Sans-IO state machine of one control connection: handshake, heartbeats, shutdown.
//!
//! The inputs of [`ControlConn`] are whole frames (from [`crate::ctrl::framer`]) and the time. It returns events
//! for the owner ([`ControlEvent`]) and outputs for the driver ([`ControlOutput`]). The owner's own messages (tags,
//! adverts, ...) are encoded by [`ControlMessage::emit`] into the driver's buffer; the owner reports
//! that it sent something with [`ControlConn::on_sent`].

use crate::limits::{MAX_FRAME_BYTES, MAX_HELLO_BYTES, MAX_PEERS, MAX_SPREAD};
use crate::time::{Duration, Instant};
use crate::types::{Incarnation, Rank, VERSION};
use crate::wire::cursor::{WireError, WireErrorKind};
use crate::wire::cxx::Protocol;
use crate::wire::header::Header;
use crate::wire::hello::{Features, Hello, Welcome};
use crate::wire::message::ControlMessage;
use crate::wire::proof::Proof;
use crate::wire::reject::RejectReason;

use super::io::{CloseReason, ControlEvent, ControlOutput, Frame, Violation};
use super::state::{Action, ControlState};
use super::timers::{Due, Timers, negotiated_period};

/// Whether connections of the C++ HMC are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CxxPolicy {
    /// They are refused with a typed error.
    #[default]
    Refused,
    /// They are welcome. They prove nothing about themselves.
    Allowed,
}

/// Settings of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptConfig {
    /// Its rank.
    pub rank: Rank,
    /// Its job.
    pub job: u64,
    /// Whether peers of the C++ HMC are accepted.
    pub cxx: CxxPolicy,
}

/// Data of the peer, from its HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its rank, as it claims.
    pub rank: Rank,
    /// Its incarnation; zero for a C++ peer.
    pub incarnation: Incarnation,
    /// The protocol that it speaks.
    pub protocol: Protocol,
    /// What it offers; nothing for a C++ peer.
    pub features: Features,
}

/// One control connection. Belongs to one thread at a time.
#[derive(Clone, Debug)]
pub struct ControlConn {
    pub(super) state: ControlState,
    pub(super) rank: Rank,
    pub(super) job: u64,
    pub(super) cxx: CxxPolicy,
    /// Whom the dialer wants.
    pub(super) expected: Option<Rank>,
    pub(super) peer: Option<PeerInfo>,
    /// What the acceptor said to prove itself, or what the dialer has to say.
    pub(super) proof: Option<Proof>,
    /// The period of heartbeats in the peer's HELLO, until it is accepted.
    pub(super) wish: Duration,
    pub(super) timers: Timers,
    pub(super) pings: u64,
    /// The earliest wake-up that the driver knows of.
    pub(super) reported_deadline: Instant,
    pub(super) first: Option<Frame>,
    pub(super) pong: Option<u64>,
    pub(super) ping: Option<u64>,
    pub(super) bye: bool,
    pub(super) close: Option<CloseReason>,
    pub(super) close_reported: bool,
    /// Whether there may be something to tell: set by all that queues a frame, ends the connection
    /// or may bring a deadline forward. Sending and whole frames only put deadlines off.
    pub(super) stirred: bool,
}

impl ControlConn {
    pub(super) const fn new(state: ControlState, rank: Rank, job: u64, now: Instant) -> Self {
        Self {
            state,
            rank,
            job,
            cxx: CxxPolicy::Refused,
            expected: None,
            peer: None,
            proof: None,
            wish: Duration::ZERO,
            timers: Timers::new(now),
            pings: 0,
            reported_deadline: Instant::NEVER,
            first: None,
            pong: None,
            ping: None,
            bye: false,
            close: None,
            close_reported: false,
            stirred: true,
        }
    }

    /// Returns the state of the connection.
    #[must_use]
    #[inline]
    pub const fn state(&self) -> ControlState {
        self.state
    }

    /// Returns the data of the peer, if its HELLO came.
    #[must_use]
    #[inline]
    pub const fn peer(&self) -> Option<&PeerInfo> {
        self.peer.as_ref()
    }

    /// The period of heartbeats in force; zero when there are none.
    #[must_use]
    pub const fn heartbeat(&self) -> Duration {
        self.timers.period
    }

    /// Why the connection ended, when it did.
    #[must_use]
    pub const fn close_reason(&self) -> Option<CloseReason> {
        self.close
    }

    /// Returns the longest payload that is accepted now: it is short until the handshake is finished.
    #[must_use]
    #[inline]
    pub const fn frame_limit(&self) -> u32 {
        if self.state.is_pending() { MAX_HELLO_BYTES } else { MAX_FRAME_BYTES }
    }

    /// Something of the owner's was sent: it counts as a heartbeat.
    #[inline]
    pub const fn on_sent(&mut self, now: Instant) {
        self.timers.last_sent = now;
    }

    /// Bytes came. A frame that is not whole began at `began`
    /// ([`crate::ctrl::framer::Framer::began`]); `None` when all frames are whole.
    #[inline]
    pub const fn on_received(&mut self, began: Option<Instant>, now: Instant) {
        self.timers.last_received = now;
        self.timers.partial = began;
        self.stirred |= began.is_some();
    }

    /// From here on this end speaks only after so many silent periods, 1 to [`MAX_SPREAD`]: for an end with many peers on one
    /// system, whose beats would take much of it. The limit of the peer's silence is the same.
    pub fn spread_beats(&mut self, periods: u64) {
        // A later deadline is found when the earlier one comes, an earlier one has to be reported.
        self.stirred |= periods < self.timers.spread;
        self.timers.spread = periods.clamp(1, MAX_SPREAD);
    }

    /// For `late` this end was not run, and nor was the peer, as far as anybody can tell: that much of its silence does not
    /// count.
    pub fn excuse(&mut self, late: Duration, now: Instant) {
        self.timers.excuse(late, now);
    }

    /// A whole frame came. `Ok(None)` when it is the protocol's own business.
    ///
    /// # Errors
    /// The peer broke the protocol: the connection is closed, and `poll_output` says so too.
    #[inline]
    pub fn receive<'a>(
        &mut self,
        header: Header,
        payload: &'a [u8],
        now: Instant,
    ) -> Result<Option<ControlEvent<'a>>, Violation> {
        self.timers.last_received = now;
        let message = match ControlMessage::parse(header, payload) {
            Ok(message) => message,
            Err(e) => return Err(self.malformed(e)),
        };
        match self.state.receive(message.kind()) {
            Ok((next, Action::Deliver)) => {
                self.state = next;
                Ok(Some(ControlEvent::Deliver(message)))
            }
            Ok((next, action)) => self.act(next, action, message, now),
            Err(e) => Err(self.violation(Violation::Unexpected(e), None)),
        }
    }

    fn act<'a>(
        &mut self,
        next: ControlState,
        action: Action,
        message: ControlMessage<'a>,
        now: Instant,
    ) -> Result<Option<ControlEvent<'a>>, Violation> {
        self.stirred = true;
        let event = match (action, message) {
            (Action::Decide, ControlMessage::Hello(hello)) => {
                self.check_hello(&hello)?;
                Some(ControlEvent::HelloReceived(hello))
            }
            (Action::Decide, ControlMessage::HelloV1 { rank }) => {
                self.check_cxx_hello(rank)?;
                Some(ControlEvent::CxxHello { rank })
            }
            (Action::Decide, ControlMessage::Attach { rank, token, channel }) => {
                Some(ControlEvent::AttachReceived { rank, token, channel })
            }
            (Action::Decide, ControlMessage::Challenge(challenge)) => {
                self.check_rank(challenge.rank)?;
                self.proof = Some(challenge.proof);
                Some(ControlEvent::Challenged(challenge))
            }
            (Action::Verify, ControlMessage::Proof(proof)) => {
                if !self.proof.take().is_some_and(|must| must.matches(&proof)) {
                    let why = RejectReason::NotAuthorised;
                    return Err(self.violation(Violation::Unproven, Some(why)));
                }
                Some(ControlEvent::Proven)
            }
            (Action::Connect, ControlMessage::Welcome(welcome)) => {
                self.connect(&welcome)?;
                Some(ControlEvent::Connected(welcome))
            }
            (Action::Refused, ControlMessage::Reject(why)) => {
                self.close(CloseReason::Refused(why));
                Some(ControlEvent::Refused(why))
            }
            (Action::Attach, _) => Some(ControlEvent::Attached),
            (Action::Answer, ControlMessage::Ping(n)) => {
                // One answer to the latest heartbeat is enough, however many came.
                self.pong = Some(n);
                self.timers.last_sent = now;
                None
            }
            (Action::PeerBye, _) => Some(ControlEvent::PeerBye),
            (Action::Finish, _) => {
                self.close(CloseReason::Orderly);
                Some(ControlEvent::Finished)
            }
            // `receive` delivers; the table gives each of the others to the one message above only.
            _ => None,
        };
        self.state = next;
        Ok(event)
    }

    /// Checks what needs no owner: job and rank.
    fn check_hello(&mut self, hello: &Hello<'_>) -> Result<(), Violation> {
        if hello.job != self.job {
            let v = Violation::WrongJob { theirs: hello.job, ours: self.job };
            return Err(self.violation(v, Some(RejectReason::WrongJob)));
        }
        if let Some(wanted) = hello.expected
            && wanted != self.rank
        {
            let v = Violation::WrongRank { wanted, found: self.rank };
            let why = RejectReason::WrongRank { ours: self.rank };
            return Err(self.violation(v, Some(why)));
        }
        self.peer = Some(PeerInfo {
            rank: hello.rank,
            incarnation: hello.incarnation,
            protocol: Protocol::Native,
            features: hello.features,
        });
        self.wish = hello.heartbeat;
        Ok(())
    }

    fn check_cxx_hello(&mut self, rank: Rank) -> Result<(), Violation> {
        if matches!(self.cxx, CxxPolicy::Refused) {
            return Err(self.violation(Violation::CxxRefused { rank }, None));
        }
        self.peer = Some(PeerInfo {
            rank,
            incarnation: Incarnation::default(),
            protocol: Protocol::Cxx,
            features: Features::empty(),
        });
        Ok(())
    }

    /// Whether the acceptor is whom the dialer wants.
    fn check_rank(&mut self, found: Rank) -> Result<(), Violation> {
        match self.expected {
            Some(wanted) if wanted != found => {
                Err(self.violation(Violation::WrongRank { wanted, found }, None))
            }
            _ => Ok(()),
        }
    }

    fn connect(&mut self, welcome: &Welcome<'_>) -> Result<(), Violation> {
        let theirs = &welcome.hello;
        if theirs.job != self.job {
            let v = Violation::WrongJob { theirs: theirs.job, ours: self.job };
            return Err(self.violation(v, None));
        }
        self.check_rank(theirs.rank)?;
        self.peer = Some(PeerInfo {
            rank: theirs.rank,
            incarnation: theirs.incarnation,
            protocol: Protocol::Native,
            features: theirs.features,
        });
        self.timers.period = negotiated_period(self.wish, theirs.heartbeat);
        Ok(())
    }

    /// The peer closed its end. Orderly only after its BYE, or from a C++ peer.
    pub fn eof(&mut self) -> CloseReason {
        let orderly = matches!(self.state, ControlState::Leaving | ControlState::ReadyCxx);
        self.close(if orderly { CloseReason::Orderly } else { CloseReason::Eof });
        self.close.unwrap_or(CloseReason::Eof)
    }

    /// The stream does not hold frames ([`crate::ctrl::framer::Framer::next`] failed), or a frame
    /// did not parse. A peer of another version is rejected with the reason.
    #[cold]
    pub fn malformed(&mut self, e: WireError) -> Violation {
        let answer = match (self.state, e.kind) {
            (ControlState::AwaitHello, WireErrorKind::Version { .. }) => {
                Some(RejectReason::Version { ours: VERSION })
            }
            (ControlState::AwaitHello, WireErrorKind::Mandatory { unknown }) => {
                Some(RejectReason::Mandatory { unknown })
            }
            (ControlState::AwaitHello, WireErrorKind::Value { field: "rank", .. }) => {
                Some(RejectReason::BadRank { limit: MAX_PEERS })
            }
            _ => None,
        };
        self.violation(Violation::Wire(e), answer)
    }

    #[cold]
    pub(super) fn violation(&mut self, v: Violation, answer: Option<RejectReason>) -> Violation {
        self.close(CloseReason::Violation(v));
        if let Some(why) = answer {
            // A refusal fits.
            let _ = self.queue_frame(&ControlMessage::Reject(why));
        }
        v
    }

    /// Queues a frame of the protocol's own, written where it waits to be sent. None was queued before.
    pub(super) fn queue_frame(&mut self, message: &ControlMessage<'_>) -> Result<(), WireError> {
        let said = self.first.insert(Frame::EMPTY).put(message);
        if said.is_err() {
            self.first = None;
        }
        said
    }

    /// The first reason is kept. Unsent outputs are dropped.
    pub(super) fn close(&mut self, why: CloseReason) {
        self.first = None;
        self.close_after_send(why);
    }

    /// As [`Self::close`], but the frame that waits is still sent.
    pub(super) fn close_after_send(&mut self, why: CloseReason) {
        self.state = ControlState::Closed;
        self.stirred = true;
        self.pong = None;
        self.ping = None;
        self.bye = false;
        if self.close.is_none() {
            self.close = Some(why);
        }
    }

    /// Time passed: looks at every deadline.
    pub fn tick(&mut self, now: Instant) {
        self.reported_deadline = Instant::NEVER;
        self.stirred = true;
        match self.timers.due(self.state, now) {
            None => {}
            Some(Due::End(why)) => self.close(why),
            Some(Due::Beat) => {
                self.pings = self.pings.wrapping_add(1);
                self.ping = Some(self.pings);
                self.timers.last_sent = now;
            }
        }
    }

    /// Whether [`Self::tick`] would end the connection now. Look for bytes first: a driver that comes late must not take
    /// its own delay for the peer's silence.
    #[must_use]
    pub fn is_due_to_end(&self, now: Instant) -> bool {
        matches!(self.timers.due(self.state, now), Some(Due::End(_)))
    }

    /// When [`Self::tick`] ends the connection, if nothing comes before. Heartbeats may be late, this may not.
    #[must_use]
    pub fn ends_at(&self) -> Instant {
        self.timers.ends_at(self.state)
    }

    /// When [`Self::tick`] must be called at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        self.timers.next(self.state)
    }

    /// Whether [`Self::poll_output`] may have an answer.
    #[must_use]
    #[inline]
    pub const fn has_output(&self) -> bool {
        self.stirred
    }

    /// What the driver has to do; call it after every input until it answers `None`.
    #[inline]
    pub fn poll_output(&mut self) -> Option<ControlOutput> {
        if !self.stirred {
            return None;
        }
        self.poll_slow()
    }

    fn poll_slow(&mut self) -> Option<ControlOutput> {
        if let Some(frame) = self.first.take() {
            return Some(ControlOutput::Transmit(frame));
        }
        let message = if let Some(n) = self.pong.take() {
            Some(ControlMessage::Pong(n))
        } else if let Some(n) = self.ping.take() {
            Some(ControlMessage::Ping(n))
        } else if core::mem::take(&mut self.bye) {
            Some(ControlMessage::Bye)
        } else {
            None
        };
        if let Some(message) = message {
            return Frame::of(&message).ok().map(ControlOutput::Transmit);
        }
        if let Some(why) = self.close
            && !self.close_reported
        {
            self.close_reported = true;
            return Some(ControlOutput::Close(why));
        }
        self.stirred = false;
        let next = self.next_deadline();
        if next < self.reported_deadline {
            self.reported_deadline = next;
            return Some(ControlOutput::WakeAt(next));
        }
        None
    }
}
