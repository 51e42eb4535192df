//! One message of any size from a sender that knows its length to a receiver that has a place for
//! it, whoever comes first.
//!
//! The receiver chooses how: *direct*, by one put into the window of its destination, or *staged*,
//! through two half-buffers. A half is written again only after a credit said that it was copied
//! out; fillings and credits carry sequence numbers. Each end says END exactly once, and a transfer
//! is over when both have. [`Sender`](sender::Sender) and [`Receiver`](receiver::Receiver) are one
//! transfer each and do nothing themselves: they take notes of the peer, completions and endings,
//! and say what to put, copy, tell and let go. They never give memory back before its fence, and
//! never take a note that does not follow from the ones before.
//!
//! Read [`sender`], then [`receiver`]; `tests/relay_table.txt` is what each does with each note.

pub mod receiver;
pub mod sender;

use crate::limits::{MAX_RNDV, MAX_RNDV_HALF_BYTES};
use crate::region::WindowSlice;
use crate::work::Failure;

/// The number of a transfer, given by its sender: 0, 1, 2, ... on each link and in each direction,
/// wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RelayId(pub u32);

/// Which end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Whose bytes go.
    Sender,
    /// Where they come.
    Receiver,
}

/// How the bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Through two halves of the area, in turn.
    Staged,
    /// Straight into the area, which is as long as the message.
    Direct,
}

/// Where the sender is to put the bytes: part of a window of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    mode: Mode,
    area: WindowSlice,
}

impl Place {
    /// The two halves of `area`; `None` unless it has an even number of bytes, at least 2 and at most
    /// twice [`MAX_RNDV_HALF_BYTES`].
    #[must_use]
    pub const fn staged(area: WindowSlice) -> Option<Self> {
        let len = area.span.len();
        if len == 0 || len & 1 != 0 || len >> 1 > MAX_RNDV_HALF_BYTES {
            return None;
        }
        Some(Self { mode: Mode::Staged, area })
    }

    /// All of `area`.
    #[must_use]
    pub const fn direct(area: WindowSlice) -> Self {
        Self { mode: Mode::Direct, area }
    }

    /// How the bytes travel.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The part of the receiver's window.
    #[must_use]
    pub const fn area(&self) -> WindowSlice {
        self.area
    }

    /// The two halves of the area.
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
            Mode::Direct if len == 0 => 0,
            Mode::Direct => 1,
            Mode::Staged => match len.checked_div(self.half_len()) {
                // The areas of staged places are not empty.
                None => 0,
                Some(whole) => {
                    let short = len > whole.saturating_mul(self.half_len());
                    if short { whole.saturating_add(1) } else { whole }
                }
            },
        }
    }
}

/// Why an end of a transfer ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// Its user withdrew it.
    Cancelled,
    /// Its deadline passed.
    DeadlineExceeded,
    /// The message is longer than the place for it, or shorter than the one length that its receiver takes.
    TooLong {
        /// Bytes that the receiver has room for.
        room: u64,
    },
    /// A put or a copy failed, or there was no memory for it.
    Failed,
    /// It is leaving.
    Closing,
    /// A reason of a later version.
    Unknown {
        /// Its number.
        code: u16,
        /// What came with it.
        detail: u64,
    },
}

impl core::fmt::Display for Why {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Cancelled => f.write_str("cancelled"),
            Self::DeadlineExceeded => f.write_str("the deadline passed"),
            Self::TooLong { room } => {
                write!(f, "the message is longer than the {room} bytes of room for it")
            }
            Self::Failed => f.write_str("a transfer of its bytes failed"),
            Self::Closing => f.write_str("it is leaving"),
            Self::Unknown { code, .. } => write!(f, "reason {code}"),
        }
    }
}

/// How a transfer ended, if not well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// This end ended it.
    Here(Why),
    /// The other end did.
    There(Why),
    /// A put or a copy of this end failed.
    Failed(Failure),
    /// The peer is gone.
    PeerDead,
}

impl Ending {
    /// What the other end is told.
    const fn why(self) -> Why {
        match self {
            Self::Here(why) | Self::There(why) => why,
            Self::Failed(_) | Self::PeerDead => Why::Failed,
        }
    }
}

impl core::fmt::Display for Ending {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Here(why) => write!(f, "{why}"),
            Self::There(why) => write!(f, "ended by the peer: {why}"),
            Self::Failed(failure) => write!(f, "{failure}"),
            Self::PeerDead => f.write_str("the peer is gone"),
        }
    }
}

impl core::error::Error for Ending {}

/// What the two ends tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The sender has a message.
    Offer {
        /// The transfer.
        id: RelayId,
        /// Bytes of the message.
        len: u64,
    },
    /// The receiver has a place for it.
    Ready {
        /// The transfer.
        id: RelayId,
        /// The place.
        place: Place,
    },
    /// A half can be read: the first for even numbers, the second for odd ones.
    Filled {
        /// The transfer.
        id: RelayId,
        /// Which piece of the message it holds: 0, 1, 2, ...
        seq: u64,
    },
    /// That piece was copied out: its half may be written again.
    Credit {
        /// The transfer.
        id: RelayId,
        /// The piece.
        seq: u64,
    },
    /// The last word of one end. Well for the sender: every byte is in place. Well for the receiver:
    /// it has taken them all.
    End {
        /// The transfer.
        id: RelayId,
        /// Whose word it is.
        from: Role,
        /// Whether it went well.
        how: Result<(), Why>,
    },
}

impl Note {
    /// The transfer that it speaks of.
    #[must_use]
    pub const fn id(&self) -> RelayId {
        match self {
            Self::Offer { id, .. }
            | Self::Ready { id, .. }
            | Self::Filled { id, .. }
            | Self::Credit { id, .. }
            | Self::End { id, .. } => *id,
        }
    }

    /// Which end of the transfer tells it.
    #[must_use]
    pub const fn from(&self) -> Role {
        match self {
            Self::Offer { .. } | Self::Filled { .. } => Role::Sender,
            Self::Ready { .. } | Self::Credit { .. } => Role::Receiver,
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
        want: RelayId,
        /// The number that came.
        got: RelayId,
    },
    /// More transfers that have not ended than the limit.
    TooMany {
        /// The limit.
        limit: u32,
    },
    /// There is no such transfer.
    Unknown {
        /// Its number.
        id: RelayId,
    },
    /// That note may not come now, or not from that end.
    NotNow,
    /// A filling or credit out of its turn, or doubled.
    Sequence {
        /// The piece whose turn it was.
        want: u64,
        /// The piece that came.
        got: u64,
    },
    /// A place that does not fit the message.
    Place {
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
            Self::Place { len, area } => {
                write!(f, "{area} bytes of room for a message of {len} bytes")
            }
        }
    }
}

impl core::error::Error for Violation {}

/// Counts what the peer offers: the next number, and how many have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incoming {
    next: u32,
    live: u32,
}

impl Incoming {
    /// Nothing was offered.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: 0, live: 0 }
    }

    /// The peer offers a message.
    ///
    /// # Errors
    /// [`Violation`]: it is not the next one, or one too many.
    pub const fn offer(&mut self, id: RelayId) -> Result<(), Violation> {
        if id.0 != self.next {
            return Err(Violation::Number { want: RelayId(self.next), got: id });
        }
        if self.live >= MAX_RNDV {
            return Err(Violation::TooMany { limit: MAX_RNDV });
        }
        self.next = self.next.wrapping_add(1);
        self.live = self.live.saturating_add(1);
        Ok(())
    }

    /// One of them is over.
    pub const fn over(&mut self) {
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
