//! How often workers of UCX are looked at, over the fake libucp: seldom while nothing happens, and each millisecond while one cannot
//! be slept on.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::time::{Duration, Instant};

use hmc_std::config::Progress;
use hmc_std::{Access, ConnType, ErrorKind, Peer, Session};
use hmc_testkit::buffers::{BufferTransfers as _, Copy, Direction};
use hmc_tests::env::{TempDir, bound};
use hmc_tests::fake_ucp::{CallResult, FakeUcp};

const LONG: Duration = Duration::from_secs(20);
const LEN: u64 = 1 << 16;
/// The lanes that only send messages, and some that reach memory by themselves.
const MESSAGES: &str = "tcp/eth0";
const REACHING: &str = "rc_mlx5/mlx5_0:1";
/// `UCS_ERR_BUSY`: a worker has something to do, or waits for the rest of a message.
const BUSY: i8 = -15;

/// Two sessions of this process whose threads tick four times a second, connected over UCX.
struct Two {
    target: Session,
    source: Session,
    peer: Peer,
    dir: TempDir,
}

impl Two {
    fn new(progress: Progress) -> Self {
        let dir = TempDir::new();
        let with = |rank| {
            let session = Session::builder(rank).buffer(LEN).ucx().heartbeat(None);
            session.spin(Duration::ZERO).progress(progress)
        };
        let target = with(1).uds(dir.path()).start().unwrap();
        let source = with(0).start().unwrap();
        let peer =
            source.connect(&dir.address()).rank(1).over(ConnType::Ucx).within(LONG).wait().unwrap();
        Self { target, source, peer, dir }
    }

    /// Waits so long for a put that does not end; gives the calls to arm a worker and those of progress meanwhile.
    fn wait_in_vain(&self, fake_ucp: &FakeUcp, time: Duration) -> (u64, u64) {
        let counts = || (fake_ucp.calls("ucp_worker_arm"), fake_ucp.calls("ucp_worker_progress"));
        let before = counts();
        fake_ucp.rule("ucp_put_nbx", 1, CallResult::Held);
        let copy = Copy { local_offset: 0, remote_offset: 0, len: 64 };
        let waited = self.peer.transfer_within(Direction::Put, copy, time);
        assert_eq!(waited.map_err(|e| e.kind()), Err(ErrorKind::DeadlineExceeded));
        let after = counts();
        (after.0 - before.0, after.1 - before.1)
    }

    fn end(self, fake_ucp: &FakeUcp) {
        let Self { target, source, peer, dir } = self;
        drop((peer, source, target, dir));
        fake_ucp.await_clean();
        fake_ucp.restart();
    }
}

/// Who waits arms the worker and sleeps on it: it looks when the worker wakes it, and every 50 ms.
#[test]
fn a_wait_in_vain_sleeps_on_its_worker() {
    let fake_ucp = FakeUcp::take();
    for progress in [Progress::Manual, Progress::Thread] {
        fake_ucp.lane(REACHING);
        let two = Two::new(progress);
        let (arms, polls) = two.wait_in_vain(&fake_ucp, Duration::from_millis(400));
        // With manual progress no thread arms a worker.
        assert!(arms >= 1, "{progress:?}: nobody armed the worker");
        assert!(polls < 150, "{progress:?}: {polls} calls of progress");
        two.end(&fake_ucp);
    }
}

/// Its peer stopped in the middle of a message, for one.
#[test]
fn a_worker_that_cannot_be_slept_on_is_polled_each_millisecond() {
    let fake_ucp = FakeUcp::take();
    for progress in [Progress::Manual, Progress::Thread] {
        fake_ucp.lane(REACHING);
        let two = Two::new(progress);
        fake_ucp.rule("ucp_worker_arm", 0, CallResult::Refused(BUSY));
        let (arms, polls) = two.wait_in_vain(&fake_ucp, Duration::from_millis(800));
        assert!(arms > 2000, "{progress:?}: {arms} calls to arm it");
        assert!(polls < 30_000, "{progress:?}: {polls} calls of progress");
        two.end(&fake_ucp);
    }
    // The thread serves what comes there, too: each of these puts waits for the target's.
    fake_ucp.lane(MESSAGES);
    let two = Two::new(Progress::Thread);
    fake_ucp.rule("ucp_worker_arm", 0, CallResult::Refused(BUSY));
    let begun = Instant::now();
    for n in 0..40 {
        two.peer.put_at(0, 64 * n, 64).unwrap();
    }
    assert!(begun.elapsed() < bound(Duration::from_secs(3)), "only ticks made progress");
    two.end(&fake_ucp);
}

#[test]
fn registrations_are_counted() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane(REACHING);
    let two = Two::new(Progress::Thread);
    let from = two.target.accept(0).within(LONG).wait().unwrap();
    let count = |session: &Session| session.stats().ucx_registrations;
    let before = [count(&two.target), count(&two.source)];
    for n in 1..4 {
        let region =
            two.target.memory().register(hmc_std::memory::HeapBytes::from(vec![0; 4096])).unwrap();
        let window = from.expose(region.take_all().unwrap(), Access::all(), n);
        let window = window.map_err(|(e, _)| e).unwrap();
        assert_eq!([count(&two.target), count(&two.source)], [before[0] + n, before[1]]);
        drop((window, region));
    }
    drop(from);
    two.end(&fake_ucp);
}
