//! A caller that waits on a link whose data plane has a worker beside its stream.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use hmc_core::time::Instant;
use hmc_hw::host::SharedWorker;
use rustix::event::{PollFd, PollFlags};

use super::{WaitScope, within};
use crate::base::config::Progress;
use crate::base::wait_limit::WaitLimit;
use crate::io::reactor::Reactor;
use crate::link::ends::{End, pair_with_worker};
use crate::transport::link_waker::LinkWaker;
use crate::transport::worker::Worker;

/// A worker that does what a test says, and counts what is asked of it.
struct Counts {
    fd: UnixStream,
    /// Whoever writes here makes its descriptor readable.
    other: UnixStream,
    can_sleep: AtomicBool,
    must_poll: AtomicBool,
    claims: AtomicU32,
    releases: AtomicU32,
    resumes: AtomicU32,
    sleepers: AtomicU32,
}

impl AsFd for Counts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl SharedWorker for Counts {
    fn claim(&self) {
        self.claims.fetch_add(1, Ordering::Relaxed);
    }

    fn release(&self) {
        self.releases.fetch_add(1, Ordering::Relaxed);
    }

    fn can_sleep(&self) -> bool {
        self.can_sleep.load(Ordering::Relaxed)
    }

    fn must_poll(&self) -> bool {
        self.must_poll.load(Ordering::Relaxed)
    }

    fn resume(&self) {
        self.resumes.fetch_add(1, Ordering::Relaxed);
    }

