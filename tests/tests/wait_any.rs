//! Waiting for whichever of several operations ends first, over several peers and transports at once.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::{Duration, Instant};

use hmc_std::{ConnType, ErrorKind, OpId, Peer, Progress, Session};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, bound, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const LEN: u64 = 32 << 20;

/// A session with the peers 1 over tcp, 2 over shm, 3 over tcp; peer 1 is stopped, so that a put to it ends only by
/// its death (heartbeats, 2.5 s) or by cancellation.
struct Scene {
    session: Session,
    peers: Vec<Peer>,
    actors: Vec<Actor>,
    _dirs: Vec<TempDir>,
}

fn scene(progress: Progress) -> Scene {
    let session = Session::builder(0).buffer(LEN).progress(progress).start().unwrap();
    let mut scene = Scene { session, peers: Vec::new(), actors: Vec::new(), _dirs: Vec::new() };
    for (rank, via) in [(1, ConnType::Tcp), (2, ConnType::Shm), (3, ConnType::Tcp)] {
        let dir = TempDir::new();
        let settings =
            format!("rank={rank} uds={} tcp=127.0.0.1:0 buffer={LEN}", dir.path().display());
        scene.actors.push(Actor::session(ACTOR, &settings));
        let peer = scene.session.connect_with(rank, &dir.address(), via, LONG).unwrap();
        scene.peers.push(peer);
        scene._dirs.push(dir);
    }
    scene.actors[0].stop();
    scene
}

/// A put that cannot end: more than the sockets hold, and nobody reads.
fn stuck(s: &Scene) -> OpId {
    let op = s.peers[0].put_nb(0, 0, LEN).unwrap();
    assert!(!s.session.test(op).unwrap());
    op
}

#[test]
fn the_first_to_end_is_reported_whichever_peer_it_is_of() {
    for progress in [Progress::Thread, Progress::Manual] {
        let s = scene(progress);
        let stuck = stuck(&s);
        for peer in &s.peers[1..] {
            for len in [8, 1 << 20, LEN] {
                let op = peer.put_nb(0, 0, len).unwrap();
                let (at, result) = s.session.wait_any(&[stuck, op], LONG).unwrap();
                assert_eq!((at, result.unwrap()), (1, len), "{progress:?} rank {}", peer.rank());
            }
        }
        s.session.cancel(stuck).unwrap();
        let (at, result) = s.session.wait_any(&[stuck], LONG).unwrap();
        assert_eq!((at, result.unwrap_err().kind()), (0, ErrorKind::Cancelled));
    }
}

type Found = hmc_std::Result<(usize, hmc_std::Result<u64>)>;

/// A thread that waits for any of `ops`, once it sleeps.
fn sleeping<'a>(
    scope: &'a std::thread::Scope<'a, '_>,
    session: &'a Session,
    ops: &'a [OpId],
) -> std::thread::ScopedJoinHandle<'a, Found> {
    let (tell, told) = std::sync::mpsc::channel();
    let waiter = scope.spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        session.wait_any(ops, LONG)
    });
    let tid = told.recv().unwrap();
    // proc(5): the state after the name in parentheses.
    let sleeps = || {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('S')
    };
    until("the waiter sleeps", LONG, || sleeps().then_some(()));
    waiter
}

#[test]
fn what_another_thread_ends_wakes_the_one_who_sleeps() {
    let s = scene(Progress::Thread);
    let (a, b) = (stuck(&s), stuck(&s));
    let ops = [a, b];
    std::thread::scope(|scope| {
        let waiter = sleeping(scope, &s.session, &ops);
        let cancelled = Instant::now();
        s.session.cancel(b).unwrap();
        let (at, result) = waiter.join().unwrap().unwrap();
        assert_eq!((at, result.unwrap_err().kind()), (1, ErrorKind::Cancelled));
        // Long before the heartbeats of the stopped peer would end both.
        assert!(cancelled.elapsed() < bound(Duration::from_millis(500)));
    });
    // The other is untouched, and nobody rings for it any more.
    assert!(!s.session.test(a).unwrap());
    let e = s.session.wait_any(&[a], Duration::from_millis(30)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::DeadlineExceeded);
}

/// Each operation has one waker: who finds another's there must not take it away, nor sleep without one.
#[test]
fn threads_that_wait_for_the_same_operations_are_all_woken() {
    let s = scene(Progress::Thread);
    let (a, b) = (stuck(&s), stuck(&s));
    let (first, second) = ([a, b], [b]);
    std::thread::scope(|scope| {
        let early = sleeping(scope, &s.session, &first);
        let late = sleeping(scope, &s.session, &second);
        let cancelled = Instant::now();
        s.session.cancel(a).unwrap();
        let (at, result) = early.join().unwrap().unwrap();
        assert_eq!((at, result.unwrap_err().kind()), (0, ErrorKind::Cancelled));
        assert!(cancelled.elapsed() < bound(Duration::from_millis(500)));
        let again = sleeping(scope, &s.session, &second);
        let cancelled = Instant::now();
        s.session.cancel(b).unwrap();
        let kinds = [late, again].map(|w| match w.join().unwrap() {
            Ok((_, Err(e))) | Err(e) => e.kind(),
            Ok((_, Ok(n))) => panic!("{n} bytes were moved"),
        });
        assert!(kinds.contains(&ErrorKind::Cancelled) && kinds.contains(&ErrorKind::Stale));
        assert!(cancelled.elapsed() < bound(Duration::from_millis(500)));
    });
}

#[test]
fn a_death_wakes_too() {
    let s = scene(Progress::Thread);
    let op = stuck(&s);
    let killed = s.actors[0].kill();
    let (at, result) = s.session.wait_any(&[op], LONG).unwrap();
    assert_eq!((at, result.unwrap_err().kind()), (0, ErrorKind::PeerDead));
    assert!(killed.elapsed() < bound(Duration::from_secs(1)));
}

#[test]
fn a_name_that_was_waited_for_is_stale() {
    let s = scene(Progress::Thread);
    let op = s.peers[1].put_nb(0, 0, 8).unwrap();
    s.session.wait(op).unwrap();
    assert_eq!(s.session.wait_any(&[op], LONG).unwrap_err().kind(), ErrorKind::Stale);
    assert_eq!(s.session.wait_any(&[], LONG).unwrap_err().kind(), ErrorKind::InvalidConfig);
}
