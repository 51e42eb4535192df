//! Queue pairs that the device does not destroy, over the fake libibverbs: registrations are the fence then, and memory whose registration
//! does not end either is kept.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Arc;

use hmc_core::region::WindowDesc;
use hmc_core::transport::{
    DataCloseReason, DataPlane as _, Fence, NeedsStream as _, Registration as _, Target as _,
};
use hmc_core::types::Access;
use hmc_core::work::Failure;
use hmc_tests::fake_ibv::{self, FakeIbv, VerbsFate, has_windows};
use hmc_tests::ucx_planes::HostCall;
use hmc_tests::verbs_planes::{End, LEN, RecordingHost, meet};

/// A link with a put under way whose first end will not destroy its queue pair, and a window of that end.
fn stuck(fake: &FakeIbv, host: &Arc<RecordingHost>) -> (End, End, WindowDesc) {
    let (mut near, mut far, window) = meet(End::with_host(host, 1, true), End::new());
    let ours = near.expose_to(&mut far, (0, LEN), Access::all());
    near.fill(9);
    fake.rule("write", 0, VerbsFate::Held);
    near.post(&near.put(1, &window, 512));
    assert!(near.poll_for(9).is_empty());
    fake.rule("ibv_destroy_qp", 1, VerbsFate::Refused(libc::EBUSY));
    (near, far, ours)
}

fn assert_reported(host: &RecordingHost) {
    let calls = host.take();
    let [HostCall::NotDestroyed(text)] = &calls[..] else { panic!("{calls:?}") };
    assert!(text.starts_with("destroying a queue pair (fake_0): "), "{text}");
}

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
}

#[test]
fn registrations_are_the_fence_of_a_queue_pair_that_is_not_destroyed() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let (mut near, far, window) = stuck(&fake, &host);
    let (op, regions) = (near.put(1, &window, 8).op, fake.count("mrs"));
    let windows = fake.count("mws").saturating_sub(1);
    near.plane.close(DataCloseReason::Silent);
    assert_eq!(near.complete(1), [(1, Err(Failure::PeerDead))]);
    assert_reported(&host);
    // The memory's, and the window's where that has one of its own.
    let ended = if has_windows() { 1 } else { 2 };
    assert_eq!((fake.count("mrs"), fake.count("mws")), (regions.wrapping_sub(ended), windows));
    assert!(near.plane.are_requests_fenced() && near.plane.is_fenced());
    assert!(near.plane.peer_has_ended() && near.plane.is_shut());
    assert!(!near.plane.is_idle(), "what it carries itself may still arrive");
    assert!(near.plane.is_released(window.window, window.epoch));
    assert!(!near.plane.uses_memory_of(op));
    assert_eq!(fake.release(), 0, "nothing is under way");
    assert_eq!(far.count_from(0, 9), 0);
    drop((near, far));
    let stay = ["qps", "cqs", "channels", "pds", "contexts", "live"].map(|what| fake.count(what));
    assert_eq!((stay, fake.count("findings")), ([1, 1, 1, 1, 1, 5], 0));
}

#[test]
fn memory_that_the_device_may_access_for_ever_is_kept() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let (mut near, far, window) = stuck(&fake, &host);
    let (op, regions) = (near.put(1, &window, 8).op, fake.count("mrs"));
    fake.rule("ibv_dereg_mr", 0, VerbsFate::Refused(libc::EBUSY));
    near.plane.close(DataCloseReason::Silent);
    assert_eq!(near.complete(1), [(1, Err(Failure::PeerDead))]);
    assert_reported(&host);
    near.plane.release_memory(true);
    assert_eq!(fake.count("mrs"), regions);
    assert!(!near.plane.are_requests_fenced() && !near.plane.is_fenced());
    assert!(!near.plane.peer_has_ended() && !near.plane.is_shut() && !near.plane.is_idle());
    assert!(near.plane.has_drained(), "what may still come is what is not fenced");
    assert!(near.plane.uses_memory_of(op), "it may be read");
    let (id, epoch) = (window.window, window.epoch);
    assert!(!near.plane.is_released(id, epoch), "the peer may be let in");
    assert!(matches!(near.plane.close_window(id, epoch), Fence::PeerAck));
    drop(near);
    fake.clear_rules();
    drop(far);
    let regions = if has_windows() { 3 } else { 4 };
    assert_eq!((fake.count("mrs"), fake.count("qps"), fake.count("findings")), (regions, 1, 0));
}
