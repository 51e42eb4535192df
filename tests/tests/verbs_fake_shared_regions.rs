//! Memory that the links of a session register once, where the device enforces windows by memory windows.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Arc;

use hmc_core::transport::{
    DataCloseReason, DataPlane as _, Notes as _, Registration as _, Target as _,
};
use hmc_core::types::Access;
use hmc_tests::fake_ibv::{FakeIbv, VerbsFate};
use hmc_tests::ucx_planes::HostCall;
use hmc_tests::verbs_planes::{End, LEN, RecordingHost, domain, meet};

/// By requests and windows of all links. It ends with the last of them.
#[test]
fn memory_is_registered_once_for_all_links() {
    let fake = FakeIbv::take();
    let [ours, theirs] = [(); 2].map(|()| domain(&Arc::default(), 1, true));
    let first = End::numbered(&ours, 1).unwrap();
    let second = End::sharing(&first, 2).unwrap();
    let before = fake.count("mrs");
    let (mut near, mut far, window) = meet(first, End::numbered(&theirs, 1).unwrap());
    let (mut other, apart, there) = meet(second, End::numbered(&theirs, 2).unwrap());
    assert_eq!(fake.count("mrs"), before + 2, "of the targets");
    for (end, window) in [(&mut near, &window), (&mut other, &there)] {
        end.post(&end.put(1, window, 64));
        assert_eq!(end.complete(1), [(1, Ok(64))]);
    }
    let back = near.expose_to(&mut far, (0, LEN), Access::all());
    assert_eq!((fake.count("mrs"), fake.calls("ibv_reg_mr")), (before + 3, before + 3));
    // The one link lets go of it, and the other one goes on.
    near.plane.release_memory(true);
    near.plane.close(DataCloseReason::Silent);
    near.plane.release_memory(true);
    drop(near);
    assert_eq!(fake.count("mrs"), before + 3);
    other.post(&other.put(2, &there, 64));
    assert_eq!(other.complete(1), [(2, Ok(64))]);
    other.plane.release_memory(true);
    assert_eq!(fake.count("mrs"), before + 2);
    assert_ne!(other.take_released(), 0);
    let _ = back;
    drop((far, other, apart, ours, theirs));
    fake.assert_clean();
}

/// Another link uses the region that the queue pair may still read: its end is not this link's to make.
#[test]
fn a_queue_pair_that_is_not_destroyed_keeps_memory_that_another_link_uses() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let ours = domain(&host, 1, true);
    let first = End::numbered(&ours, 1).unwrap();
    let second = End::sharing(&first, 2).unwrap();
    let (mut near, far, window) = meet(first, End::new());
    let (mut other, apart, there) = meet(second, End::new());
    other.post(&other.put(1, &there, 64));
    assert_eq!(other.complete(1), [(1, Ok(64))]);
    fake.rule("write", 0, VerbsFate::Held);
    near.post(&near.put(1, &window, 512));
    assert!(near.poll_for(9).is_empty());
    fake.rule("ibv_destroy_qp", 1, VerbsFate::Refused(libc::EBUSY));
    near.plane.close(DataCloseReason::Silent);
    assert!(host.take().iter().any(|call| matches!(call, HostCall::NotDestroyed(_))));
    assert!(!near.plane.are_requests_fenced());
    fake.clear_rules();
    other.post(&other.put(2, &there, 64));
    assert_eq!(other.complete(1), [(2, Ok(64))], "it goes on");
    drop((near, far, other, apart, ours));
    let stay = ["qps", "cqs", "channels", "pds", "contexts", "live"].map(|what| fake.count(what));
    assert_eq!((stay, fake.count("findings")), ([1, 1, 1, 1, 1, 5], 0));
}

/// The device may give the number of its queue pair to another one, which the window would let in.
#[test]
fn no_new_link_has_the_domain_of_a_window_that_did_not_end() {
    let fake = FakeIbv::take();
    let theirs = domain(&Arc::default(), 1, true);
    let end = |serial| End::numbered(&theirs, serial).unwrap();
    let (near, mut far, window) = meet(End::new(), end(1));
    let (mut other, mut apart, there) = meet(End::new(), end(2));
    let domains = fake.count("pds");
    fake.rule("ibv_dealloc_mw", 1, VerbsFate::Refused(libc::EBUSY));
    far.plane.revoke(window.window, window.epoch).unwrap();
    far.plane.receive_release(window.window, window.epoch);
    assert_eq!(far.plane.close_reason(), Some(DataCloseReason::System(libc::EBUSY)));
    fake.clear_rules();
    let again = end(3);
    assert_eq!(fake.count("pds"), domains + 1);
    let _more = end(4);
    assert_eq!(fake.count("pds"), domains + 1, "they share it");
    // A link that is there goes on as it was.
    other.post(&other.put(1, &there, 64));
    assert_eq!(other.complete(1), [(1, Ok(64))]);
    let late = apart.expose_to(&mut other, (0, LEN), Access::all());
    other.post(&other.put(2, &late, 64));
    assert_eq!(other.complete(1), [(2, Ok(64))]);
    drop((near, far, again));
}

/// It may be carried out until its queue pair is destroyed, on a window of another link that has got its index.
#[test]
fn a_window_whose_bind_cannot_be_stopped_is_kept() {
    let fake = FakeIbv::take();
    let (near, mut far, _) = meet(End::new(), End::new());
    let windows = fake.count("mws");
    fake.rule("bind", 0, VerbsFate::Held);
    let (window, _) = far.try_expose((0, LEN), Access::all()).unwrap();
    fake.rule("ibv_modify_qp", 1, VerbsFate::Refused(libc::EINVAL));
    far.plane.close(DataCloseReason::Silent);
    assert_eq!(fake.count("mws"), windows, "the other window has ended");
    assert!(far.plane.is_released(window.window, window.epoch), "its queue pair is destroyed");
    assert_eq!(fake.count("qps"), 1);
    fake.clear_rules();
    drop((near, far));
    assert_eq!(fake.count("mws"), 1);
}
