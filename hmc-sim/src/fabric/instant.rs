//! Two ends without time or chance: a request is done when it is posted.
//!
//! This is what benchmarks measure: it looks every key up once and allocates nothing. What takes
//! time or goes wrong lives in [`super::net`]; nothing of it may slow this path down. That is why an
//! end of a net is reached through a [`Shell`] too, with one cold branch, and not through an `enum`
//! above both: the compiler then makes one function of a work queue and this path (412 instructions for a
//! put, progress and wait; 427 with the `enum`).

use std::cell::RefCell;
use std::rc::Rc;

use hmc_core::limits::MAX_WINDOWS_PER_PEER;
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind};
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

use super::net::Fabric;
use super::{Bytes, INBOX, NO_COMPLETION, check};
use crate::memory::Memory;
use crate::ring::Ring;
use crate::rng::Rng;

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Near,
    Far,
}

/// One process: its memory, its windows towards the other, and what its NIC holds.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) memory: Memory,
    pub(crate) windows: WindowTable<Box<[WindowEntry]>>,
    done: Ring<Completion>,
    inbox: Ring<u64>,
    depth: usize,
    alive: bool,
}

impl End {
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

    /// The end of a shell around a net, whose ends are elsewhere: as small as can be.
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
}

/// Accepts a request and does all of it.
#[inline]
fn post_instantly(
    here: &mut End,
    there: &mut End,
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

/// A port of a net.
pub(crate) type NetPort = (Rc<RefCell<Fabric>>, usize);

/// Two ends, or the way to one end of a net.
#[derive(Debug)]
pub(crate) struct Shell {
    near: End,
    far: End,
    now_ns: u64,
    rng: Rng,
    bytes: Bytes,
    /// Nothing takes time or goes wrong: a request is done when it is posted.
    instant: bool,
    net: Option<NetPort>,
}

impl Shell {
    pub(crate) fn new(seed: u64, depth: usize, bytes: Bytes) -> Self {
        let (near, far) = (End::new(depth), End::new(depth));
        Self { near, far, now_ns: 0, rng: Rng::new(seed), bytes, instant: true, net: None }
    }

    pub(crate) fn of_net(fabric: &Rc<RefCell<Fabric>>, port: usize) -> Self {
        Self {
            near: End::empty(),
            far: End::empty(),
            now_ns: 0,
            rng: Rng::new(0),
            bytes: Bytes::Move,
            instant: false,
            net: Some((Rc::clone(fabric), port)),
        }
    }

    /// The port of a net that it leads to.
    pub(crate) const fn net(&self) -> Option<&NetPort> {
        self.net.as_ref()
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(crate) fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    pub(crate) fn end(&mut self, place: Place) -> &mut End {
        match place {
            Place::Near => &mut self.near,
            Place::Far => &mut self.far,
        }
    }

    #[inline]
    fn both(&mut self, place: Place) -> (&mut End, &mut End) {
        match place {
            Place::Near => (&mut self.near, &mut self.far),
            Place::Far => (&mut self.far, &mut self.near),
        }
    }

    /// The end dies. Nothing is in flight, so nothing else changes.
    pub(crate) fn kill(&mut self, place: Place) {
        self.end(place).alive = false;
    }

    #[inline]
    pub(crate) fn post(&mut self, place: Place, work: &WorkRequest) -> Result<(), PostErrorKind> {
        let (bytes, instant) = (self.bytes, self.instant);
        let (here, there) = self.both(place);
        if !here.alive || !there.alive {
            return Err(PostErrorKind::Disconnected);
        }
        if instant {
            return post_instantly(here, there, work, bytes);
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

    /// Time passes, and nothing waits for it.
    pub(crate) fn advance(&mut self, by_ns: u64) {
        self.now_ns = self.now_ns.saturating_add(by_ns);
    }

    #[inline]
    pub(crate) fn poll(&mut self, place: Place, out: &mut [Completion], cost_ns: u64) -> usize {
        if !self.instant {
            return self.poll_net(out, cost_ns);
        }
        let here = self.end(place);
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

    /// What was accepted is done; only its completion may still wait to be polled.
    pub(crate) fn cancel(&mut self, place: Place, op: SlotId) -> CancelOutcome {
        if let Some((fabric, port)) = &self.net {
            return fabric.borrow_mut().cancel(*port, op);
        }
        if self.end(place).done.iter().any(|c| c.op == op) {
            CancelOutcome::Running
        } else {
            CancelOutcome::Withdrawn
        }
    }
}
