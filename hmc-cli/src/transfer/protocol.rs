//! The messages between the two ends of a file transfer: requests and replies as JSON, everything else as tags.

use std::time::Duration;

use hmc_std::{Message, Peer, want};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::failure::{Failure, Result};
use crate::transfer::ring::Layout;

/// The version of this protocol. Another one is refused.
pub(crate) const VERSION: u32 = 1;

/// The facts about a file that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileInfo {
    /// Bytes, holes included.
    pub(crate) size: u64,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Time of the last change: seconds since 1970.
    pub(crate) mtime_s: i64,
    /// And nanoseconds.
    pub(crate) mtime_ns: u32,
}

/// A ring that the receiver exposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RingInfo {
    /// The window's label.
    pub(crate) label: u64,
    /// How it is cut.
    pub(crate) layout: Layout,
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RequestKind {
    /// To send a file.
    Put(FileInfo),
    /// To receive one into this ring.
    Get(RingInfo),
}

/// The first message of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// [`VERSION`].
    pub(crate) hmc_file: u32,
    /// Base name, as the bytes that a file system keeps.
    pub(crate) name: Vec<u8>,
    /// What is wanted.
    #[serde(rename = "ask")]
    pub(crate) kind: RequestKind,
}

/// The answer to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reply {
    /// Put the file into this ring.
    Ready(RingInfo),
    /// The file is coming.
    Sending(FileInfo),
    /// No, because.
    Refused(String),
}

/// Why an end gave up, in 32 bits: an errno below 4096, or one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbortCode {
    /// A call of the system failed.
    Os(i32),
    /// The bytes that arrived have another sum than those that left.
    Checksum,
    /// A file of that name appeared meanwhile.
    Exists,
    /// The file became shorter while it was read.
    Shrank,
    /// The other end sent something unexpected.
    Protocol,
    /// The user stopped it.
    Interrupted,
    /// Something else; a newer version may know.
    Other,
}

impl AbortCode {
    fn to_wire(self) -> u64 {
        match self {
            Self::Os(errno) => u64::from(errno.unsigned_abs()).min(4095),
            Self::Checksum => 4096,
            Self::Exists => 4097,
            Self::Shrank => 4098,
            Self::Protocol => 4099,
            Self::Interrupted => 4100,
            Self::Other => 4101,
        }
    }

    fn from_wire(n: u64) -> Self {
        match n {
            1..=4095 => Self::Os(i32::try_from(n).unwrap_or(0)),
            4096 => Self::Checksum,
            4097 => Self::Exists,
            4098 => Self::Shrank,
            4099 => Self::Protocol,
            4100 => Self::Interrupted,
            _ => Self::Other,
        }
    }

    /// The errno that an error carries, if any.
    pub(crate) fn of(e: &(dyn std::error::Error + 'static)) -> Self {
        let mut next = Some(e);
        while let Some(e) = next {
            let os = e.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
            if let Some(errno) = os {
                return Self::Os(errno);
            }
            next = e.source();
        }
        Self::Other
    }
}

impl std::fmt::Display for AbortCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Os(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(*errno)),
            Self::Checksum => f.write_str("the checksums differ: bytes changed on the way"),
            Self::Exists => f.write_str("a file of that name exists"),
            Self::Shrank => f.write_str("the file became shorter while it was read"),
            Self::Protocol => f.write_str("the two programs do not understand each other"),
            Self::Interrupted => f.write_str("its user stopped it"),
            Self::Other => f.write_str("for a reason that has no name here"),
        }
    }
}

/// One step of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferStep {
    /// Sender: the slot of this sequence number is full.
    Full(u64),
    /// Receiver: this many slots have been emptied since the start.
    Emptied(u64),
    /// Sender, last step: that was all, its CRC-32C is this.
    End(u32),
    /// Receiver, last step: the file is in place, its CRC-32C is this.
    Done(u32),
    /// Either, last step: it failed.
    Abort(AbortCode),
}

