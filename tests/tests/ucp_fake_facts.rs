//! What a transport over UCX says of itself, over the fake libucp: its lanes, its work, what it holds.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Arc;

use hmc_core::region::{RegionKey, WindowId};
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport as _};
use hmc_core::types::{Access, Caps};
use hmc_core::window::WindowFault;
use hmc_core::work::{Failure, Opcode};
use hmc_tests::fake_ucp::FakeUcp;
use hmc_tests::ucx_pair::Built;

const LEN: u64 = 4096;

fn built(fake_ucp: &FakeUcp) -> Built {
    Built::new(fake_ucp.library(), LEN, LEN, Access::all(), 1).unwrap()
}

/// Turns until nothing of the pair is under way.
fn run_until_idle(pair: &mut Built) {
    for _ in 0..1000 {
        pair.poll();
    }
    assert!(pair.near.0.is_idle() && !pair.near.0.has_work());
}

#[test]
fn its_lanes_show_who_reaches_memory_and_from_where() {
    let fake_ucp = FakeUcp::take();
    for (lane, names, uses_am, may_use_am, shares_memory, is_same_host) in [
        ("rc_mlx5/mlx5_0:1", &["rc_mlx5"][..], false, false, false, false),
        ("rc_mlx5/mlx5_0:1+cma/memory", &["rc_mlx5", "cma"], false, false, true, false),
        ("posix/memory", &["posix"], false, true, true, true),
        ("sysv/memory+tcp/lo", &["sysv", "tcp"], false, true, true, false),
        ("tcp/eth0", &["tcp"], true, true, false, false),
        ("cma/memory", &["cma"], true, true, false, true),
    ] {
        fake_ucp.lane(lane);
        let pair = built(&fake_ucp);
        let it = &pair.near.0;
        assert_eq!(it.lanes(), names);
        assert_eq!(
            (it.uses_am(), it.may_use_am(), it.shares_memory(), it.is_same_host()),
            (uses_am, may_use_am, shares_memory, is_same_host),
            "{lane}"
        );
        assert_eq!(it.peer_pid(), Some(std::process::id()));
        assert_eq!(it.caps(), Caps::PUT | Caps::GET);
        drop(pair);
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}

/// The bits are those of ucs/memory/memory_type.h: host 0, CUDA 1, ROCm 3.
#[test]
fn the_devices_that_ucx_reaches_are_named() {
    let fake_ucp = FakeUcp::take();
    for (kinds, devices) in [
        (0b0001, &[][..]),
        (0b0011, &["cuda"]),
        (0b1001, &["rocm"]),
        (0b1111, &["cuda", "rocm"]),
        (0b0101, &[]),
    ] {
        fake_ucp.set("memory_types", kinds);
        let facts = hmc_std::probe::ucx().unwrap();
        assert_eq!(facts.devices, devices, "{kinds:#b}");
        assert_eq!(facts.path, fake_ucp.library().path());
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}

#[test]
fn what_is_printed_for_debugging_names_the_parts() {
    let fake_ucp = FakeUcp::take();
    let pair = built(&fake_ucp);
    let text = format!("{pair:?}");
    for part in [
        "Memory { len: 4096",
        "Endpoint",
        "Key",
        "CompletionQueue { index: ",
        "AmTarget { number: ",
        "UcpWorker { fd: ",
        "AmDispatcher",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let worker = Arc::clone(pair.near.0.worker());
    assert!(format!("{:?}", worker.lock()).contains("Guard"), "{:?}", worker.lock());
    assert!(format!("{:?}", *worker.lock()).contains("LockedWorker"), "what it guards");
    drop((pair, worker));
    fake_ucp.assert_clean();
}

#[test]
fn memory_that_is_not_kept_is_released_unless_it_is_used() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.set("put_delay", 3);
    let mut pair = built(&fake_ucp);
    let (key, other) = (pair.local.key, RegionKey { index: 3, generation: 2 });
    assert!(pair.near.0.has_local(key) && !pair.near.0.has_local(other));
    assert!(pair.near.0.evict_locals(|k| k == key).is_empty());
    assert!(pair.near.0.has_local(key));
    let put = pair.request(0, Opcode::Put, 0, 0, 8);
    pair.near.post(&put).unwrap();
    pair.near.0.advance();
    assert!(pair.near.0.evict_locals(|_| false).is_empty(), "it is under way");
    pair.wait(1);
    run_until_idle(&mut pair);
    let evicted = pair.near.0.evict_locals(|_| false);
    assert!(evicted.len() == 1 && evicted.iter().all(|m| Arc::ptr_eq(m, &pair.here)));
    assert!(!pair.near.0.has_local(key));
    drop((evicted, pair));
    fake_ucp.assert_clean();
}

/// Whoever sleeps has looked before whether there is something to do.
#[test]
fn there_is_work_while_something_waits_for_a_call_and_not_while_ucx_has_it() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.set("put_delay", 20);
    fake_ucp.set("flush_delay", 20);
    let mut pair = built(&fake_ucp);
    run_until_idle(&mut pair);
    let _ = pair.near.0.take_progressed();
    let worker = Arc::clone(pair.near.0.worker());
    let guard = worker.lock();
    pair.near.post(&pair.request(0, Opcode::Put, 0, 0, 8)).unwrap();
    assert!(pair.near.0.has_work(), "it waits for the lock");
    pair.near.0.advance();
    assert!(pair.near.0.has_work() && !pair.near.0.take_progressed(), "another thread has it");
    drop(guard);
    let _ = pair.near.0.take_posted();
    pair.near.0.advance();
    assert!(!pair.near.0.is_idle() && pair.near.0.take_posted() && !pair.near.0.take_posted());
    // Another thread's progress completes it.
    while !pair.near.0.has_work() {
        worker.lock().progress();
    }
    pair.wait(1);
    let _ = pair.near.0.take_progressed();
    pair.near.post(&pair.request(1, Opcode::Put, 0, 0, 8)).unwrap();
    pair.wait(1);
    assert!(pair.near.0.take_progressed() && !pair.near.0.take_progressed());
    run_until_idle(&mut pair);
    drop((pair, worker));
    fake_ucp.assert_clean();
}

#[test]
fn puts_that_wait_for_company_are_work() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane("tcp/eth0");
    let mut pair = built(&fake_ucp);
    run_until_idle(&mut pair);
    pair.near.post(&pair.request(0, Opcode::Put, 0, 0, 8)).unwrap();
    assert!(!pair.near.0.has_work(), "its message was sent");
    pair.near.post(&pair.request(1, Opcode::Put, 8, 8, 8)).unwrap();
    assert!(pair.near.0.has_work() && pair.near.0.can_coalesce());
    assert_eq!(pair.wait(2).len(), 2);
    run_until_idle(&mut pair);
    drop(pair);
    fake_ucp.assert_clean();
}

