//! Waiting for several operations: for whichever ends first.
//!
//! [`wait_any`] polls the sockets of the links concerned and a waker of its own, which is woken by the thread that
//! reads an answer (a leader, the background thread).

use std::sync::Arc;
use std::time::Duration;

use hmc_core::time::{Duration as NanoDuration, Instant};
use rustix::event::{PollFd, PollFlags};

use crate::base::clock;
use crate::base::config::Progress;
use crate::base::error::{Error, Result};
use crate::base::polling;
use crate::base::wait_limit::WaitStopped;
use crate::io::eventfd::EventfdWaker;
use crate::io::reactor;
use crate::link::Link;
use crate::link::spin_policy::WaitOutcome;
use crate::ops::carried::Carried;
use crate::ops::running::Running;
use crate::ops::started::{Op, Waited};
use crate::state::inner::SessionInner;
use crate::state::wait_pool::{LinkOp, WaitSpace, WaitedFor};

/// A waker registered with operations, deregistered on drop: it must not be woken for another call's wait.
struct Armed<'a> {
    ops: &'a [LinkOp],
    waker: &'a Arc<EventfdWaker>,
    /// Another call or a future waits for one of them, too: its waker is the one that is woken.
    is_shared: bool,
}

impl<'a> Armed<'a> {
    /// Registers `waker` with every operation. Returns `None` if there is something to do first: one has ended, or this process
    /// itself has bytes to copy.
    fn put(ops: &'a [LinkOp], waker: &'a Arc<EventfdWaker>) -> Option<Self> {
        let mut armed = Armed { ops, waker, is_shared: false };
        for LinkOp { link, what } in ops {
            let mut data = link.data();
            if data.has_work() {
                return None;
            }
            match what {
                WaitedFor::Slot(op) => {
                    if data.test(*op) != Ok(false) {
                        return None;
                    }
                    let added = data.add_waker(*op, Arc::clone(waker));
                    drop(data);
                    armed.is_shared |= added.is_err();
                    // What it replaces may be a waker of the application: dropped outside the lock.
                    drop(added);
                }
                WaitedFor::Message(handle) => {
                    drop(data);
                    armed.is_shared |= !handle.add_waker(waker);
                    if handle.result().is_some() {
                        return None;
                    }
                }
            }
            link.wake_on_completion();
        }
        Some(armed)
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        for LinkOp { link, what } in self.ops {
            let waker = match what {
                WaitedFor::Slot(op) => link.data().take_waker(*op, self.waker),
                WaitedFor::Message(handle) => handle.take_waker(self.waker),
            };
            drop(waker);
        }
    }
}

/// Sockets that one wait polls at most, and its waker. Answers on others are read by the background thread, which wakes it.
const WATCHED: usize = 128;
/// How long a wait parks at most that cannot poll all sockets, if no thread but it reads them; and one that shares an operation
/// with another wait, which is woken.
const UNWATCHED_PARK: NanoDuration = NanoDuration::from_millis(1);

/// Parks until the waker is woken, a socket is ready, or the deadline of an operation or of the caller has come.
fn park(ops: &[LinkOp], waker: &EventfdWaker, manual: bool, deadline: Instant) {
    let mut until = deadline;
    let mut fds: heapless::Vec<PollFd<'_>, WATCHED> = heapless::Vec::new();
    let _ = fds.push(PollFd::new(waker, PollFlags::IN));
    let mut last = None;
    for LinkOp { link, .. } in ops {
        // Operations of one peer often follow each other: one look at its link is enough.
        if last.replace(link.serial) == Some(link.serial) {
            continue;
        }
        let (interest, earliest) = {
            let mut data = link.data();
            (data.plane().interest(), data.queue().next_deadline())
        };
        until = until.min(earliest);
        let flags = reactor::flags(interest.connection);
        let socket = link.data_socket().filter(|_| !flags.is_empty());
        if let Some(fd) = socket.and_then(|s| s.fd())
            && fds.push(PollFd::from_borrowed_fd(fd, flags)).is_err()
        {
            until = unwatched(until, manual, clock::now());
        }
    }
    let timeout = clock::timespec(clock::left(until));
    polling::waits();
    // EINTR is one more reason to look again.
    let _ = rustix::event::poll(&mut fds, timeout.as_ref());
}

