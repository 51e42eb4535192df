//! Why a NIC refuses a window or a note.

use std::fmt;

/// Why a window cannot be opened, or a note cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicFault {
    /// The memory is not registered.
    UnknownMemory,
    /// The NIC has another window of that name.
    TakenName,
    /// The note is not the address of the other end.
    OtherPeer,
}

impl fmt::Display for NicFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownMemory => "the memory is not registered",
            Self::TakenName => "the NIC has another window of that name",
            Self::OtherPeer => "the note is not the address of the other end",
        })
    }
}

impl std::error::Error for NicFault {}
