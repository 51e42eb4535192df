//! Each call that sets a link up over RDMA verbs fails at each place: a typed error, nothing is left, and the next try works.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Arc;

use hmc_core::transport::{
    DataCloseReason, DataPlane as _, Interest, Notes as _, PostErrorKind, Progress as _,
    Registration as _, Target as _, Transport as _,
};
use hmc_core::types::Access;
use hmc_hw::verbs::fault::VerbsFault;
use hmc_tests::fake_ibv::{self, FakeIbv, VerbsFate, has_windows};
use hmc_tests::ucx_planes::HostCall;
use hmc_tests::verbs_planes::{
    EVENTS_WORKER, End, FIRST_WORKER, LEN, RecordingHost, domain, meet, objects, pair, try_domain,
};

/// The step and errno of a call that failed.
fn failed_call(fault: VerbsFault) -> (&'static str, i32) {
    match fault {
        VerbsFault::Call(e) => (e.call, e.errno),
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
}

#[test]
fn a_data_plane_that_cannot_be_made_leaves_nothing() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    // Two queue pairs: the second of each kind is made when others are there.
    let domain = domain(&host, 2, false);
    assert_eq!(host.take(), [HostCall::Watch(EVENTS_WORKER)]);
    let shown = format!("{domain:?}");
    assert!(shown.starts_with("VerbsDomain") && shown.contains("fake_0"), "{shown}");
    let before = fake.count("live");
    let own = [
        ("ibv_alloc_pd", 1, "making a protection domain"),
        ("ibv_reg_mr", 1, "registering memory"),
        ("ibv_reg_mr", 2, "registering memory"),
    ];
    let steps = [
        ("ibv_create_comp_channel", 1, "making a completion channel"),
        ("ibv_create_cq", 1, "making a completion queue"),
        ("ibv_modify_qp", 1, "changing a queue pair"),
        ("ibv_modify_qp", 2, "changing a queue pair"),
    ];
    // Links that share a domain have none of their own.
    let own = own.into_iter().filter(|_| !has_windows());
    for (function, nth, step) in own.chain(steps) {
        for errno in [libc::ENOMEM, libc::EPERM, libc::ENODEV, libc::EINVAL] {
            fake.rule(function, nth, VerbsFate::Refused(errno));
            let fault = End::in_domain(&domain).expect_err(function);
            assert_eq!(failed_call(fault), (step, errno), "{function} {nth}");
            assert_eq!(fake.count("live"), before, "{function} {nth}");
            fake.clear_rules();
        }
    }
    // The second try is without bytes in the work request.
    for nth in [1, 2] {
        for more in [0, 1] {
            fake.rule("ibv_create_qp", nth + more, VerbsFate::Refused(libc::ENOSPC));
        }
        let fault = End::in_domain(&domain).expect_err("both tries");
        assert_eq!(failed_call(fault), ("making a queue pair", libc::ENOSPC), "{nth}");
        assert_eq!(fake.count("live"), before, "{nth}");
        fake.clear_rules();
    }
    let calls = host.take();
    let watched = calls.iter().filter(|call| **call == HostCall::Watch(FIRST_WORKER + 1)).count();
    let unwatched = calls.iter().filter(|call| **call == HostCall::Unwatch).count();
    assert_eq!(watched + unwatched, calls.len(), "{calls:?}");
    assert!(watched != 0 && unwatched >= watched, "{calls:?}");
    let end = End::in_domain(&domain).unwrap();
    assert_eq!(fake.count("live"), before + objects() + 1);
    drop((end, domain));
    fake.assert_clean();
}

/// What the links of a domain share is made with the domain.
#[test]
fn a_domain_that_cannot_be_made_leaves_nothing() {
    let fake = FakeIbv::take();
    if !has_windows() {
        return;
    }
    for (function, nth, step) in [
        ("ibv_alloc_pd", 1, "making a protection domain"),
        ("ibv_reg_mr", 1, "registering memory"),
        ("ibv_reg_mr", 2, "registering memory"),
    ] {
        fake.rule(function, nth, VerbsFate::Refused(libc::ENOMEM));
        let fault = try_domain(&Arc::default(), 1, true).expect_err(function);
        assert_eq!(failed_call(fault), (step, libc::ENOMEM), "{function} {nth}");
        fake.clear_rules();
        fake.assert_clean();
    }
}

#[test]
fn a_channel_that_cannot_be_watched_leaves_nothing() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let domain = domain(&host, 1, false);
    let before = fake.count("live");
    host.refuse_to_watch(usize::try_from(libc::ENOSPC).unwrap());
    let fault = End::in_domain(&domain).expect_err("it is refused");
    assert!(matches!(&fault, VerbsFault::Watch(e) if e.0 == libc::ENOSPC), "{fault:?}");
    assert_eq!(fake.count("live"), before);
    drop(domain);
    fake.assert_clean();
}

#[test]
fn a_device_without_space_in_a_work_request_is_used_without() {
    let fake = FakeIbv::take();
    for max in [0, 256] {
        fake.set_device(0, "max_inline_data", max);
        let (mut near, far, window) = pair();
        near.fill(3);
        near.post(&near.put(1, &window, 64));
        assert_eq!(near.complete(1), [(1, Ok(64))]);
        assert_eq!((fake.count("inlined"), far.count_from(0, 3)), (u64::from(max != 0), 64));
    }
    fake.assert_clean();
}