/// By when a wait looks again that cannot poll all sockets: another thread reads the others, unless the session is driven by its
/// callers. `is_alone`: nobody else reads them, or wakes this wait.
fn unwatched(until: Instant, is_alone: bool, now: Instant) -> Instant {
    if is_alone { until.min(now.after(UNWATCHED_PARK)) } else { until }
}

/// Waits until one of the operations has ended, for `limit` at most, and says which. It can be asked or waited for then; all
/// others run on. They may be of different peers, and of different sessions of one process.
///
/// # Errors
/// `InvalidConfig` for an empty list; `SystemLimit` if the system has no descriptor left; `Forked`.
pub fn wait_any<M: Carried>(ops: &[&Op<M>], limit: Duration) -> Result<Waited<usize>> {
    if ops.is_empty() {
        return Err(Error::config("wait_any needs at least one operation"));
    }
    // Those that are over have none.
    let running = |n: usize| ops.get(n).and_then(|op| op.running());
    if let Some(over) = (0..ops.len()).find(|n| running(*n).is_none_or(|op| op.outcome_here())) {
        return Ok(Waited::Ended(over));
    }
    let Some(first) = running(0) else { return Ok(Waited::Ended(0)) };
    let shared = &first.peer().shared;
    ops.iter().filter_map(|op| op.running()).try_for_each(|op| op.peer().shared.check_process())?;
    let mut space = shared.wait_pool.take();
    let all = ops.iter().filter_map(|op| op.running());
    space.ops.extend(all.map(Running::link_op));
    let ended = |n: usize| running(n).is_none_or(Running::has_ended);
    let found = wait_for_one(shared, &first.peer().link, limit, &mut space, ended);
    shared.wait_pool.leave(space);
    found
}

