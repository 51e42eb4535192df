//! The fabric between simulated NICs: virtual time, requests in flight, the memories of all ends.
//!
//! Requests move their bytes in chunks, and the window is checked before each chunk, so a revocation or a death can happen
//! between two of them. Rogue NICs are in [`super::rogue`]; this module accesses no memory without a right.

use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind};
use hmc_core::window::WindowFault;
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

use super::access::{accesses, cut, local_access};
use super::in_flight::{Chunk, InFlight, PlannedFault, Stage};
use super::port::{Host, Port, Queue};
use super::{check, end_number};
use crate::access_checker::history::Actor;
use crate::access_checker::{AccessChecker, MemAccess};
use crate::fault::{FaultCounts, Faults};
use crate::memory::copy;
use crate::reference::admit;
use crate::rng::Rng;

#[derive(Debug)]
pub(crate) struct Fabric {
    pub(crate) hosts: Vec<Host>,
    pub(crate) ports: Vec<Port>,
    pub(crate) now_ns: u64,
    pub(crate) rng: Rng,
    pub(crate) faults: Faults,
    pub(crate) counts: FaultCounts,
    pub(crate) checker: Option<Box<AccessChecker>>,
    pub(super) depth: usize,
}

impl Fabric {
    pub(crate) fn new(seed: u64, faults: Faults, depth: usize, ends: usize) -> Self {
        Self {
            hosts: (0..ends).map(|_| Host::new()).collect(),
            ports: Vec::new(),
            now_ns: 0,
            rng: Rng::new(seed),
            faults,
            counts: FaultCounts::default(),
            checker: None,
            depth,
        }
    }

    pub(crate) fn port(&mut self, at: usize) -> &mut Port {
        self.ports.get_mut(at).expect("ports are never removed")
    }

    pub(crate) fn host(&mut self, at: usize) -> &mut Host {
        self.hosts.get_mut(at).expect("ends are never removed")
    }

    /// The process that a port belongs to, and its number.
    pub(crate) fn host_of(&mut self, port: usize) -> (&mut Host, usize) {
        let at = self.port(port).host;
        (self.host(at), at)
    }

    /// Accepts a request that completes later.
    pub(crate) fn post(&mut self, port: usize, work: WorkRequest) -> Result<(), PostErrorKind> {
        match (self.is_up(port), self.port(port).queue) {
            (true, Queue::Ready) => {}
            (true, Queue::Init) => return Err(PostErrorKind::Busy),
            _ => return Err(PostErrorKind::Disconnected),
        }
        let faults = self.faults;
        let (host, end) = self.host_of(port);
        admit(&host.memory, &work)?;
        if self.port(port).is_full(faults.completion_depth.is_some()) {
            return Err(PostErrorKind::Busy);
        }
        if faults.busy.hits(&mut self.rng) {
            self.counts.busy = self.counts.busy.saturating_add(1);
            return Err(PostErrorKind::Busy);
        }
        let fault = self.plan_fault();
        let scattered = faults.scattered.hits(&mut self.rng);
        let scatter = scattered.then(|| (self.rng.next_u64(), self.rng.next_u64() | 1));
        let due_ns = self.later().saturating_add(self.port(port).path.latency_ns);
        let number = self.counts.accepted.saturating_add(1);
        self.counts.accepted = number;
        let to = self.port(port).peer_host;
        let actor =
            Actor::Request { from: end_number(end), to: end_number(to), op: work.op, number };
        let window = (work.remote.window, work.remote.epoch);
        let stage = if self.port(port).removed.contains(&window) {
            Stage::Completing(Err(Failure::Window(WindowFault::Revoked)))
        } else {
            Stage::Moving(0)
        };
        let request = InFlight {
            work,
            number,
            actor,
            fault,
            stage,
            due_ns,
            scatter,
            target: None,
            completed_early: false,
        };
        if let Some(checker) = &mut self.checker {
            checker.posted(self.now_ns, &local_access(&request, end, work.local));
        }
        self.port(port).in_flight.push(request);
        if faults.queue_death.hits(&mut self.rng) {
            let dies_ns = self.later();
            self.port(port).dies_ns = dies_ns.min(self.port(port).dies_ns);
        }
        if faults.death_after.is_some_and(|n| number == n) {
            self.kill(to);
        }
        Ok(())
    }

