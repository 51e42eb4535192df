//! The world between two simulated NICs: virtual time, requests in flight, two memories.
//!
//! Nothing here sleeps, reads a clock or draws entropy. Requests move their bytes in pieces, and the
//! window is checked before every piece, so a revocation or a death can fall between two of them.

use hmc_core::kinds::Access;
use hmc_core::limits::MAX_WINDOWS_PER_PEER;
use hmc_core::region::LocalSlice;
use hmc_core::slots::OpId;
use hmc_core::span::Side;
use hmc_core::transport::{CancelOutcome, ErrorKind};
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

use crate::fault::Faults;
use crate::memory::{Memory, copy};
use crate::plain::admit;
use crate::ring::Ring;
use crate::rng::Rng;

/// Tags that wait at a target until it takes them. Requests behind a full inbox wait.
const INBOX: usize = 1024;

/// What value fills unused places of a completion ring.
const NO_COMPLETION: Completion =
    Completion { op: OpId { index: 0, generation: 0 }, result: Ok(0) };

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Near,
    Far,
}

/// Whether requests move bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// They do.
    Move,
    /// They are checked and counted only: what remains is the cost of everything but the copy.
    Skip,
}

/// Which misfortune a request was dealt when it was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    Lost,
    Doubled,
    Failed,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// This many bytes were moved.
    Moving(u64),
    /// The bytes are there, the tag is not. The completion came already, or comes after it.
    Tag { completed: bool },
    /// To be completed.
    Completing(Result<u64, Failure>),
    /// Completed once, to be completed again.
    Echo(Result<u64, Failure>),
    /// Never to be completed while both ends live.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    work: WorkRequest,
    fate: Fate,
    stage: Stage,
    due_ns: u64,
}

/// What a step of a flight led to.
#[derive(Clone, Copy, Debug)]
struct Stepped {
    /// To be told to the initiator.
    completion: Option<Result<u64, Failure>>,
    /// The next stage; `None` when the flight is over.
    next: Option<Stage>,
}

/// One process: its memory, its windows towards the other, and what its NIC holds.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) memory: Memory,
    pub(crate) windows: WindowTable<Box<[WindowEntry]>>,
    flights: Vec<Flight>,
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
            flights: Vec::with_capacity(depth),
            done: Ring::new(depth, NO_COMPLETION),
            inbox: Ring::new(INBOX, 0),
            depth,
            alive: true,
        }
    }

    fn is_full(&self) -> bool {
        self.flights.len().saturating_add(self.done.len()) >= self.depth
    }

    #[inline]
    fn check(&self, work: &WorkRequest) -> Result<LocalSlice, Failure> {
        let access = match work.opcode {
            Opcode::Put | Opcode::PutNotify { .. } => Access::WRITE,
            Opcode::Get => Access::READ,
        };
        let (offset, len) = (work.remote.span.offset(), work.remote.span.len());
        self.windows
            .check(work.remote.window, work.remote.epoch, offset, len, access)
            .map_err(Failure::Window)
    }

    pub(crate) fn take_tag(&mut self) -> Option<u64> {
        self.inbox.pop()
    }
}

/// Copies the part of a request that starts after `from` bytes.
fn move_part(
    here: &mut End,
    there: &mut End,
    work: &WorkRequest,
    from: u64,
    len: u64,
) -> Result<(), Failure> {
    let target = there.check(work)?;
    let part = |slice: LocalSlice| {
        let span = slice.span.sub(Side::Local, from, len).map_err(|_| Failure::UnknownRegion)?;
        Ok(LocalSlice { key: slice.key, span })
    };
    let (local, target) = (part(work.local)?, part(target)?);
    let moved = match work.opcode {
        Opcode::Put | Opcode::PutNotify { .. } => {
            copy(&here.memory, local, &mut there.memory, target)
        }
        Opcode::Get => copy(&there.memory, target, &mut here.memory, local),
    };
    if moved { Ok(()) } else { Err(Failure::UnknownRegion) }
}