#[test]
fn a_connection_that_fails_at_any_step_can_be_closed() {
    let fake = FakeIbv::take();
    let domain = domain(&Arc::default(), 2, true);
    let before = fake.count("live");
    for nth in 1..=4 {
        let (mut near, mut far) =
            (End::in_domain(&domain).unwrap(), End::in_domain(&domain).unwrap());
        let theirs = far.greeting();
        fake.rule("ibv_modify_qp", nth, VerbsFate::Refused(libc::ETIMEDOUT));
        let fault = near.try_receive((theirs.0, &theirs.1)).expect_err("it is refused");
        assert_eq!(failed_call(fault), ("changing a queue pair", libc::ETIMEDOUT), "{nth}");
        assert!(!near.plane.is_ready() && near.plane.close_reason().is_none(), "{nth}");
        let window = far.expose_to(&mut near, (0, LEN), Access::all());
        assert_eq!(near.plane.post(&near.put(0, &window, 8)), Err(PostErrorKind::Busy));
        assert_eq!((near.poll(), near.plane.interest()), (vec![], Interest::default()));
        near.plane.close(DataCloseReason::Silent);
        assert_eq!(near.plane.post(&near.put(0, &window, 8)), Err(PostErrorKind::Disconnected));
        assert!(near.plane.are_requests_fenced() && near.plane.peer_has_ended());
        drop((near, far));
        assert_eq!(fake.count("live"), before, "{nth}");
        fake.clear_rules();
    }
    drop(domain);
    fake.assert_clean();
}

/// The post is refused once, and its reason can be taken. The link goes on.
#[test]
fn memory_that_cannot_be_registered_refuses_its_post_only() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let (mut near, far, window) = meet(End::with_host(&host, 1, true), End::new());
    for errno in [libc::ENOMEM, libc::EFAULT] {
        fake.rule("ibv_reg_mr", 1, VerbsFate::Refused(errno));
        assert_eq!(near.plane.post(&near.put(1, &window, 64)), Err(PostErrorKind::Other));
        let Some(VerbsFault::Call(e)) = near.plane.take_refusal() else { panic!("no reason") };
        assert_eq!((e.call, e.errno, e.need), ("registering memory", errno, LEN));
        assert_eq!(near.plane.take_refusal(), None, "once");
        assert_eq!(host.take(), [HostCall::NotRegistered]);
        assert!(near.plane.close_reason().is_none() && near.plane.are_requests_fenced());
        assert!(near.poll().is_empty());
        fake.clear_rules();
    }
    near.fill(5);
    near.post(&near.put(2, &window, 64));
    assert_eq!((near.complete(1), far.count_from(0, 5)), (vec![(2, Ok(64))], 64));
    drop((near, far));
    fake.assert_clean();
}

#[test]
fn a_window_that_cannot_be_registered_is_not_exposed() {
    let fake = FakeIbv::take();
    let (mut near, mut far, _) = pair();
    let counts = || (fake.count("mrs"), fake.count("mws"));
    let (regions, windows) = counts();
    let (function, step) = if has_windows() {
        ("ibv_alloc_mw", "making a window")
    } else {
        ("ibv_reg_mr", "registering memory")
    };
    fake.rule(function, 1, VerbsFate::Refused(libc::ENOMEM));
    let fault = far.try_expose((0, 64), Access::all()).expect_err("it is refused");
    assert_eq!(failed_call(fault), (step, libc::ENOMEM));
    assert_eq!(counts(), (regions, windows));
    let window = far.expose_to(&mut near, (64, 64), Access::all());
    let more = u64::from(has_windows());
    assert_eq!(counts(), (regions + 1 - more, windows + more));
    near.post(&near.work(1, hmc_core::work::Opcode::Get, &window, (0, 64)));
    assert_eq!(near.complete(1), [(1, Ok(64))]);
    drop((near, far));
    fake.assert_clean();
}

/// A registration that the device does not end may still let the peer in: the end of the queue pairs is the fence then. Its memory
/// stays for ever.
#[test]
fn a_registration_that_does_not_end_ends_the_link() {
    let fake = FakeIbv::take();
    let (mut near, mut far, window) = pair();
    fake.rule("ibv_dereg_mr", 1, VerbsFate::Refused(libc::EBUSY));
    let queues = fake.count("qps");
    far.plane.revoke(window.window, window.epoch).unwrap();
    far.plane.receive_release(window.window, window.epoch);
    assert!(far.plane.is_released(window.window, window.epoch));
    assert_eq!(fake.count("qps"), queues - 1, "nobody reaches the memory");
    assert_eq!(far.plane.close_reason(), Some(DataCloseReason::System(libc::EBUSY)));
    assert_eq!(far.plane.post(&far.put(0, &window, 8)), Err(PostErrorKind::Disconnected));
    let mut text = String::new();
    far.plane.describe_close(DataCloseReason::System(libc::EBUSY), &mut text).unwrap();
    assert!(text.starts_with("ending a registration"), "{text}");
    near.post(&near.put(1, &window, 64));
    assert_eq!(near.complete(1).len(), 1, "its queue pair has no other end");
    far.plane.close(DataCloseReason::Silent);
    far.plane.release_memory(true);
    assert!(far.take_released() != 0);
    let memory = far.memory.clone();
    drop((near, far));
    assert_eq!(["mrs", "pds", "contexts", "live"].map(|what| fake.count(what)), [1, 1, 1, 3]);
    assert_eq!(fake.count("findings"), 0);
    drop(memory);
}
