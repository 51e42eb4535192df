//! The core's work queue over the NIC with all faults. Under all faults of a legal NIC each operation completes once, memory is
//! free when the work queue reports it, bytes are as in an expected vector, and the access checker reports nothing. A rogue
//! NIC is reported.
//!
//! `HMC_TEST_SEED=N` runs one seed; a failure prints its own.

#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "tests may panic")]

use std::collections::HashMap;

use hmc_core::queue::{QueueError, Transfer, WorkQueue};
use hmc_core::region::{LocalRegion, WindowDesc};
use hmc_core::slots::{Slot, SlotId};
use hmc_core::time::Duration;
use hmc_core::transport::{PostErrorKind, Target as _};
use hmc_core::types::Access;
use hmc_core::work::{CompleteWhen, Failure, Opcode};
use hmc_sim::fault::{FaultCounts, Faults, Rate, Rogue};
use hmc_sim::nic::{Config, Queue, SimNic};
use hmc_sim::rng::Rng;
use hmc_sim::sim_net::SimNet;

const SEEDS: u64 = 2_400;
const STEPS: u32 = 160;
const SLOTS: usize = 16;
const RANGES: u64 = 24;
/// Bytes of each range, here and there.
const RANGE: u64 = 192;
const PATIENCE_NS: u64 = 150_000;

/// The record of an operation whose memory is not free yet.
struct Held {
    range: u64,
    put: bool,
    bytes: Vec<u8>,
    /// The window that it goes through was being revoked at some time of its life.
    doubtful: bool,
    taken: bool,
}

struct World {
    net: SimNet,
    queue: WorkQueue<SimNic, [Slot; SLOTS]>,
    far: SimNic,
    local: LocalRegion,
    target: LocalRegion,
    remote: WindowDesc,
    /// The window is being revoked.
    revoking: bool,
    /// Expected bytes; `None` where a failed operation left undefined bytes.
    here: Vec<Option<Vec<u8>>>,
    there: Vec<Option<Vec<u8>>>,
    held: HashMap<SlotId, Held>,
    free: Vec<u64>,
    rng: Rng,
    begun: usize,
    ended: usize,
    findings: bool,
}