/// Accepts a request and does all of it. This is the path that benchmarks measure: it looks every
/// key up once and allocates nothing.
#[inline]
fn post_instantly(
    here: &mut End,
    there: &mut End,
    work: &WorkRequest,
    bytes: Bytes,
) -> Result<(), ErrorKind> {
    let len = work.local.span.len();
    if len != work.remote.span.len() {
        return Err(ErrorKind::Other);
    }
    let Some(local) = here.memory.get_mut(work.local) else {
        return Err(ErrorKind::UnknownRegion);
    };
    let notify = matches!(work.opcode, Opcode::PutNotify { .. });
    if here.done.len() >= here.depth || (notify && there.inbox.is_full()) {
        return Err(ErrorKind::Busy);
    }
    let result = match there.check(work) {
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
        // There is room: it was looked at before anything moved.
        let _ = there.inbox.push(tag);
    }
    // There is room: the depth is no more than the ring's size.
    let _ = here.done.push(Completion { op: work.op, result });
    Ok(())
}

#[derive(Debug)]
pub(crate) struct Fabric {
    near: End,
    far: End,
    now_ns: u64,
    rng: Rng,
    faults: Faults,
    bytes: Bytes,
    /// Nothing takes time or goes wrong: a request is done when it is posted.
    instant: bool,
    accepted: u64,
}