fn wait_for_one(
    shared: &SessionInner,
    first: &Link,
    limit: Duration,
    space: &mut WaitSpace,
    ended: impl Fn(usize) -> bool,
) -> Result<Waited<usize>> {
    let mut timer = shared.until(limit).timer();
    let short = shared.config.spin;
    // Of one of the links: what is waited for comes by any.
    let spin = first.spin_policy.spin(short);
    let spin_until = clock::now().after(clock::from_std(spin));
    let mut outcome = WaitOutcome::Found;
    let found = loop {
        if let Some(n) = (0..space.ops.len()).find(|n| ended(*n)) {
            break Waited::Ended(n);
        }
        match timer.check() {
            Ok(()) => {}
            Err(WaitStopped::Deadline) => break Waited::Limit,
            Err(WaitStopped::Interrupted) => break Waited::Interrupted,
            Err(stop @ WaitStopped::Forked) => return Err(stop.error("")),
        }
        let now = clock::now();
        if now < spin_until {
            outcome.spun();
            std::hint::spin_loop();
            continue;
        }
        let (links, waker) = space.waker()?;
        if let Some(armed) = Armed::put(links, waker) {
            let manual = shared.config.progress == Progress::Manual;
            let until = unwatched(timer.park_until(), armed.is_shared, clock::now());
            park(links, waker, manual, until);
            outcome.slept(clock::now().since(now));
            drop(armed);
            waker.clear();
        }
    };
    first.spin_policy.record(outcome, short);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Waker};

    use hmc_core::time::Instant;
    use hmc_hw::host::SharedWorker;

    use super::{
        Armed, EventfdWaker, LinkOp, UNWATCHED_PARK, Waited, WaitedFor, unwatched, wait_any,
    };
    use crate::api::session::Session;
    use crate::base::config::Progress;
    use crate::io::reactor::Reactor;
    use crate::link::ends::pair_with_worker;
    use crate::link::spin_policy::WaitOutcome;
    use crate::ops::peer_handle::Peer;
    use crate::ops::posted::Posted;
    use crate::ops::running::Running;
    use crate::ops::started::Op;
    use crate::transport::link_waker::LinkWaker;
    use crate::transport::worker::Worker;

    /// A worker that counts who sleeps until a completion.
    struct CountsSleepers(UnixStream, AtomicU32);

    impl AsFd for CountsSleepers {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl SharedWorker for CountsSleepers {
        fn claim(&self) {}
        fn release(&self) {}
        fn resume(&self) {}

        fn wake_on_completion(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }

        fn can_sleep(&self) -> bool {
            true
        }

        fn must_poll(&self) -> bool {
            false
        }
    }

    #[test]
    fn who_sleeps_until_an_operation_ends_says_so_to_the_worker() {
        let (fd, _other) = UnixStream::pair().expect("a pair");
        let counts = Arc::new(CountsSleepers(fd, AtomicU32::new(0)));
        let reactor = Arc::new(Reactor::new(Progress::Thread).expect("descriptors"));
        let waker = LinkWaker::new(1, reactor).expect("a descriptor");
        let worker = Worker { shared: Arc::<CountsSleepers>::clone(&counts), waker };
        let (near, far) = pair_with_worker(&worker, false);
        let (_region, window) = far.expose(1);
        near.run_until_idle();
        let op = near.put(&window, 1);
        let session = Session::builder(0).buffer(4096).start().expect("a session");
        let shared = Arc::clone(&session.shared);
        let peer = Peer { link: Arc::clone(&near.link), shared };
        let sleepers = || counts.1.load(Ordering::Relaxed);
        assert_eq!(sleepers(), 0, "a put alone is waited for by nobody");
        {
            let future: Op = Op::begun(Running::Posted(Posted::new(peer, op, Instant::NEVER)));
            assert!(future.poll_ended(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(sleepers(), 1);
            let eventfd = EventfdWaker::new().expect("a descriptor");
            let (link, what) = (Arc::clone(&near.link), WaitedFor::Slot(op));
            let links = [LinkOp { link, what }];
            assert!(Armed::put(&links, &eventfd).is_some());
            assert_eq!(sleepers(), 2);
        }
    }

    #[test]
    fn only_a_wait_that_nobody_wakes_looks_again_soon() {
        let at = Instant::from_nanos;
        let park = UNWATCHED_PARK.as_nanos();
        assert_eq!(unwatched(at(10 * park), true, at(5)), at(5 + park));
        assert_eq!(unwatched(at(7), true, at(5)), at(7), "the deadline comes first");
        assert_eq!(unwatched(at(10 * park), false, at(5)), at(10 * park));
    }

    /// A peer that makes no progress answers nothing.
    #[test]
    fn waits_that_spin_in_vain_stop_to_spin() {
        let quiet = Session::builder(1).buffer(4096).tcp("127.0.0.1:0");
        let quiet = quiet.progress(Progress::Manual).start().expect("a target");
        let source = Session::builder(0).buffer(4096).start().expect("a source");
        let address = quiet.info().listeners.remove(0).address().clone();
        let peer = std::thread::scope(|s| {
            let connecting = s.spawn(|| source.connect(&address).rank(1).wait());
            while !connecting.is_finished() {
                quiet.progress();
            }
            connecting.join().expect("no panic").expect("connected")
        });
        let remote = peer.buffer().expect("it has one");
        let range = source.buffer().range(0, 8).expect("in range");
        let op = remote.put(0, range).start().expect("posted");
        let short = std::time::Duration::from_micros(20);
        // What the wait for the connection has recorded depends on the machine.
        peer.link.spin_policy.record(WaitOutcome::Spun, short);
        for _ in 0..4 {
            assert!(!peer.link.spin_policy.spin(short).is_zero());
            let waited = wait_any(&[&op], std::time::Duration::from_millis(5));
            assert_eq!(waited.expect("descriptors"), Waited::Limit);
        }
        assert!(peer.link.spin_policy.spin(short).is_zero());
    }
}
