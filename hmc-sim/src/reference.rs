//! The smallest correct transport: two memories in one process and a queue.
//!
//! It is the reference of [`Transport`]'s rules: it checks at the target, moves bytes in `poll`, and withdraws any queued
//! request. Broken transports for the suite's own tests wrap it.

use std::collections::VecDeque;

use hmc_core::region::{LocalRegion, LocalSlice, WindowDesc, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps, MemoryKind};
use hmc_core::window::{WindowEntry, WindowFault, WindowTable, WindowTransition};
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

use crate::memory::{Memory, copy};
use crate::rng::Rng;

/// Requests that it accepts before it returns `Busy`.
const DEPTH: usize = 32;
/// Tags that wait for the target to take them; more stay queued with their requests.
const INBOX: usize = 1024;

/// One initiator and one target, run by the initiator's `poll`.
#[derive(Debug)]
pub struct RefTransport {
    local: Memory,
    target: Memory,
    windows: WindowTable<[WindowEntry; 4]>,
    queue: VecDeque<WorkRequest>,
    tags: Vec<u64>,
    rng: Rng,
    alive: bool,
}

impl Default for RefTransport {
    fn default() -> Self {
        Self {
            local: Memory::new(),
            target: Memory::new(),
            windows: WindowTable::new([WindowEntry::FREE; 4]),
            queue: VecDeque::with_capacity(DEPTH),
            tags: Vec::with_capacity(INBOX),
            rng: Rng::new(0x5EED),
            alive: true,
        }
    }
}

impl AsMut<Self> for RefTransport {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl RefTransport {
    /// The initiator's memory.
    pub fn local_mut(&mut self) -> &mut Memory {
        &mut self.local
    }

    /// The target's memory.
    pub fn target_mut(&mut self) -> &mut Memory {
        &mut self.target
    }

    /// Exposes a range of the target's memory to the initiator; `None` when four are exposed.
    pub fn expose(&mut self, range: LocalSlice, access: Access) -> Option<WindowDesc> {
        self.windows.expose(range, MemoryKind::Cpu, access, self.rng.next_u64()).ok()
    }

    /// Revokes a window; the fence is immediate because bytes move in `poll` only.
    pub fn revoke(&mut self, window: &WindowDesc) {
        for step in [WindowTransition::Revoke, WindowTransition::Fence] {
            let _ = self.windows.apply(window.window, window.epoch, step);
        }
    }

    /// The target dies.
    pub fn kill(&mut self) {
        self.alive = false;
    }

    /// Takes the tags that the target received.
    pub fn take_tags(&mut self) -> Vec<u64> {
        self.tags.drain(..).collect()
    }

    fn at_target(&self, remote: &WindowSlice, access: Access) -> Result<LocalSlice, WindowFault> {
        let (offset, len) = (remote.span.offset(), remote.span.len());
        self.windows.check(remote.window, remote.epoch, offset, len, access)
    }

    fn execute(&mut self, work: &WorkRequest) -> Result<u64, Failure> {
        if !self.alive {
            return Err(Failure::PeerDead);
        }
        let moved = match work.opcode {
            Opcode::Put | Opcode::PutNotify { .. } => {
                let to = self.at_target(&work.remote, Access::WRITE).map_err(Failure::Window)?;
                copy(&self.local, work.local, &mut self.target, to)
            }
            Opcode::Get => {
                let from = self.at_target(&work.remote, Access::READ).map_err(Failure::Window)?;
                copy(&self.target, from, &mut self.local, work.local)
            }
        };
        if !moved {
            return Err(Failure::UnknownRegion);
        }
        if let Opcode::PutNotify { tag } = work.opcode {
            self.tags.push(tag);
        }
        Ok(work.local.span.len())
    }
}

/// Checks a request for [`RefTransport`] and the simulated NIC before it is accepted.
pub(crate) fn admit(local: &Memory, work: &WorkRequest) -> Result<(), PostErrorKind> {
    if work.local.span.len() != work.remote.span.len() {
        return Err(PostErrorKind::Other);
    }
    if !local.knows(work.local) {
        return Err(PostErrorKind::UnknownRegion);
    }
    Ok(())
}

impl Transport for RefTransport {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::all()
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        if !self.alive {
            return Err(PostErrorKind::Disconnected);
        }
        admit(&self.local, work)?;
        if self.queue.len() >= DEPTH {
            return Err(PostErrorKind::Busy);
        }
        self.queue.push_back(*work);
        Ok(())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        let mut n = 0usize;
        for place in out {
            if self.tags.len() >= INBOX {
                break;
            }
            let Some(work) = self.queue.pop_front() else {
                break;
            };
            *place = Completion { op: work.op, result: self.execute(&work) };
            n = n.saturating_add(1);
        }
        n
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        self.queue.retain(|work| work.op != op);
        CancelOutcome::Withdrawn
    }
}

/// A region at the initiator and a window in the middle of a larger region at the target.
#[derive(Clone, Copy, Debug)]
pub struct RefPair {
    /// The initiator's region.
    pub local: LocalRegion,
    /// The target's region.
    pub target: LocalRegion,
    /// The window into it, which starts [`RefPair::MARGIN`] bytes in.
    pub window: WindowDesc,
}

impl RefPair {
    /// Bytes of the target's region on each side of the window.
    pub const MARGIN: u64 = 96;
    /// The value of those bytes.
    pub const MARGIN_BYTE: u8 = 0x3C;
}

impl RefTransport {
    /// Registers and exposes the memory of a test; `None` if it cannot be allocated.
    pub fn pair(&mut self, local: u64, window: u64, access: Access) -> Option<RefPair> {
        let local = self.local.register(local)?;
        let (target, slice) = framed(&mut self.target, window)?;
        let window = self.expose(slice, access)?;
        Some(RefPair { local, target, window })
    }
}

/// Registers a region with a margin on both sides of `len` bytes, and returns the middle.
pub(crate) fn framed(memory: &mut Memory, len: u64) -> Option<(LocalRegion, LocalSlice)> {
    let target = memory.register(len.checked_add(RefPair::MARGIN.checked_mul(2)?)?)?;
    memory.get_mut(target.slice(0, target.extent.len()).ok()?)?.fill(RefPair::MARGIN_BYTE);
    let middle = target.slice(RefPair::MARGIN, len).ok()?;
    memory.get_mut(middle)?.fill(0xCD);
    Some((target, middle))
}