/// The result of a seed.
struct End {
    findings: Vec<String>,
    counts: FaultCounts,
    begun: usize,
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut rng = Rng::new(seed ^ 0xA5A5);
        let depth = 4 + rng.index(12);
        let net = SimNet::new(Config { seed, faults, depth }, 2);
        net.watch();
        let (near, mut far) = net.connect(0, 1).expect("two ends");
        let size = RANGES * RANGE;
        let (local, target) = (near.register(size).expect("mem"), far.register(size).expect("mem"));
        let whole = target.slice(0, size).expect("all of it");
        let remote = far.expose(whole, Access::all()).expect("a place");
        let blank = || (0..RANGES).map(|_| Some(vec![0xCD; 192])).collect();
        Self {
            net,
            queue: WorkQueue::new(near, [Slot::FREE; SLOTS]),
            far,
            local,
            target,
            remote,
            revoking: false,
            here: blank(),
            there: blank(),
            held: HashMap::new(),
            free: (0..RANGES).collect(),
            rng,
            begun: 0,
            ended: 0,
            findings: false,
        }
    }

    fn post(&mut self) {
        let at = self.rng.index(self.free.len());
        let Some(range) = self.free.get(at).copied() else {
            return;
        };
        let put = self.rng.below(2) == 0;
        let bytes = self.rng.bytes(usize::try_from(RANGE).expect("small"));
        let place = usize::try_from(range).expect("small");
        // The source is private until it is posted: no other access is allowed.
        if put {
            assert!(self.queue.transport().write(self.local, range * RANGE, &bytes));
            self.here[place] = Some(bytes.clone());
        } else {
            assert!(self.far.write(self.target, range * RANGE, &bytes));
            self.there[place] = Some(bytes.clone());
        }
        let opcode = match (put, self.rng.below(4)) {
            (true, 0) => Opcode::PutNotify { tag: self.rng.next_u64() },
            (true, _) => Opcode::Put,
            (false, _) => Opcode::Get,
        };
        let transfer = Transfer {
            opcode,
            when: CompleteWhen::Visible,
            local: self.local.slice(range * RANGE, RANGE).expect("in the region"),
            remote: self.remote.slice(range * RANGE, RANGE).expect("in the window"),
        };
        let patience = Duration::from_nanos(self.rng.below(PATIENCE_NS));
        let deadline = self.queue.transport().now().after(patience);
        match self.queue.post(&transfer, deadline) {
            Ok(op) => {
                self.free.swap_remove(at);
                self.begun += 1;
                // Until its outcome is known the bytes of its destination are undefined.
                let destination = if put { &mut self.there } else { &mut self.here };
                destination[place] = None;
                let held = Held { range, put, bytes, doubtful: self.revoking, taken: false };
                assert!(self.held.insert(op, held).is_none(), "{op:?} was given out twice");
            }
            Err(QueueError::Busy | QueueError::Full { .. }) => {}
            Err(QueueError::Transport(PostErrorKind::Disconnected)) => self.fence(),
            Err(other) => panic!("{other}"),
        }
    }

    /// Destroys the queue, which frees all memory, and renews it if both ends live.
    fn fence(&mut self) {
        self.queue.transport().destroy_queue();
        self.queue.fail_all(Failure::PeerDead, true);
        self.take();
        assert_eq!(self.queue.in_flight(), 0, "a fence frees everything");
        assert_eq!(self.held.len(), 0, "a fence frees everything");
        self.queue.transport().renew_queue();
    }

    fn reclaim(&mut self, held: &Held) {
        let range = self.local.slice(held.range * RANGE, RANGE).expect("in the region");
        self.queue.transport().reclaim(range);
        self.free.push(held.range);
    }

    /// Takes known outcomes and fenced memory.
    fn take(&mut self) {
        let open: Vec<_> = self.held.iter().filter(|(_, h)| !h.taken).map(|(op, _)| *op).collect();
        for op in open {
            let Some(outcome) = self.queue.try_wait(op).expect("not taken yet") else {
                continue;
            };
            self.ended += 1;
            assert!(self.queue.try_wait(op).is_err(), "{op:?} was taken twice");
            let mut held = self.held.remove(&op).expect("it was listed");
            if outcome.result.is_ok() {
                assert!(outcome.fenced, "{op:?} is done and not fenced");
                let place = usize::try_from(held.range).expect("small");
                let destination = if held.put { &mut self.there } else { &mut self.here };
                destination[place] = Some(held.bytes.clone());
            } else if matches!(outcome.result, Err(Failure::Window(_))) {
                assert!(held.doubtful, "{op:?}: {:?} through a good window", outcome.result);
            }
            if outcome.fenced {
                self.reclaim(&held);
            } else {
                held.taken = true;
                self.held.insert(op, held);
            }
        }
        while let Some(event) = self.queue.next_event() {
            if event.fenced.is_some() && self.held.get(&event.op).is_some_and(|held| held.taken) {
                // It was taken unfenced before: now its memory is free.
                let held = self.held.remove(&event.op).expect("looked at above");
                self.reclaim(&held);
            }
        }
    }

    fn step(&mut self) {
        match self.rng.below(40) {
            0..=13 => self.post(),
            14 => {
                let ops: Vec<_> = self.held.iter().filter(|(_, h)| !h.taken).collect();
                let mut ops: Vec<_> = ops.iter().map(|(op, _)| **op).collect();
                ops.sort_by_key(|op| (op.index, op.generation));
                if let Some(op) = ops.get(self.rng.index(ops.len())) {
                    self.queue.cancel(*op).expect("not taken yet");
                }
            }
            15..=18 => self.take(),
            19 if !self.revoking => {
                self.begin_revoke();
                self.revoking = true;
                for held in self.held.values_mut() {
                    held.doubtful = true;
                }
            }
            20..=22 if self.revoking && self.is_revoked() => self.expose_anew(),
            _ => {
                self.queue.progress();
                let now = self.queue.transport().now();
                self.queue.expire(now);
            }
        }
    }

    fn begin_revoke(&mut self) {
        self.far.revoke(self.remote.window, self.remote.epoch).expect("it is not forgotten");
    }

    fn is_revoked(&self) -> bool {
        self.far.is_released(self.remote.window, self.remote.epoch)
    }

    /// The window is revoked: its owner writes bytes, which must be the same later.
    fn expose_anew(&mut self) {
        for range in 0..RANGES {
            let bytes = self.rng.bytes(usize::try_from(RANGE).expect("small"));
            assert!(self.far.write(self.target, range * RANGE, &bytes));
            self.there[usize::try_from(range).expect("small")] = Some(bytes);
        }
        // No access by the old window may follow, so old operations are not checked against it.
        for held in self.held.values_mut().filter(|h| h.put) {
            held.bytes =
                self.there[usize::try_from(held.range).expect("small")].clone().expect("s");
        }
        let whole = self.target.slice(0, RANGES * RANGE).expect("all of it");
        self.far.free_window(self.remote.window, self.remote.epoch);
        self.remote = self.far.expose(whole, Access::all()).expect("a place");
        self.revoking = false;
    }

    fn compare(&mut self) {
        for range in 0..RANGES {
            let place = usize::try_from(range).expect("small");
            let mut got = vec![0; usize::try_from(RANGE).expect("small")];
            assert!(self.queue.transport().read(self.local, range * RANGE, &mut got));
            assert!(self.here[place].as_ref().is_none_or(|want| *want == got), "here, {range}");
            assert!(self.far.read(self.target, range * RANGE, &mut got));
            assert!(self.there[place].as_ref().is_none_or(|want| *want == got), "there, {range}");
        }
    }

    /// Every operation has an outcome within its deadline, and its memory comes back by a fence.
    fn end(mut self) -> End {
        let late = self.queue.transport().now().after(Duration::from_nanos(PATIENCE_NS));
        while self.queue.transport().now() < late {
            self.queue.progress();
        }
        self.queue.expire(late);
        self.take();
        assert_eq!(self.ended, self.begun, "some operation never ended");
        self.fence();
        self.begin_revoke();
        for _ in 0..100 {
            self.net.advance(2_000);
        }
        assert!(self.is_revoked(), "a revocation never ended");
        self.findings |= !self.net.audit().is_empty();
        // All memory belongs to its owners now, and no byte may change.
        let [local, remote] =
            [0, 1].map(|_| self.rng.bytes(usize::try_from(RANGES * RANGE).expect("s")));
        assert!(self.queue.transport().write(self.local, 0, &local));
        assert!(self.far.write(self.target, 0, &remote));
        for _ in 0..100 {
            self.net.advance(2_000);
            self.queue.progress();
        }
        let findings: Vec<_> = self.net.audit().iter().map(ToString::to_string).collect();
        assert!(!self.findings || !findings.is_empty(), "a finding was forgotten");
        End { findings, counts: self.net.counts(), begun: self.begun }
    }
}

