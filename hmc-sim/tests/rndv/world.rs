//! Two processes with any number of messages between them, on the simulated NIC.

use std::collections::VecDeque;

use hmc_core::limits::MAX_EAGER_BYTES;
use hmc_core::queue::{QueueError, Transfer, WorkQueue};
use hmc_core::region::{LocalRegion, LocalSlice, WindowDesc, WindowSlice};
use hmc_core::rndv::receiver::{CopyOut, Receiver, ReceiverOutput};
use hmc_core::rndv::sender::{PutChunk, Sender, SenderOutput};
use hmc_core::rndv::{AbortReason, OfferCounter, RecvTarget, RndvError, RndvId, RndvMsg, RndvRole};
use hmc_core::slots::{Slot, SlotId};
use hmc_core::time::Instant;
use hmc_core::types::Access;
use hmc_core::work::{CompleteWhen, Opcode};
use hmc_sim::fault::Faults;
use hmc_sim::nic::{Config, SimNic};
use hmc_sim::rng::Rng;

/// Bytes of memory after it was given back.
const GIVEN_BACK: u8 = 0x5A;

pub(crate) struct Source {
    pub(crate) machine: Sender,
    pub(crate) region: LocalRegion,
    pub(crate) bytes: Vec<u8>,
    /// Puts that were asked for and not posted yet, and those that run.
    pub(crate) wanted: VecDeque<PutChunk>,
    pub(crate) running: Vec<(SlotId, u64)>,
    pub(crate) ended: Option<Result<u64, RndvError>>,
    pub(crate) freed: bool,
}

pub(crate) struct Target {
    pub(crate) machine: Receiver,
    /// The receiver's memory, after the message was matched.
    pub(crate) memory: Option<Memory>,
    /// What came with its offer.
    pub(crate) eager: Vec<u8>,
    pub(crate) copy: Option<CopyOut>,
    pub(crate) revoking: bool,
    pub(crate) ended: Option<Result<u64, RndvError>>,
    pub(crate) freed: bool,
}

pub(crate) struct Memory {
    /// The destination; in direct mode the sender puts here.
    pub(crate) dest: LocalRegion,
    pub(crate) halves: Option<LocalRegion>,
    /// None for a message that came with its offer.
    pub(crate) window: Option<WindowDesc>,
}

/// What one end says to the other.
pub(crate) enum Note {
    Step(RndvMsg),
    Eager(RndvId, Vec<u8>),
}

/// One process: sources of its messages, targets of the peer's, and received control messages.
pub(crate) struct End {
    pub(crate) queue: WorkQueue<SimNic, [Slot; 8]>,
    pub(crate) sources: Vec<Source>,
    pub(crate) targets: Vec<Target>,
    pub(crate) incoming: OfferCounter,
    pub(crate) received: VecDeque<Note>,
    pub(crate) outgoing: VecDeque<Note>,
    /// Receives that have no message yet: capacity in bytes and the half's length, zero for direct.
    pub(crate) wants: VecDeque<(u64, u64)>,
    pub(crate) alive: bool,
    /// Of short messages, each second goes with its offer; the receiver counts the bytes of each third that does not, if it is direct.
    pub(crate) sends_eagerly: bool,
}

impl End {
    pub(crate) fn new(nic: SimNic) -> Self {
        Self {
            queue: WorkQueue::new(nic, [Slot::FREE; 8]),
            sources: Vec::new(),
            targets: Vec::new(),
            incoming: OfferCounter::new(),
            received: VecDeque::new(),
            outgoing: VecDeque::new(),
            wants: VecDeque::new(),
            alive: true,
            sends_eagerly: false,
        }
    }

    pub(crate) fn nic(&self) -> &SimNic {
        self.queue.transport()
    }

    pub(crate) fn send(&mut self, bytes: Vec<u8>) {
        let len = bytes.len() as u64;
        let region = self.nic().register(len).unwrap();
        assert!(self.nic().write(region, 0, &bytes));
        let id = RndvId(self.sources.len() as u32);
        let eager = self.sends_eagerly && bytes.len() <= MAX_EAGER_BYTES && id.0.is_multiple_of(2);
        let machine = if eager { Sender::eager(id, len) } else { Sender::new(id, len) };
        let machine = if self.counts(id) { machine.counted() } else { machine };
        let (wanted, running) = (VecDeque::new(), Vec::new());
        let source = Source { machine, region, bytes, wanted, running, ended: None, freed: false };
        self.sources.push(source);
        self.run_source(self.sources.len() - 1);
    }

    /// Whether both ends count the bytes of a message.
    fn counts(&self, id: RndvId) -> bool {
        self.sends_eagerly && id.0.is_multiple_of(3)
    }

