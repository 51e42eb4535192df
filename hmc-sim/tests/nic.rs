//! What the simulated NIC promises beyond the suite: death stops bytes, credits are counted, and seeds
//! repeat themselves.

#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

use hmc_core::region::{LocalRegion, WindowDesc};
use hmc_core::slots::SlotId;
use hmc_core::transport::{PostErrorKind, Transport};
use hmc_core::types::Access;
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};
use hmc_sim::fault::{Faults, Rate};
use hmc_sim::nic::{Config, SimNic};

const LEN: u64 = 4000;
const AT_ONCE: u16 = 8;
const BLANK: Completion = Completion { op: SlotId { index: 0, generation: 0 }, result: Ok(0) };

struct Pair {
    near: SimNic,
    far: SimNic,
    local: LocalRegion,
    target: LocalRegion,
    remote: WindowDesc,
}

impl Pair {
    fn new(config: Config) -> Self {
        let (near, mut far) = SimNic::pair(config);
        let size = LEN * u64::from(AT_ONCE);
        let local = near.register(size).expect("memory");
        let target = far.register(size).expect("memory");
        let whole = target.slice(0, size).expect("all of it");
        let remote = far.expose(whole, Access::all()).expect("a place");
        assert!(near.write(local, 0, &vec![1; usize::try_from(size).expect("small")]));
        Self { near, far, local, target, remote }
    }

    fn post(&mut self, index: u16) -> Result<(), PostErrorKind> {
        let at = LEN * u64::from(index % AT_ONCE);
        self.near.post(&WorkRequest {
            op: SlotId { index, generation: 1 },
            opcode: Opcode::Put,
            when: CompleteWhen::Visible,
            local: self.local.slice(at, LEN).expect("in the region"),
            remote: self.remote.slice(at, LEN).expect("in the window"),
        })
    }

    fn remote_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(LEN).expect("small") * usize::from(AT_ONCE)];
        assert!(self.far.read(self.target, 0, &mut bytes));
        bytes
    }

    fn drain(&mut self, turns: u32) -> Vec<Completion> {
        let mut all = Vec::new();
        for _ in 0..turns {
            let mut out = [BLANK; 3];
            let n = self.near.poll(&mut out);
            all.extend(out.into_iter().take(n));
        }
        all
    }
}

#[test]
fn a_dead_end_is_not_written_any_more_and_done_means_done() {
    let mut cut = 0;
    for seed in 0..50 {
        let faults = Faults { busy: Rate::NEVER, ..Faults::CONDITIONS };
        let mut pair = Pair::new(Config { seed, faults, depth: 32 });
        for index in 0..AT_ONCE {
            pair.post(index).expect("accepted");
        }
        pair.far.advance(seed * 700);
        pair.far.kill();
        let before = pair.remote_bytes();
        let completions = pair.drain(2000);
        assert_eq!(pair.remote_bytes(), before, "seed {seed}: a dead process was written");
        assert_eq!(completions.len(), usize::from(AT_ONCE), "seed {seed}");
        for Completion { op, result } in completions {
            let at = usize::from(op.index) * usize::try_from(LEN).expect("small");
            let bytes = before.iter().skip(at).take(usize::try_from(LEN).expect("small"));
            match result {
                Ok(_) => assert!(bytes.into_iter().all(|b| *b == 1), "seed {seed}: not done"),
                Err(failure) => assert_eq!(failure, Failure::PeerDead, "seed {seed}"),
            }
        }
        let parts = before.iter().filter(|b| **b == 1).count();
        cut += usize::from(parts % usize::try_from(LEN).expect("small") != 0);
    }
    assert!(cut > 10, "only {cut} of 50 deaths fell into the middle of a put");
}

#[test]
fn completions_that_wait_to_be_polled_use_credits() {
    let faults = Faults { busy: Rate::NEVER, ..Faults::CONDITIONS };
    let mut pair = Pair::new(Config { seed: 1, faults, depth: 12 });
    let mut accepted = 0;
    for index in 0..100 {
        accepted += usize::from(pair.post(index).is_ok());
        pair.far.advance(100_000);
    }
    assert_eq!(accepted, 12);
    for _ in 0..100 {
        pair.far.advance(100_000);
    }
    assert_eq!(pair.drain(2000).len(), 12);
    assert_eq!(pair.post(0), Ok(()));
}

#[test]
fn a_seed_repeats_itself() {
    let trace = |seed| {
        let mut pair = Pair::new(Config { seed, faults: Faults::STORM, depth: 64 });
        let answers: Vec<_> = (0..200).map(|index| pair.post(index % 64)).collect();
        (answers, pair.drain(3000), pair.remote_bytes())
    };
    assert_eq!(trace(9), trace(9));
    assert_ne!(trace(9).1, trace(10).1);
}
