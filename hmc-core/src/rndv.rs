//! Rendezvous protocol: moves one message of any size from a sender to a receiver, in either order of their calls.
//!
//! A short message is *eager*: its bytes are sent with its offer, and only the receiver's END follows. For other
//! messages the receiver selects the mode: *direct* is one put into a window over its destination; *staged* uses
//! two half-buffers. A half is written again only after a credit reported that the receiver has copied it out.
//! FILLED and CREDIT carry sequence numbers. Each end sends END exactly once, and a rendezvous is finished when
//! both have. For an eager message, a successful END of the receiver stands for both. So does it for a *counted* message: a direct one
//! of which the receiver counts the bytes that are put.
//!
//! [`Sender`](sender::Sender) and [`Receiver`](receiver::Receiver) are state machines of one rendezvous each. Their
//! inputs are messages of the peer, completions and failures; their outputs are puts, copies, messages and memory
//! to release. They release memory only after its fence, and accept a message only if it follows from the earlier
//! ones.
//!
//! Read [`sender`], then [`receiver`]; `tests/rndv_table.txt` lists the effect of each message in each state.

pub mod receiver;
pub mod sender;

use crate::limits::{MAX_RNDV, MAX_RNDV_HALF_BYTES};
use crate::region::WindowSlice;
use crate::work::Failure;

/// The number of a rendezvous, assigned by its sender: 0, 1, 2, ... on each link and in each direction,
/// wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RndvId(pub u32);

/// One end of a rendezvous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RndvRole {
    /// The end that sends the message.
    Sender,
    /// The end that receives it.
    Receiver,
}

/// How the bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RndvMode {
    /// Through two halves of the area, in turn.
    Staged,
    /// By one put into the area, which has the length of the message.
    Direct,
}

/// Where the sender puts the bytes: a part of a window of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecvTarget {
    mode: RndvMode,
    area: WindowSlice,
}

impl RecvTarget {
    /// Returns the two halves of `area`; `None` unless it has an even number of bytes, at least 2 and at most
    /// twice [`MAX_RNDV_HALF_BYTES`].
    #[must_use]
    pub const fn staged(area: WindowSlice) -> Option<Self> {
        let len = area.span.len();
        if len == 0 || len & 1 != 0 || len >> 1 > MAX_RNDV_HALF_BYTES {
            return None;
        }
        Some(Self { mode: RndvMode::Staged, area })
    }

    /// Returns all of `area`.
    #[must_use]
    pub const fn direct(area: WindowSlice) -> Self {
        Self { mode: RndvMode::Direct, area }
    }

    /// Returns how the bytes are moved.
    #[must_use]
    pub const fn mode(&self) -> RndvMode {
        self.mode
    }

    /// Returns the part of the receiver's window.
    #[must_use]
    pub const fn area(&self) -> WindowSlice {
        self.area
    }

    /// Returns the two halves of the area.
    #[must_use]
    pub const fn halves(&self) -> [WindowSlice; 2] {
        let (first, second) = self.area.span.split_at_most(self.half_len());
        [WindowSlice { span: first, ..self.area }, WindowSlice { span: second, ..self.area }]
    }

    const fn half_len(&self) -> u64 {
        self.area.span.len() >> 1
    }

    /// In how many pieces a message of `len` bytes goes.
    const fn pieces(&self, len: u64) -> u64 {
        match self.mode {
            RndvMode::Direct if len == 0 => 0,
            RndvMode::Direct => 1,
            RndvMode::Staged => match len.checked_div(self.half_len()) {
                // The area of a staged target is not empty.
                None => 0,
                Some(whole) => {
                    let short = len > whole.saturating_mul(self.half_len());
                    if short { whole.saturating_add(1) } else { whole }
                }
            },
        }
    }
}

/// Why an end aborted a rendezvous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AbortReason {
    /// Its user withdrew it.
    Cancelled,
    /// Its deadline passed.
    DeadlineExceeded,
    /// The message is longer than the memory for it, or shorter than the one length that its receiver takes.
    TooLong {
        /// Bytes that the receiver has space for.
        capacity: u64,
    },
    /// A put or a copy failed, or there was no memory for it.
    Failed,
    /// It shuts down.
    Closing,
    /// A reason of a later version.
    Unknown {
        /// Its number.
        code: u16,
        /// The detail that was sent with it.
        detail: u64,
    },
}

impl core::fmt::Display for AbortReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Cancelled => f.write_str("cancelled"),
            Self::DeadlineExceeded => f.write_str("the deadline passed"),
            Self::TooLong { capacity } => {
                write!(f, "the message is longer than the {capacity} bytes of space for it")
            }
            Self::Failed => f.write_str("a transfer of its bytes failed"),
            Self::Closing => f.write_str("it is leaving"),
            Self::Unknown { code, .. } => write!(f, "reason {code}"),
        }
    }
}

/// Why a rendezvous failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RndvError {
    /// This end aborted it.
    Here(AbortReason),
    /// The other end aborted it.
    There(AbortReason),
    /// A put or a copy of this end failed.
    Failed(Failure),
    /// The peer is gone.
    PeerDead,
}

impl RndvError {
    /// Returns the reason that is sent to the other end.
    const fn why(self) -> AbortReason {
        match self {
            Self::Here(why) | Self::There(why) => why,
            Self::Failed(_) | Self::PeerDead => AbortReason::Failed,
        }
    }
}

