//! The commands of the owner of a control connection: dial, accept, reject, bye, abort.
//!
//! Each command is a row of the table in [`crate::ctrl::state`]; one that is not allowed changes
//! nothing and returns an error. [`ControlConn`] itself is in [`crate::ctrl::conn`].

use crate::time::Instant;
use crate::types::{Incarnation, Rank};
use crate::wire::cursor::WireError;
use crate::wire::cxx::Protocol;
use crate::wire::hello::{Features, Hello, LinkToken, Welcome};
use crate::wire::message::ControlMessage;
use crate::wire::proof::{Challenge, Proof};
use crate::wire::reject::RejectReason;

use super::conn::{AcceptConfig, ControlConn, PeerInfo};
use super::io::{CloseReason, CommandError, Violation};
use super::state::{Command, ControlState};
use super::timers::negotiated_period;

impl ControlConn {
    /// A connection that this end opened; it says HELLO at once. If that promises a proof, nobody is believed to be the
    /// peer before [`ControlEvent::Challenged`](super::io::ControlEvent::Challenged) was answered by [`Self::prove`].
    ///
    /// # Errors
    /// The words do not fit a frame (they do, when their endpoints come from an `EndpointList`).
    pub fn dial(hello: &Hello<'_>, now: Instant) -> Result<Self, WireError> {
        let state =
            if hello.proves { ControlState::AwaitChallenge } else { ControlState::AwaitWelcome };
        let mut this = Self::new(state, hello.rank, hello.job, now);
        this.queue_frame(&ControlMessage::Hello(*hello))?;
        this.expected = hello.expected;
        this.wish = hello.heartbeat;
        Ok(this)
    }

    /// A connection to a C++ peer, assumed to have rank `peer`. It is up at once:
    /// the C++ HMC does not answer a HELLO.
    ///
    /// # Errors
    /// Never in practice; the HELLO fits.
    pub fn dial_cxx(rank: Rank, peer: Rank, now: Instant) -> Result<Self, WireError> {
        let mut this = Self::new(ControlState::ReadyCxx, rank, 0, now);
        this.queue_frame(&ControlMessage::HelloV1 { rank })?;
        this.peer = Some(PeerInfo {
            rank: peer,
            incarnation: Incarnation::default(),
            protocol: Protocol::Cxx,
            features: Features::empty(),
        });
        Ok(this)
    }

    /// A secondary connection that this end opened for `channel` of an existing link.
    ///
    /// # Errors
    /// Never in practice; the ATTACH fits.
    pub fn attach(
        rank: Rank,
        token: LinkToken,
        channel: u8,
        now: Instant,
    ) -> Result<Self, WireError> {
        let mut this = Self::new(ControlState::AwaitAttachAck, rank, 0, now);
        this.queue_frame(&ControlMessage::Attach { rank, token, channel })?;
        Ok(this)
    }

    /// A connection that was accepted.
    #[must_use]
    pub const fn accepted(acceptor: &AcceptConfig, now: Instant) -> Self {
        let mut this = Self::new(ControlState::AwaitHello, acceptor.rank, acceptor.job, now);
        this.cxx = acceptor.cxx;
        this
    }

    /// Accepts the native HELLO with this end's own HELLO and the link's token.
    ///
    /// # Errors
    /// Nothing changed: no HELLO is pending, or the frame is too long.
    pub fn accept(
        &mut self,
        ours: &Hello<'_>,
        token: LinkToken,
        now: Instant,
    ) -> Result<(), CommandError> {
        let next = self.state.command(Command::Accept).map_err(CommandError::Misuse)?;
        let welcome = ControlMessage::Welcome(Welcome { hello: *ours, token });
        self.queue_frame(&welcome).map_err(CommandError::Wire)?;
        self.timers.period = negotiated_period(ours.heartbeat, self.wish);
        self.timers.yields = true;
        self.timers.last_sent = now;
        self.timers.last_received = now;
        self.state = next;
        self.stirred = true;
        Ok(())
    }