    fn plan_fault(&mut self) -> PlannedFault {
        let (faults, rng, counts) = (self.faults, &mut self.rng, &mut self.counts);
        let dealt = [
            (faults.lost, PlannedFault::Lost, &mut counts.lost),
            (faults.doubled, PlannedFault::Doubled, &mut counts.doubled),
            (faults.failed, PlannedFault::Failed, &mut counts.failed),
        ];
        for (rate, fault, count) in dealt {
            if rate.hits(rng) {
                *count = count.saturating_add(1);
                return fault;
            }
        }
        // Counted when it accesses memory that it has no right to.
        if faults.rogue.early_completion.hits(rng) {
            PlannedFault::Early
        } else {
            PlannedFault::None
        }
    }

    pub(crate) fn later(&mut self) -> u64 {
        let delay_ns = self.rng.below(self.faults.delay_max_ns.saturating_add(1));
        self.now_ns.saturating_add(delay_ns)
    }

    /// Lets virtual time pass and runs each request that is due, of all ends, once.
    pub(crate) fn advance(&mut self, by_ns: u64) {
        self.now_ns = self.now_ns.saturating_add(by_ns);
        for port in 0..self.ports.len() {
            self.pass_fences(port);
            if self.port(port).dies_ns <= self.now_ns {
                self.port(port).dies_ns = u64::MAX;
                self.counts.queue_deaths = self.counts.queue_deaths.saturating_add(1);
                self.flush(port);
            }
            let mut at = 0usize;
            while let Some(request) = self.port(port).in_flight.get(at).copied() {
                if request.due_ns <= self.now_ns && self.step(port, at, request) {
                    let in_flight = &mut self.port(port).in_flight;
                    if at < in_flight.len() {
                        in_flight.swap_remove(at);
                    }
                    self.finished(port, &request);
                } else {
                    at = at.saturating_add(1);
                }
            }
            self.run_replays(port);
        }
    }

    /// Runs one step of the request at `at`. Returns `true` if it is finished.
    fn step(&mut self, port: usize, at: usize, request: InFlight) -> bool {
        let due_ns = self.later();
        let (piece, coin) = (self.rng.next_u64(), self.rng.below(2) == 0);
        let alive = self.is_up(port);
        let peer = self.port(port).peer;
        let len = request.len();
        let next = match request.stage {
            Stage::Moving(_) | Stage::Lost if !alive => {
                return self.complete(port, &request, Err(Failure::PeerDead));
            }
            Stage::Lost => Stage::Lost,
            // The target's queue accepts nothing yet.
            Stage::Moving(_) if self.port(peer).queue == Queue::Init => request.stage,
            Stage::Moving(0)
                if request.fault == PlannedFault::Early && !request.completed_early =>
            {
                self.complete(port, &request, Ok(len));
                self.set(port, at, InFlight { due_ns, completed_early: true, ..request });
                return false;
            }
            Stage::Moving(moved) => {
                let chunk = request.chunk(moved, piece);
                return self.move_on(port, at, request, chunk, due_ns, coin);
            }
            Stage::Tag { completed } => match request.work.opcode {
                Opcode::PutNotify { tag } if alive && self.port(peer).inbox.push(tag).is_err() => {
                    request.stage
                }
                _ if completed => return true,
                _ => Stage::Completing(Ok(len)),
            },
            Stage::Completing(result) => match request.fault {
                PlannedFault::Lost => Stage::Lost,
                PlannedFault::Doubled => {
                    self.complete(port, &request, result);
                    Stage::Echo(result)
                }
                PlannedFault::None | PlannedFault::Failed | PlannedFault::Early => {
                    return self.complete(port, &request, result);
                }
            },
            Stage::Echo(result) => return self.complete(port, &request, result),
        };
        self.set(port, at, InFlight { stage: next, due_ns, ..request });
        false
    }

    fn set(&mut self, port: usize, at: usize, request: InFlight) {
        // It may have been flushed meanwhile: then its new state stays.
        if let Some(f) =
            self.port(port).in_flight.get_mut(at).filter(|f| f.number == request.number)
        {
            *f = request;
        }
    }

