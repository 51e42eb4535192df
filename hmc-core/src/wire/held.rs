//! Limits of what frames of each kind can make their receiver store for their sender, for any number of frames and
//! even if the sender does not read the replies.
//!
//! Every kind has a row; a kind without one does not compile. Tables that grow with frames take their sizes from
//! here, and a test sends each kind at full rate.

use crate::limits::{
    MAX_EAGER_BYTES, MAX_EAGER_MSGS, MAX_ENDPOINT_BYTES, MAX_GATHER_REQUESTS, MAX_GATHERED_FRAMES,
    MAX_RNDV_MSGS, MAX_WINDOWS_PER_PEER,
};
use crate::wire::data::DataKind;
use crate::wire::message::ControlKind;

/// Bytes that one line of a table takes at most.
pub const LINE_BYTES: usize = 256;
/// The most that frames of one kind make their receiver hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Nothing once the frame was executed.
    Nothing,
    /// Messages for the application: as many, and as many bytes, as its inbox takes. A full inbox stops the reading. Those of
    /// peers that are gone share [`MAX_LEFT_BYTES`](crate::limits::MAX_LEFT_BYTES).
    Inbox,
    /// Lines of a table.
    Lines {
        /// How many.
        count: usize,
        /// Bytes of each.
        bytes: usize,
    },
}

impl Held {
    const fn lines(count: usize) -> Self {
        Self::Lines { count, bytes: LINE_BYTES }
    }

    /// How many lines there can be.
    #[must_use]
    pub const fn count(self) -> usize {
        match self {
            Self::Nothing | Self::Inbox => 0,
            Self::Lines { count, .. } => count,
        }
    }

    /// Bytes in all, where the inbox takes `inbox`.
    #[must_use]
    pub const fn bytes(self, inbox: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Inbox => inbox,
            Self::Lines { count, bytes } => count.saturating_mul(bytes),
        }
    }
}

/// The row of a control frame.
#[must_use]
pub const fn of_message(kind: ControlKind) -> Held {
    match kind {
        // First words, and what only ends a connection: they come once.
        ControlKind::HelloV1
        | ControlKind::Hello
        | ControlKind::Welcome
        | ControlKind::Reject
        | ControlKind::Attach
        | ControlKind::AttachAck
        | ControlKind::Challenge
        | ControlKind::Proof
        | ControlKind::Bye
        | ControlKind::Pong => Held::Nothing,
        // The answer to the latest.
        ControlKind::Ping => Held::lines(1),
        // The answer to the latest of each place.
        ControlKind::Revoke | ControlKind::Revoked | ControlKind::Advert => {
            Held::lines(MAX_WINDOWS_PER_PEER)
        }
        ControlKind::Endpoint => {
            Held::Lines { count: MAX_WINDOWS_PER_PEER, bytes: MAX_ENDPOINT_BYTES }
        }
        ControlKind::Int32 | ControlKind::Tag | ControlKind::Struct | ControlKind::Notify => {
            Held::Inbox
        }
        ControlKind::Rndv => Held::lines(MAX_RNDV_MSGS),
        // Those that are processed, and those that wait.
        ControlKind::Eager => Held::Lines {
            count: MAX_EAGER_MSGS.saturating_mul(2),
            bytes: LINE_BYTES.saturating_add(MAX_EAGER_BYTES),
        },
    }
}

/// The row of a data frame.
#[must_use]
pub const fn of_data(kind: DataKind) -> Held {
    match kind {
        // Requests, and their answers until they are sent: one more is a breach of protocol.
        DataKind::Write | DataKind::Read | DataKind::WriteRef | DataKind::ReadRef => {
            Held::lines(MAX_GATHER_REQUESTS.saturating_mul(2))
        }
        // Answers to requests of the receiver's own, which has their lines already.
        DataKind::ReadData | DataKind::Ack | DataKind::Nack => Held::Nothing,
        // The frames that it announces have their own rows; until the last of their payloads has come there is a line of each.
        DataKind::Gather => Held::lines(MAX_GATHERED_FRAMES),
        // One for each place, mapped or not.
        DataKind::Region => Held::lines(MAX_WINDOWS_PER_PEER),
    }
}