impl core::fmt::Display for RndvError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Here(why) => write!(f, "{why}"),
            Self::There(why) => write!(f, "ended by the peer: {why}"),
            Self::Failed(failure) => write!(f, "{failure}"),
            Self::PeerDead => f.write_str("the peer is gone"),
        }
    }
}

impl core::error::Error for RndvError {}

/// A message between the two ends of a rendezvous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RndvMsg {
    /// The sender has a message.
    Offer {
        /// The rendezvous.
        id: RndvId,
        /// Bytes of the message.
        len: u64,
    },
    /// The receiver has memory for it.
    Ready {
        /// The rendezvous.
        id: RndvId,
        /// Where to put it.
        target: RecvTarget,
    },
    /// A half can be read: the first for even numbers, the second for odd ones.
    Filled {
        /// The rendezvous.
        id: RndvId,
        /// Which piece of the message it holds: 0, 1, 2, ...
        seq: u64,
    },
    /// That piece was copied out: its half may be written again.
    Credit {
        /// The rendezvous.
        id: RndvId,
        /// The piece.
        seq: u64,
    },
    /// The last message of one end. `Ok` of the sender: every byte was put. `Ok` of the receiver:
    /// it has taken them all.
    End {
        /// The rendezvous.
        id: RndvId,
        /// The end that sends it.
        from: RndvRole,
        /// Success, or the reason of the abort.
        how: Result<(), AbortReason>,
    },
}

impl RndvMsg {
    /// Returns the number of its rendezvous.
    #[must_use]
    pub const fn id(&self) -> RndvId {
        match self {
            Self::Offer { id, .. }
            | Self::Ready { id, .. }
            | Self::Filled { id, .. }
            | Self::Credit { id, .. }
            | Self::End { id, .. } => *id,
        }
    }

    /// Returns the end that sends it.
    #[must_use]
    pub const fn from(&self) -> RndvRole {
        match self {
            Self::Offer { .. } | Self::Filled { .. } => RndvRole::Sender,
            Self::Ready { .. } | Self::Credit { .. } => RndvRole::Receiver,
            Self::End { from, .. } => *from,
        }
    }
}

/// How a peer broke the protocol. Nothing changed; the link must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// An offer with another number than the next.
    Number {
        /// The number that was to come.
        want: RndvId,
        /// The number that came.
        got: RndvId,
    },
    /// More transfers that have not ended than the limit.
    TooMany {
        /// The limit.
        limit: u32,
    },
    /// There is no such transfer.
    Unknown {
        /// Its number.
        id: RndvId,
    },
    /// The message is not allowed in this state, or not from that end.
    NotNow,
    /// A FILLED or CREDIT out of order, or doubled.
    Sequence {
        /// The chunk that was expected.
        want: u64,
        /// The chunk that came.
        got: u64,
    },
    /// A target that does not fit the message.
    Target {
        /// Bytes of the message.
        len: u64,
        /// Bytes of the area.
        area: u64,
    },
}

impl core::fmt::Display for Violation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Number { want, got } => {
                write!(f, "message {} was offered when {} was next", got.0, want.0)
            }
            Self::TooMany { limit } => write!(f, "more than {limit} messages are under way"),
            Self::Unknown { id } => write!(f, "there is no message {}", id.0),
            Self::NotNow => f.write_str("a note of a message came that may not come now"),
            Self::Sequence { want, got } => {
                write!(f, "piece {got} of a message came when it was the turn of {want}")
            }
            Self::Target { len, area } => {
                write!(f, "{area} bytes of space for a message of {len} bytes")
            }
        }
    }
}

impl core::error::Error for Violation {}

/// Counts the offers of the peer: the next number, and how many are not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfferCounter {
    next: u32,
    live: u32,
}

impl OfferCounter {
    /// Nothing was offered.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: 0, live: 0 }
    }

    /// The peer offers a message.
    ///
    /// # Errors
    /// [`Violation`]: it is not the next one, or one too many.
    pub const fn offer(&mut self, id: RndvId) -> Result<(), Violation> {
        if id.0 != self.next {
            return Err(Violation::Number { want: RndvId(self.next), got: id });
        }
        if self.live >= MAX_RNDV {
            return Err(Violation::TooMany { limit: MAX_RNDV });
        }
        self.next = self.next.wrapping_add(1);
        self.live = self.live.saturating_add(1);
        Ok(())
    }

    /// Returns `true` for the failure of a message that was offered, of its sender: it may have crossed with the good END of an eager or
    /// counted message, which stands for both ends' and after which that message is forgotten. Others of its sender may have been
    /// offered and withdrawn since, any number of them.
    #[must_use]
    pub const fn is_late(&self, note: &RndvMsg) -> bool {
        let RndvMsg::End { id, from: RndvRole::Sender, how: Err(_) } = *note else { return false };
        let age = self.next.wrapping_sub(id.0);
        // Numbers wrap: those of the other half are to come.
        age != 0 && age <= u32::MAX / 2
    }

    /// One of them is finished.
    pub const fn offer_finished(&mut self) {
        self.live = self.live.saturating_sub(1);
    }
}

/// The half, or what belongs to it, in which the piece `seq` travels.
pub(crate) const fn of_half<T: Copy>(both: &[T; 2], seq: u64) -> T {
    let [first, second] = both;
    if seq & 1 == 0 { *first } else { *second }
}

/// As [`of_half`], to be changed.
pub(crate) const fn half_mut<T>(both: &mut [T; 2], seq: u64) -> &mut T {
    let [first, second] = both;
    if seq & 1 == 0 { first } else { second }
}
