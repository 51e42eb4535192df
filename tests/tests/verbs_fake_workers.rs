//! The thread that is notified of completions over RDMA verbs: a caller that sleeps on the channel, or the host's thread.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::os::fd::AsFd as _;
use std::sync::Arc;

use hmc_core::region::WindowDesc;
use hmc_core::time::Instant;
use hmc_core::transport::{PeerWindows as _, Progress as _};
use hmc_core::types::Access;
use hmc_core::work::Opcode;
use hmc_hw::host::SharedWorker as _;
use hmc_hw::verbs::link_worker::LinkWorker;
use hmc_tests::fake_ibv::{self, FakeIbv};
use hmc_tests::ucx_planes::HostCall;
use hmc_tests::verbs_planes::{
    EVENTS_WORKER, End, FIRST_WORKER, LEN, RecordingHost, domain, meet, pair,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

/// Whether the channel's descriptor becomes readable within that time.
fn is_readable(worker: &LinkWorker, within: i64) -> bool {
    let time = Timespec { tv_sec: within, tv_nsec: 0 };
    poll(&mut [PollFd::new(&worker.as_fd(), PollFlags::IN)], Some(&time)) == Ok(1)
}

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
}

#[test]
fn a_caller_sleeps_until_a_completion_comes() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    fake.set("poll_progress", 0);
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
    let (mut near, far, window) = pair();
    fake.set("poll_progress", 0);
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

/// An end whose host's thread looks at completions, and an end that it is connected to.
struct Watched {
    host: Arc<RecordingHost>,
    near: End,
    far: End,
    window: WindowDesc,
    worker: Arc<LinkWorker>,
}

const NUMBER: u32 = FIRST_WORKER + 1;

impl Watched {
    fn new() -> Self {
        let host = Arc::<RecordingHost>::default();
        let end = |domain| End::with_memory(&domain, 2 * LEN).unwrap();
        let ends = (end(domain(&host, 1, false)), end(domain(&Arc::default(), 1, true)));
        let (mut near, mut far, _) = meet(ends.0, ends.1);
        let window = far.expose_to(&mut near, (0, 2 * LEN), Access::all());
        assert_eq!(host.take(), [HostCall::Watch(EVENTS_WORKER), HostCall::Watch(NUMBER)]);
        let worker = near.plane.link_worker();
        Self { host, near, far, window, worker }
    }

    /// Posts a request as a caller does that does not wait for it.
    fn begin(&mut self, opcode: Opcode, len: u64) {
        let work = self.near.work(1, opcode, &self.window, (0, len));
        self.near.post(&work);
        assert!(self.near.poll().is_empty() && self.near.plane.take_posted());
        self.worker.resume();
    }

    /// Looks at the time of so many microseconds. Returns how often the link was told to look at its completions.
    fn look_at(&self, us: u64) -> u64 {
        self.host.set_time(Instant::from_nanos(us * 1000));
        let before = self.near.notifications.count();
        self.near.domain.look();
        self.near.notifications.count() - before
    }

    fn end(self, fake: &FakeIbv) {
        let Self { host, near, far, worker, .. } = self;
        drop((near, far, worker));
        assert_eq!(host.take(), [HostCall::Unwatch, HostCall::Unwatch]);
        fake.assert_clean();
    }
}

#[test]
fn the_hosts_thread_is_told_by_the_channel() {
    let fake = FakeIbv::take();
    let mut all = Watched::new();
    fake.set("poll_progress", 0);
    for round in 1..20 {
        all.begin(Opcode::Put, 64);
        all.worker.wake_on_completion();
        fake.progress(1);
        assert!(is_readable(&all.worker, 0), "round {round}");
        let before = all.near.notifications.count();
        assert!(all.near.domain.service(NUMBER));
        assert!(all.near.notifications.count() > before);
        assert!(!is_readable(&all.worker, 0), "its events are taken");
        assert_eq!(all.near.complete(1), [(1, Ok(64))]);
    }
    assert!(!all.near.domain.service(NUMBER + 1), "there is no such worker");
    all.end(&fake);
}