    /// Moves one chunk and selects the next stage. Returns `true` if the request is finished.
    fn move_on(
        &mut self,
        port: usize,
        at: usize,
        mut request: InFlight,
        chunk: Chunk,
        due_ns: u64,
        coin: bool,
    ) -> bool {
        let moved = self.move_chunk(port, &mut request, chunk);
        let path = self.port(port).path;
        let free_ns = self.port(port).wire_free_ns.max(self.now_ns);
        let free_ns = free_ns.saturating_add(path.wire_ns(chunk.len));
        self.port(port).wire_free_ns = free_ns;
        request.due_ns = due_ns.max(free_ns);
        let back_ns = request.due_ns.saturating_add(path.latency_ns);
        match moved {
            Err(failure) => {
                request.stage = Stage::Completing(Err(failure));
                request.due_ns = back_ns;
            }
            Ok(()) if request.fault == PlannedFault::Failed => {
                request.stage = Stage::Completing(Err(Failure::Transport(Faults::EIO)));
                request.due_ns = back_ns;
            }
            Ok(()) if !chunk.last => request.stage = Stage::Moving(chunk.next),
            Ok(()) => {
                self.rogue_beyond(port, &request);
                request.due_ns = back_ns;
                match request.work.opcode {
                    Opcode::Put | Opcode::Get if request.completed_early => return true,
                    Opcode::Put | Opcode::Get => {
                        request.stage = Stage::Completing(Ok(request.len()));
                    }
                    // The completion promises the bytes, not the tag: sometimes it comes first.
                    Opcode::PutNotify { .. } => {
                        let first = coin && request.fault == PlannedFault::None;
                        if first {
                            self.complete(port, &request, Ok(request.len()));
                        }
                        request.stage = Stage::Tag { completed: first || request.completed_early };
                    }
                }
            }
        }
        self.set(port, at, request);
        false
    }

    fn move_chunk(
        &mut self,
        port: usize,
        request: &mut InFlight,
        chunk: Chunk,
    ) -> Result<(), Failure> {
        let peer = self.port(port).peer;
        let target = match check(&self.port(peer).windows, &request.work) {
            Ok(target) => target,
            Err(failure) => {
                return self.rogue_after_fence(port, request, chunk).ok_or(failure);
            }
        };
        request.target = Some(target);
        let (local, target) = (cut(request.work.local, chunk)?, cut(target, chunk)?);
        let (here, there) = (self.port(port).host, self.port(port).peer_host);
        let known = self.host(here).memory.knows(local) && self.host(there).memory.knows(target);
        if !known {
            return Err(Failure::UnknownRegion);
        }
        let accesses = accesses(request, (here, there), local, target);
        let lawful = self.check(&accesses);
        let Ok([near, far]) = self.hosts.get_disjoint_mut([here, there]) else {
            return Err(Failure::UnknownRegion);
        };
        let moved = if request.is_put() {
            copy(&near.memory, local, &mut far.memory, target)
        } else {
            copy(&far.memory, target, &mut near.memory, local)
        };
        self.counts.pieces = self.counts.pieces.saturating_add(1);
        self.counts.rogue = self.counts.rogue.saturating_add(u64::from(request.completed_early));
        let bytes = self.port(port).moved.saturating_add(chunk.len);
        self.port(port).moved = bytes;
        self.record(lawful, &accesses);
        self.rogue_flip(&accesses);
        if moved { Ok(()) } else { Err(Failure::UnknownRegion) }
    }

    /// Checks the read and the write access. Returns `true` if both are allowed.
    pub(crate) fn check(&mut self, accesses: &[MemAccess; 2]) -> bool {
        let now_ns = self.now_ns;
        let Some(checker) = &mut self.checker else {
            return true;
        };
        let [read, written] = accesses.each_ref().map(|access| checker.check(now_ns, access));
        read && written
    }

    /// Reports the bytes of an allowed write to the checker.
    fn record(&mut self, lawful: bool, [_, written]: &[MemAccess; 2]) {
        let host = self.hosts.get(usize::from(written.end));
        let bytes = host.and_then(|h| h.memory.get(written.range));
        if let (true, Some(checker), Some(bytes)) = (lawful, &mut self.checker, bytes) {
            checker.wrote(self.now_ns, written, bytes);
        }
    }