    /// Gives the oldest open message to the oldest receive.
    pub(crate) fn pair_up(&mut self) {
        while let Some((capacity, half)) = self.wants.front().copied() {
            let Some(at) = self.targets.iter().position(|t| t.machine.is_open()) else {
                return;
            };
            self.wants.pop_front();
            let len = self.targets[at].machine.len();
            let dest = self.nic().register(capacity.max(len)).unwrap();
            if self.targets[at].machine.is_eager() {
                let t = &mut self.targets[at];
                t.memory = Some(Memory { dest, halves: None, window: None });
                t.machine.take(capacity);
                self.run_target(at);
                continue;
            }
            let (halves, slice) = if half == 0 {
                (None, dest.slice(0, len).unwrap())
            } else {
                let halves = self.nic().register(2 * half).unwrap();
                (Some(halves), halves.slice(0, 2 * half).unwrap())
            };
            let window = self.queue.transport_mut().expose(slice, Access::WRITE).unwrap();
            let area = window.slice(0, slice.span.len()).unwrap();
            let place = if half == 0 {
                RecvTarget::direct(area)
            } else {
                RecvTarget::staged(area).unwrap()
            };
            let t = &mut self.targets[at];
            t.memory = Some(Memory { dest, halves, window: Some(window) });
            t.machine.answer(capacity, place);
            self.run_target(at);
        }
    }

    pub(crate) fn run_source(&mut self, at: usize) {
        let s = &mut self.sources[at];
        while let Some(output) = s.machine.poll() {
            match output {
                SenderOutput::Send(note) => self.outgoing.push_back(Note::Step(note)),
                SenderOutput::SendEager => {
                    self.outgoing.push_back(Note::Eager(s.machine.id(), s.bytes.clone()));
                }
                SenderOutput::Put(put) => {
                    assert!(!s.freed, "a put from a source that was given back");
                    s.wanted.push_back(put);
                }
                SenderOutput::Withdraw => {
                    // What was not posted never will be.
                    for put in std::mem::take(&mut s.wanted) {
                        s.machine.put_done(put.seq, Err(hmc_core::work::Failure::Cancelled));
                    }
                    for (op, _) in &s.running {
                        self.queue.cancel(*op).unwrap();
                    }
                }
                SenderOutput::Ended(how) => assert!(s.ended.replace(how).is_none(), "ended twice"),
                SenderOutput::Free => {
                    assert!(s.ended.is_some() && !s.freed);
                    assert!(s.running.is_empty() && s.wanted.is_empty(), "a put still reads");
                    s.freed = true;
                    let junk = vec![GIVEN_BACK; s.bytes.len()];
                    assert!(self.queue.transport().write(s.region, 0, &junk));
                }
            }
        }
    }

    pub(crate) fn run_target(&mut self, at: usize) {
        let nic = self.queue.transport();
        let t = &mut self.targets[at];
        while let Some(output) = t.machine.poll() {
            match output {
                ReceiverOutput::Send(note) => self.outgoing.push_back(Note::Step(note)),
                ReceiverOutput::Copy(copy) => assert!(t.copy.replace(copy).is_none()),
                ReceiverOutput::Revoke => t.revoking = true,
                ReceiverOutput::Ended(how) => {
                    assert!(t.ended.replace(how).is_none(), "ended twice")
                }
                ReceiverOutput::Free => {
                    assert!(t.ended.is_some() && !t.freed && t.copy.is_none());
                    t.freed = true;
                    let m = t.memory.as_ref().unwrap();
                    // Read what came before it is given back; the oracle looks at it later.
                    for region in [Some(m.dest), m.halves].into_iter().flatten() {
                        let fill = vec![GIVEN_BACK; region.extent.len() as usize];
                        if t.ended != Some(Ok(t.machine.len())) || m.halves == Some(region) {
                            assert!(nic.write(region, 0, &fill));
                        }
                    }
                }
            }
        }
    }

    /// Posts as many requests as the queue accepts and collects fenced ones.
    pub(crate) fn progress(&mut self) {
        for at in 0..self.sources.len() {
            let s = &mut self.sources[at];
            while let Some(put) = s.wanted.front().copied() {
                let local = LocalSlice { key: s.region.key, span: put.source };
                let t = Transfer {
                    opcode: Opcode::Put,
                    when: CompleteWhen::Visible,
                    local,
                    remote: WindowSlice { ..put.target },
                };
                match self.queue.post(&t, Instant::NEVER) {
                    Ok(op) => s.running.push((op, put.seq)),
                    Err(QueueError::Busy | QueueError::Full { .. }) => break,
                    Err(_) => {
                        let dead = hmc_core::work::Failure::PeerDead;
                        s.machine.put_done(put.seq, Err(dead));
                    }
                }
                s.wanted.pop_front();
            }
        }
        // So long that puts do not outweigh the other steps.
        self.nic().advance(4_000);
        self.queue.progress();
        while self.queue.next_event().is_some() {}
        for at in 0..self.sources.len() {
            let s = &mut self.sources[at];
            let queue = &mut self.queue;
            let machine = &mut s.machine;
            s.running.retain(|(op, seq)| match queue.outcome(*op).unwrap() {
                Some(o) if o.fenced => {
                    queue.try_wait(*op).unwrap();
                    machine.put_done(*seq, o.result.map(drop));
                    false
                }
                // Known, but it still moves: only its fence counts.
                _ => true,
            });
            self.run_source(at);
        }
    }

