//! Plain values that pass between the protocol logic and a transport: requests and completions.
//!
//! Memory is named by key and [`crate::range::ByteRange`], never by address: the backend resolves keys in its own
//! table, so these types and their trait need no `unsafe`.

use crate::region::{LocalSlice, WindowSlice};
use crate::window::WindowFault;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// Copy from local memory into the peer's window.
    Put,
    /// As `Put`; then deliver the tag to the peer's inbox, after the bytes.
    PutNotify {
        /// The tag; every value is legal.
        tag: u64,
    },
    /// Copy from the peer's window into local memory.
    Get,
}

/// When an operation counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CompleteWhen {
    /// The bytes can be read at the target (put) or here (get).
    #[default]
    Visible,
    /// The local memory may be reused. For a get this is the same as `Visible`.
    Local,
}

/// The name of a posted operation: a place in the table of operations ([`crate::slots::Slots`]) and how often that place was
/// used.
///
/// An `SlotId` is stale once its operation was waited for; a stale id is an error, never another
/// operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId {
    /// Place in the table.
    pub index: u16,
    /// How often that place was given out.
    pub generation: u32,
}

/// One transfer between a local and a remote range of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// The operation that this transfer belongs to. Several transfers may share one.
    pub op: SlotId,
    /// What to do.
    pub opcode: Opcode,
    /// When it counts as done.
    pub when: CompleteWhen,
    /// The range here.
    pub local: LocalSlice,
    /// The range there; of the same length as `local`.
    pub remote: WindowSlice,
}

/// A transfer that has no name yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// What to do.
    pub opcode: Opcode,
    /// When it counts as done.
    pub when: CompleteWhen,
    /// The range here.
    pub local: LocalSlice,
    /// The range there; of the same length as `local`.
    pub remote: WindowSlice,
}

impl Transfer {
    /// As a part of operation `op`.
    #[inline]
    pub(crate) const fn work(&self, op: SlotId) -> WorkRequest {
        let Self { opcode, when, local, remote } = *self;
        WorkRequest { op, opcode, when, local, remote }
    }

    /// Whether there is nothing to do. A notify without bytes still has its tag to deliver.
    #[inline]
    pub(crate) const fn is_nothing(&self) -> bool {
        self.local.span.is_empty() && !matches!(self.opcode, Opcode::PutNotify { .. })
    }

    /// Both lengths, if they differ.
    #[inline]
    pub(crate) const fn lengths(&self) -> Option<(u64, u64)> {
        let (local, remote) = (self.local.span.len(), self.remote.span.len());
        if local == remote { None } else { Some((local, remote)) }
    }
}

/// Why a transfer failed. After a failed put the bytes at the target are old, new or mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The target refused the access.
    Window(WindowFault),
    /// The peer is gone.
    PeerDead,
    /// The deadline passed.
    DeadlineExceeded,
    /// The caller withdrew it.
    Cancelled,
    /// The local key is not (or no longer) registered with the transport.
    UnknownRegion,
    /// The transport cannot do this with this memory.
    Unsupported,
    /// The machine failed; the number is the transport's own (an errno, a vendor's status).
    Transport(i32),
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Window(fault) => write!(f, "the peer refused the access: {fault}"),
            Self::PeerDead => f.write_str("the peer is gone"),
            Self::DeadlineExceeded => f.write_str("the deadline passed"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::UnknownRegion => f.write_str("the local region is not registered"),
            Self::Unsupported => f.write_str("the transport cannot do this with this memory"),
            Self::Transport(code) => write!(f, "transport error {code}"),
        }
    }
}

impl core::error::Error for Failure {}

/// What became of a transfer. Every accepted [`WorkRequest`] gets exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The operation of the request.
    pub op: SlotId,
    /// Bytes moved, or why not.
    pub result: Result<u64, Failure>,
}
