//! Contexts, protection domains, memory regions and windows, channels: what the library knows of each.

use core::ffi::{c_int, c_uint};
use std::collections::VecDeque;

use crate::abi::ibv_event_type;
use crate::table::Id;

/// The object of an asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Device,
    Port(c_int),
    Cq(Id),
    Qp(Id),
    Srq(Id),
}

/// An asynchronous event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsyncEvent {
    pub(crate) kind: ibv_event_type,
    pub(crate) element: Element,
}

/// Events that were got and acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventCount {
    pub(crate) got: u32,
    pub(crate) acked: u32,
}

impl EventCount {
    pub(crate) const fn is_even(self) -> bool {
        self.got == self.acked
    }
}

/// An open device.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    /// The slot whose functions are in its table of operations.
    pub(crate) slot: usize,
    /// An eventfd: readable while there are events.
    pub(crate) fd: c_int,
    pub(crate) events: VecDeque<AsyncEvent>,
}

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Pd {
    pub(crate) context: Id,
    pub(crate) device: usize,
    /// Regions, windows, queue pairs and shared receive queues in it.
    pub(crate) users: u32,
}

/// A memory region.
#[derive(Debug)]
pub(crate) struct Mr {
    pub(crate) pd: Id,
    pub(crate) device: usize,
    /// The address of its first byte.
    pub(crate) start: usize,
    /// The address of its first byte in work requests.
    pub(crate) iova: u64,
    pub(crate) len: u64,
    pub(crate) access: c_uint,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    /// Posted requests that name it.
    pub(crate) users: u32,
    /// Windows that are bound to it.
    pub(crate) windows: u32,
    /// The library mapped it, from this address on.
    pub(crate) mapping: Option<usize>,
}

impl Mr {
    /// Returns the offset of a range, if it lies in the region.
    pub(crate) fn offset(&self, addr: u64, len: u64) -> Option<u64> {
        let offset = addr.checked_sub(self.iova)?;
        (offset <= self.len && len <= self.len - offset).then_some(offset)
    }

    /// Returns the address of an offset.
    pub(crate) fn at(&self, offset: u64) -> *mut u8 {
        let offset = usize::try_from(offset).unwrap_or(0);
        core::ptr::with_exposed_provenance_mut(self.start + offset)
    }
}

/// What a window is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) qp: Id,
    pub(crate) mr: Id,
    /// The offset of its first byte in the region.
    pub(crate) offset: u64,
    /// The address of its first byte in remote work requests.
    pub(crate) iova: u64,
    pub(crate) len: u64,
    pub(crate) access: c_uint,
    /// It was invalidated on a device where that has no effect.
    pub(crate) is_invalidated: bool,
}

/// A memory window.
#[derive(Debug)]
pub(crate) struct Mw {
    pub(crate) pd: Id,
    pub(crate) device: usize,
    pub(crate) rkey: u32,
    pub(crate) binding: Option<Binding>,
    /// Posted binds that name it.
    pub(crate) users: u32,
    /// A call to free it was refused: nothing but the end of its queue pair is left.
    pub(crate) is_refused: bool,
}

/// The owner of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOwner {
    Mr(Id),
    Mw(Id),
    /// A window that was freed on a device where that has no effect, with its last key.
    FreedMw(Binding, u32),
}

/// A completion channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) context: Id,
    /// An eventfd: readable while there are events.
    pub(crate) fd: c_int,
    /// Completion queues with an event.
    pub(crate) events: VecDeque<Id>,
    /// Completion queues that report to it.
    pub(crate) users: u32,
}
