//! Each knob of the NIC by itself: what it does, and that it does nothing else.

#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "tests may panic")]

use hmc_core::region::{LocalRegion, WindowDesc};
use hmc_core::slots::SlotId;
use hmc_core::transport::{Fence, PostErrorKind, Target as _, Transport};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};
use hmc_sim::access_checker::AccessViolation;
use hmc_sim::fault::{Faults, Rate, Rogue};
use hmc_sim::nic::{Config, Path, Queue, SimNic};
use hmc_sim::sim_net::SimNet;

const LEN: u64 = 4096;
const BLANK: Completion = Completion { op: SlotId { index: 0, generation: 0 }, result: Ok(0) };

struct Rig {
    net: SimNet,
    near: SimNic,
    far: SimNic,
    local: LocalRegion,
    target: LocalRegion,
    remote: WindowDesc,
}

impl Rig {
    fn of(net: SimNet, near: SimNic, mut far: SimNic) -> Self {
        let size = 8 * LEN;
        let local = near.register(size).expect("memory");
        let target = far.register(size).expect("memory");
        let whole = target.slice(0, size).expect("all of it");
        let remote = far.expose(whole, Access::all()).expect("a place");
        assert!(near.write(local, 0, &vec![1; usize::try_from(size).expect("small")]));
        Self { net, near, far, local, target, remote }
    }

    fn new(seed: u64, faults: Faults, depth: usize) -> Self {
        let net = SimNet::new(Config { seed, faults, depth }, 2);
        net.watch();
        let (near, far) = net.connect(0, 1).expect("two ends");
        Self::of(net, near, far)
    }

    fn work(&self, index: u16, opcode: Opcode, len: u64) -> WorkRequest {
        let at = LEN * u64::from(index % 8);
        WorkRequest {
            op: SlotId { index, generation: 1 },
            opcode,
            when: CompleteWhen::Visible,
            local: self.local.slice(at, len).expect("in the region"),
            remote: self.remote.slice(at, len).expect("in the window"),
        }
    }

    fn put(&mut self, index: u16) -> Result<(), PostErrorKind> {
        let work = self.work(index, Opcode::Put, LEN);
        self.near.post(&work)
    }

    fn drain(&mut self, turns: u32) -> Vec<Completion> {
        let mut all = Vec::new();
        for _ in 0..turns {
            let mut out = [BLANK; 4];
            let n = self.near.poll(&mut out);
            all.extend(out.into_iter().take(n));
        }
        all
    }

    fn landed(&self, index: u16) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(LEN).expect("small")];
        assert!(self.far.read(self.target, LEN * u64::from(index), &mut bytes));
        bytes
    }

    fn quiet(&self) {
        let findings = self.net.audit();
        assert!(findings.is_empty(), "{}", findings[0]);
    }
}

const CALM: Faults = Faults { delay_max_ns: 1_000, ..Faults::NONE };

#[test]
fn a_path_has_its_own_latency_and_rate() {
    let net = SimNet::new(Config { seed: 1, faults: Faults::NONE, depth: 8 }, 3);
    let mut times = Vec::new();
    for (end, path) in [(1, Path::default()), (2, Path { latency_ns: 50_000, bytes_per_us: 16 })] {
        let (near, far) = net.connect(0, end).expect("ends");
        near.set_path(path);
        let mut rig = Rig::of(net.clone(), near, far);
        let begin = net.now().as_nanos();
        rig.put(0).expect("accepted");
        while rig.drain(1).is_empty() {}
        times.push(net.now().as_nanos() - begin);
    }
    assert!(times[0] < 5_000, "{times:?}");
    // There and back, and 4096 bytes at 16 in a microsecond.
    let least = 2 * 50_000 + 4096 * 1000 / 16;
    assert!((least..least + 20_000).contains(&times[1]), "{times:?}");
}

#[test]
fn a_wire_is_shared_by_the_requests_on_it() {
    let mut rig = Rig::new(1, Faults { bytes_per_us: 64, ..CALM }, 8);
    for index in 0..8 {
        rig.put(index).expect("accepted");
    }
    let mut done = 0;
    while done < 8 {
        done += rig.drain(1).len();
    }
    let took_ns = rig.net.now().as_nanos();
    assert!(took_ns >= 8 * LEN * 1000 / 64, "{took_ns}");
    rig.quiet();
}

