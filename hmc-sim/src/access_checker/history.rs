//! Events of a byte, with their texts for reports.

use hmc_core::slots::SlotId;

/// The source of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// The process that owns the memory.
    Owner,
    /// A request of `from` towards `to`.
    Request {
        /// The initiator's end.
        from: u16,
        /// The target's end.
        to: u16,
        /// Its operation.
        op: SlotId,
        /// Its number among all accepted requests of the fabric.
        number: u64,
    },
    /// No source known to the fabric.
    Nobody,
}

impl core::fmt::Display for Actor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Owner => f.write_str("the owner"),
            Self::Request { from, to, op: SlotId { index, generation }, number } => {
                write!(f, "request {number} (operation {index}.{generation}, end {from} to {to})")
            }
            Self::Nobody => f.write_str("nobody known"),
        }
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The region was registered.
    Registered,
    /// The region was deregistered.
    Released,
    /// A window over the byte was opened.
    Opened {
        /// Its name.
        window: u64,
        /// Its epoch.
        epoch: u32,
    },
    /// The revocation of a window began.
    PendingRevoke {
        /// Its name.
        window: u64,
        /// Its epoch.
        epoch: u32,
    },
    /// The fence of a window passed.
    Fenced {
        /// Its name.
        window: u64,
        /// Its epoch.
        epoch: u32,
    },
    /// A request that may access the byte was accepted.
    Posted,
    /// That request completed or was withdrawn.
    Completed,
    /// The byte was reported as free to the owner.
    Reclaimed,
    /// The byte was written with the necessary rights.
    Wrote,
}

impl core::fmt::Display for EventKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Registered => f.write_str("registered the region"),
            Self::Released => f.write_str("gave the region back"),
            Self::Opened { window, epoch } => write!(f, "opened window {window:#x}:{epoch}"),
            Self::PendingRevoke { window, epoch } => {
                write!(f, "began to revoke window {window:#x}:{epoch}")
            }
            Self::Fenced { window, epoch } => {
                write!(f, "was told that window {window:#x}:{epoch} is fenced")
            }
            Self::Posted => f.write_str("was posted"),
            Self::Completed => f.write_str("completed"),
            Self::Reclaimed => f.write_str("was told that the range is free"),
            Self::Wrote => f.write_str("wrote"),
        }
    }
}

/// An event of a range of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Virtual time, in nanoseconds.
    pub at_ns: u64,
    /// The source.
    pub actor: Actor,
    /// The kind.
    pub kind: EventKind,
    /// The first byte, from the region's start.
    pub from: u64,
    /// The byte behind the last; `u64::MAX` for all of the region.
    pub to: u64,
}

impl core::fmt::Display for Event {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { at_ns, actor, kind, from, to } = self;
        write!(f, "{at_ns:>10} ns  {actor} {kind}")?;
        if *to == u64::MAX { Ok(()) } else { write!(f, ", bytes {from}..{to}") }
    }
}
