//! Who hears of completions over RDMA verbs: a caller that sleeps on the channel, or the host's thread.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::os::fd::AsFd as _;
use std::sync::Arc;

use hmc_core::transport::Progress as _;
use hmc_hw::host::SharedWorker as _;
use hmc_hw::verbs::link_worker::LinkWorker;
use hmc_tests::fake_ibv::FakeIbv;
use hmc_tests::ucx_planes::HostCall;
use hmc_tests::verbs_planes::{
    EVENTS_WORKER, End, FIRST_WORKER, RecordingHost, domain, meet, pair,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

/// Whether the channel's descriptor becomes readable within that time.
fn is_readable(worker: &LinkWorker, within: i64) -> bool {
    let time = Timespec { tv_sec: within, tv_nsec: 0 };
    poll(&mut [PollFd::new(&worker.as_fd(), PollFlags::IN)], Some(&time)) == Ok(1)
}

#[test]
fn a_caller_sleeps_until_a_completion_comes() {
    let fake = FakeIbv::take();
    fake.set("poll_progress", 0);
    let (mut near, far, window) = pair();
    let worker = near.plane.link_worker();
    for round in 1..200 {
        near.post(&near.put(1, &window, 64));
        assert!(near.poll().is_empty());
        let mut looks = 0;
        while !worker.can_sleep() {
            assert!(near.poll().is_empty());
            looks += 1;
        }
        assert!(looks <= 1 && !worker.must_poll(), "it is armed once");
        assert!(!is_readable(&worker, 0), "nothing has come");
        fake.progress(1);
        assert!(is_readable(&worker, 0), "the completion makes an event");
        assert!(!worker.can_sleep(), "there is a completion to take");
        assert_eq!(near.complete(1), [(1, Ok(64))]);
        assert_eq!(fake.count("notifications"), round);
    }
    drop((near, far, worker));
    fake.assert_clean();
}

/// A completion between the look and the sleep is not missed.
#[test]
fn a_completion_before_the_sleep_is_not_missed() {
    let fake = FakeIbv::take();
    fake.set("poll_progress", 0);
    let (mut near, far, window) = pair();
    let worker = near.plane.link_worker();
    // Before it is armed, and after.
    for is_armed in [false, true] {
        near.post(&near.put(1, &window, 64));
        assert!(near.poll().is_empty());
        if is_armed {
            assert!(worker.can_sleep(), "the event of the last round was for nothing new");
        }
        fake.progress(1);
        if is_armed {
            assert!(is_readable(&worker, 0));
        }
        assert!(!worker.can_sleep(), "armed {is_armed}: it looks first");
        assert_eq!(near.poll(), [(1, Ok(64))]);
        assert!(worker.can_sleep(), "there is nothing more");
    }
    drop((near, far, worker));
    fake.assert_clean();
}

#[test]
fn the_hosts_thread_is_told_by_the_channel() {
    let fake = FakeIbv::take();
    fake.set("poll_progress", 0);
    let host = Arc::<RecordingHost>::default();
    let (mut near, far, window) = meet(End::with_host(&host, 1, false), End::new());
    let number = FIRST_WORKER + 1;
    assert_eq!(host.take(), [HostCall::Watch(EVENTS_WORKER), HostCall::Watch(number)]);
    let worker = near.plane.link_worker();
    for round in 1..20 {
        near.post(&near.put(1, &window, 64));
        assert!(near.poll().is_empty() && near.plane.take_posted());
        worker.resume();
        fake.progress(1);
        assert!(is_readable(&worker, 0), "round {round}");
        let before = near.notifications.count();
        assert!(near.domain.service(number));
        assert!(near.notifications.count() > before);
        assert!(!is_readable(&worker, 0), "its events are taken");
        assert_eq!(near.poll(), [(1, Ok(64))]);
    }
    assert!(!near.domain.service(number + 1), "there is no such worker");
    drop((near, far, worker));
    assert_eq!(host.take(), [HostCall::Unwatch, HostCall::Unwatch]);
    fake.assert_clean();
}

/// The thread leaves the channel alone as long as a caller waits.
#[test]
fn a_caller_that_waits_takes_the_channel_from_the_thread() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let (near, far, _window) = meet(End::with_host(&host, 1, false), End::new());
    let number = FIRST_WORKER + 1;
    let worker = near.plane.link_worker();
    assert_eq!(host.take(), [HostCall::Watch(EVENTS_WORKER), HostCall::Watch(number)]);
    worker.claim();
    worker.claim();
    assert_eq!(host.take(), [HostCall::Unwatch], "by the first");
    assert!(near.domain.service(number));
    assert_eq!(near.notifications.count(), 0, "it is the callers'");
    worker.release();
    assert_eq!((host.take(), near.notifications.count()), (vec![], 0));
    worker.release();
    assert_eq!(host.take(), [HostCall::Watch(number)], "by the last");
    assert_eq!(near.notifications.count(), 1, "what came meanwhile");
    host.refuse_to_watch(9);
    worker.claim();
    worker.release();
    let calls = host.take();
    assert_eq!(calls, [HostCall::Unwatch, HostCall::Watch(number), HostCall::NotWatched(9)]);
    drop((near, far, worker));
    assert_eq!(host.take(), [HostCall::Unwatch, HostCall::Unwatch]);
    fake.assert_clean();
}

/// More events than are acknowledged together.
#[test]
fn events_are_acknowledged_before_the_queue_is_destroyed() {
    let fake = FakeIbv::take();
    fake.set("poll_progress", 0);
    for rounds in [1, 63, 64, 65, 66, 200] {
        let (mut near, far, window) = pair();
        let worker = near.plane.link_worker();
        for _ in 0..rounds {
            near.post(&near.put(1, &window, 64));
            assert!(near.poll().is_empty());
            let _ = worker.can_sleep();
            fake.progress(1);
            let _ = worker.can_sleep();
            assert_eq!(near.complete(1), [(1, Ok(64))]);
        }
        drop(worker);
        drop((near, far));
        fake.assert_clean();
    }
    // One that nobody reads.
    let (mut near, far, window) = pair();
    let worker = near.plane.link_worker();
    near.post(&near.put(1, &window, 64));
    let _ = (worker.can_sleep(), near.poll());
    fake.progress(1);
    assert!(is_readable(&worker, 0));
    drop((near, far, worker));
    fake.assert_clean();
}

#[test]
fn a_worker_that_is_gone_serves_nobody() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let domain = domain(&host, 1, false);
    for _ in 0..3 {
        let end = End::in_domain(&domain).unwrap();
        assert!(domain.service(FIRST_WORKER + 1));
        drop(end);
        assert!(!domain.service(FIRST_WORKER + 1));
    }
    drop((domain, host.take()));
    fake.assert_clean();
}