impl Fabric {
    pub(crate) fn new(seed: u64, faults: Faults, depth: usize, bytes: Bytes) -> Self {
        Self {
            near: End::new(depth),
            far: End::new(depth),
            now_ns: 0,
            rng: Rng::new(seed),
            faults,
            bytes,
            instant: faults == Faults::NONE,
            accepted: 0,
        }
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

    /// The end dies. What it had in flight moves no further byte; both ends' requests complete.
    pub(crate) fn kill(&mut self, place: Place) {
        self.end(place).alive = false;
        let now_ns = self.now_ns;
        for end in [&mut self.near, &mut self.far] {
            for flight in &mut end.flights {
                flight.due_ns = flight.due_ns.min(now_ns.saturating_add(self.faults.delay_max_ns));
            }
        }
    }

    #[inline]
    pub(crate) fn post(&mut self, place: Place, work: &WorkRequest) -> Result<(), ErrorKind> {
        let (bytes, instant) = (self.bytes, self.instant);
        let (here, there) = self.both(place);
        if !here.alive || !there.alive {
            return Err(ErrorKind::Disconnected);
        }
        if instant {
            return post_instantly(here, there, work, bytes);
        }
        // By value: the path that benchmarks measure then need not build the request in memory.
        self.launch(place, *work)
    }

    /// Accepts a request that takes its time.
    #[cold]
    #[inline(never)]
    fn launch(&mut self, place: Place, work: WorkRequest) -> Result<(), ErrorKind> {
        let faults = self.faults;
        let here = self.end(place);
        admit(&here.memory, &work)?;
        if here.is_full() {
            return Err(ErrorKind::Busy);
        }
        if faults.busy.hits(&mut self.rng) {
            return Err(ErrorKind::Busy);
        }
        let fate = if faults.lost.hits(&mut self.rng) {
            Fate::Lost
        } else if faults.doubled.hits(&mut self.rng) {
            Fate::Doubled
        } else if faults.failed.hits(&mut self.rng) {
            Fate::Failed
        } else {
            Fate::Kept
        };
        let due_ns = self.later();
        let flight = Flight { work, fate, stage: Stage::Moving(0), due_ns };
        self.end(place).flights.push(flight);
        self.accepted = self.accepted.saturating_add(1);
        if faults.death_after.is_some_and(|n| self.accepted == n) {
            self.kill(match place {
                Place::Near => Place::Far,
                Place::Far => Place::Near,
            });
        }
        Ok(())
    }

    fn later(&mut self) -> u64 {
        let delay_ns = self.rng.below(self.faults.delay_max_ns.saturating_add(1));
        self.now_ns.saturating_add(delay_ns)
    }

    /// Lets virtual time pass and runs every flight that is due, of both ends, once.
    pub(crate) fn advance(&mut self, by_ns: u64) {
        self.now_ns = self.now_ns.saturating_add(by_ns);
        for place in [Place::Near, Place::Far] {
            let mut at = 0usize;
            while let Some(flight) = self.end(place).flights.get(at).copied() {
                let over = flight.due_ns <= self.now_ns && self.step(place, at, flight);
                if over {
                    self.end(place).flights.swap_remove(at);
                } else {
                    at = at.saturating_add(1);
                }
            }
        }
    }

    /// Runs one step of the flight at `at`. Whether it is over.
    fn step(&mut self, place: Place, at: usize, flight: Flight) -> bool {
        let due_ns = self.later();
        let (piece, coin) = (self.rng.next_u64(), self.rng.below(2) == 0);
        let (here, there) = self.both(place);
        let stepped = run(here, there, &flight, piece, coin);
        if let Some(result) = stepped.completion {
            // There is room: a flight keeps its credit until it is over.
            let _ = here.done.push(Completion { op: flight.work.op, result });
        }
        let Some(stage) = stepped.next else {
            return true;
        };
        if let Some(f) = here.flights.get_mut(at) {
            *f = Flight { stage, due_ns, ..flight };
        }
        false
    }

    #[inline]
    pub(crate) fn poll(&mut self, place: Place, out: &mut [Completion], cost_ns: u64) -> usize {
        if !self.instant {
            self.advance(cost_ns);
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

    /// Withdraws an operation none of whose requests has begun; another runs on.
    pub(crate) fn cancel(&mut self, place: Place, op: OpId) -> CancelOutcome {
        let here = self.end(place);
        let begun = |f: &Flight| f.work.op == op && !matches!(f.stage, Stage::Moving(0));
        if here.done.iter().any(|c| c.op == op) || here.flights.iter().any(begun) {
            return CancelOutcome::Running;
        }
        here.flights.retain(|f| f.work.op != op);
        CancelOutcome::Withdrawn
    }
}

/// One step of one flight. `piece` and `coin` are its share of chance.
fn run(here: &mut End, there: &mut End, flight: &Flight, piece: u64, coin: bool) -> Stepped {
    let (work, len) = (&flight.work, flight.work.local.span.len());
    let over = |completion| Stepped { completion, next: None };
    let then = |stage| Stepped { completion: None, next: Some(stage) };
    let alive = here.alive && there.alive;
    match flight.stage {
        Stage::Moving(_) | Stage::Lost if !alive => over(Some(Err(Failure::PeerDead))),
        Stage::Lost => then(Stage::Lost),
        Stage::Moving(moved) => {
            let rest = len.saturating_sub(moved);
            // At least a quarter of the rest, so that large requests need few steps.
            let part = piece.checked_rem(rest).unwrap_or(0).max(rest >> 2).max(1).min(rest);
            match move_part(here, there, work, moved, part) {
                Err(failure) => then(Stage::Completing(Err(failure))),
                Ok(()) if flight.fate == Fate::Failed => {
                    then(Stage::Completing(Err(Failure::Transport(Faults::EIO))))
                }
                Ok(()) if part < rest => then(Stage::Moving(moved.saturating_add(part))),
                Ok(()) => match work.opcode {
                    Opcode::Put | Opcode::Get => then(Stage::Completing(Ok(len))),
                    // The completion promises the bytes, not the tag: sometimes it comes first.
                    Opcode::PutNotify { .. } if coin && flight.fate == Fate::Kept => Stepped {
                        completion: Some(Ok(len)),
                        next: Some(Stage::Tag { completed: true }),
                    },
                    Opcode::PutNotify { .. } => then(Stage::Tag { completed: false }),
                },
            }
        }
        Stage::Tag { completed } => {
            let next = if completed { None } else { Some(Stage::Completing(Ok(len))) };
            match work.opcode {
                Opcode::PutNotify { tag } if alive && there.inbox.push(tag).is_err() => {
                    then(flight.stage)
                }
                _ => Stepped { completion: None, next },
            }
        }
        Stage::Completing(result) => match flight.fate {
            Fate::Lost => then(Stage::Lost),
            Fate::Doubled => Stepped { completion: Some(result), next: Some(Stage::Echo(result)) },
            Fate::Kept | Fate::Failed => over(Some(result)),
        },
        Stage::Echo(result) => over(Some(result)),
    }
}