fn run(seed: u64, faults: Faults, lawful: bool) -> End {
    let mut world = World::new(seed, faults);
    for step in 0..STEPS {
        world.step();
        if lawful && step % 16 == 0 {
            world.compare();
        }
        if !lawful && step % 4 == 0 {
            // A byte that is overwritten later would not be visible at the end.
            world.findings |= !world.net.audit().is_empty();
        }
    }
    if lawful {
        world.compare();
    }
    world.end()
}

/// The seeds to run: all of them, or the one that is asked for.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let Some(given) = std::env::var_os("HMC_TEST_SEED") else { return 0..count };
    match given.to_str().and_then(|s| s.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None => panic!("HMC_TEST_SEED={given:?}: give a whole number, or unset it"),
    }
}

/// Prints the seed if the test panics.
struct Naming(u64, Faults);

impl Drop for Naming {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed = {} with {:?}", self.0, self.1);
        }
    }
}

#[test]
fn a_work_queue_survives_every_legal_fault() {
    let mut sum = FaultCounts::default();
    let mut begun = 0;
    for seed in seeds(SEEDS) {
        let faults = Faults::legal(&mut Rng::new(seed));
        let _naming = Naming(seed, faults);
        let end = run(seed, faults, true);
        assert!(end.findings.is_empty(), "{}", end.findings.join("\n"));
        begun += end.begun;
        for (sum, n) in [
            (&mut sum.lost, end.counts.lost),
            (&mut sum.doubled, end.counts.doubled),
            (&mut sum.stale, end.counts.stale),
            (&mut sum.failed, end.counts.failed),
            (&mut sum.flushed, end.counts.flushed),
            (&mut sum.queue_deaths, end.counts.queue_deaths),
            (&mut sum.overruns, end.counts.overruns),
            (&mut sum.deaths, end.counts.deaths),
            (&mut sum.slow_fences, end.counts.slow_fences),
            (&mut sum.busy, end.counts.busy),
            (&mut sum.pieces, end.counts.pieces),
        ] {
            *sum += n;
        }
    }
    println!("{begun} operations, {sum:?}");
    if seeds(SEEDS).count() > 1 {
        // A fault that never happens would not be tested.
        for (name, n) in [
            ("lost", sum.lost),
            ("doubled", sum.doubled),
            ("stale", sum.stale),
            ("failed", sum.failed),
            ("flushed", sum.flushed),
            ("queue deaths", sum.queue_deaths),
            ("overruns", sum.overruns),
            ("deaths", sum.deaths),
            ("slow fences", sum.slow_fences),
        ] {
            assert!(n > 50, "only {n} {name}");
        }
    }
}