    fn offered(&mut self, id: RndvId, machine: Receiver, eager: Vec<u8>) {
        self.incoming.offer(id).unwrap();
        let (memory, copy) = (None, None);
        let (revoking, ended, freed) = (false, None, false);
        self.targets.push(Target { machine, memory, eager, copy, revoking, ended, freed });
    }

    pub(crate) fn receive(&mut self, note: Note) {
        match note {
            Note::Eager(id, bytes) => {
                self.offered(id, Receiver::eager(id, bytes.len() as u64), bytes);
            }
            Note::Step(RndvMsg::Offer { id, len }) => {
                let r = Receiver::new(id, len);
                let r = if self.counts(id) { r.counted() } else { r };
                self.offered(id, r, Vec::new());
            }
            Note::Step(note) => self.receive_step(&note),
        }
        self.pair_up();
    }

    /// Counts the bytes of a message whose bytes are `bytes`: all are there when they are equal.
    pub(crate) fn count(&mut self, at: usize, bytes: &[u8]) {
        let nic = self.queue.transport();
        let t = &mut self.targets[at];
        let Some(m) = t.memory.as_ref().filter(|_| t.machine.is_counted()) else { return };
        let mut got = vec![0; bytes.len()];
        assert!(nic.read(m.dest, 0, &mut got));
        if got == bytes {
            t.machine.all_put();
            self.run_target(at);
        }
    }

    fn receive_step(&mut self, note: &RndvMsg) {
        let at = note.id().0 as usize;
        match note.from() {
            RndvRole::Sender => {
                let was_finished = self.targets[at].machine.is_finished();
                if was_finished {
                    assert!(self.incoming.is_late(note), "{note:?} of a message that is over");
                    return;
                }
                self.targets[at].machine.receive(note).unwrap();
                self.run_target(at);
            }
            RndvRole::Receiver => {
                self.sources[at].machine.receive(note).unwrap();
                self.run_source(at);
            }
        }
    }

    pub(crate) fn copy(&mut self, at: usize) {
        let nic = self.queue.transport();
        let t = &mut self.targets[at];
        let Some(copy) = t.copy.take() else {
            return;
        };
        assert!(!t.freed, "a copy after the memory was given back");
        let m = t.memory.as_ref().unwrap();
        let mut bytes = vec![0; copy.to.len() as usize];
        if let Some(halves) = m.halves {
            let from = if copy.seq % 2 == 0 { 0 } else { halves.extent.len() / 2 };
            assert!(nic.read(halves, from, &mut bytes));
        } else {
            bytes.copy_from_slice(&t.eager);
        }
        assert!(nic.write(m.dest, copy.to.offset(), &bytes));
        t.machine.copied(Ok(()));
        self.run_target(at);
    }

    pub(crate) fn fence(&mut self, at: usize) {
        let t = &mut self.targets[at];
        if std::mem::take(&mut t.revoking) {
            let window = t.memory.as_ref().unwrap().window.unwrap();
            self.queue.transport_mut().revoke_now(&window);
            t.machine.fenced();
            self.run_target(at);
        }
    }

    pub(crate) fn end_source(&mut self, at: usize, why: RndvError) {
        self.sources[at].machine.end(why);
        self.run_source(at);
    }

    pub(crate) fn end_target(&mut self, at: usize, why: RndvError) {
        // An unmatched message is not ended.
        if self.targets[at].memory.is_some() || why == RndvError::PeerDead {
            self.targets[at].machine.end(why);
            self.run_target(at);
        }
    }

