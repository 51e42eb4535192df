//! Messages of any size over the simulated NIC: random interleavings of notes, puts and copies, and
//! endings at any step. What succeeds is equal to the source, each end ends once, and memory that was
//! given back is never written again.
//!
//! A failure prints its seed; `HMC_TEST_SEED=n cargo test -p hmc-sim --test relay one_seed` plays it.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::as_conversions,
    reason = "tests may panic"
)]

use std::collections::VecDeque;

use hmc_core::kinds::Access;
use hmc_core::lane::{Lane, LaneError, Transfer};
use hmc_core::region::{LocalRegion, LocalSlice, RemoteRegion, RemoteSlice};
use hmc_core::relay::receiver::{Copy, Receiver, ReceiverOutput};
use hmc_core::relay::sender::{Put, Sender, SenderOutput};
use hmc_core::relay::{Ending, Incoming, Note, Place, RelayId, Role, Why};
use hmc_core::slots::{OpId, Slot};
use hmc_core::time::Instant;
use hmc_core::work::{CompleteWhen, Opcode};
use hmc_sim::fault::{Faults, Rate};
use hmc_sim::nic::{Config, SimNic};
use hmc_sim::rng::Rng;

/// What memory holds after it was given back.
const GIVEN_BACK: u8 = 0x5A;

struct Source {
    machine: Sender,
    region: LocalRegion,
    bytes: Vec<u8>,
    /// Puts that were asked for and not posted yet, and those that run.
    wanted: VecDeque<Put>,
    running: Vec<(OpId, u64)>,
    ended: Option<Result<u64, Ending>>,
    freed: bool,
}

struct Target {
    machine: Receiver,
    /// What the receiver's memory is, once somebody wants the message.
    memory: Option<Memory>,
    copy: Option<Copy>,
    revoking: bool,
    ended: Option<Result<u64, Ending>>,
    freed: bool,
}

struct Memory {
    /// The destination; in direct mode the sender puts here.
    dest: LocalRegion,
    halves: Option<LocalRegion>,
    window: RemoteRegion,
}

/// One process: sources of its messages, targets of the peer's, and what the peer told it.
struct End {
    lane: Lane<SimNic, [Slot; 8]>,
    sources: Vec<Source>,
    targets: Vec<Target>,
    incoming: Incoming,
    heard: VecDeque<Note>,
    tells: VecDeque<Note>,
    /// Receives that nobody sent to yet: bytes of room and the half's length, zero for direct.
    wants: VecDeque<(u64, u64)>,
    alive: bool,
}

impl End {
    fn new(nic: SimNic) -> Self {
        Self {
            lane: Lane::new(nic, [Slot::FREE; 8]),
            sources: Vec::new(),
            targets: Vec::new(),
            incoming: Incoming::new(),
            heard: VecDeque::new(),
            tells: VecDeque::new(),
            wants: VecDeque::new(),
            alive: true,
        }
    }

    fn nic(&self) -> &SimNic {
        self.lane.transport()
    }

    fn send(&mut self, bytes: Vec<u8>) {
        let len = bytes.len() as u64;
        let region = self.nic().register(len).unwrap();
        assert!(self.nic().write(region, 0, &bytes));
        let id = RelayId(self.sources.len() as u32);
        let machine = Sender::new(id, len);
        let (wanted, running) = (VecDeque::new(), Vec::new());
        let source = Source { machine, region, bytes, wanted, running, ended: None, freed: false };
        self.sources.push(source);
        self.run_source(self.sources.len() - 1);
    }

    /// Gives the oldest open message to the oldest receive.
    fn pair_up(&mut self) {
        while let Some((room, half)) = self.wants.front().copied() {
            let Some(at) = self.targets.iter().position(|t| t.machine.is_open()) else {
                return;
            };
            self.wants.pop_front();
            let len = self.targets[at].machine.len();
            let dest = self.nic().register(room.max(len)).unwrap();
            let (halves, slice) = if half == 0 {
                (None, dest.slice(0, len).unwrap())
            } else {
                let halves = self.nic().register(2 * half).unwrap();
                (Some(halves), halves.slice(0, 2 * half).unwrap())
            };
            let window = self.nic().expose(slice, Access::WRITE).unwrap();
            let area = window.slice(0, slice.span.len()).unwrap();
            let place = if half == 0 { Place::direct(area) } else { Place::staged(area).unwrap() };
            let t = &mut self.targets[at];
            t.memory = Some(Memory { dest, halves, window });
            t.machine.answer(room, place);
            self.run_target(at);
        }
    }