#[test]
fn an_operation_that_has_ended_is_reported_although_it_is_cancelled() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    let put = pair.request(0, Opcode::Put, 0, 0, 8);
    assert_eq!(pair.near.cancel(put.op), CancelOutcome::Withdrawn, "it was never posted");
    pair.near.post(&put).unwrap();
    assert_eq!(pair.near.cancel(put.op), CancelOutcome::Withdrawn, "it waits for the lock");
    pair.near.post(&put).unwrap();
    pair.near.0.advance();
    assert_eq!(pair.near.cancel(put.op), CancelOutcome::Running, "UCX has it");
    while !pair.near.0.is_idle() {
        pair.near.0.advance();
    }
    assert_eq!(pair.near.cancel(put.op), CancelOutcome::Running, "it has ended");
    let other = pair.request(1, Opcode::Put, 0, 0, 8).op;
    assert_eq!(pair.near.cancel(other), CancelOutcome::Withdrawn);
    assert_eq!(pair.wait(1).len(), 1);
    assert_eq!(pair.near.cancel(put.op), CancelOutcome::Withdrawn, "and was reported");
    let tagged = pair.request(2, Opcode::PutNotify { tag: 1 }, 0, 0, 8);
    assert_eq!(pair.near.post(&tagged), Err(PostErrorKind::Unsupported));
    drop(pair);
    fake_ucp.assert_clean();
}

#[test]
fn only_the_window_that_the_peer_takes_back_is_left() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.set("put_delay", 20);
    let mut pair = built(&fake_ucp);
    let window = pair.window.window;
    let other = WindowId(window.0 ^ (1 << 40));
    assert!(pair.near.0.remove_window(other));
    pair.near.post(&pair.request(0, Opcode::Put, 0, 0, 8)).unwrap();
    pair.near.0.advance();
    assert!(!pair.near.0.is_window_unused(window) && pair.near.0.is_window_unused(other));
    assert!(!pair.near.0.remove_window(window), "it is used");
    assert_eq!(pair.wait(1).first().map(|c| c.result), Some(Ok(8)));
    assert!(pair.near.0.remove_window(window));
    pair.near.post(&pair.request(1, Opcode::Put, 0, 0, 8)).unwrap();
    let revoked = Err(Failure::Window(WindowFault::Revoked));
    assert_eq!(pair.wait(1).first().map(|c| c.result), Some(revoked));
    drop(pair);
    fake_ucp.assert_clean();
}

#[test]
fn a_transport_is_closed_once_its_endpoint_is() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.set("close_delay", 3);
    let mut pair = built(&fake_ucp);
    run_until_idle(&mut pair);
    assert!(!pair.near.0.is_closed());
    pair.near.0.close();
    assert!(!pair.near.0.is_closed() && pair.near.0.is_idle());
    for _ in 0..1000 {
        pair.poll();
    }
    assert!(pair.near.0.is_closed());
    assert_eq!(
        pair.near.post(&pair.request(0, Opcode::Put, 0, 0, 8)),
        Err(PostErrorKind::Disconnected)
    );
    drop(pair);
    fake_ucp.assert_clean();
}
