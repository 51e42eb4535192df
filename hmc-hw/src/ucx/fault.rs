//! Errors of a session's part in UCX.

use std::fmt;

use hmc_mem::shared::SharedError;

use super::context::UcxError;
use crate::host::WatchError;

/// A step of a session's part in UCX failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UcxFault {
    /// A call of UCX failed.
    Ucx(UcxError),
    /// The descriptor of a worker cannot be watched.
    Watch(WatchError),
    /// A range does not lie in its memory.
    Memory(SharedError),
    /// What the peer is to receive exceeds a note.
    TooLong(&'static str),
    /// The peer sent a key to a window that no peer has.
    UnknownWindow {
        /// Its index.
        index: usize,
        /// Indices are below.
        limit: usize,
    },
}

impl fmt::Display for UcxFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ucx(e) => write!(f, "UCX: {e}"),
            Self::Watch(WatchError(errno)) => {
                let e = std::io::Error::from_raw_os_error(*errno);
                write!(f, "cannot watch a worker of UCX's: {e}")
            }
            Self::Memory(e) => write!(f, "{e}"),
            Self::TooLong(what) => write!(f, "UCX's {what} is too long"),
            Self::UnknownWindow { index, limit } => {
                write!(f, "a key to window {index}: a peer has {limit} at most")
            }
        }
    }
}

impl std::error::Error for UcxFault {}

impl From<UcxError> for UcxFault {
    fn from(e: UcxError) -> Self {
        Self::Ucx(e)
    }
}

impl From<WatchError> for UcxFault {
    fn from(e: WatchError) -> Self {
        Self::Watch(e)
    }
}
