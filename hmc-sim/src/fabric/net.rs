//! The world between simulated NICs: virtual time, requests in flight, the memories of all ends.
//!
//! Requests move their bytes in pieces, and the window is checked before every piece, so a
//! revocation or a death can fall between two of them. What a rogue NIC does is in [`super::rogue`];
//! nothing in this module touches memory that it was not allowed to touch.

use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind};
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

use super::flight::{Fate, Flight, Part, Stage};
use super::port::{Host, Path, Port, Queue};
use super::touch::{cut, local_touch, touches};
use super::{check, end_number};
use crate::detector::history::Who;
use crate::detector::{Detector, Touch};
use crate::fault::{Faults, Tally};
use crate::memory::copy;
use crate::plain::admit;
use crate::rng::Rng;

#[derive(Debug)]
pub(crate) struct Fabric {
    pub(crate) hosts: Vec<Host>,
    pub(crate) ports: Vec<Port>,
    pub(crate) now_ns: u64,
    pub(crate) rng: Rng,
    pub(crate) faults: Faults,
    pub(crate) tally: Tally,
    pub(crate) detector: Option<Box<Detector>>,
    depth: usize,
}

impl Fabric {
    pub(crate) fn new(seed: u64, faults: Faults, depth: usize, ends: usize) -> Self {
        Self {
            hosts: (0..ends).map(|_| Host::new()).collect(),
            ports: Vec::new(),
            now_ns: 0,
            rng: Rng::new(seed),
            faults,
            tally: Tally::default(),
            detector: None,
            depth,
        }
    }