/// What costs whoever posts it no system call: the thread looks each millisecond, and sleeps until it has completed if that takes long.
#[test]
fn the_hosts_thread_looks_at_puts_that_nobody_waits_for() {
    let fake = FakeIbv::take();
    let mut all = Watched::new();
    fake.set("poll_progress", 0);
    assert!(!all.near.domain.must_look());
    for (start, ends_soon) in [(0, true), (10_000, true), (20_000, false)] {
        all.host.set_time(Instant::from_nanos(start * 1000));
        let (armed, told) = (fake.count("notifications"), all.near.notifications.count());
        all.begin(Opcode::Put, 64);
        all.worker.resume();
        assert_eq!(all.near.notifications.count(), told + 1, "the thread is told once");
        assert!(all.near.domain.must_look());
        assert_eq!([899, 900, 901].map(|us| all.look_at(start + us)), [0, 1, 0]);
        if ends_soon {
            fake.progress(1);
            assert_eq!(all.near.complete(1), [(1, Ok(64))]);
            assert_eq!((all.look_at(start + 1800), all.near.domain.must_look()), (0, false));
            assert_eq!(fake.count("notifications"), armed, "nothing was armed");
            continue;
        }
        assert_eq!((all.look_at(start + 2000), all.near.domain.must_look()), (1, false));
        fake.progress(1);
        assert!(is_readable(&all.worker, 0), "it sleeps until an event comes");
        assert!(all.near.domain.service(NUMBER));
        assert_eq!(fake.count("notifications"), armed + 1);
        assert_eq!(all.near.complete(1), [(1, Ok(64))]);
        assert!(!all.near.domain.must_look());
    }
    all.end(&fake);
}

/// The queue was armed by a caller that has gone: the thread is told once more before it sleeps, since what was posted last may make no
/// event before somebody polls.
#[test]
fn the_hosts_thread_is_told_before_it_sleeps() {
    let fake = FakeIbv::take();
    let mut all = Watched::new();
    fake.set("poll_progress", 0);
    while !all.worker.can_sleep() {
        assert!(all.near.poll().is_empty());
    }
    let _ = all.host.take();
    let work = all.near.work(1, Opcode::Put, &all.window, (0, 64));
    all.near.post(&work);
    assert!(all.near.plane.can_coalesce() && all.near.plane.take_posted());
    all.worker.resume();
    fake.progress(9);
    assert!(!is_readable(&all.worker, 0), "a put without its flush has no completion");
    assert_eq!([900, 2000].map(|us| all.look_at(us).min(1)), [1, 1]);
    assert!(all.near.poll().is_empty());
    fake.progress(9);
    assert!(is_readable(&all.worker, 0), "the flush has");
    assert_eq!(all.near.complete(1), [(1, Ok(64))]);
    drop((all, fake));
}

/// Those that are followed by something, and those that take long.
#[test]
fn the_hosts_thread_hears_at_once_of_tags_and_long_transfers() {
    let fake = FakeIbv::take();
    for (opcode, len, is_armed) in [
        (Opcode::Put, 4096, false),
        (Opcode::Put, 4097, true),
        (Opcode::Get, 4096, false),
        (Opcode::Get, 4097, true),
        (Opcode::PutNotify { tag: 1 }, 1, true),
    ] {
        fake.set("poll_progress", 1);
        let mut all = Watched::new();
        fake.set("poll_progress", 0);
        all.begin(opcode, len);
        let case = format!("{opcode:?} of {len} bytes");
        assert_eq!(all.near.domain.must_look(), !is_armed, "{case}");
        fake.progress(1);
        assert_eq!(is_readable(&all.worker, 0), is_armed, "{case}");
        all.end(&fake);
    }
}

/// The end of an access to a window that the peer takes back is told to the peer.
#[test]
fn the_hosts_thread_hears_at_once_of_the_end_of_a_revoked_access() {
    let fake = FakeIbv::take();
    let mut all = Watched::new();
    let WindowDesc { window, epoch, .. } = all.window;
    assert!(all.near.plane.remove_window(window, epoch) && !all.near.plane.take_posted());
    all.end(&fake);
    let mut all = Watched::new();
    fake.set("poll_progress", 0);
    all.begin(Opcode::Put, 64);
    assert!(!all.near.plane.remove_window(window, epoch), "it is used");
    assert!(all.near.plane.take_posted());
    all.worker.resume();
    fake.progress(1);
    assert!(is_readable(&all.worker, 0));
    all.end(&fake);
}

