//! Who makes the progress of a worker of UCX's, over the fake libucp: its session's thread, callers that wait, or nobody; and when
//! the thread sleeps on it.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Arc;

use hmc_core::time::{Duration, Instant};
use hmc_core::transport::{DataCloseReason, DataPlane as _, Progress as _, Transport as _};
use hmc_hw::host::SharedWorker as _;
use hmc_tests::fake_ucp::{BUSY, CallResult, FakeUcp};
use hmc_tests::ucx_planes::{
    End, FIRST_WORKER, HostCall, MESSAGES, NIC, RecordingHost, SHARED_MEMORY, TURNS, connect, pair,
};

/// Failures in a row to arm a worker, after which it is polled instead, and the one with which that begins.
const FAILED_ARMS: u64 = 2001;
/// Calls of progress for one event.
const POLLS: u64 = 16;

/// An end whose host's thread makes progress.
fn driven(fake_ucp: &FakeUcp, host: &Arc<RecordingHost>) -> End {
    let end = End::with_host(fake_ucp, false, host, false);
    assert_eq!(host.take(), [HostCall::Watch(FIRST_WORKER)]);
    end
}

/// How often a call of UCX is made in `calls`.
fn count(fake_ucp: &FakeUcp, function: &str, calls: impl FnOnce()) -> u64 {
    let before = fake_ucp.calls(function);
    calls();
    fake_ucp.calls(function) - before
}

#[test]
fn the_thread_watches_a_worker_while_no_caller_waits() {
    let fake_ucp = FakeUcp::take();
    let host = Arc::default();
    let end = driven(&fake_ucp, &host);
    let worker = end.plane.shared_worker();
    worker.claim();
    assert_eq!(host.take(), [HostCall::Unwatch]);
    worker.claim();
    assert_eq!(host.take(), [], "it is not watched");
    // What the thread would do is left to the callers, who are woken.
    let signals = count(&fake_ucp, "ucp_worker_signal", || {
        let progress = count(&fake_ucp, "ucp_worker_progress", || {
            worker.resume();
            assert!(!end.domain.service(FIRST_WORKER, &mut Vec::new()));
        });
        assert_eq!(progress, 0);
    });
    assert_eq!(signals, 2);
    worker.release();
    assert_eq!(host.take(), [], "another caller waits");
    let arms = count(&fake_ucp, "ucp_worker_arm", || worker.release());
    // The first attempt finds the signal.
    assert_eq!((arms, host.take()), (2, vec![HostCall::Watch(FIRST_WORKER)]));
    assert_eq!(count(&fake_ucp, "ucp_worker_arm", || worker.resume()), 1);
    drop((worker, end));
    assert_eq!(host.take(), [HostCall::Unwatch]);
    fake_ucp.assert_clean();
}

#[test]
fn nobody_watches_a_worker_whose_callers_make_its_progress() {
    let fake_ucp = FakeUcp::take();
    let host = Arc::default();
    let end = End::with_host(&fake_ucp, false, &host, true);
    let worker = end.plane.shared_worker();
    for function in ["ucp_worker_progress", "ucp_worker_arm", "ucp_worker_signal"] {
        let calls = count(&fake_ucp, function, || {
            worker.claim();
            worker.claim();
            worker.resume();
            assert!(!end.domain.service(FIRST_WORKER, &mut Vec::new()));
            worker.release();
            worker.release();
        });
        assert_eq!(calls, 0, "{function}");
    }
    assert_eq!(host.take(), []);
    drop((worker, end));
    fake_ucp.assert_clean();
}

#[test]
fn a_worker_that_is_quiet_is_armed_at_once_however_often() {
    let fake_ucp = FakeUcp::take();
    let host = Arc::default();
    let end = driven(&fake_ucp, &host);
    let worker = end.plane.shared_worker();
    let rounds = 2 * FAILED_ARMS;
    let progress = count(&fake_ucp, "ucp_worker_progress", || {
        (0..rounds).for_each(|_| assert!(!end.domain.service(FIRST_WORKER, &mut Vec::new())));
        (0..rounds).for_each(|_| assert!(worker.can_sleep()));
    });
    assert_eq!((progress, worker.must_poll()), (2 * rounds, false));
    assert_eq!(host.take(), []);
    drop((worker, end));
    fake_ucp.assert_clean();
}

