//! The board: all storage, and a bus that copies between the memories of two nodes.
//!
//! [`Bus`] stands for a DMA engine: `post` takes a descriptor, the copy happens later, `poll` tells
//! which are finished. The target's [`WindowTable`] checks each access before a byte moves.

use hmc_core::place::Place;
use hmc_core::range::{ByteRange, Extent};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};
use hmc_core::slots::{Slot, SlotId};
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps};
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

/// Bytes of each node's memory.
pub const MEMORY_BYTES: u64 = 256;
/// Operations in flight; also the length of the bus's queue.
pub const SLOTS: usize = 4;
/// Bytes of a control connection's buffer: the longest HELLO fits.
pub const FRAME_BYTES: usize = 640;
/// Bytes that a line holds.
pub const LINE_BYTES: usize = 640;

/// The key of the memory of the node that initiates.
pub const KEY_HERE: RegionKey = RegionKey { index: 0, generation: 1 };
/// The key of the memory of the node that is accessed.
pub const KEY_THERE: RegionKey = RegionKey { index: 1, generation: 1 };

const MEMORY: usize = 256;
const _: () = assert!(MEMORY_BYTES == 256, "MEMORY says the same as an array's length");

/// All memory that the embedding needs. Put it into a `static`; it is about 4 KiB.
#[derive(Debug)]
pub struct Storage {
    pub(crate) here: [u8; MEMORY],
    pub(crate) there: [u8; MEMORY],
    pub(crate) slots: [Slot; SLOTS],
    pub(crate) windows: [WindowEntry; 1],
    pub(crate) frames_here: [u8; FRAME_BYTES],
    pub(crate) frames_there: [u8; FRAME_BYTES],
    pub(crate) line_to_here: [u8; LINE_BYTES],
    pub(crate) line_to_there: [u8; LINE_BYTES],
}

impl Storage {
    /// Fresh storage; `const`, so that it can be the value of a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            here: [0; MEMORY],
            there: [0; MEMORY],
            slots: [Slot::FREE; SLOTS],
            windows: [WindowEntry::FREE; 1],
            frames_here: [0; FRAME_BYTES],
            frames_there: [0; FRAME_BYTES],
            line_to_here: [0; LINE_BYTES],
            line_to_there: [0; LINE_BYTES],
        }
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self::new()
    }
}

/// A bus between two memories, with a queue of requests.
#[derive(Debug)]
pub struct Bus<'s> {
    here: &'s mut [u8],
    there: &'s mut [u8],
    windows: WindowTable<&'s mut [WindowEntry]>,
    queue: [Option<WorkRequest>; SLOTS],
}

impl<'s> Bus<'s> {
    /// A bus with nothing under way.
    pub fn new(here: &'s mut [u8], there: &'s mut [u8], windows: &'s mut [WindowEntry]) -> Self {
        Self { here, there, windows: WindowTable::new(windows), queue: [None; SLOTS] }
    }

    /// The windows of the node that is accessed.
    pub fn windows(&mut self) -> &mut WindowTable<&'s mut [WindowEntry]> {
        &mut self.windows
    }

    /// The memory of the node that is accessed.
    #[must_use]
    pub fn memory_there(&self) -> LocalRegion {
        let len = u64::try_from(self.there.len()).unwrap_or(0);
        LocalRegion { key: KEY_THERE, extent: Extent::new(len), place: Place::HOST }
    }

    /// Copies bytes to the front of this node's memory; what does not fit is left out.
    pub fn load(&mut self, bytes: &[u8]) {
        for (to, from) in self.here.iter_mut().zip(bytes) {
            *to = *from;
        }
    }

    /// Whether the two halves of this node's memory begin with the same `n` bytes.
    #[must_use]
    pub fn halves_agree(&self, n: usize) -> bool {
        let half = self.here.len().div_ceil(2);
        matches!((self.here.get(..n), self.here.get(half..)), (Some(a), Some(b)) if b.starts_with(a))
    }

    /// Whether the other node's memory begins with these bytes.
    #[must_use]
    pub fn memory_there_starts_with(&self, bytes: &[u8]) -> bool {
        self.there.starts_with(bytes)
    }

    /// What the engine does for one descriptor.
    fn execute(&mut self, work: &WorkRequest) -> Result<u64, Failure> {
        let rights = match work.opcode {
            Opcode::Put => Access::WRITE,
            Opcode::Get => Access::READ,
            // The caps say that a notify is not known here; `post` refused it.
            Opcode::PutNotify { .. } => return Err(Failure::Unsupported),
        };
        let (window, span) = (work.remote.window, work.remote.span);
        // The target's answer, in terms of its own memory. The initiator's word counts for nothing.
        let target: LocalSlice = self
            .windows
            .check(window, work.remote.epoch, span.offset(), span.len(), rights)
            .map_err(Failure::Window)?;
        let ours = part(self.here, work.local.span).ok_or(Failure::UnknownRegion)?;
        let theirs = part(self.there, target.span).ok_or(Failure::UnknownRegion)?;
        let (to, from): (&mut [u8], &[u8]) = match work.opcode {
            Opcode::Get => (ours, theirs),
            Opcode::Put | Opcode::PutNotify { .. } => (theirs, ours),
        };
        // Both are equally long: the work queue refuses anything else.
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from;
        }
        Ok(span.len())
    }
}

/// The bytes of a span.
fn part(memory: &mut [u8], span: ByteRange) -> Option<&mut [u8]> {
    let start = usize::try_from(span.offset()).ok()?;
    let end = usize::try_from(span.end()).ok()?;
    memory.get_mut(start..end)
}

impl Transport for Bus<'_> {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::PUT | Caps::GET | Caps::TARGET_CHECKED | Caps::CANCEL
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        if matches!(work.opcode, Opcode::PutNotify { .. }) {
            return Err(PostErrorKind::Unsupported);
        }
        if work.local.key != KEY_HERE {
            return Err(PostErrorKind::UnknownRegion);
        }
        match self.queue.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some(*work);
                Ok(())
            }
            None => Err(PostErrorKind::Busy),
        }
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        let mut done = 0_usize;
        for (place, out) in (0..SLOTS).zip(out) {
            let Some(work) = self.queue.get_mut(place).and_then(Option::take) else {
                break;
            };
            *out = Completion { op: work.op, result: self.execute(&work) };
            done = done.saturating_add(1);
        }
        // The waiting ones move up, so that the oldest is always first.
        self.queue.rotate_left(done.min(SLOTS));
        done
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        // Nothing was copied for a request that still waits: to drop it is a fence.
        for place in &mut self.queue {
            if place.is_some_and(|work| work.op == op) {
                *place = None;
            }
        }
        self.queue.sort_unstable_by_key(Option::is_none);
        CancelOutcome::Withdrawn
    }
}
