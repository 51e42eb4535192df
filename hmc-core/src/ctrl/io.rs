//! The inputs, events, outputs and close reasons of [`crate::ctrl::conn::ControlConn`].

use crate::limits::{FRAME_HEADER_BYTES, MAX_HELLO_BYTES};
use crate::time::Instant;
use crate::types::Rank;
use crate::wire::cursor::{WireError, Writer, to_usize};
use crate::wire::hello::{Hello, LinkToken, Welcome};
use crate::wire::message::ControlMessage;
use crate::wire::proof::Challenge;
use crate::wire::reject::RejectReason;

use super::state::{InvalidCommand, UnexpectedMessage};

/// Events for the owner of a connection. They borrow from the frame that was passed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlEvent<'a> {
    /// A native HELLO arrived. Call `accept` or `reject` before the next frame is passed in.
    HelloReceived(Hello<'a>),
    /// A HELLO of the C++ HMC came. Answer with `accept_cxx` or `reject`, as above.
    CxxHello {
        /// The rank that it claims.
        rank: Rank,
    },
    /// A secondary connection. Answer with `accept_attach` or `reject`, as above.
    AttachReceived {
        /// The rank that it claims.
        rank: Rank,
        /// The token that it shows.
        token: LinkToken,
        /// What it is for.
        channel: u8,
    },
    /// The acceptor claims to be of the same user. Answer with `prove`, as above.
    Challenged(Challenge),
    /// The dialer proved that it is of the same user. Answer as its HELLO, which is the owner's to remember.
    Proven,
    /// The peer accepted our HELLO: the link is up.
    Connected(Welcome<'a>),
    /// The peer accepted our ATTACH: what follows are no control frames.
    Attached,
    /// The peer refused us.
    Refused(RejectReason),
    /// A message for the owner: `Int32`, `Tag`, `Struct`, `Endpoint`, `Advert`, `Notify`, `Revoke`,
    /// `Revoked`, `Rndv` or `Eager`.
    Deliver(ControlMessage<'a>),
    /// The peer posts nothing new. Finish what was posted, then say `bye`.
    PeerBye,
    /// Both ends said BYE.
    Finished,
}

/// Bytes that the longest frame made by the protocol itself takes.
pub const OWN_FRAME_BYTES: usize = 520;

const _: () = assert!(FRAME_HEADER_BYTES == 8 && MAX_HELLO_BYTES == 512);

/// A frame made by the protocol itself, ready to be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    bytes: [u8; OWN_FRAME_BYTES],
    len: u32,
}

impl Frame {
    /// The frame of a message that fits.
    ///
    /// # Errors
    /// `NoSpace` when the message is longer than [`OWN_FRAME_BYTES`].
    pub fn of(message: &ControlMessage<'_>) -> Result<Self, WireError> {
        let mut frame = Self::EMPTY;
        frame.put(message)?;
        Ok(frame)
    }

    /// No bytes.
    pub(super) const EMPTY: Self = Self { bytes: [0; OWN_FRAME_BYTES], len: 0 };

    /// Writes the frame of a message in place: a copy of a frame is much for a small stack.
    pub(super) fn put(&mut self, message: &ControlMessage<'_>) -> Result<(), WireError> {
        let mut w = Writer::new(&mut self.bytes);
        message.emit(&mut w)?;
        self.len = w.written();
        Ok(())
    }

    /// The bytes to send.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..to_usize(self.len)).unwrap_or(&[])
    }
}

impl core::fmt::Debug for Frame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The bytes may hold a token.
        write!(f, "Frame({} bytes)", self.len)
    }
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is no allocator; outputs live on the stack")]
pub enum ControlOutput {
    /// Send these bytes, after those that wait already.
    Transmit(Frame),
    /// Call `tick` at this time at the latest. Told only when it is earlier than what was told
    /// before, and after each `tick`; a timer that fires too early does no harm.
    WakeAt(Instant),
    /// Close the connection when all that waits was sent. Nothing follows.
    Close(CloseReason),
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// As agreed: the BYEs were said (or the dialect has none and the owner closed).
    Orderly,
    /// The peer refused us.
    Refused(RejectReason),
    /// We refused the peer.
    Rejected(RejectReason),
    /// The peer did not finish its first words in time.
    HelloDeadline,
    /// The peer began a frame and did not finish it in time.
    FrameDeadline,
    /// Nothing came from the peer for too long.
    Silent,
    /// The peer did not answer our BYE in time.
    DrainDeadline,
    /// The peer closed its end without BYE: it is dead, or as good as dead.
    Eof,
    /// The peer broke the protocol.
    Violation(Violation),
    /// The owner ended the connection.
    Aborted,
}

impl core::fmt::Display for CloseReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Orderly => f.write_str("both ends said goodbye"),
            Self::Refused(why) => write!(f, "the peer refused the connection: {why}"),
            Self::Rejected(why) => write!(f, "the connection was refused: {why}"),
            Self::HelloDeadline => f.write_str("no complete HELLO came in time"),
            Self::FrameDeadline => f.write_str("a frame was begun and not finished in time"),
            Self::Silent => f.write_str("the peer was silent for too long"),
            Self::DrainDeadline => f.write_str("the peer did not answer the goodbye in time"),
            Self::Eof => f.write_str("the peer closed the connection without goodbye"),
            Self::Violation(v) => write!(f, "the peer broke the protocol: {v}"),
            Self::Aborted => f.write_str("the connection was ended on this side"),
        }
    }
}

/// How a peer broke the protocol, or showed that it is not the one that was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A malformed frame.
    Wire(WireError),
    /// A frame that may not come now.
    Unexpected(UnexpectedMessage),
    /// It uses the protocol of the C++ HMC, which the owner does not accept.
    CxxRefused {
        /// The rank that it claims.
        rank: Rank,
    },
    /// It belongs to another job.
    WrongJob {
        /// Its job.
        theirs: u64,
        /// Ours.
        ours: u64,
    },
    /// It did not prove that it is of the same user.
    Unproven,
    /// One of the two is not whom the other wanted.
    WrongRank {
        /// The expected rank.
        wanted: Rank,
        /// The actual rank.
        found: Rank,
    },
}

impl core::fmt::Display for Violation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Wire(e) => write!(f, "{e}"),
            Self::Unexpected(e) => write!(f, "{e}"),
            Self::CxxRefused { rank } => write!(
                f,
                "rank {rank} speaks the dialect of the C++ HMC, which must be allowed by name"
            ),
            Self::WrongJob { theirs, ours } => {
                write!(f, "it belongs to job {theirs:#x}, this process to job {ours:#x}")
            }
            Self::Unproven => f.write_str("it did not prove that it belongs to the same user"),
            Self::WrongRank { wanted, found } => {
                write!(f, "rank {wanted} was wanted and rank {found} is there")
            }
        }
    }
}

impl core::error::Error for Violation {}

/// Why a command of the owner was not carried out. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// It makes no sense now.
    Misuse(InvalidCommand),
    /// The words to send do not fit a frame.
    Wire(WireError),
}

impl core::fmt::Display for CommandError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Misuse(e) => write!(f, "{e}"),
            Self::Wire(e) => write!(f, "{e}"),
        }
    }
}

impl core::error::Error for CommandError {}