/// The thread leaves completions alone as long as a caller waits, and the channel only to one that sleeps on it.
#[test]
fn a_caller_that_sleeps_takes_the_channel_from_the_thread() {
    let fake = FakeIbv::take();
    let mut all = Watched::new();
    fake.set("poll_progress", 0);
    all.begin(Opcode::Put, 64);
    all.worker.wake_on_completion();
    let told = all.near.notifications.count();
    all.worker.claim();
    all.worker.claim();
    all.worker.resume();
    all.worker.wake_on_completion();
    assert_eq!((all.host.take(), all.near.notifications.count()), (vec![], told));
    // It was armed before: the event wakes the caller, should it be about to sleep.
    fake.progress(1);
    assert!(is_readable(&all.worker, 0) && all.near.domain.service(NUMBER));
    assert!(!is_readable(&all.worker, 0));
    assert_eq!((all.host.take(), all.near.notifications.count()), (vec![], told + 1));
    assert!(!all.worker.can_sleep() && all.worker.can_sleep());
    assert_eq!(all.host.take(), [HostCall::Unwatch], "once");
    all.worker.release();
    assert_eq!((all.host.take(), all.near.notifications.count()), (vec![], told + 1));
    all.worker.release();
    assert_eq!(all.host.take(), [HostCall::Watch(NUMBER)], "by the last");
    assert_eq!(all.near.complete(1), [(1, Ok(64))]);
    all.host.refuse_to_watch(9);
    all.worker.claim();
    let _ = all.worker.can_sleep();
    all.worker.release();
    let calls = all.host.take();
    assert_eq!(calls, [HostCall::Unwatch, HostCall::Watch(NUMBER), HostCall::NotWatched(9)]);
    all.end(&fake);
}

/// Operations that are under way when a caller stops waiting go on as before.
#[test]
fn the_hosts_thread_sees_to_what_a_caller_leaves() {
    let fake = FakeIbv::take();
    let mut all = Watched::new();
    fake.set("poll_progress", 0);
    let left = |all: &Watched, is_awaited: bool| {
        all.worker.claim();
        if is_awaited {
            all.worker.wake_on_completion();
        }
        let told = all.near.notifications.count();
        all.worker.release();
        (all.near.notifications.count() - told, all.near.domain.must_look())
    };
    assert_eq!(left(&all, false), (0, false), "nothing is under way");
    all.worker.claim();
    all.begin(Opcode::Put, 64);
    all.worker.release();
    assert!(all.near.domain.must_look());
    assert_eq!(left(&all, false), (0, true), "it looks already");
    all.worker.claim();
    assert_eq!((all.look_at(1000), all.near.domain.must_look()), (0, false), "the caller looks");
    assert_eq!(left(&all, false), (0, false), "there is another one");
    all.worker.release();
    assert!(all.near.domain.must_look());
    assert_eq!(left(&all, true), (1, true), "it is armed");
    assert_eq!(left(&all, true), (0, true), "once");
    fake.progress(1);
    assert!(is_readable(&all.worker, 0), "as soon as it has completed");
    assert_eq!(all.near.complete(1), [(1, Ok(64))]);
    all.worker.claim();
    let _ = all.worker.can_sleep();
    all.worker.release();
    assert_eq!(all.host.take(), [HostCall::Unwatch, HostCall::Watch(NUMBER)]);
    assert!(!is_readable(&all.worker, 0), "its events are taken");
    let _ = all.look_at(2000);
    assert_eq!(left(&all, false), (0, false));
    all.begin(Opcode::Put, 64);
    assert!(all.near.domain.must_look(), "this one requests no notification");
    all.end(&fake);
}

/// More events than are acknowledged together.
#[test]
fn events_are_acknowledged_before_the_queue_is_destroyed() {
    let fake = FakeIbv::take();
    for rounds in [1, 63, 64, 65, 66, 200] {
        fake.set("poll_progress", 1);
        let (mut near, far, window) = pair();
        fake.set("poll_progress", 0);
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
    fake.set("poll_progress", 1);
    let (mut near, far, window) = pair();
    fake.set("poll_progress", 0);
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