    /// Connects two ends; `None` when there are no such two.
    pub(crate) fn connect(&mut self, a: usize, b: usize) -> Option<(usize, usize)> {
        if a == b || a.max(b) >= self.hosts.len() {
            return None;
        }
        let at = self.ports.len();
        let ports = (at, at.checked_add(1)?);
        let path =
            Path { latency_ns: self.faults.latency_ns, bytes_per_us: self.faults.bytes_per_us };
        let places = self.faults.completion_depth.unwrap_or(self.depth);
        self.ports.push(Port::new((a, b), ports.1, self.depth, places, path));
        self.ports.push(Port::new((b, a), ports.0, self.depth, places, path));
        Some(ports)
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

    /// The process dies. What it had in flight moves no further byte; the requests of all ports
    /// that touch it complete.
    pub(crate) fn kill(&mut self, host: usize) {
        if !self.host(host).alive {
            return;
        }
        self.host(host).alive = false;
        self.tally.deaths = self.tally.deaths.saturating_add(1);
        if let Some(detector) = &mut self.detector {
            detector.died(end_number(host));
        }
        let latest_ns = self.now_ns.saturating_add(self.faults.delay_max_ns);
        for port in self.ports.iter_mut().filter(|p| p.host == host || p.peer_host == host) {
            for flight in &mut port.flights {
                flight.due_ns = flight.due_ns.min(latest_ns);
            }
        }
    }

    fn both_live(&mut self, port: usize) -> bool {
        let (here, there) = (self.port(port).host, self.port(port).peer_host);
        self.host(here).alive && self.host(there).alive
    }

    /// Accepts a request that takes its time.
    pub(crate) fn post(&mut self, port: usize, work: WorkRequest) -> Result<(), PostErrorKind> {
        if !self.both_live(port) || self.port(port).queue != Queue::Ready {
            return Err(PostErrorKind::Disconnected);
        }
        let faults = self.faults;
        let (host, end) = self.host_of(port);
        admit(&host.memory, &work)?;
        if self.port(port).is_full(faults.completion_depth.is_some()) {
            return Err(PostErrorKind::Busy);
        }
        if faults.busy.hits(&mut self.rng) {
            self.tally.busy = self.tally.busy.saturating_add(1);
            return Err(PostErrorKind::Busy);
        }
        let fate = self.draw_fate();
        let scattered = faults.scattered.hits(&mut self.rng);
        let scatter = scattered.then(|| (self.rng.next_u64(), self.rng.next_u64() | 1));
        let due_ns = self.later().saturating_add(self.port(port).path.latency_ns);
        let ticket = self.tally.accepted.saturating_add(1);
        self.tally.accepted = ticket;
        let to = self.port(port).peer_host;
        let who = Who::Request { from: end_number(end), to: end_number(to), op: work.op, ticket };
        let stage = Stage::Moving(0);
        let flight =
            Flight { work, ticket, who, fate, stage, due_ns, scatter, target: None, told: false };
        if let Some(detector) = &mut self.detector {
            detector.posted(self.now_ns, &local_touch(&flight, end, work.local));
        }
        self.port(port).flights.push(flight);
        if faults.queue_death.hits(&mut self.rng) {
            let dies_ns = self.later();
            self.port(port).dies_ns = dies_ns.min(self.port(port).dies_ns);
        }
        if faults.death_after.is_some_and(|n| ticket == n) {
            self.kill(to);
        }
        Ok(())
    }

    fn draw_fate(&mut self) -> Fate {
        let (faults, rng, tally) = (self.faults, &mut self.rng, &mut self.tally);
        let dealt = [
            (faults.lost, Fate::Lost, &mut tally.lost),
            (faults.doubled, Fate::Doubled, &mut tally.doubled),
            (faults.failed, Fate::Failed, &mut tally.failed),
        ];
        for (rate, fate, count) in dealt {
            if rate.hits(rng) {
                *count = count.saturating_add(1);
                return fate;
            }
        }
        // Counted when it touches what is not its own any more.
        if faults.rogue.early_completion.hits(rng) { Fate::Early } else { Fate::Kept }
    }

    pub(crate) fn later(&mut self) -> u64 {
        let delay_ns = self.rng.below(self.faults.delay_max_ns.saturating_add(1));
        self.now_ns.saturating_add(delay_ns)
    }

    /// Lets virtual time pass and runs every flight that is due, of all ends, once.
    pub(crate) fn advance(&mut self, by_ns: u64) {
        self.now_ns = self.now_ns.saturating_add(by_ns);
        for port in 0..self.ports.len() {
            self.pass_fences(port);
            if self.port(port).dies_ns <= self.now_ns {
                self.port(port).dies_ns = u64::MAX;
                self.tally.queue_deaths = self.tally.queue_deaths.saturating_add(1);
                self.flush(port);
            }
            let mut at = 0usize;
            while let Some(flight) = self.port(port).flights.get(at).copied() {
                if flight.due_ns <= self.now_ns && self.step(port, at, flight) {
                    let flights = &mut self.port(port).flights;
                    if at < flights.len() {
                        flights.swap_remove(at);
                    }
                    self.over(port, &flight);
                } else {
                    at = at.saturating_add(1);
                }
            }
            self.run_ghosts(port);
        }
    }

    /// Runs one step of the flight at `at`. Whether it is over.
    fn step(&mut self, port: usize, at: usize, flight: Flight) -> bool {
        let due_ns = self.later();
        let (piece, coin) = (self.rng.next_u64(), self.rng.below(2) == 0);
        let alive = self.both_live(port);
        let len = flight.len();
        let next = match flight.stage {
            Stage::Moving(_) | Stage::Lost if !alive => {
                return self.complete(port, &flight, Err(Failure::PeerDead));
            }
            Stage::Lost => Stage::Lost,
            Stage::Moving(0) if flight.fate == Fate::Early && !flight.told => {
                self.complete(port, &flight, Ok(len));
                self.set(port, at, Flight { due_ns, told: true, ..flight });
                return false;
            }
            Stage::Moving(moved) => {
                let part = flight.part(moved, piece);
                return self.move_on(port, at, flight, part, due_ns, coin);
            }
            Stage::Tag { completed } => {
                let peer = self.port(port).peer;
                match flight.work.opcode {
                    Opcode::PutNotify { tag }
                        if alive && self.port(peer).inbox.push(tag).is_err() =>
                    {
                        flight.stage
                    }
                    _ if completed => return true,
                    _ => Stage::Completing(Ok(len)),
                }
            }
            Stage::Completing(result) => match flight.fate {
                Fate::Lost => Stage::Lost,
                Fate::Doubled => {
                    self.complete(port, &flight, result);
                    Stage::Echo(result)
                }
                Fate::Kept | Fate::Failed | Fate::Early => {
                    return self.complete(port, &flight, result);
                }
            },
            Stage::Echo(result) => return self.complete(port, &flight, result),
        };
        self.set(port, at, Flight { stage: next, due_ns, ..flight });
        false
    }

    fn set(&mut self, port: usize, at: usize, flight: Flight) {
        // It may have been flushed meanwhile: then what flushed it knows better.
        if let Some(f) = self.port(port).flights.get_mut(at).filter(|f| f.ticket == flight.ticket) {
            *f = flight;
        }
    }

    /// Moves one piece and decides what follows. Whether the flight is over.
    fn move_on(
        &mut self,
        port: usize,
        at: usize,
        mut flight: Flight,
        part: Part,
        due_ns: u64,
        coin: bool,
    ) -> bool {
        let moved = self.move_part(port, &mut flight, part);
        let path = self.port(port).path;
        let free_ns = self.port(port).wire_free_ns.max(self.now_ns);
        let free_ns = free_ns.saturating_add(path.wire_ns(part.len));
        self.port(port).wire_free_ns = free_ns;
        flight.due_ns = due_ns.max(free_ns);
        let back_ns = flight.due_ns.saturating_add(path.latency_ns);
        match moved {
            Err(failure) => {
                flight.stage = Stage::Completing(Err(failure));
                flight.due_ns = back_ns;
            }
            Ok(()) if flight.fate == Fate::Failed => {
                flight.stage = Stage::Completing(Err(Failure::Transport(Faults::EIO)));
                flight.due_ns = back_ns;
            }
            Ok(()) if !part.last => flight.stage = Stage::Moving(part.next),
            Ok(()) => {
                self.rogue_beyond(port, &flight);
                flight.due_ns = back_ns;
                match flight.work.opcode {
                    Opcode::Put | Opcode::Get if flight.told => return true,
                    Opcode::Put | Opcode::Get => {
                        flight.stage = Stage::Completing(Ok(flight.len()));
                    }
                    // The completion promises the bytes, not the tag: sometimes it comes first.
                    Opcode::PutNotify { .. } => {
                        let first = coin && flight.fate == Fate::Kept;
                        if first {
                            self.complete(port, &flight, Ok(flight.len()));
                        }
                        flight.stage = Stage::Tag { completed: first || flight.told };
                    }
                }
            }
        }
        self.set(port, at, flight);
        false
    }

    fn move_part(&mut self, port: usize, flight: &mut Flight, part: Part) -> Result<(), Failure> {
        let peer = self.port(port).peer;
        let target = match check(&self.port(peer).windows, &flight.work) {
            Ok(target) => target,
            Err(failure) => {
                return self.rogue_after_fence(port, flight, part).ok_or(failure);
            }
        };
        flight.target = Some(target);
        let (local, target) = (cut(flight.work.local, part)?, cut(target, part)?);
        let (here, there) = (self.port(port).host, self.port(port).peer_host);
        let known = self.host(here).memory.knows(local) && self.host(there).memory.knows(target);
        if !known {
            return Err(Failure::UnknownRegion);
        }
        let touches = touches(flight, (here, there), local, target);
        let lawful = self.judge(&touches);
        let Ok([near, far]) = self.hosts.get_disjoint_mut([here, there]) else {
            return Err(Failure::UnknownRegion);
        };
        let moved = if flight.is_put() {
            copy(&near.memory, local, &mut far.memory, target)
        } else {
            copy(&far.memory, target, &mut near.memory, local)
        };
        self.tally.pieces = self.tally.pieces.saturating_add(1);
        self.tally.rogue = self.tally.rogue.saturating_add(u64::from(flight.told));
        self.record(lawful, &touches);
        self.rogue_flip(&touches);
        if moved { Ok(()) } else { Err(Failure::UnknownRegion) }
    }

    /// Asks the detector about what is read and what is written. Whether both are lawful.
    pub(crate) fn judge(&mut self, touches: &[Touch; 2]) -> bool {
        let now_ns = self.now_ns;
        let Some(detector) = &mut self.detector else {
            return true;
        };
        let [read, written] = touches.each_ref().map(|touch| detector.judge(now_ns, touch));
        read && written
    }

    /// Tells the detector what a lawful piece wrote.
    fn record(&mut self, lawful: bool, [_, written]: &[Touch; 2]) {
        let host = self.hosts.get(usize::from(written.end));
        let bytes = host.and_then(|h| h.memory.get(written.range));
        if let (true, Some(detector), Some(bytes)) = (lawful, &mut self.detector, bytes) {
            detector.wrote(self.now_ns, written, bytes);
        }
    }

    /// Tells the initiator what became of a request. Always true, for those whose flight is over.
    fn complete(&mut self, port: usize, flight: &Flight, result: Result<u64, Failure>) -> bool {
        let places = self.faults.completion_depth;
        let flushes = self.faults.flush_on_error && result.is_err();
        if let Some(detector) = &mut self.detector {
            detector.completed(self.now_ns, flight.ticket, flight.who);
        }
        let full = places.is_some_and(|n| self.port(port).done.len() >= n);
        let completion = Completion { op: flight.work.op, result };
        // A queue without a size of its own is not full: a flight keeps its credit until it is over.
        if full || self.port(port).done.push(completion).is_err() {
            self.overrun(port);
        } else {
            self.tally.completions = self.tally.completions.saturating_add(1);
        }
        if flushes && self.both_live(port) && self.port(port).queue == Queue::Ready {
            self.flush(port);
        }
        true
    }

    /// A completion found no place: the queue is dead, and nothing in it completes any more.
    fn overrun(&mut self, port: usize) {
        self.tally.overruns = self.tally.overruns.saturating_add(1);
        self.port(port).queue = Queue::Error;
        for flight in &mut self.port(port).flights {
            flight.stage = Stage::Lost;
        }
    }

    /// The queue goes to the error state: nothing of it moves any more, and all of it completes.
    pub(crate) fn flush(&mut self, port: usize) {
        let flushed = Stage::Completing(Err(Failure::Transport(Faults::FLUSHED)));
        let mut count = 0u64;
        self.port(port).queue = Queue::Error;
        for flight in &mut self.port(port).flights {
            let open = matches!(flight.stage, Stage::Moving(_) | Stage::Tag { completed: false });
            if open && !flight.told {
                flight.stage = flushed;
                // A loss that it was dealt stays; what it might have told twice or wrongly is over.
                if flight.fate != Fate::Lost {
                    flight.fate = Fate::Kept;
                }
                count = count.saturating_add(1);
            }
        }
        self.tally.flushed = self.tally.flushed.saturating_add(count);
    }

    /// Destroys the queue: nothing that it held will touch memory or complete. This is a fence.
    pub(crate) fn destroy(&mut self, port: usize) {
        let flights = core::mem::take(&mut self.port(port).flights);
        if let Some(detector) = &mut self.detector {
            for flight in &flights {
                detector.completed(self.now_ns, flight.ticket, flight.who);
            }
        }
        let port = self.port(port);
        while port.done.pop().is_some() {}
        port.told.clear();
        port.dies_ns = u64::MAX;
        port.queue = Queue::Destroyed;
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
                let told = &self.port(port).told;
                told.get(pick.checked_rem(told.len())?).copied()
            });
            self.port(port).remember(completion);
            for told in [Some(completion), again].into_iter().flatten() {
                if let Some(to) = free.next() {
                    *to = told;
                    n = n.saturating_add(1);
                }
            }
            self.tally.stale = self.tally.stale.saturating_add(u64::from(again.is_some()));
        }
        n
    }

    /// A pick, when the dice say so.
    fn rng_for(&mut self, rate: crate::fault::Rate) -> Option<usize> {
        rate.hits(&mut self.rng).then(|| self.rng.index(usize::from(u16::MAX)))
    }

    /// Withdraws an operation none of whose requests has begun; another runs on.
    pub(crate) fn cancel(&mut self, port: usize, op: SlotId) -> CancelOutcome {
        let here = self.port(port);
        let begun = |f: &Flight| f.work.op == op && !matches!(f.stage, Stage::Moving(0));
        if here.done.iter().any(|c| c.op == op) || here.flights.iter().any(begun) {
            return CancelOutcome::Running;
        }
        let withdrawn: Vec<_> = here.flights.iter().filter(|f| f.work.op == op).copied().collect();
        here.flights.retain(|f| f.work.op != op);
        if let Some(detector) = &mut self.detector {
            for flight in withdrawn {
                detector.completed(self.now_ns, flight.ticket, flight.who);
            }
        }
        CancelOutcome::Withdrawn
    }
}