    fn run_source(&mut self, at: usize) {
        let s = &mut self.sources[at];
        while let Some(output) = s.machine.poll() {
            match output {
                SenderOutput::Tell(note) => self.tells.push_back(note),
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
                        self.lane.cancel(*op).unwrap();
                    }
                }
                SenderOutput::Ended(how) => assert!(s.ended.replace(how).is_none(), "ended twice"),
                SenderOutput::Free => {
                    assert!(s.ended.is_some() && !s.freed);
                    assert!(s.running.is_empty() && s.wanted.is_empty(), "a put still reads");
                    s.freed = true;
                    let junk = vec![GIVEN_BACK; s.bytes.len()];
                    assert!(self.lane.transport().write(s.region, 0, &junk));
                }
            }
        }
    }

    fn run_target(&mut self, at: usize) {
        let nic = self.lane.transport();
        let t = &mut self.targets[at];
        while let Some(output) = t.machine.poll() {
            match output {
                ReceiverOutput::Tell(note) => self.tells.push_back(note),
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

    /// Posts what there is room for and collects what is fenced.
    fn progress(&mut self) {
        for at in 0..self.sources.len() {
            let s = &mut self.sources[at];
            while let Some(put) = s.wanted.front().copied() {
                let local = LocalSlice { key: s.region.key, span: put.source };
                let t = Transfer {
                    opcode: Opcode::Put,
                    when: CompleteWhen::Visible,
                    local,
                    remote: RemoteSlice { ..put.target },
                };
                match self.lane.post(&t, Instant::NEVER) {
                    Ok(op) => s.running.push((op, put.seq)),
                    Err(LaneError::Busy | LaneError::Full { .. }) => break,
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
        self.lane.progress();
        while self.lane.next_event().is_some() {}
        for at in 0..self.sources.len() {
            let s = &mut self.sources[at];
            let lane = &mut self.lane;
            let machine = &mut s.machine;
            s.running.retain(|(op, seq)| match lane.outcome(*op).unwrap() {
                Some(o) if o.fenced => {
                    lane.try_wait(*op).unwrap();
                    machine.put_done(*seq, o.result.map(drop));
                    false
                }
                // Known, but it still moves: only its fence counts.
                _ => true,
            });
            self.run_source(at);
        }
    }

    fn hear(&mut self, note: Note) {
        let at = note.id().0 as usize;
        match (note, note.from()) {
            (Note::Offer { id, len }, _) => {
                self.incoming.offer(id).unwrap();
                let machine = Receiver::new(id, len);
                let (memory, copy) = (None, None);
                self.targets.push(Target {
                    machine,
                    memory,
                    copy,
                    revoking: false,
                    ended: None,
                    freed: false,
                });
            }
            (_, Role::Sender) => {
                let t = &mut self.targets[at];
                t.machine.receive(&note).unwrap();
                self.run_target(at);
                if self.targets[at].machine.is_over() {
                    self.incoming.over();
                }
            }
            (_, Role::Receiver) => {
                self.sources[at].machine.receive(&note).unwrap();
                self.run_source(at);
            }
        }
        self.pair_up();
    }

    fn copy(&mut self, at: usize) {
        let nic = self.lane.transport();
        let t = &mut self.targets[at];
        let Some(copy) = t.copy.take() else {
            return;
        };
        assert!(!t.freed, "a copy after the memory was given back");
        let m = t.memory.as_ref().unwrap();
        let halves = m.halves.unwrap();
        let from = if copy.seq % 2 == 0 { 0 } else { halves.extent.len() / 2 };
        let mut bytes = vec![0; copy.to.len() as usize];
        assert!(nic.read(halves, from, &mut bytes));
        assert!(nic.write(m.dest, copy.to.offset(), &bytes));
        t.machine.copied(Ok(()));
        self.run_target(at);
    }

    fn fence(&mut self, at: usize) {
        let t = &mut self.targets[at];
        if std::mem::take(&mut t.revoking) {
            self.lane.transport().revoke(&t.memory.as_ref().unwrap().window);
            t.machine.fenced();
            self.run_target(at);
        }
    }

    fn end_source(&mut self, at: usize, why: Ending) {
        self.sources[at].machine.end(why);
        self.run_source(at);
    }

    fn end_target(&mut self, at: usize, why: Ending) {
        // Nobody ends what nobody wants.
        if self.targets[at].memory.is_some() || why == Ending::PeerDead {
            self.targets[at].machine.end(why);
            self.run_target(at);
        }
    }

    /// The peer is gone.
    fn lose_peer(&mut self) {
        self.alive = false;
        self.heard.clear();
        for at in 0..self.sources.len() {
            self.end_source(at, Ending::PeerDead);
        }
        for at in 0..self.targets.len() {
            self.end_target(at, Ending::PeerDead);
        }
    }

    fn is_over(&self) -> bool {
        let source = |s: &Source| s.machine.is_over() && s.freed && s.ended.is_some();
        let target = |t: &Target| {
            t.machine.is_over() && (t.memory.is_none() || (t.freed && t.ended.is_some()))
        };
        self.sources.iter().all(source) && self.targets.iter().all(target)
    }
}

/// What goes wrong, besides the fabric's own faults.
#[derive(Clone, Copy)]
struct Trouble {
    faults: Faults,
    /// Endings by users, in a hundred steps.
    endings: u64,
    /// One end dies at some step.
    death: bool,
}

struct World {
    ends: [End; 2],
    rng: Rng,
    trouble: Trouble,
}

impl World {
    fn new(seed: u64, trouble: Trouble) -> Self {
        let (near, far) = SimNic::pair(Config { seed, faults: trouble.faults, depth: 8 });
        Self { ends: [End::new(near), End::new(far)], rng: Rng::new(seed), trouble }
    }

    fn flush(&mut self) {
        for (from, to) in [(0, 1), (1, 0)] {
            let told = std::mem::take(&mut self.ends[from].tells);
            if self.ends[to].alive {
                self.ends[to].heard.extend(told);
            }
        }
    }

    fn step(&mut self, calm: bool) {
        let who = self.rng.index(2);
        let what = self.rng.below(100);
        let chance = self.rng.next_u64();
        let end = &mut self.ends[who];
        let pick = |n: usize| (n > 0).then(|| (chance % n as u64) as usize);
        match what {
            0..=39 => {
                if let Some(note) = end.heard.pop_front() {
                    end.hear(note);
                }
            }
            40..=69 => end.progress(),
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
                let why = if chance & 256 == 0 { Why::Cancelled } else { Why::DeadlineExceeded };
                let at = (chance >> 16) as usize;
                if chance & 512 == 0 && !end.sources.is_empty() {
                    end.end_source(at % end.sources.len(), Ending::Here(why));
                } else if !end.targets.is_empty() {
                    end.end_target(at % end.targets.len(), Ending::Here(why));
                }
            }
        }
        self.flush();
    }

    fn kill(&mut self, who: usize) {
        self.ends[who].nic().kill();
        // The dead do nothing any more; the test only lets go of what it modelled for them.
        for end in &mut self.ends {
            end.lose_peer();
        }
        self.flush();
    }

    /// The plain vectors: what succeeded is equal, and what was given back was not touched.
    fn check(&mut self) {
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

fn play(seed: u64, trouble: Trouble) -> usize {
    let mut w = World::new(seed, trouble);
    let steps = 200 + w.rng.below(600);
    let death = if trouble.death { w.rng.below(steps) } else { u64::MAX };
    for step in 0..steps {
        let who = w.rng.index(2);
        if w.rng.below(100) < 4 && w.ends[who].sources.len() < 8 && w.ends[who].alive {
            let half = 1 + w.rng.below(48);
            let len = w.rng.below(5 * half) as usize;
            let bytes = w.rng.bytes(len);
            w.ends[who].send(bytes);
            let direct = w.rng.below(3) == 0;
            // Sometimes too little room; sometimes much.
            let room = match w.rng.below(12) {
                0 => len as u64 / 2,
                1 => len as u64 * 2,
                _ => 5 * 48,
            };
            w.ends[1 - who].wants.push_back((room, if direct { 0 } else { half }));
        } else if w.rng.below(100) < 3 {
            w.ends[who].pair_up();
        }
        if step == death {
            w.kill(who);
        }
        w.step(false);
    }
    // Calm: everything ends by itself, or by its deadline where a completion was lost.
    let lossy = trouble.faults.lost != Rate::NEVER;
    for round in 0..400_000 {
        for end in &mut w.ends {
            if end.alive {
                end.pair_up();
            }
        }
        let quiet = |e: &End| e.heard.is_empty() && e.tells.is_empty();
        if w.ends.iter().all(|e| e.is_over() && quiet(e)) {
            break;
        }
        if lossy && round == 4_000 {
            for who in 0..2 {
                for at in 0..w.ends[who].sources.len() {
                    w.ends[who].end_source(at, Ending::Here(Why::DeadlineExceeded));
                }
            }
        }
        if lossy && round == 12_000 {
            w.kill(0);
        }
        w.step(true);
    }
    assert!(w.ends.iter().all(End::is_over), "something never ended");
    w.check();
    w.ends.iter().map(|e| e.sources.iter().filter(|s| matches!(s.ended, Some(Ok(_)))).count()).sum()
}

const WEATHER: Trouble = Trouble { faults: Faults::WEATHER, endings: 0, death: false };
const ENDINGS: Trouble = Trouble { endings: 40, ..WEATHER };
const FAILING: Trouble = Trouble {
    faults: Faults { failed: Rate::percent(5), ..Faults::WEATHER },
    endings: 10,
    death: false,
};
const DEATH: Trouble = Trouble { endings: 10, death: true, ..WEATHER };
const STORM: Trouble = Trouble { faults: Faults::STORM, endings: 20, death: false };

fn seeds() -> std::ops::Range<u64> {
    let n = std::env::var("HMC_TEST_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    0..n
}

/// Plays many seeds. Gives the messages that arrived.
fn all(trouble: Trouble) -> usize {
    seeds()
        .map(|seed| {
            std::panic::catch_unwind(|| play(seed, trouble)).unwrap_or_else(|e| {
                eprintln!("HMC_TEST_SEED={seed}");
                std::panic::resume_unwind(e)
            })
        })
        .sum()
}

#[test]
fn in_mere_weather_everything_arrives() {
    let sent: usize = all(WEATHER);
    assert!(sent > seeds().count() * 3, "{sent} messages");
}

#[test]
fn endings_at_any_step_end_both_ends_once() {
    assert!(all(ENDINGS) > 0);
}

#[test]
fn failed_puts_end_both_ends_once() {
    assert!(all(FAILING) > 0);
}

#[test]
fn death_at_any_step_ends_everything() {
    assert!(all(DEATH) > 0);
}

#[test]
fn lost_and_doubled_completions_break_nothing() {
    assert!(all(STORM) > 0);
}

/// Plays one seed of each kind of trouble, for a failure of the tests above.
#[test]
fn one_seed() {
    let seed = std::env::var("HMC_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(12345);
    for trouble in [WEATHER, ENDINGS, FAILING, DEATH, STORM] {
        play(seed, trouble);
    }
}

/// A model of the half-buffers must be able to fail: a receiver that gives its credit before it
/// copied out, as the seeds' does, is found.
#[test]
fn a_credit_before_the_copy_corrupts_in_this_model() {
    let corrupted = (0..200).any(|seed| {
        let mut w = World::new(seed, WEATHER);
        let bytes = w.rng.bytes(64);
        w.ends[0].send(bytes.clone());
        w.ends[1].wants.push_back((64, 8));
        for _ in 0..4000 {
            w.step(true);
            // The early credit: the machine believes that it copied, the bytes stay where they are.
            let t = w.ends[1].targets.first_mut();
            if let Some(copy) = t.and_then(|t| t.copy.take()) {
                w.ends[1].targets[0].machine.copied(Ok(()));
                w.ends[1].run_target(0);
                for _ in 0..w.rng.below(60) {
                    w.step(true);
                    if w.ends[1].targets[0].copy.is_some() {
                        break;
                    }
                }
                let next = w.ends[1].targets[0].copy.replace(copy);
                let at = copy.to.offset();
                let m = w.ends[1].targets[0].memory.as_ref().unwrap();
                let (dest, halves) = (m.dest, m.halves.unwrap());
                let mut late = vec![0; copy.to.len() as usize];
                assert!(w.ends[1].nic().read(halves, (copy.seq % 2) * 8, &mut late));
                assert!(w.ends[1].nic().write(dest, at, &late));
                w.ends[1].targets[0].copy = next;
            }
        }
        let mut got = vec![0; 64];
        let dest = w.ends[1].targets[0].memory.as_ref().unwrap().dest;
        assert!(w.ends[1].nic().read(dest, 0, &mut got));
        got != bytes
    });
    assert!(corrupted, "early credits were never punished");
}

/// Both modes take part, side by side.
#[test]
fn staged_and_direct_messages_share_a_link() {
    for seed in 0..20 {
        let mut w = World::new(seed, WEATHER);
        for half in [0, 8, 0, 8] {
            w.ends[0].send(vec![seed as u8; 30]);
            w.ends[1].wants.push_back((30, half));
        }
        for _ in 0..20_000 {
            w.step(true);
        }
        assert!(w.ends.iter().all(End::is_over));
        w.check();
        let direct = |t: &&Target| t.memory.as_ref().unwrap().halves.is_none();
        assert_eq!(w.ends[1].targets.iter().filter(direct).count(), 2);
        assert!(w.ends[1].targets.iter().all(|t| t.ended == Some(Ok(30))));
    }
}
