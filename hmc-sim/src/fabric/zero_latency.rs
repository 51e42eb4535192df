//! Two ends without latency or random numbers: a request is done when it is posted.
//!
//! Benchmarks measure this: it looks each key up once and allocates nothing. Latency and faults are in [`super::timed`], which
//! must not slow this path down. That is why a [`FastFabric`] leads to a port of a timed fabric too, with one cold branch, and
//! no `enum` is above both: the compiler then makes one function of a work queue and this path (412 instructions for a
//! put, progress and wait; 427 with the `enum`).

use std::cell::RefCell;
use std::rc::Rc;

use hmc_core::limits::MAX_WINDOWS_PER_PEER;
use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind};
use hmc_core::window::{WindowEntry, WindowTable, WindowTransition};
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

use super::timed::Fabric;
use super::{Bytes, INBOX, NO_COMPLETION, check, open};
use crate::memory::Memory;
use crate::ring::Ring;
use crate::rng::Rng;

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FabricSide {
    Near,
    Far,
}

impl FabricSide {
    /// Returns the other one.
    pub(crate) const fn peer(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

/// One process: its memory, its windows towards the other, and the queues of its NIC.
#[derive(Debug)]
pub(crate) struct FabricEnd {
    pub(crate) memory: Memory,
    windows: WindowTable<Box<[WindowEntry]>>,
    done: Ring<Completion>,
    inbox: Ring<u64>,
    depth: usize,
    alive: bool,
}

impl FabricEnd {
    fn new(depth: usize) -> Self {
        Self {
            memory: Memory::new(),
            windows: WindowTable::new(vec![WindowEntry::FREE; MAX_WINDOWS_PER_PEER].into()),
            done: Ring::new(depth, NO_COMPLETION),
            inbox: Ring::new(INBOX, 0),
            depth,
            alive: true,
        }
    }

    /// An end of minimal size, for a fabric that leads to a port of a timed one.
    fn empty() -> Self {
        Self {
            memory: Memory::new(),
            windows: WindowTable::new(Box::default()),
            done: Ring::new(0, NO_COMPLETION),
            inbox: Ring::new(0, 0),
            depth: 0,
            alive: true,
        }
    }

    pub(crate) fn take_tag(&mut self) -> Option<u64> {
        self.inbox.pop()
    }

    /// Lets the other end reach a range by the name that the host gave the window. Returns `false` if the name is taken.
    pub(crate) fn open_window(&mut self, range: LocalSlice, window: &WindowDesc) -> bool {
        open(&mut self.windows, range, window)
    }

    /// Refuses accesses to a window, at once.
    pub(crate) fn revoke(&mut self, id: WindowId, epoch: Epoch) {
        // An error: it is forgotten, and has no name any more.
        let _ = self.windows.apply(id, epoch, WindowTransition::Revoke);
    }

    /// The host uses the window's name again.
    pub(crate) fn forget_window(&mut self, id: WindowId, epoch: Epoch) {
        // An error: it is forgotten already.
        let _ = self.windows.apply(id, epoch, WindowTransition::Fence);
    }

    /// Returns the number of tags that nobody took, and whether no more fit.
    pub(crate) fn tags(&self) -> (usize, bool) {
        (self.inbox.len(), self.inbox.is_full())
    }

    /// Returns `true` if completions wait for a poll.
    pub(crate) fn has_completions(&self) -> bool {
        self.done.len() != 0
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive
    }
}

/// Accepts a request and completes it.
#[inline]
fn post_now(
    here: &mut FabricEnd,
    there: &mut FabricEnd,
    work: &WorkRequest,
    bytes: Bytes,
) -> Result<(), PostErrorKind> {
    let len = work.local.span.len();
    if len != work.remote.span.len() {
        return Err(PostErrorKind::Other);
    }
    let Some(local) = here.memory.get_mut(work.local) else {
        return Err(PostErrorKind::UnknownRegion);
    };
    let notify = matches!(work.opcode, Opcode::PutNotify { .. });
    if here.done.len() >= here.depth || (notify && there.inbox.is_full()) {
        return Err(PostErrorKind::Busy);
    }
    let result = match check(&there.windows, work) {
        Err(failure) => Err(failure),
        Ok(_) if bytes == Bytes::Skip => Ok(len),
        Ok(target) => match (there.memory.get_mut(target), work.opcode) {
            (None, _) => Err(Failure::UnknownRegion),
            // Of equal length: the window check gives a range of the length that was asked for.
            (Some(target), Opcode::Put | Opcode::PutNotify { .. }) => {
                target.copy_from_slice(local);
                Ok(len)
            }
            (Some(target), Opcode::Get) => {
                local.copy_from_slice(target);
                Ok(len)
            }
        },
    };
    if let Opcode::PutNotify { tag } = work.opcode
        && result.is_ok()
    {
        // The ring is not full: that was checked before anything moved.
        let _ = there.inbox.push(tag);
    }
    // The ring is not full: the depth is no more than the ring's size.
    let _ = here.done.push(Completion { op: work.op, result });
    Ok(())
}

/// A port of a timed fabric.
pub(crate) type NetPort = (Rc<RefCell<Fabric>>, usize);

/// Two ends, or the connection to one port of a timed fabric.
#[derive(Debug)]
pub(crate) struct FastFabric {
    near: FabricEnd,
    far: FabricEnd,
    now_ns: u64,
    rng: Rng,
    bytes: Bytes,
    /// No latency and no faults: a request is done when it is posted.
    zero_latency: bool,
    net: Option<NetPort>,
}

impl FastFabric {
    pub(crate) fn new(seed: u64, depth: usize, bytes: Bytes) -> Self {
        let (near, far) = (FabricEnd::new(depth), FabricEnd::new(depth));
        Self { near, far, now_ns: 0, rng: Rng::new(seed), bytes, zero_latency: true, net: None }
    }

    pub(crate) fn of_net(fabric: &Rc<RefCell<Fabric>>, port: usize) -> Self {
        Self {
            near: FabricEnd::empty(),
            far: FabricEnd::empty(),
            now_ns: 0,
            rng: Rng::new(0),
            bytes: Bytes::Move,
            zero_latency: false,
            net: Some((Rc::clone(fabric), port)),
        }
    }

    /// Returns the port of a timed fabric that it leads to.
    pub(crate) const fn net(&self) -> Option<&NetPort> {
        self.net.as_ref()
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(crate) fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    pub(crate) fn end(&mut self, side: FabricSide) -> &mut FabricEnd {
        match side {
            FabricSide::Near => &mut self.near,
            FabricSide::Far => &mut self.far,
        }
    }

    #[inline]
    fn both(&mut self, side: FabricSide) -> (&mut FabricEnd, &mut FabricEnd) {
        match side {
            FabricSide::Near => (&mut self.near, &mut self.far),
            FabricSide::Far => (&mut self.far, &mut self.near),
        }
    }

    /// The end dies, or closes the connection. Nothing is in flight, so nothing else changes.
    pub(crate) fn kill(&mut self, side: FabricSide) {
        self.end(side).alive = false;
    }

    #[inline]
    pub(crate) fn post(
        &mut self,
        side: FabricSide,
        work: &WorkRequest,
    ) -> Result<(), PostErrorKind> {
        let (bytes, zero_latency) = (self.bytes, self.zero_latency);
        let (here, there) = self.both(side);
        if !here.alive || !there.alive {
            return Err(PostErrorKind::Disconnected);
        }
        if zero_latency {
            return post_now(here, there, work, bytes);
        }
        // By value: the path that benchmarks measure then need not build the request in memory.
        self.post_to_net(*work)
    }

    #[cold]
    #[inline(never)]
    fn post_to_net(&mut self, work: WorkRequest) -> Result<(), PostErrorKind> {
        let Some((fabric, port)) = &self.net else {
            return Err(PostErrorKind::Disconnected);
        };
        fabric.borrow_mut().post(*port, work)
    }

    #[cold]
    #[inline(never)]
    fn poll_net(&mut self, out: &mut [Completion], cost_ns: u64) -> usize {
        let Some((fabric, port)) = &self.net else {
            return 0;
        };
        fabric.borrow_mut().poll(*port, out, cost_ns)
    }

    /// Advances the time; no request waits for it.
    pub(crate) fn advance(&mut self, by_ns: u64) {
        self.now_ns = self.now_ns.saturating_add(by_ns);
    }

    #[inline]
    pub(crate) fn poll(&mut self, side: FabricSide, out: &mut [Completion], cost_ns: u64) -> usize {
        if !self.zero_latency {
            return self.poll_net(out, cost_ns);
        }
        let here = self.end(side);
        let mut n = 0usize;
        for to in out {
            let Some(completion) = here.done.pop() else {
                break;
            };
            *to = completion;
            // Cannot wrap: at most `out.len()`.
            n = n.wrapping_add(1);
        }
        n
    }

    /// Accepted requests are done; only a completion may wait for a poll.
    pub(crate) fn cancel(&mut self, side: FabricSide, op: SlotId) -> CancelOutcome {
        if let Some((fabric, port)) = &self.net {
            return fabric.borrow_mut().cancel(*port, op);
        }
        if self.end(side).done.iter().any(|c| c.op == op) {
            CancelOutcome::Running
        } else {
            CancelOutcome::Withdrawn
        }
    }
}
