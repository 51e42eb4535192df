//! The whole protocol of a control connection as one table: state x message, and state x command.
//!
//! The code lists the allowed pairs and refuses all others. `tests/ctrl_table.txt` lists every pair as text, and a
//! test compares it with the code. [`crate::ctrl::conn`] implements the actions.

use crate::wire::message::ControlKind;

/// The state of a control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlState {
    /// Accepted; the dialer has to speak.
    AwaitHello,
    /// A HELLO was received; the owner decides.
    Deciding,
    /// As `Deciding`, about a HELLO of the C++ HMC.
    DecidingCxx,
    /// As `Deciding`, about an ATTACH.
    DecidingAttach,
    /// The acceptor proved itself and asked for the dialer's proof, which is due.
    AwaitProof,
    /// HELLO was sent; the acceptor has to prove itself.
    AwaitChallenge,
    /// A challenge was received; the owner decides whether it believes it.
    Challenged,
    /// HELLO, and a proof if one was promised, were sent; the answer is due.
    AwaitWelcome,
    /// ATTACH was sent; the answer is due.
    AwaitAttachAck,
    /// Both know each other.
    Ready,
    /// As `Ready`, with a C++ peer.
    ReadyCxx,
    /// BYE was sent: what the peer still sends is delivered.
    Draining,
    /// BYE was received: this end finishes what it posted.
    Leaving,
    /// A secondary connection that was bound: control frames no longer come here.
    Attached,
    /// Over.
    Closed,
}

/// What a received message leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Let the owner decide about the pending connection.
    Decide,
    /// Compare the dialer's proof with what it must be.
    Verify,
    /// The peer accepted us.
    Connect,
    /// The peer refused us.
    Refused,
    /// The secondary connection is bound.
    Attach,
    /// Give the message to the owner.
    Deliver,
    /// Answer the heartbeat.
    Answer,
    /// Nothing: its arrival is the keepalive.
    Keepalive,
    /// The peer will post nothing new.
    PeerBye,
    /// Both said BYE.
    Finish,
}

/// A message that may not come in this state. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnexpectedMessage {
    /// The state.
    pub state: ControlState,
    /// The message.
    pub got: ControlKind,
}

impl core::fmt::Display for UnexpectedMessage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the peer sent {:?} in state {:?}", self.got, self.state)
    }
}

impl core::error::Error for UnexpectedMessage {}

/// What the owner wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Accept a native HELLO.
    Accept,
    /// Accept a HELLO of the C++ HMC.
    AcceptCxx,
    /// Accept an ATTACH.
    AcceptAttach,
    /// Prove this end to a dialer that promised a proof, and ask for it.
    Challenge,
    /// Believe the acceptor's proof and answer it.
    Prove,
    /// Reject the pending connection.
    Reject,
    /// Post nothing new.
    Bye,
    /// End the connection now.
    Close,
}

/// A command that is not allowed in this state: a mistake of this end's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InvalidCommand {
    /// The state.
    pub state: ControlState,
    /// The command.
    pub command: Command,
}

impl core::fmt::Display for InvalidCommand {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?} makes no sense in state {:?}", self.command, self.state)
    }
}

impl core::error::Error for InvalidCommand {}

impl ControlState {
    /// `true` if the peer has not given its proof yet, or this end is not accepted yet.
    #[must_use]
    #[inline]
    pub const fn is_pending(self) -> bool {
        matches!(
            self,
            Self::AwaitHello
                | Self::Deciding
                | Self::DecidingCxx
                | Self::DecidingAttach
                | Self::AwaitProof
                | Self::AwaitChallenge
                | Self::Challenged
                | Self::AwaitWelcome
                | Self::AwaitAttachAck
        )
    }