    /// Proves this end to the dialer and asks for its proof, which must be `must`. It is to be called for a HELLO
    /// that promises one; [`ControlEvent::Proven`](super::io::ControlEvent::Proven) says when it came.
    ///
    /// # Errors
    /// Nothing changed: no such HELLO is pending.
    pub fn challenge(&mut self, challenge: &Challenge, must: Proof) -> Result<(), CommandError> {
        let next = self.state.command(Command::Challenge).map_err(CommandError::Misuse)?;
        self.queue_frame(&ControlMessage::Challenge(*challenge)).map_err(CommandError::Wire)?;
        self.proof = Some(must);
        self.state = next;
        self.stirred = true;
        Ok(())
    }

    /// Answers the acceptor's challenge by this end's own proof, if its was as it `must` be. `false`: it was not, and the
    /// connection is over.
    ///
    /// # Errors
    /// Nothing changed: there was no challenge.
    pub fn prove(&mut self, must: &Proof, ours: Proof) -> Result<bool, CommandError> {
        let next = self.state.command(Command::Prove).map_err(CommandError::Misuse)?;
        let believed = self.proof.take().is_some_and(|said| said.matches(must));
        if !believed {
            self.violation(Violation::Unproven, None);
            return Ok(false);
        }
        self.queue_frame(&ControlMessage::Proof(ours)).map_err(CommandError::Wire)?;
        self.state = next;
        self.stirred = true;
        Ok(true)
    }

    /// Accepts the HELLO of the C++ HMC.
    ///
    /// # Errors
    /// Nothing changed: no such HELLO is pending.
    pub fn accept_cxx(&mut self) -> Result<(), CommandError> {
        self.state = self.state.command(Command::AcceptCxx).map_err(CommandError::Misuse)?;
        Ok(())
    }

    /// Binds the secondary connection; control frames no longer come here.
    ///
    /// # Errors
    /// Nothing changed: no such HELLO is pending.
    pub fn accept_attach(&mut self) -> Result<(), CommandError> {
        let next = self.state.command(Command::AcceptAttach).map_err(CommandError::Misuse)?;
        self.queue_frame(&ControlMessage::AttachAck).map_err(CommandError::Wire)?;
        self.state = next;
        self.stirred = true;
        Ok(())
    }

    /// Rejects the pending connection. A C++ peer is closed without a message: its protocol has none.
    ///
    /// # Errors
    /// Nothing changed: the connection is not pending.
    pub fn reject(&mut self, why: RejectReason) -> Result<(), CommandError> {
        self.state.command(Command::Reject).map_err(CommandError::Misuse)?;
        if matches!(self.state, ControlState::DecidingCxx) {
            self.close(CloseReason::Rejected(why));
            return Ok(());
        }
        self.queue_frame(&ControlMessage::Reject(why)).map_err(CommandError::Wire)?;
        self.close_after_send(CloseReason::Rejected(why));
        Ok(())
    }

    /// Sends BYE: the owner posts nothing new. The peer has until `by` to send its own. Call it after
    /// the owner's last messages were handed to the driver.
    ///
    /// # Errors
    /// Nothing changed: the connection is not up.
    pub fn bye(&mut self, by: Instant, now: Instant) -> Result<(), CommandError> {
        let next = self.state.command(Command::Bye).map_err(CommandError::Misuse)?;
        self.stirred = true;
        match self.state {
            ControlState::Ready => {
                self.bye = true;
                self.timers.drain_by = by;
                self.timers.last_sent = now;
                self.state = next;
            }
            ControlState::Leaving => {
                self.close(CloseReason::Orderly);
                self.bye = true;
            }
            ControlState::Draining => self.timers.drain_by = self.timers.drain_by.min(by),
            _ => self.close(CloseReason::Orderly),
        }
        Ok(())
    }

    /// Ends the connection now, whatever its state.
    pub fn abort(&mut self) {
        // The table allows it in every state.
        self.close(CloseReason::Aborted);
    }
}
