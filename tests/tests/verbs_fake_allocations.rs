//! Puts, gets, polls and waits over RDMA verbs allocate nothing. All is done by the thread of the test, whose allocations are counted.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use hmc_core::slots::SlotId;
use hmc_core::transport::{PostErrorKind, Progress as _, Transport as _};
use hmc_core::work::{CompleteWhen, Completion, Opcode, WorkRequest};
use hmc_hw::host::SharedWorker as _;
use hmc_tests::counting::Counting;
use hmc_tests::fake_ibv::{self, FakeIbv};
use hmc_tests::verbs_planes::{End, LEN, pair};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

const ROUNDS: u32 = 2000;

/// Runs requests until all have completed, sleeping as a caller does.
fn run(near: &mut End, works: &[WorkRequest], out: &mut [Completion]) {
    let (mut posted, mut done) = (0, 0);
    let worker = near.plane.link_worker();
    worker.claim();
    while done < works.len() {
        while let Some(work) = works.get(posted) {
            match near.plane.post(work) {
                Ok(()) => posted += 1,
                Err(PostErrorKind::Busy) => break,
                Err(e) => panic!("{e:?}"),
            }
        }
        let n = near.plane.poll(out);
        assert!(out.iter().take(n).all(|completion| completion.result.is_ok()));
        done += n;
        let _ = (worker.can_sleep(), near.plane.poll_peer(true), near.plane.interest());
    }
    worker.release();
}

#[test]
fn requests_allocate_nothing() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    let op = SlotId { index: 0, generation: 1 };
    let mut out = [Completion { op, result: Ok(0) }; 64];
    for (opcode, when, len, count) in [
        (Opcode::Put, CompleteWhen::Visible, 64, 1),
        (Opcode::Put, CompleteWhen::Local, 300, 7),
        (Opcode::Get, CompleteWhen::Visible, LEN, 3),
        (Opcode::Put, CompleteWhen::Visible, 512, 600),
    ] {
        let works: Vec<_> = (0..count)
            .map(|n| WorkRequest { when, ..near.work(n, opcode, &window, (0, len)) })
            .collect();
        for _ in 0..50 {
            run(&mut near, &works, &mut out);
        }
        let before = ALLOCATOR.count_here();
        for _ in 0..ROUNDS / u32::from(count) {
            run(&mut near, &works, &mut out);
        }
        let n = ALLOCATOR.count_here() - before;
        assert_eq!(n, 0, "{count} of {opcode:?} {when:?}, {len} bytes: {n} allocations");
    }
    drop((near, far));
    fake.assert_clean();
    fake_ibv::run_without_windows(&[]);
}
