//! Errors of a session's part in RDMA verbs.

use std::fmt;

use hmc_core::wire::cursor::WireError;
use hmc_mem::shared::SharedError;

use super::error::VerbsError;
use super::event::EventType;
use super::reach::Unreachable;
use super::select::SelectError;
use crate::host::WatchError;

/// A step of a session's part in RDMA verbs failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerbsFault {
    /// A call of libibverbs failed.
    Call(VerbsError),
    /// The descriptor of a completion channel, or of a device's asynchronous events, cannot be watched.
    Watch(WatchError),
    /// The session's port cannot be used any more.
    Port(SelectError),
    /// The device has failed, as this event has reported.
    Device {
        /// Its name.
        name: String,
        /// What was reported.
        event: EventType,
    },
    /// A range does not lie in its memory.
    Memory(SharedError),
    /// The peer's conn info, or its key to a window, cannot be used.
    Note(WireError),
    /// What the peer is to receive exceeds a note.
    TooLong,
    /// The two ends are on different fabrics: the NIC of this end, and why.
    Unreachable(String, Unreachable),
    /// The peer sent a key to a window that no peer has.
    UnknownWindow {
        /// Its index.
        index: usize,
        /// Indices are below.
        limit: usize,
    },
    /// The peer sent another number of keys to a window than the link has use for.
    Keys {
        /// Keys that it sent.
        count: usize,
        /// One for each queue pair, of each part of the window.
        wanted: u64,
    },
    /// A window is of more parts than the peer can be told of.
    TooLarge {
        /// Its length.
        len: u64,
        /// Its parts of about 2 GiB, which a device binds at a time.
        parts: u64,
        /// Parts that a window may have.
        max: usize,
    },
}

impl fmt::Display for VerbsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(e) => write!(f, "{e}"),
            Self::Watch(WatchError(errno)) => {
                let e = std::io::Error::from_raw_os_error(*errno);
                write!(f, "cannot watch events of a device: {e}")
            }
            Self::Port(e) => write!(f, "{e}"),
            Self::Device { name, event } => {
                write!(
                    f,
                    "the device {name} has failed: {event}; this session begins no link any more"
                )
            }
            Self::Memory(e) => write!(f, "{e}"),
            Self::Note(e) => write!(f, "what the peer says of its queue pairs or windows: {e}"),
            Self::TooLong => f.write_str("conn info exceeds a note"),
            Self::Unreachable(name, why) => write!(f, "NIC {name}: {why}"),
            Self::UnknownWindow { index, limit } => {
                write!(f, "a key to window {index}: a peer has {limit} at most")
            }
            Self::Keys { count, wanted } => {
                write!(f, "{count} keys to a window: one or {wanted} are of use")
            }
            Self::TooLarge { len, parts, max } => write!(
                f,
                "a window of {len} bytes is {parts} parts of 2 GiB, of which it may have {max} on this link: expose the memory in \
                 several windows, or use fewer channels"
            ),
        }
    }
}

impl std::error::Error for VerbsFault {}

impl From<VerbsError> for VerbsFault {
    fn from(e: VerbsError) -> Self {
        Self::Call(e)
    }
}

impl From<WatchError> for VerbsFault {
    fn from(e: WatchError) -> Self {
        Self::Watch(e)
    }
}

impl From<WireError> for VerbsFault {
    fn from(e: WireError) -> Self {
        Self::Note(e)
    }
}