/// Each kind of rogue is found in each seed in which it happened.
#[test]
fn a_rogue_nic_is_reported() {
    let half = Rate::percent(50);
    for (name, rogue) in [
        ("late write", Rogue { late_write: half, ..Rogue::NONE }),
        ("after fence", Rogue { after_fence: Rate::ALWAYS, ..Rogue::NONE }),
        ("outside window", Rogue { outside_window: half, ..Rogue::NONE }),
        ("early completion", Rogue { early_completion: half, ..Rogue::NONE }),
        ("flipped", Rogue { flipped: Rate::percent(10), ..Rogue::NONE }),
    ] {
        let (mut happened, mut reported) = (0, 0);
        for seed in seeds(60) {
            let faults = Faults { delay_max_ns: 3_000, rogue, ..Faults::CONDITIONS };
            let _naming = Naming(seed, faults);
            let end = run(seed, faults, false);
            happened += usize::from(end.counts.rogue != 0);
            reported += usize::from(!end.findings.is_empty());
            if seed == 7 {
                println!("{name}: {}", end.findings.first().map_or("", |f| f));
            }
        }
        println!("{name}: happened in {happened} seeds, reported in {reported}");
        if seeds(60).count() > 1 {
            assert!(happened > 20, "{name} happened in {happened} seeds only");
        }
        // A bit that flipped twice is correct again.
        let hidden = if name == "flipped" { happened / 10 } else { 0 };
        assert!(reported + hidden >= happened, "{name}: {reported} of {happened} were reported");
    }
}

#[test]
fn the_same_seed_runs_the_same_way_with_and_without_the_access_checker() {
    for seed in 0..20 {
        let faults = Faults { death_after: None, ..Faults::legal(&mut Rng::new(seed)) };
        let trace = |watched: bool| {
            let net = SimNet::new(Config { seed, faults, depth: 8 }, 2);
            if watched {
                net.watch();
            }
            let (near, mut far) = net.connect(0, 1).expect("two ends");
            let local = near.register(4096).expect("memory");
            let target = far.register(4096).expect("memory");
            let whole = target.slice(0, 4096).expect("all");
            let remote = far.expose(whole, Access::all()).expect("a place");
            let mut queue = WorkQueue::new(near, [Slot::FREE; 8]);
            let mut log = Vec::new();
            for n in 0..200u64 {
                let at = (n % 8) * 512;
                let transfer = Transfer {
                    opcode: Opcode::Put,
                    when: CompleteWhen::Visible,
                    local: local.slice(at, 512).expect("in it"),
                    remote: remote.slice(at, 512).expect("in it"),
                };
                let deadline = queue.transport().now().after(Duration::from_nanos(9_000));
                log.push((queue.post(&transfer, deadline).is_ok(), queue.progress()));
                let now = queue.transport().now();
                queue.expire(now);
                while queue.next_event().is_some() {}
                if queue.transport().queue() != Queue::Ready {
                    queue.transport().renew_queue();
                    queue.fail_all(Failure::PeerDead, true);
                }
            }
            (log, net.counts())
        };
        assert!(trace(false) == trace(true), "seed {seed}");
    }
}