    /// What `got` leads to.
    ///
    /// # Errors
    /// [`UnexpectedMessage`] when it may not come now.
    #[inline]
    pub const fn receive(self, got: ControlKind) -> Result<(Self, Action), UnexpectedMessage> {
        use ControlKind as M;
        match (self, got) {
            // Handshake.
            (Self::AwaitHello, M::Hello) => Ok((Self::Deciding, Action::Decide)),
            (Self::AwaitHello, M::HelloV1) => Ok((Self::DecidingCxx, Action::Decide)),
            (Self::AwaitHello, M::Attach) => Ok((Self::DecidingAttach, Action::Decide)),
            (Self::AwaitWelcome, M::Welcome) => Ok((Self::Ready, Action::Connect)),
            (Self::AwaitChallenge | Self::AwaitWelcome | Self::AwaitAttachAck, M::Reject) => {
                Ok((Self::Closed, Action::Refused))
            }
            (Self::AwaitProof, M::Proof) => Ok((Self::Deciding, Action::Verify)),
            (Self::AwaitChallenge, M::Challenge) => Ok((Self::Challenged, Action::Decide)),
            (Self::AwaitAttachAck, M::AttachAck) => Ok((Self::Attached, Action::Attach)),

            // Messages of the application and of transports.
            (Self::Ready | Self::ReadyCxx | Self::Draining, M::Int32 | M::Tag | M::Struct)
            | (
                Self::Ready | Self::Draining,
                M::Endpoint | M::Advert | M::Notify | M::Revoke | M::Revoked | M::Rndv | M::Eager,
            ) => Ok((self, Action::Deliver)),
            // After its BYE a peer finishes what it posted, and takes its windows back.
            (Self::Leaving, M::Notify | M::Revoke | M::Revoked | M::Rndv | M::Eager) => {
                Ok((Self::Leaving, Action::Deliver))
            }

            // Heartbeats.
            (Self::Ready | Self::Draining | Self::Leaving, M::Ping) => Ok((self, Action::Answer)),
            (Self::Ready | Self::Draining | Self::Leaving, M::Pong) => {
                Ok((self, Action::Keepalive))
            }

            // Shutdown.
            (Self::Ready, M::Bye) => Ok((Self::Leaving, Action::PeerBye)),
            (Self::Draining, M::Bye) => Ok((Self::Closed, Action::Finish)),

            // All else may not come.
            _ => Err(UnexpectedMessage { state: self, got }),
        }
    }

    /// Where a command of the owner leads.
    ///
    /// # Errors
    /// [`InvalidCommand`] if it is not allowed now; the state stays.
    pub const fn command(self, command: Command) -> Result<Self, InvalidCommand> {
        use Command as C;
        match (self, command) {
            (Self::Deciding, C::Accept) => Ok(Self::Ready),
            (Self::DecidingCxx, C::AcceptCxx) => Ok(Self::ReadyCxx),
            (Self::DecidingAttach, C::AcceptAttach) => Ok(Self::Attached),
            (Self::Deciding, C::Challenge) => Ok(Self::AwaitProof),
            (Self::Challenged, C::Prove) => Ok(Self::AwaitWelcome),
            (
                Self::AwaitHello
                | Self::Deciding
                | Self::DecidingCxx
                | Self::DecidingAttach
                | Self::AwaitProof,
                C::Reject,
            ) => Ok(Self::Closed),
            (Self::Ready, C::Bye) => Ok(Self::Draining),
            // The C++ HMC has no BYE, and the peer of a leaving end has sent it.
            (Self::ReadyCxx | Self::Leaving, C::Bye) => Ok(Self::Closed),
            // To ask twice changes nothing.
            (Self::Draining, C::Bye) => Ok(Self::Draining),
            (Self::Closed, C::Bye) | (_, C::Close) => Ok(Self::Closed),
            _ => Err(InvalidCommand { state: self, command }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, ControlState};
    use crate::wire::message::ControlKind;
    use std::fmt::Write as _;
    use std::string::String;

    const STATES: [ControlState; 15] = [
        ControlState::AwaitHello,
        ControlState::Deciding,
        ControlState::DecidingCxx,
        ControlState::DecidingAttach,
        ControlState::AwaitProof,
        ControlState::AwaitChallenge,
        ControlState::Challenged,
        ControlState::AwaitWelcome,
        ControlState::AwaitAttachAck,
        ControlState::Ready,
        ControlState::ReadyCxx,
        ControlState::Draining,
        ControlState::Leaving,
        ControlState::Attached,
        ControlState::Closed,
    ];
    const COMMANDS: [Command; 8] = [
        Command::Accept,
        Command::AcceptCxx,
        Command::AcceptAttach,
        Command::Challenge,
        Command::Prove,
        Command::Reject,
        Command::Bye,
        Command::Close,
    ];

    #[test]
    fn the_whole_protocol_is_the_stored_table() {
        let mut text = String::new();
        for state in STATES {
            for got in ControlKind::all() {
                match state.receive(got) {
                    Ok((next, action)) => writeln!(text, "{state:?} {got:?} {next:?} {action:?}"),
                    Err(e) => {
                        assert_eq!((e.state, e.got), (state, got));
                        writeln!(text, "{state:?} {got:?} -")
                    }
                }
                .unwrap();
            }
            for command in COMMANDS {
                match state.command(command) {
                    Ok(next) => writeln!(text, "{state:?} ({command:?}) {next:?}"),
                    Err(e) => {
                        assert_eq!((e.state, e.command), (state, command));
                        writeln!(text, "{state:?} ({command:?}) -")
                    }
                }
                .unwrap();
            }
        }
        assert_eq!(text.lines().count(), 15 * (21 + 8));
        assert_eq!(text, include_str!("../../tests/ctrl_table.txt"));
    }
}