#[test]
fn one_process_has_connections_to_many() {
    let net = SimNet::new(Config { seed: 3, faults: CALM, depth: 8 }, 5);
    net.watch();
    assert!(net.connect(0, 0).is_none() && net.connect(0, 5).is_none());
    let (hub, far) = net.connect(0, 1).expect("ends");
    let mut first = Rig::of(net.clone(), hub, far);
    let mut others: Vec<_> = (2..5).map(|end| net.connect(0, end).expect("ends")).collect();
    // The hub's region is reached through each of its connections; a window only through its own.
    for (n, (hub, far)) in others.iter_mut().enumerate() {
        let target = far.register(LEN).expect("memory");
        let remote = far.expose(target.slice(0, LEN).expect("all"), Access::all()).expect("place");
        let mut work = first.work(u16::try_from(n).expect("small"), Opcode::Put, LEN);
        work.remote = remote.slice(0, LEN).expect("all");
        hub.post(&work).expect("accepted");
        let mut out = [BLANK; 2];
        while hub.poll(&mut out) == 0 {}
        assert_eq!(out[0].result, Ok(LEN));
        // The window of another connection.
        work.remote = first.remote.slice(0, LEN).expect("all");
        hub.post(&work).expect("accepted");
        while hub.poll(&mut out) == 0 {}
        assert_eq!(out[0].result, Err(Failure::Window(WindowFault::Unknown)));
    }
    // One death does not touch the others.
    others[0].1.kill();
    first.put(5).expect("that peer lives");
    assert!(first.drain(400).iter().all(|c| c.result == Ok(LEN)));
    let work = first.work(7, Opcode::Put, 8);
    assert_eq!(others[0].0.post(&work), Err(PostErrorKind::Disconnected));
    first.quiet();
}

/// Whether all that landed is a prefix.
fn is_prefix(bytes: &[u8]) -> bool {
    let landed = bytes.iter().filter(|b| **b == 1).count();
    bytes.iter().take(landed).all(|b| *b == 1)
}

#[test]
fn a_cut_put_leaves_a_prefix_or_scattered_lines() {
    for (scattered, torn) in [(Rate::NEVER, false), (Rate::ALWAYS, true)] {
        let mut scattered_once = false;
        for seed in 0..40 {
            let faults = Faults { scattered, delay_max_ns: 4_000, ..Faults::NONE };
            let mut rig = Rig::new(seed, faults, 8);
            rig.put(0).expect("accepted");
            rig.net.advance(0);
            for _ in 0..1 + seed % 4 {
                rig.net.advance(2_000);
            }
            rig.far.kill();
            assert_eq!(rig.drain(100).len(), 1);
            scattered_once |= !is_prefix(&rig.landed(0));
            rig.quiet();
        }
        assert_eq!(scattered_once, torn);
    }
}

#[test]
fn one_failed_request_flushes_all_behind_it() {
    let faults = Faults { flush_on_error: true, ..CALM };
    let mut rig = Rig::new(5, faults, 8);
    for index in 0..6 {
        let mut work = rig.work(index, Opcode::Put, LEN);
        if index == 0 {
            work.remote.epoch.0 += 1;
        }
        rig.near.post(&work).expect("accepted");
    }
    let done = rig.drain(300);
    assert_eq!(done.len(), 6);
    let flushed = |c: &&Completion| c.result == Err(Failure::Transport(Faults::FLUSHED));
    let refused = Err(Failure::Window(WindowFault::StaleEpoch));
    assert_eq!(done.iter().filter(|c| c.result == refused).count(), 1);
    let count = done.iter().filter(flushed).count();
    assert!(count > 0 && u64::try_from(count).expect("small") == rig.net.counts().flushed);
    assert_eq!((rig.near.queue(), rig.put(0)), (Queue::Error, Err(PostErrorKind::Disconnected)));
    rig.near.renew_queue();
    assert_eq!(rig.put(0), Ok(()));
    assert_eq!(rig.drain(300)[0].result, Ok(LEN));
    rig.quiet();
}