const KIND_SHIFT: u32 = 56;
const VALUE_MASK: u64 = (1 << KIND_SHIFT) - 1;

impl TransferStep {
    fn to_tag(self) -> u64 {
        let (kind, value) = match self {
            Self::Full(n) => (1u64, n),
            Self::Emptied(n) => (2, n),
            Self::End(crc) => (3, u64::from(crc)),
            Self::Done(crc) => (4, u64::from(crc)),
            Self::Abort(why) => (5, why.to_wire()),
        };
        kind << KIND_SHIFT | value & VALUE_MASK
    }

    fn from_tag(tag: u64) -> Option<Self> {
        let value = tag & VALUE_MASK;
        let crc = u32::try_from(value);
        Some(match tag >> KIND_SHIFT {
            1 => Self::Full(value),
            2 => Self::Emptied(value),
            3 => Self::End(crc.ok()?),
            4 => Self::Done(crc.ok()?),
            5 => Self::Abort(AbortCode::from_wire(value)),
            _ => return None,
        })
    }
}

/// Sends a step.
pub(crate) fn send_step(peer: &Peer, step: TransferStep) -> hmc_std::Result<()> {
    peer.send(Message::Tag(step.to_tag())).wait()
}

/// Receives the next step. `None` for a tag that is no step.
pub(crate) fn recv_step(peer: &Peer, timeout: Duration) -> hmc_std::Result<Option<TransferStep>> {
    Ok(TransferStep::from_tag(peer.recv(want::Tag).within(timeout).wait()?))
}

/// Sends a request or a reply.
pub(crate) fn send(peer: &Peer, message: &impl Serialize) -> Result<()> {
    Ok(peer.send(Message::bytes(&serde_json::to_vec(message)?)).wait()?)
}

/// Reads a request or a reply.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|e| Failure::new(format!("the peer speaks another language than hmc files: {e}")))
}

/// Waits for a request or a reply.
pub(crate) fn receive<T: DeserializeOwned>(peer: &Peer, timeout: Duration) -> Result<T> {
    parse(&peer.recv(want::Bytes).within(timeout).wait()?)
}

#[cfg(test)]
mod tests {
    use super::{AbortCode, TransferStep, VALUE_MASK};

    #[test]
    fn steps_survive_the_wire() {
        let whys = [
            AbortCode::Os(28),
            AbortCode::Checksum,
            AbortCode::Exists,
            AbortCode::Shrank,
            AbortCode::Protocol,
        ];
        let whys = whys
            .into_iter()
            .chain([AbortCode::Interrupted, AbortCode::Other])
            .map(TransferStep::Abort);
        let steps = [
            TransferStep::Full(VALUE_MASK),
            TransferStep::Emptied(0),
            TransferStep::End(u32::MAX),
            TransferStep::Done(7),
        ];
        for step in steps.into_iter().chain(whys) {
            assert_eq!(TransferStep::from_tag(step.to_tag()), Some(step));
        }
    }

    #[test]
    fn other_tags_are_no_steps() {
        for tag in [0, 42, 6 << 56, 3 << 56 | 1 << 32, u64::MAX] {
            assert_eq!(TransferStep::from_tag(tag), None, "{tag:#x}");
        }
    }

    #[test]
    fn the_errno_is_found_below_other_errors() {
        let e = std::io::Error::other(std::io::Error::from_raw_os_error(28));
        assert_eq!(AbortCode::of(&std::io::Error::from_raw_os_error(28)), AbortCode::Os(28));
        assert_eq!(AbortCode::of(&std::fmt::Error), AbortCode::Other);
        // `Error::other` has no errno of its own; its source has.
        assert!(matches!(AbortCode::of(&e), AbortCode::Os(28) | AbortCode::Other));
        assert!(AbortCode::Os(28).to_string().contains("No space left"));
    }
}
