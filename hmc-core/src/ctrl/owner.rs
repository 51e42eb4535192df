//! What the owner of a control connection does: opens it, judges strangers, says goodbye.
//!
//! Each command is a row of the table in [`crate::ctrl::state`]; one that makes no sense changes
//! nothing and says so. [`Control`] itself is in [`crate::ctrl::machine`].

#[cfg(hmc_mutants)]
use crate::mutant::{self, Mutant};
use crate::time::Instant;
use crate::types::{Incarnation, Rank};
use crate::wire::cursor::WireError;
use crate::wire::hello::{Features, Hello, LinkToken, Welcome};
use crate::wire::message::Message;
use crate::wire::proof::{Challenge, Proof};
use crate::wire::reject::RejectReason;
use crate::wire::upstream::Dialect;

use super::machine::{Acceptor, Control, Peer};
use super::output::{CloseReason, CommandError, Violation};
use super::state::{Command, State};
use super::timers::agreed;

impl Control {
    /// A connection that this end opened; it says HELLO at once. If that promises a proof, nobody is believed to be the
    /// peer before [`Event::Challenged`](super::output::Event::Challenged) was answered by [`Self::prove`].
    ///
    /// # Errors
    /// The words do not fit a frame (they do, when their endpoints come from an `EndpointList`).
    pub fn dial(hello: &Hello<'_>, now: Instant) -> Result<Self, WireError> {
        let state = if hello.proves { State::AwaitChallenge } else { State::AwaitWelcome };
        let mut this = Self::new(state, hello.rank, hello.job, now);
        this.say(&Message::Hello(*hello))?;
        this.expected = hello.expected;
        this.wish = hello.heartbeat;
        Ok(this)
    }

    /// A connection to a C++ peer, of which `peer` is believed to be the rank. It is up at once:
    /// upstream answers no HELLO.
    ///
    /// # Errors
    /// Never in practice; the HELLO fits.
    pub fn dial_upstream(rank: Rank, peer: Rank, now: Instant) -> Result<Self, WireError> {
        let mut this = Self::new(State::ReadyUpstream, rank, 0, now);
        this.say(&Message::HelloV1 { rank })?;
        this.peer = Some(Peer {
            rank: peer,
            incarnation: Incarnation::default(),
            dialect: Dialect::Upstream,
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
        let mut this = Self::new(State::AwaitAttachAck, rank, 0, now);
        this.say(&Message::Attach { rank, token, channel })?;
        Ok(this)
    }

    /// A connection that a stranger opened.
    #[must_use]
    pub const fn accepted(acceptor: &Acceptor, now: Instant) -> Self {
        let mut this = Self::new(State::AwaitHello, acceptor.rank, acceptor.job, now);
        this.upstream = acceptor.upstream;
        this
    }

    /// Accepts the native stranger with this end's own words and the link's token.
    ///
    /// # Errors
    /// Nothing changed: there is no such stranger, or the words do not fit.
    pub fn accept(
        &mut self,
        ours: &Hello<'_>,
        token: LinkToken,
        now: Instant,
    ) -> Result<(), CommandError> {
        let next = self.state.command(Command::Accept).map_err(CommandError::Misuse)?;
        let welcome = Message::Welcome(Welcome { hello: *ours, token });
        self.say(&welcome).map_err(CommandError::Wire)?;
        self.timers.period = agreed(ours.heartbeat, self.wish);
        self.timers.yields = true;
        self.timers.last_sent = now;
        self.timers.last_received = now;
        self.state = next;
        self.stirred = true;
        Ok(())
    }

    /// Proves this end to the native stranger and asks for its proof, which must be `must`. It is to be called for a HELLO
    /// that promises one; [`Event::Proven`](super::output::Event::Proven) says when it came.
    ///
    /// # Errors
    /// Nothing changed: there is no such stranger.
    pub fn challenge(&mut self, challenge: &Challenge, must: Proof) -> Result<(), CommandError> {
        let next = self.state.command(Command::Challenge).map_err(CommandError::Misuse)?;
        self.say(&Message::Challenge(*challenge)).map_err(CommandError::Wire)?;
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
        #[cfg(hmc_mutants)]
        let believed = believed || mutant::is(Mutant::BelieveAcceptor);
        if !believed {
            self.violation(Violation::Unproven, None);
            return Ok(false);
        }
        self.say(&Message::Proof(ours)).map_err(CommandError::Wire)?;
        self.state = next;
        self.stirred = true;
        Ok(true)
    }

    /// Accepts the upstream stranger.
    ///
    /// # Errors
    /// Nothing changed: there is no such stranger.
    pub fn accept_upstream(&mut self) -> Result<(), CommandError> {
        self.state = self.state.command(Command::AcceptUpstream).map_err(CommandError::Misuse)?;
        Ok(())
    }

    /// Binds the secondary connection; control frames no longer come here.
    ///
    /// # Errors
    /// Nothing changed: there is no such stranger.
    pub fn accept_attach(&mut self) -> Result<(), CommandError> {
        let next = self.state.command(Command::AcceptAttach).map_err(CommandError::Misuse)?;
        self.say(&Message::AttachAck).map_err(CommandError::Wire)?;
        self.state = next;
        self.stirred = true;
        Ok(())
    }

    /// Refuses the stranger. An upstream one is closed without a word: it knows none.
    ///
    /// # Errors
    /// Nothing changed: there is no stranger any more.
    pub fn reject(&mut self, why: RejectReason) -> Result<(), CommandError> {
        self.state.command(Command::Reject).map_err(CommandError::Misuse)?;
        if matches!(self.state, State::DecidingUpstream) {
            self.finish(CloseReason::Rejected(why));
            return Ok(());
        }
        self.say(&Message::Reject(why)).map_err(CommandError::Wire)?;
        self.end(CloseReason::Rejected(why));
        Ok(())
    }

    /// Says BYE: the owner posts nothing new. The peer has until `by` to say it too. Call it after
    /// the owner's last messages were handed to the driver.
    ///
    /// # Errors
    /// Nothing changed: the connection is not up.
    pub fn bye(&mut self, by: Instant, now: Instant) -> Result<(), CommandError> {
        let next = self.state.command(Command::Bye).map_err(CommandError::Misuse)?;
        self.stirred = true;
        match self.state {
            State::Ready => {
                self.bye = true;
                self.timers.drain_by = by;
                self.timers.last_sent = now;
                self.state = next;
            }
            State::Leaving => {
                self.finish(CloseReason::Orderly);
                self.bye = true;
            }
            State::Draining => self.timers.drain_by = self.timers.drain_by.min(by),
            _ => self.finish(CloseReason::Orderly),
        }
        Ok(())
    }

    /// Ends the connection now, whatever its state.
    pub fn abort(&mut self) {
        // The table allows it in every state.
        self.finish(CloseReason::Aborted);
    }
}
