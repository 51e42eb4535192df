//! What a drop does: one test for each row of the table of `hmc_std::manual`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::future::IntoFuture as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use hmc_std::{
    ConnType, ErrorKind, Message, Peer, Piece, Progress, Region, Remote, Session, Waited, want,
};
use hmc_tests::env::{TempDir, until};

const LONG: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;
/// Of each session: more than sockets take while nobody reads them.
const BUFFER: u64 = 32 * MIB;

/// A source, and a target that answers only while it is driven.
struct Ends {
    source: Session,
    target: Session,
    peer: Peer,
    remote: Remote,
    _dir: TempDir,
}

impl Ends {
    /// Over TCP, where the bytes of a put need the target's help.
    fn new() -> Self {
        let dir = TempDir::new();
        let target = Session::builder(1).tcp("127.0.0.1:0").uds(dir.path()).buffer(BUFFER);
        let target = target.progress(Progress::Manual).start().unwrap();
        let source = Session::builder(0).buffer(BUFFER).start().unwrap();
        let peer = driven(&target, || {
            source.connect(&dir.address()).rank(1).over(ConnType::Tcp).within(LONG).wait().unwrap()
        });
        let remote = peer.buffer().unwrap();
        Self { source, target, peer, remote, _dir: dir }
    }

    /// Drives the target until `look` finds something.
    fn answer(&self, what: &str, mut look: impl FnMut() -> bool) {
        until(what, LONG, || {
            self.target.progress();
            look().then_some(())
        });
    }

    fn there(&self, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.target.buffer().read_at(at, &mut out).unwrap();
        out
    }

    /// All operations have ended; another thread may be about to give their memory back.
    fn until_quiet(&self) {
        self.answer("nothing is under way", || {
            self.source.stats().peers.first().is_some_and(|p| p.in_flight == 0)
        });
    }

    fn until_given_back(&self, region: &Region) {
        self.answer("the memory was given back", || !is_taken(region));
    }

    /// A region whose bytes are all `byte`.
    fn region(&self, byte: u8, len: u64) -> Region {
        let region = self.source.memory().allocate(len).unwrap();
        region.take_all().unwrap().fill(byte);
        region
    }
}

/// Calls while another thread drives `session`.
fn driven<R>(session: &Session, call: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Ordering::Acquire) {
                session.progress();
                std::thread::yield_now();
            }
        });
        let result = call();
        over.store(true, Ordering::Release);
        result
    })
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn is_taken(region: &Region) -> bool {
    region.take_all().map(drop).is_err_and(|e| e.kind() == ErrorKind::Busy)
}