#[test]
fn a_worker_that_cannot_be_armed_is_polled_until_it_can() {
    let fake_ucp = FakeUcp::take();
    let host: Arc<RecordingHost> = Arc::default();
    let end = driven(&fake_ucp, &host);
    let worker = end.plane.shared_worker();
    let service = || assert!(!end.domain.service(FIRST_WORKER, &mut Vec::new()));
    let polling = || {
        fake_ucp.rule("ucp_worker_arm", 0, CallResult::Refused(BUSY));
        let progress = count(&fake_ucp, "ucp_worker_progress", || {
            while !worker.must_poll() {
                let least = count(&fake_ucp, "ucp_worker_progress", service);
                assert!(least == POLLS || worker.must_poll(), "{least} calls of progress");
            }
        });
        assert_eq!(progress, FAILED_ARMS);
        assert!(end.domain.must_poll());
        assert_eq!(host.take(), [HostCall::Unwatch], "it is readable all the time");
        assert_eq!(count(&fake_ucp, "ucp_worker_progress", service), 1);
    };
    polling();
    for (millis, report) in [(999, &[][..]), (1000, &[HostCall::NeverArmed]), (3000, &[])] {
        host.set_time(Instant::ZERO.after(Duration::from_millis(millis)));
        service();
        assert_eq!(host.take(), report, "after {millis} ms");
    }
    fake_ucp.clear_rules();
    service();
    assert_eq!((worker.must_poll(), end.domain.must_poll()), (false, false));
    assert_eq!(host.take(), [HostCall::Watch(FIRST_WORKER)]);
    // A caller that waits meanwhile arms it for itself.
    polling();
    worker.claim();
    assert_eq!(host.take(), [HostCall::Unwatch]);
    assert!(!worker.can_sleep());
    fake_ucp.clear_rules();
    assert!(worker.can_sleep());
    assert_eq!((worker.must_poll(), host.take()), (false, vec![]));
    worker.release();
    assert_eq!(host.take(), [HostCall::Watch(FIRST_WORKER)]);
    // One that stops waiting leaves it to be polled.
    polling();
    worker.claim();
    assert_eq!(host.take(), [HostCall::Unwatch]);
    worker.release();
    assert_eq!((worker.must_poll(), host.take()), (true, vec![]));
    // A system that does not watch it any more is told of.
    fake_ucp.clear_rules();
    host.refuse_to_watch(28);
    service();
    assert_eq!(host.take(), [HostCall::Watch(FIRST_WORKER), HostCall::NotWatched(28)]);
    drop((worker, end));
    fake_ucp.assert_clean();
}

#[test]
fn a_caller_sleeps_only_on_a_worker_that_found_nothing() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane(MESSAGES);
    let (mut near, far, window) = pair(&fake_ucp, false);
    let worker = far.plane.shared_worker();
    while !worker.can_sleep() {}
    near.fill(7);
    near.plane.post(&near.put(0, &window, 64)).unwrap();
    let arms = count(&fake_ucp, "ucp_worker_arm", || assert!(!worker.can_sleep()));
    assert_eq!((arms, far.count(7)), (0, 64));
    // The first attempt to arm it takes the message's event away.
    assert!((0..2).any(|_| worker.can_sleep()));
    drop((worker, near, far));
    fake_ucp.assert_clean();
}