    /// Tells the initiator what became of a request. Always true, for those whose flight is over.
    fn complete(&mut self, port: usize, request: &InFlight, result: Result<u64, Failure>) -> bool {
        let places = self.faults.completion_depth;
        let flushes = self.faults.flush_on_error && result.is_err();
        if let Some(checker) = &mut self.checker {
            checker.completed(self.now_ns, request.number, request.actor);
        }
        let full = places.is_some_and(|n| self.port(port).done.len() >= n);
        let completion = Completion { op: request.work.op, result };
        // A queue without a size of its own is not full: a request keeps its credit until it is finished.
        if full || self.port(port).done.push(completion).is_err() {
            self.overrun(port);
        } else {
            self.counts.completions = self.counts.completions.saturating_add(1);
        }
        if flushes && self.is_up(port) && self.port(port).queue == Queue::Ready {
            self.flush(port);
        }
        true
    }

    /// A completion found no place: the queue is dead, and nothing in it completes any more.
    fn overrun(&mut self, port: usize) {
        self.counts.overruns = self.counts.overruns.saturating_add(1);
        self.port(port).queue = Queue::Error;
        for request in &mut self.port(port).in_flight {
            request.stage = Stage::Lost;
        }
    }

    /// The queue goes to the error state: nothing of it moves any more, and all of it completes.
    pub(crate) fn flush(&mut self, port: usize) {
        let flushed = Stage::Completing(Err(Failure::Transport(Faults::FLUSHED)));
        let mut count = 0u64;
        self.port(port).queue = Queue::Error;
        for request in &mut self.port(port).in_flight {
            let open = matches!(request.stage, Stage::Moving(_) | Stage::Tag { completed: false });
            if open && !request.completed_early {
                request.stage = flushed;
                // A planned loss stays; other planned faults are dropped.
                if request.fault != PlannedFault::Lost {
                    request.fault = PlannedFault::None;
                }
                count = count.saturating_add(1);
            }
        }
        self.counts.flushed = self.counts.flushed.saturating_add(count);
    }

    pub(crate) fn poll(&mut self, port: usize, out: &mut [Completion], cost_ns: u64) -> usize {
        self.advance(cost_ns);
        let stale = self.faults.stale;
        let mut n = 0usize;
        let mut free = out.iter_mut();
        while free.len() != 0 {
            let Some(completion) = self.port(port).done.pop() else {
                break;
            };
            let again = self.rng_for(stale).and_then(|pick| {
                let completed_early = &self.port(port).polled;
                completed_early.get(pick.checked_rem(completed_early.len())?).copied()
            });
            self.port(port).remember(completion);
            for completed_early in [Some(completion), again].into_iter().flatten() {
                if let Some(to) = free.next() {
                    *to = completed_early;
                    n = n.saturating_add(1);
                }
            }
            self.counts.stale = self.counts.stale.saturating_add(u64::from(again.is_some()));
        }
        n
    }

    /// A pick, when the dice say so.
    fn rng_for(&mut self, rate: crate::fault::Rate) -> Option<usize> {
        rate.hits(&mut self.rng).then(|| self.rng.index(usize::from(u16::MAX)))
    }

    /// Withdraws an operation if none of its requests has begun; any other continues.
    pub(crate) fn cancel(&mut self, port: usize, op: SlotId) -> CancelOutcome {
        let here = self.port(port);
        let begun = |f: &InFlight| f.work.op == op && !matches!(f.stage, Stage::Moving(0));
        if here.done.iter().any(|c| c.op == op) || here.in_flight.iter().any(begun) {
            return CancelOutcome::Running;
        }
        let withdrawn: Vec<_> =
            here.in_flight.iter().filter(|f| f.work.op == op).copied().collect();
        here.in_flight.retain(|f| f.work.op != op);
        if let Some(checker) = &mut self.checker {
            for request in withdrawn {
                checker.completed(self.now_ns, request.number, request.actor);
            }
        }
        CancelOutcome::Withdrawn
    }
}
