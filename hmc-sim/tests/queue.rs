//! A work queue over the simulated NIC, under network conditions and every fault: each operation completes exactly
//! once, memory is free when the work queue reports it, and none hangs.

#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "tests may panic")]

use std::collections::HashMap;

use hmc_core::queue::{QueueError, Transfer, WorkQueue};
use hmc_core::region::{LocalRegion, WindowDesc};
use hmc_core::slots::{Slot, SlotId};
use hmc_core::time::Duration;
use hmc_core::transport::PostErrorKind;
use hmc_core::types::Access;
use hmc_core::work::{CompleteWhen, Failure, Opcode};
use hmc_sim::fault::{Faults, Rate};
use hmc_sim::nic::{Config, SimNic};
use hmc_sim::rng::Rng;
use proptest::prelude::*;

const SLOTS: usize = 16;
/// Bytes of the range that belongs to each slot, here and there.
const RANGE: u64 = 512;
const PATIENCE_NS: u64 = 200_000;

/// The record of an operation whose memory is not free yet.
struct Held {
    range: u64,
    put: bool,
    /// Expected bytes of the destination if the operation succeeds.
    bytes: Vec<u8>,
    taken: bool,
}

struct World {
    queue: WorkQueue<SimNic, [Slot; SLOTS]>,
    far: SimNic,
    local: LocalRegion,
    target: LocalRegion,
    remote: WindowDesc,
    held: HashMap<SlotId, Held>,
    /// Ranges that no operation uses.
    free: Vec<u64>,
    rng: Rng,
    begun: usize,
    ended: usize,
    dead: bool,
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let (near, mut far) = SimNic::pair(Config { seed, faults, depth: 12 });
        let ranges = 2 * u64::try_from(SLOTS).expect("small");
        let local = near.register(ranges * RANGE).expect("memory");
        let target = far.register(ranges * RANGE).expect("memory");
        let whole = target.slice(0, ranges * RANGE).expect("all of it");
        let remote = far.expose(whole, Access::all()).expect("a place");
        Self {
            queue: WorkQueue::new(near, [Slot::FREE; SLOTS]),
            far,
            local,
            target,
            remote,
            held: HashMap::new(),
            free: (0..ranges).collect(),
            rng: Rng::new(seed),
            begun: 0,
            ended: 0,
            dead: false,
        }
    }

    fn post(&mut self) {
        let at = self.rng.index(self.free.len());
        let Some(range) = self.free.get(at).copied() else {
            return;
        };
        let (put, len) = (self.rng.below(2) == 0, self.rng.below(RANGE + 1));
        let len_bytes = usize::try_from(len).expect("small");
        let bytes = self.rng.bytes(len_bytes);
        if put {
            assert!(self.queue.transport().write(self.local, range * RANGE, &bytes));
        } else {
            assert!(self.far.write(self.target, range * RANGE, &bytes));
        }
        let transfer = Transfer {
            opcode: if put { Opcode::Put } else { Opcode::Get },
            when: CompleteWhen::Visible,
            local: self.local.slice(range * RANGE, len).expect("in the region"),
            remote: self.remote.slice(range * RANGE, len).expect("in the window"),
        };
        let patience = Duration::from_nanos(self.rng.below(PATIENCE_NS));
        let deadline = self.queue.transport().now().after(patience);
        match self.queue.post(&transfer, deadline) {
            Ok(op) => {
                self.free.swap_remove(at);
                self.begun += 1;
                let held = Held { range, put, bytes, taken: false };
                assert!(self.held.insert(op, held).is_none(), "{op:?} was given out twice");
            }
            Err(QueueError::Busy | QueueError::Full { .. }) => {}
            Err(QueueError::Transport(PostErrorKind::Disconnected)) => {
                assert!(self.dead, "disconnected from a peer that lives");
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// Takes the outcomes that are known.
    fn take(&mut self) {
        for (op, held) in self.held.iter_mut().filter(|(_, held)| !held.taken) {
            let Some(outcome) = self.queue.try_wait(*op).expect("not taken yet") else {
                continue;
            };
            held.taken = true;
            self.ended += 1;
            assert!(self.queue.try_wait(*op).is_err(), "{op:?} was taken twice");
            if outcome.result.is_ok() {
                assert!(outcome.fenced, "{op:?} is done and not fenced");
                let mut got = vec![0; held.bytes.len()];
                let at = held.range * RANGE;
                if held.put {
                    assert!(self.far.read(self.target, at, &mut got));
                } else {
                    assert!(self.queue.transport().read(self.local, at, &mut got));
                }
                assert_eq!(got, held.bytes, "{op:?} is done, and its bytes are not there");
            }
            if outcome.fenced {
                self.free.push(held.range);
                held.range = u64::MAX;
            }
        }
        self.held.retain(|_, held| held.range != u64::MAX);
        while let Some(event) = self.queue.next_event() {
            if event.fenced.is_some() && self.held.get(&event.op).is_some_and(|held| held.taken) {
                // It was taken unfenced before: now its memory is free.
                let held = self.held.remove(&event.op).expect("looked at above");
                self.free.push(held.range);
            }
        }
    }

    fn step(&mut self) {
        match self.rng.below(10) {
            0..=3 => self.post(),
            4 => {
                let ops: Vec<_> = self.held.iter().filter(|(_, h)| !h.taken).collect();
                if let Some((op, _)) = ops.get(self.rng.index(ops.len())) {
                    self.queue.cancel(**op).expect("not taken yet");
                }
            }
            5 => self.take(),
            _ => {
                self.queue.progress();
                let now = self.queue.transport().now();
                self.queue.expire(now);
            }
        }
    }

    /// Within its deadline every operation has an outcome, whatever the NIC lost.
    fn all_end(&mut self) {
        let late = self.queue.transport().now().after(Duration::from_nanos(PATIENCE_NS));
        while self.queue.transport().now() < late {
            self.queue.progress();
        }
        self.queue.expire(late);
        self.take();
        assert_eq!(self.ended, self.begun, "some operation never ended");
    }

    /// When the peer is dead every slot and every range comes back.
    fn kill(&mut self) {
        self.far.kill();
        self.dead = true;
        for _ in 0..5000 {
            self.queue.progress();
        }
        self.take();
        assert_eq!(self.held.len(), 0, "memory was never given back");
        assert_eq!(self.queue.in_flight(), 0);
        self.queue.transport().check().expect("no damage here");
        self.far.check().expect("no damage there");
    }
}

fn storm(seed: u64, faults: Faults, steps: u32) {
    let mut world = World::new(seed, faults);
    // A fault may be the death of the peer at any post.
    world.dead = faults.death_after.is_some();
    for _ in 0..steps {
        world.step();
    }
    world.all_end();
    world.kill();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_operation_ends_once(
        seed in any::<u64>(),
        delay in 0u64..60_000,
        (busy, lost, failed) in (0u32..50, 0u32..30, 0u32..30),
        death_after in proptest::option::of(1u64..200),
    ) {
        let faults = Faults {
            delay_max_ns: delay,
            busy: Rate::percent(busy),
            lost: Rate::percent(lost),
            failed: Rate::percent(failed),
            death_after,
            ..Faults::NONE
        };
        storm(seed, faults, 600);
    }

    /// With doubled completions too: what comes twice is counted, and ends nobody else's operation.
    #[test]
    fn doubled_completions_are_stale(seed in any::<u64>()) {
        storm(seed, Faults::STORM, 600);
    }
}

#[test]
fn a_doubled_completion_is_counted() {
    let faults = Faults { doubled: Rate::ALWAYS, ..Faults::CONDITIONS };
    let mut world = World::new(1, faults);
    while world.begun == 0 {
        world.post();
    }
    while world.queue.stale() == 0 {
        world.queue.progress();
        world.take();
    }
    assert_eq!((world.begun, world.ended, world.queue.stale()), (1, 1, 1));
}

#[test]
fn a_lost_completion_ends_at_its_deadline_and_is_fenced_by_death() {
    let faults = Faults { lost: Rate::ALWAYS, ..Faults::NONE };
    let mut world = World::new(1, faults);
    while world.queue.in_flight() == 0 {
        world.post();
    }
    let op = *world.held.iter().find(|(_, h)| !h.bytes.is_empty()).expect("one with bytes").0;
    for _ in 0..100 {
        world.queue.progress();
    }
    assert_eq!(world.queue.try_wait(op), Ok(None));
    let late = world.queue.transport().now().after(Duration::from_nanos(PATIENCE_NS));
    world.queue.expire(late);
    let outcome = world.queue.try_wait(op).expect("not taken").expect("known");
    assert_eq!(outcome.result, Err(Failure::DeadlineExceeded));
    assert!(!outcome.fenced, "a time-out is no fence");
    assert_eq!(world.queue.in_flight(), 1);
    world.far.kill();
    world.queue.progress();
    world.queue.progress();
    assert_eq!(world.queue.in_flight(), 0);
}