    /// The peer is gone.
    pub(crate) fn lose_peer(&mut self) {
        self.alive = false;
        self.received.clear();
        for at in 0..self.sources.len() {
            self.end_source(at, RndvError::PeerDead);
        }
        for at in 0..self.targets.len() {
            self.end_target(at, RndvError::PeerDead);
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        let source = |s: &Source| s.machine.is_finished() && s.freed && s.ended.is_some();
        let target = |t: &Target| {
            t.machine.is_finished() && (t.memory.is_none() || (t.freed && t.ended.is_some()))
        };
        self.sources.iter().all(source) && self.targets.iter().all(target)
    }
}

/// Faults besides those of the fabric.
#[derive(Clone, Copy)]
pub(crate) struct Trouble {
    pub(crate) faults: Faults,
    /// Endings by users, in a hundred steps.
    pub(crate) endings: u64,
    /// One end dies at some step.
    pub(crate) death: bool,
}

pub(crate) struct World {
    pub(crate) ends: [End; 2],
    pub(crate) rng: Rng,
    pub(crate) trouble: Trouble,
}

impl World {
    pub(crate) fn new(seed: u64, trouble: Trouble) -> Self {
        let (near, far) = SimNic::pair(Config { seed, faults: trouble.faults, depth: 8 });
        Self { ends: [End::new(near), End::new(far)], rng: Rng::new(seed), trouble }
    }

    pub(crate) fn flush(&mut self) {
        for (from, to) in [(0, 1), (1, 0)] {
            let told = std::mem::take(&mut self.ends[from].outgoing);
            if self.ends[to].alive {
                self.ends[to].received.extend(told);
            }
        }
    }

    pub(crate) fn step(&mut self, calm: bool) {
        let who = self.rng.index(2);
        let what = self.rng.below(100);
        let chance = self.rng.next_u64();
        let end = &mut self.ends[who];
        let pick = |n: usize| (n > 0).then(|| (chance % n as u64) as usize);
        match what {
            0..=39 => {
                if let Some(note) = end.received.pop_front() {
                    end.receive(note);
                }
            }
            40..=69 => {
                end.progress();
                let [near, far] = &mut self.ends;
                let (from, to) = if who == 0 { (far, near) } else { (near, far) };
                if let Some(at) = pick(to.targets.len()) {
                    to.count(at, &from.sources[at].bytes);
                }
            }
            70..=84 => {
                if let Some(at) = pick(end.targets.len()) {
                    end.copy(at);
                }
            }
            85..=94 => {
                if let Some(at) = pick(end.targets.len()) {
                    end.fence(at);
                }
            }
            _ if calm || !end.alive => {}
            _ if chance % 100 >= self.trouble.endings => {}
            _ => {
                let why = if chance & 256 == 0 {
                    AbortReason::Cancelled
                } else {
                    AbortReason::DeadlineExceeded
                };
                let at = (chance >> 16) as usize;
                if chance & 512 == 0 && !end.sources.is_empty() {
                    end.end_source(at % end.sources.len(), RndvError::Here(why));
                } else if !end.targets.is_empty() {
                    end.end_target(at % end.targets.len(), RndvError::Here(why));
                }
            }
        }
        self.flush();
    }

    pub(crate) fn kill(&mut self, who: usize) {
        self.ends[who].nic().kill();
        // The dead do nothing any more; the test only lets go of what it modelled for them.
        for end in &mut self.ends {
            end.lose_peer();
        }
        self.flush();
    }

    /// Compares with expected vectors: completed messages are equal, and bytes that were given back did not change.
    pub(crate) fn check(&mut self) {
        for (from, to) in [(0, 1), (1, 0)] {
            for (i, s) in self.ends[from].sources.iter().enumerate() {
                let target = self.ends[to].targets.get(i);
                if s.ended == Some(Ok(s.bytes.len() as u64)) {
                    let t = target.expect("a receiver of what arrived");
                    assert_eq!(t.ended, s.ended, "message {i} arrived for its sender only");
                }
                let Some((t, m)) = target.and_then(|t| Some((t, t.memory.as_ref()?))) else {
                    continue;
                };
                let nic = self.ends[to].nic();
                let got = |region: LocalRegion| {
                    let mut got = vec![0; region.extent.len() as usize];
                    assert!(nic.read(region, 0, &mut got));
                    got
                };
                let untouched = |b: Vec<u8>| b.iter().all(|b| *b == GIVEN_BACK);
                match t.ended {
                    Some(Ok(n)) => {
                        assert_eq!(n as usize, s.bytes.len());
                        assert_eq!(&got(m.dest)[..s.bytes.len()], &s.bytes, "message {i}");
                        if m.halves.is_none() {
                            let rest = &got(m.dest)[s.bytes.len()..];
                            assert!(rest.iter().all(|b| *b == 0xCD), "beyond the message");
                        }
                    }
                    Some(Err(_)) => {
                        assert!(untouched(got(m.dest)), "a destination written after its fence");
                    }
                    None => panic!("message {i} never ended"),
                }
                if let Some(halves) = m.halves {
                    assert!(untouched(got(halves)), "halves written after they were given back");
                }
            }
            self.ends[from].nic().check().expect("no damage");
        }
    }
}