#[test]
fn an_overrun_kills_the_queue_and_only_destroying_it_is_a_fence() {
    let faults = Faults { completion_depth: Some(3), ..CALM };
    let mut rig = Rig::new(6, faults, 8);
    for index in 0..8 {
        rig.put(index).expect("the request queue is not full");
    }
    rig.net.advance(1_000_000);
    for _ in 0..50 {
        rig.net.advance(10_000);
    }
    assert_eq!((rig.near.queue(), rig.net.counts().overruns), (Queue::Error, 1));
    assert_eq!(rig.put(0), Err(PostErrorKind::Disconnected));
    assert_eq!(rig.drain(500).len(), 3, "the other completions are lost");
    rig.near.destroy_queue();
    assert!(rig.near.write(rig.local, 0, &[9; 4096]));
    assert_eq!(rig.drain(500).len(), 0);
    rig.quiet();
}

#[test]
fn writes_land_until_a_revocation_is_acknowledged_and_never_after() {
    let (mut landed_late, mut slow) = (0, 0);
    for seed in 0..60 {
        let faults = Faults { fence_max_ns: 30_000, delay_max_ns: 8_000, ..Faults::NONE };
        let mut rig = Rig::new(seed, faults, 8);
        for index in 0..8 {
            rig.put(index).expect("accepted");
        }
        let (id, epoch) = (rig.remote.window, rig.remote.epoch);
        let fence = rig.far.revoke(id, epoch).expect("it is open");
        let before: usize = (0..8).map(|n| usize::from(rig.landed(n).contains(&1))).sum();
        slow += usize::from(fence == Fence::PeerAck);
        for _ in 0..100 {
            if rig.far.is_released(id, epoch) {
                break;
            }
            rig.net.advance(500);
        }
        assert!(rig.far.is_released(id, epoch), "seed {seed}: a fence that never passes");
        let at_fence: Vec<_> = (0..8).map(|n| rig.landed(n)).collect();
        landed_late += at_fence.iter().filter(|bytes| bytes.contains(&1)).count() - before;
        let done = rig.drain(1000);
        assert_eq!(done.len(), 8);
        assert!((0..8).map(|n| rig.landed(n)).eq(at_fence), "seed {seed}: written after the fence");
        rig.quiet();
    }
    assert!(slow > 40 && landed_late > 40, "{slow} {landed_late}");
}

#[test]
fn an_old_completion_comes_again() {
    let mut rig = Rig::new(7, Faults { stale: Rate::ALWAYS, ..CALM }, 8);
    let mut seen = Vec::new();
    for index in 0..20 {
        rig.put(index).expect("accepted");
        seen.extend(rig.drain(100).iter().map(|c| c.op.index));
    }
    assert!(seen.len() > 30, "{seen:?}");
    assert!((0..20).all(|n| seen.contains(&n)));
    rig.quiet();
}

#[test]
fn a_dying_queue_flushes() {
    let mut rig = Rig::new(8, Faults { queue_death: Rate::ALWAYS, ..CALM }, 8);
    let accepted = (0..8).filter(|index| rig.put(*index).is_ok()).count();
    assert_eq!(rig.drain(300).len(), accepted);
    assert_eq!((rig.near.queue(), rig.net.counts().queue_deaths), (Queue::Error, 1));
    rig.quiet();
}

#[test]
fn a_write_after_release_is_found_with_its_history() {
    let rogue = Rogue { late_write: Rate::ALWAYS, ..Rogue::NONE };
    let mut rig = Rig::new(9, Faults { rogue, ..CALM }, 8);
    rig.put(0).expect("accepted");
    while rig.drain(1).is_empty() {}
    assert!(rig.far.deregister(rig.target.key));
    for _ in 0..20 {
        rig.net.advance(1_000);
    }
    let findings = rig.net.audit();
    let of = |violation| findings.iter().find(|f| f.violation == violation);
    let late = of(AccessViolation::AfterRelease).expect("the target's memory was accessed");
    let text = late.to_string();
    for part in ["AfterRelease", "of end 1", "opened window", "gave the region back", "wrote"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert!(of(AccessViolation::AfterCompletion).is_some(), "the source was read again");
    // The poison shows the same without the access checker.
    assert!(rig.far.check().is_err());
}

#[test]
fn a_byte_behind_the_last_window_is_a_broken_guard() {
    let rogue = Rogue { outside_window: Rate::ALWAYS, ..Rogue::NONE };
    let mut rig = Rig::new(10, Faults { rogue, ..CALM }, 8);
    rig.put(7).expect("accepted");
    while rig.drain(1).is_empty() {}
    let breaches: Vec<_> = rig.net.audit().iter().map(|f| f.violation).collect();
    assert_eq!(breaches, [AccessViolation::OutsideWindow, AccessViolation::Guard]);
}