/// Two links by one worker: the end of the one is not answered by UCX while the other's puts come back one by one.
fn busy_beside_a_closed_link(fake_ucp: &FakeUcp, host: &Arc<RecordingHost>) -> (End, End) {
    let first = driven(fake_ucp, host);
    let second = End::in_domain(&first.domain, false);
    let (first, first_far, _) = connect(first, End::new(fake_ucp, false));
    let (mut second, second_far, window) = connect(second, End::new(fake_ucp, false));
    let End { mut plane, domain, .. } = first;
    fake_ucp.rule("ucp_ep_close_nbx", 1, CallResult::Held);
    plane.close(DataCloseReason::Silent);
    drop((plane, first_far));
    while domain.service(FIRST_WORKER, &mut Vec::new()) {}
    for index in 0..POLLS {
        // One call of progress finds something, and the next nothing.
        let late = i64::try_from(2 * (index + 1)).unwrap();
        fake_ucp.rule("ucp_put_nbx", index + 1, CallResult::Late(late));
        let index = u16::try_from(index).unwrap();
        second.plane.post(&second.put(index, &window, 8)).unwrap();
    }
    assert_eq!(second.poll(), []);
    (second, second_far)
}

#[test]
fn memory_of_a_closed_link_is_looked_for_until_the_worker_is_armed() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane(NIC);
    let host = Arc::default();
    let (second, second_far) = busy_beside_a_closed_link(&fake_ucp, &host);
    let domain = Arc::clone(&second.domain);
    let mut free = Vec::new();
    let arms = count(&fake_ucp, "ucp_worker_arm", || {
        assert!(domain.service(FIRST_WORKER, &mut free), "puts have come back");
    });
    assert_eq!(arms, 1, "at the end of its turn it is armed, whatever is left");
    let polls = count(&fake_ucp, "ucp_worker_progress", || {
        assert!(!domain.service(FIRST_WORKER, &mut free));
    });
    assert_eq!((polls, free.len()), (1, 0), "nothing happens");
    assert!(domain.has_leftovers());
    assert_eq!(fake_ucp.release(), 1);
    assert!(domain.service(FIRST_WORKER, &mut free));
    assert!(!domain.has_leftovers(), "it was let go in the call that saw its end");
    drop((second, second_far, domain, free));
    fake_ucp.assert_clean();
}

/// A worker whose callers make its progress is left to them while it has a link.
#[test]
fn a_manual_worker_with_a_link_is_left_to_its_callers() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane(MESSAGES);
    let (mut near, mut far, window) = pair(&fake_ucp, false);
    near.fill(7);
    near.plane.post(&near.put(0, &window, 64)).unwrap();
    far.domain.service_all(&mut Vec::new());
    assert_eq!(far.count(7), 0);
    assert!(far.plane.poll_peer(true));
    assert_eq!(far.count(7), 64);
    let done = (0..TURNS).find_map(|_| near.poll().pop());
    assert_eq!(done.map(|c| c.result), Some(Ok(64)));
    drop((near, far));
    fake_ucp.assert_clean();
}

/// With lanes of shared memory each peer of this system has a worker of its own, by whose number it is served.
#[test]
fn each_worker_is_served_by_its_number() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane(SHARED_MEMORY);
    let host: Arc<RecordingHost> = Arc::default();
    let first = End::with_host(&fake_ucp, true, &host, false);
    let second = End::in_domain(&first.domain, true);
    let shared = End::in_domain(&first.domain, false);
    let numbers = [0, 1, 2].map(|n| HostCall::Watch(FIRST_WORKER + n));
    assert_eq!(host.take(), numbers);
    // Nothing else moves.
    for (ends, number) in [([&first, &second, &shared], 0), ([&second, &first, &shared], 1)] {
        let [served, ..] = ends.map(|end| end.plane.shared_worker());
        served.claim();
        assert_eq!(host.take(), [HostCall::Unwatch]);
        let signals = count(&fake_ucp, "ucp_worker_signal", || {
            for number in 0..4 {
                first.domain.service(FIRST_WORKER + number, &mut Vec::new());
            }
        });
        assert_eq!(signals, 1);
        served.release();
        assert_eq!(host.take(), [HostCall::Watch(FIRST_WORKER + number)]);
    }
    drop((first, second, shared));
    assert_eq!(host.take(), vec![HostCall::Unwatch; 3]);
    fake_ucp.assert_clean();
}