#[test]
fn a_request_or_a_future_before_its_first_poll_does_nothing() {
    let ends = Ends::new();
    let region = ends.region(7, 8);
    drop(ends.remote.put(0, region.take_all().unwrap()));
    drop(ends.remote.put(0, region.take_all().unwrap()).into_future());
    drop(ends.remote.put(0, &[7; 8]).notify(1).into_future());
    assert!(!is_taken(&region), "the span went back with the request");
    driven(&ends.target, || ends.remote.put(8, &[1]).wait()).unwrap();
    assert_eq!(ends.there(0, 9), [0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn a_future_of_owned_memory_and_an_op_run_on_and_give_it_back_at_the_fence() {
    for is_op in [false, true] {
        let ends = Ends::new();
        let region = ends.region(7, 64);
        let put = ends.remote.put(0, region.take_all().unwrap());
        if is_op {
            drop(put.start().unwrap());
        } else {
            let mut future = put.into_future();
            assert!(poll(&mut future).is_pending(), "the target does nothing");
            drop(future);
        }
        assert!(is_taken(&region), "it is under way");
        ends.until_given_back(&region);
        assert_eq!(ends.there(0, 64), [7; 64]);
    }
}

/// A part of the bytes may arrive, as they were lent: nothing reads them after the drop.
#[test]
fn a_future_of_lent_bytes_stops_and_touches_them_no_more() {
    let ends = Ends::new();
    let len = usize::try_from(BUFFER).unwrap();
    let mut bytes = vec![7_u8; len];
    let mut future = ends.remote.put(0, &bytes).into_future();
    assert!(poll(&mut future).is_pending(), "the target does nothing");
    drop(future);
    bytes.fill(9);
    ends.until_quiet();
    let there = ends.there(0, len);
    assert!(there.iter().all(|b| *b == 7 || *b == 0), "bytes that were written after the drop");
    assert!(there.contains(&0), "the rest is not sent");
    // The same of a get: what comes later goes nowhere.
    let mut future = ends.remote.get(0, &mut bytes).into_future();
    assert!(poll(&mut future).is_pending());
    drop(future);
    bytes.fill(5);
    ends.until_quiet();
    assert!(bytes.iter().all(|b| *b == 5));
}

/// Nothing of the collective is left for the members' next group.
#[test]
fn a_future_of_a_collective_stops_and_breaks_its_group() {
    let ends = Ends::new();
    let group = ends.source.group(&[0, 1]).wait().unwrap();
    let mut bytes = vec![7; 3 << 20];
    drop(group.broadcast(0, &mut bytes).into_future());
    assert!(group.broken().is_none(), "it was not polled");
    let mut future = group.broadcast(0, &mut bytes).into_future();
    assert!(poll(&mut future).is_pending(), "the other member does nothing");
    assert_eq!(group.broken().map(|e| e.kind()), Some(ErrorKind::Busy));
    drop(future);
    assert_eq!(group.broken().map(|e| e.kind()), Some(ErrorKind::Cancelled));
    bytes.fill(9);
    // It is received behind all that the collective sent.
    ends.peer.send(Message::Tag(1)).wait().unwrap();
    ends.target.recv(0, want::Tag).wait().unwrap();
    let mut there = vec![0; bytes.len()];
    std::thread::scope(|s| {
        s.spawn(|| {
            let group = ends.target.group(&[0, 1]).wait().unwrap();
            group.broadcast(0, &mut there).within(LONG).wait().unwrap();
        });
        let group = ends.source.group(&[0, 1]).wait().unwrap();
        group.broadcast(0, &mut bytes).within(LONG).wait().unwrap();
    });
    assert!(there.iter().all(|b| *b == 9), "bytes of the collective that was dropped");
}

#[test]
fn a_failed_operation_gives_its_memory_back_at_the_fence() {
    let ends = Ends::new();
    let region = ends.region(7, 8 * MIB);
    let put = ends.remote.put(0, region.take_all().unwrap()).within(Duration::from_millis(5));
    let failed = put.wait().unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::DeadlineExceeded);
    let failed = failed.reclaim().within(Duration::from_millis(5)).wait().unwrap_err();
    assert!(is_taken(&region), "the transport sends it");
    drop(failed);
    ends.until_given_back(&region);
    // One that is kept gives the memory itself.
    let put = ends.remote.put(0, region.take_all().unwrap()).within(Duration::from_millis(5));
    let failed = put.wait().unwrap_err();
    let mut reclaim = failed.reclaim().into_future();
    assert!(poll(&mut reclaim).is_pending(), "the transport sends it");
    ends.answer("the memory was given back", || match poll(&mut reclaim) {
        Poll::Ready(span) => {
            assert_eq!(span.unwrap().len(), 8 * MIB);
            true
        }
        Poll::Pending => false,
    });
}

#[test]
fn a_plan_a_remote_and_a_peer_may_go_before_their_operations() {
    let Ends { source, target, peer, remote, _dir } = Ends::new();
    source.buffer().fill(0, 64, 7).unwrap();
    let pieces = [Piece::new(source.buffer().range(0, 64).unwrap(), 0)];
    let plan = remote.put_list(&pieces).prepare().unwrap();
    let op = plan.again().start().unwrap();
    drop((plan, remote, peer));
    assert_eq!(driven(&target, || op.wait()).unwrap().bytes, 64);
    let mut out = [0; 64];
    target.buffer().read_at(0, &mut out).unwrap();
    assert_eq!(out, [7; 64]);
    assert!(source.peer(1).unwrap().is_connected(), "a handle that goes ends no link");
}

#[test]
fn the_end_of_the_session_ends_its_operations() {
    let Ends { source, target: _target, peer, remote, _dir } = Ends::new();
    let range = source.buffer().range(0, 64).unwrap();
    let op = remote.put(0, range).start().unwrap();
    assert!(matches!(op.wait_for(Duration::ZERO), Waited::Limit));
    drop(source);
    let e = op.wait().map(drop).map_err(|e| e.kind());
    assert!(matches!(e, Err(ErrorKind::PeerDead | ErrorKind::Closed)), "{e:?}");
    let e = remote.put(0, b"x").wait().map(drop).map_err(|e| e.kind());
    assert!(matches!(e, Err(ErrorKind::PeerDead | ErrorKind::Closed)), "{e:?}");
    assert!(!peer.is_connected());
}

/// Whoever waits for a slot learns of it, though nobody waited for the operation that had it.
#[test]
fn a_future_gets_the_slot_of_an_operation_that_was_dropped() {
    const SLOTS: u64 = 4;
    let dir = TempDir::new();
    let target = Session::builder(1).tcp("127.0.0.1:0").uds(dir.path()).buffer(4096);
    let target = target.progress(Progress::Manual).start().unwrap();
    let source = Session::builder(0).buffer(4096).slots(4).start().unwrap();
    let connect =
        || source.connect(&dir.address()).rank(1).over(ConnType::Tcp).within(LONG).wait().unwrap();
    let peer = driven(&target, connect);
    let remote = peer.buffer().unwrap();
    let range = source.buffer().range(0, 64).unwrap();
    for round in 0..20 {
        for n in 0..SLOTS {
            drop(remote.put(n * 64, range).start().unwrap());
        }
        let full = remote.put(0, range).start().map(drop).map_err(|e| e.kind());
        assert_eq!(full, Err(ErrorKind::Full));
        let (tell, woken) = std::sync::mpsc::channel();
        let waker = Waker::from(Arc::new(Tell(Mutex::new(tell))));
        let mut future = remote.put(1024, range).into_future();
        let begun = Instant::now();
        driven(&target, || {
            while Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending() {
                woken.recv_timeout(LONG).unwrap();
            }
        });
        assert!(begun.elapsed() < LONG / 2, "round {round}: woken by its own deadline");
    }
}

struct Tell(Mutex<std::sync::mpsc::Sender<()>>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}