    fn wake_on_completion(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counts {
    fn claims(&self) -> (u32, u32) {
        (self.claims.load(Ordering::Relaxed), self.releases.load(Ordering::Relaxed))
    }
}

struct Bench {
    near: End,
    far: End,
    counts: Arc<Counts>,
    waker: Arc<LinkWaker>,
}

impl Bench {
    fn new(can_sleep: bool, must_poll: bool) -> Self {
        Self::with(can_sleep, must_poll, false)
    }

    fn with(can_sleep: bool, must_poll: bool, has_posted: bool) -> Self {
        let (fd, other) = UnixStream::pair().expect("a pair");
        let [claims, releases, resumes, sleepers] = [(); 4].map(|()| AtomicU32::new(0));
        let (can_sleep, must_poll) = (can_sleep.into(), must_poll.into());
        let counts =
            Counts { fd, other, can_sleep, must_poll, claims, releases, resumes, sleepers };
        let counts = Arc::new(counts);
        let reactor = Arc::new(Reactor::new(Progress::Thread).expect("descriptors"));
        let waker = LinkWaker::new(1, reactor).expect("a descriptor");
        let shared: Arc<dyn SharedWorker> = Arc::<Counts>::clone(&counts);
        let worker = Worker { shared, waker: Arc::clone(&waker) };
        let (near, far) = pair_with_worker(&worker, has_posted);
        Self { near, far, counts, waker }
    }

    /// Waits until the look of number `last`, and acts at the third look: the waiter has marked that it sleeps by then.
    fn wait(&self, watch: WaitScope, last: u32, at_third: &dyn Fn()) {
        let mut looks = 0;
        let waited = self.near.link.drive(watch, WaitLimit::time(Instant::NEVER), |_| {
            looks += 1;
            if looks == 3 {
                at_third();
            }
            (looks == last).then_some(())
        });
        assert_eq!(waited, Ok(()));
    }

    fn wait_until(&self, watch: WaitScope, is_over: &AtomicBool) {
        let waited = self.near.link.drive(watch, WaitLimit::time(Instant::NEVER), |_| {
            is_over.load(Ordering::Relaxed).then_some(())
        });
        assert_eq!(waited, Ok(()));
    }

    fn overslept(&self) -> u64 {
        self.near.link.counters.overslept.load(Ordering::Relaxed)
    }
}

#[test]
fn who_waits_for_an_operation_drives_the_worker_and_others_leave_it_to_the_thread() {
    for (watch, drives) in [(WaitScope::Data, 1), (WaitScope::Both, 0), (WaitScope::Ctrl, 0)] {
        let bench = Bench::new(true, false);
        let mut during = Vec::new();
        let waited = bench.near.link.drive(watch, WaitLimit::time(Instant::NEVER), |_| {
            during.push(bench.counts.claims());
            (during.len() == 2).then_some(())
        });
        assert_eq!((waited, during), (Ok(()), vec![(0, 0), (drives, 0)]), "{watch:?}");
        assert_eq!(bench.counts.claims(), (drives, drives), "{watch:?}");
    }
}

#[test]
fn a_waiter_sleeps_if_its_worker_can_be_slept_on_or_polled() {
    use WaitScope::{Both, Data};
    // Looks in 200 ms: a sleep takes 50 ms, a pause between polls 1 ms.
    let (sleeps, polls, spins) = (20, 800, u32::MAX);
    for (watch, can_sleep, must_poll, at_most) in [
        (Data, true, false, sleeps),
        (Data, false, true, polls),
        (Data, true, true, polls),
        (Data, false, false, spins),
        // It is the thread that is woken by the worker's descriptor.
        (Both, false, false, sleeps),
    ] {
        let bench = Bench::new(can_sleep, must_poll);
        let mut looks = 0;
        let waited = bench.near.link.drive(watch, within(200), |_| {
            looks += 1;
            None::<()>
        });
        assert!(waited.is_err());
        let case = format!("{watch:?}, can sleep {can_sleep}, must poll {must_poll}");
        assert!(looks <= at_most, "{case}: {looks} looks");
        assert!(!bench.waker.wake(), "{case}: it is awake");
        if at_most != sleeps {
            // Forty sleeps would take 2 s.
            let begun = StdInstant::now();
            bench.wait(watch, 40, &|| ());
            assert!(begun.elapsed() < StdDuration::from_millis(1500), "{case}: it sleeps");
        }
    }
}

/// What ended while it looked for the last time woke nobody.
#[test]
fn a_waiter_looks_once_more_after_it_has_marked_that_it_sleeps() {
    for can_sleep in [true, false] {
        let bench = Bench::new(can_sleep, false);
        let mut looks = 0;
        let waited = bench.near.link.drive(WaitScope::Data, within(500), |_| {
            looks += 1;
            (looks == 3).then(|| bench.waker.wake())
        });
        assert_eq!(waited, Ok(true), "it had marked so");
        assert!(!bench.waker.wake(), "it is awake");
    }
}

#[test]
fn a_waiter_that_sleeps_is_woken_through_its_waker_and_by_the_worker_that_it_drives() {
    use WaitScope::{Both, Data};
    let write = |bench: &Bench| {
        std::io::Write::write_all(&mut &bench.counts.other, &[1]).expect("space");
    };
    for (watch, must_poll, by_waker, overslept) in [
        (Data, false, true, 0),
        (Both, false, true, 0),
        (Data, false, false, 0),
        (Both, false, false, 1),
        // It is polled soon, whatever its descriptor tells.
        (Data, true, false, 0),
    ] {
        let bench = Bench::new(true, must_poll);
        bench.wait(watch, 4, &|| if by_waker { _ = bench.waker.wake() } else { write(&bench) });
        let case = format!("{watch:?}, must poll {must_poll}, by its waker {by_waker}");
        assert_eq!(bench.overslept(), overslept, "{case}");
    }
}

#[test]
fn what_was_posted_to_the_worker_goes_on_without_a_waiter() {
    for has_posted in [false, true] {
        // The polls that let the ends meet are the first.
        let bench = Bench::with(true, false, has_posted);
        for _ in 0..2 {
            let resumes = bench.counts.resumes.load(Ordering::Relaxed);
            assert_eq!(resumes, u32::from(has_posted), "once for what was posted");
            bench.near.link.poll_data(false);
            bench.near.link.resume_background();
        }
    }
}

/// Who waits for an operation while another one leads, for a message, sleeps until the thread has seen its completion.
#[test]
fn a_follower_leaves_what_it_waits_for_to_the_thread() {
    use WaitScope::{Both, Data};
    for watch in [Data, Both] {
        let bench = Bench::new(true, false);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| bench.wait_until(Both, &is_over));
            while !bench.near.link.has_leader() {
                std::thread::yield_now();
            }
            let mut looks = 0;
            let waited = bench.near.link.drive(watch, WaitLimit::time(Instant::NEVER), |_| {
                looks += 1;
                (looks == 2).then_some(())
            });
            assert_eq!(waited, Ok(()));
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(bench.counts.sleepers.load(Ordering::Relaxed), 1, "{watch:?}");
    }
}

/// Whether the waker was woken since it was last looked at.
fn is_woken(waker: &LinkWaker) -> bool {
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    let woken = rustix::event::poll(&mut [PollFd::new(waker, PollFlags::IN)], Some(&now)) == Ok(1);
    waker.unpark();
    waker.park();
    woken
}

#[test]
fn a_thread_that_ends_something_wakes_the_leader_that_sleeps() {
    let bench = Bench::new(true, false);
    let (_region, window) = bench.near.expose(1);
    bench.waker.park();
    bench.near.link.poll_data(false);
    assert!(!is_woken(&bench.waker), "nothing came");
    for as_leader in [true, false] {
        bench.far.put_notify(&window, 3);
        bench.near.link.poll_data(as_leader);
        assert_eq!(is_woken(&bench.waker), !as_leader, "as leader {as_leader}");
    }
    assert_eq!(bench.near.link.inbox().len(), 2);
}
