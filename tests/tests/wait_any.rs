//! Waiting for whichever of several operations ends first, over several peers and transports at once.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::{Duration, Instant};

use hmc_std::{ConnType, ErrorKind, Op, Peer, Progress, Session, Waited, wait_any};
use hmc_testkit::buffers::{BufferTransfers as _, has_ended, wait};
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
        let peer =
            scene.session.connect(&dir.address()).rank(rank).over(via).within(LONG).wait().unwrap();
        scene.peers.push(peer);
        scene._dirs.push(dir);
    }
    scene.actors[0].stop();
    scene
}

/// A put that cannot end: more than the sockets hold, and nobody reads.
fn stuck(s: &Scene) -> Op {
    let op = s.peers[0].start_put_at(0, 0, LEN).unwrap();
    assert!(!has_ended(&op));
    op
}

#[test]
fn the_first_to_end_is_reported_whichever_peer_it_is_of() {
    for progress in [Progress::Thread, Progress::Manual] {
        let s = scene(progress);
        let stuck = stuck(&s);
        for peer in &s.peers[1..] {
            for len in [8, 1 << 20, LEN] {
                let op = peer.start_put_at(0, 0, len).unwrap();
                let found = wait_any(&[&stuck, &op], LONG).unwrap();
                assert_eq!(found, Waited::Ended(1), "{progress:?} rank {}", peer.rank());
                assert!(has_ended(&op) && !has_ended(&stuck), "{progress:?}");
                assert_eq!(wait(op).unwrap(), len, "{progress:?} rank {}", peer.rank());
            }
        }
        stuck.cancel();
        assert_eq!(wait_any(&[&stuck], LONG).unwrap(), Waited::Ended(0));
        assert_eq!(wait(stuck).unwrap_err().kind(), ErrorKind::Cancelled);
    }
}

type Found = hmc_std::Result<Waited<usize>>;

/// A thread that waits for any of `ops`, once it sleeps.
fn sleeping<'a>(
    scope: &'a std::thread::Scope<'a, '_>,
    ops: &'a [&'a Op],
) -> std::thread::ScopedJoinHandle<'a, Found> {
    let (tell, told) = std::sync::mpsc::channel();
    let waiter = scope.spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        wait_any(ops, LONG)
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
    let ops = [&a, &b];
    std::thread::scope(|scope| {
        let waiter = sleeping(scope, &ops);
        let cancelled = Instant::now();
        b.cancel();
        assert_eq!(waiter.join().unwrap().unwrap(), Waited::Ended(1));
        // Long before the heartbeats of the stopped peer would end both.
        assert!(cancelled.elapsed() < bound(Duration::from_millis(500)));
    });
    assert_eq!(wait(b).unwrap_err().kind(), ErrorKind::Cancelled);
    // The other is untouched, and wakes nobody any more.
    assert!(!has_ended(&a));
    assert_eq!(wait_any(&[&a], Duration::from_millis(30)).unwrap(), Waited::Limit);
}

/// Each operation has one waker: who finds another's there must not take it away, nor sleep without one.
#[test]
fn threads_that_wait_for_the_same_operations_are_all_woken() {
    let s = scene(Progress::Thread);
    let (a, b) = (stuck(&s), stuck(&s));
    let (first, second) = ([&a, &b], [&b]);
    std::thread::scope(|scope| {
        let early = sleeping(scope, &first);
        let late = sleeping(scope, &second);
        let cancelled = Instant::now();
        a.cancel();
        assert_eq!(early.join().unwrap().unwrap(), Waited::Ended(0));
        assert!(cancelled.elapsed() < bound(Duration::from_millis(500)));
        let again = sleeping(scope, &second);
        let cancelled = Instant::now();
        b.cancel();
        for waiter in [late, again] {
            assert_eq!(waiter.join().unwrap().unwrap(), Waited::Ended(0));
        }
        assert!(cancelled.elapsed() < bound(Duration::from_millis(500)));
    });
    for op in [a, b] {
        assert_eq!(wait(op).unwrap_err().kind(), ErrorKind::Cancelled);
    }
}

#[test]
fn a_death_wakes_too() {
    let s = scene(Progress::Thread);
    let op = stuck(&s);
    let killed = s.actors[0].kill();
    assert_eq!(wait_any(&[&op], LONG).unwrap(), Waited::Ended(0));
    assert!(killed.elapsed() < bound(Duration::from_secs(1)));
    assert_eq!(wait(op).unwrap_err().kind(), ErrorKind::PeerDead);
}

#[test]
fn one_that_has_ended_is_reported_until_its_result_is_taken() {
    let s = scene(Progress::Thread);
    for peer in &s.peers[1..] {
        let op = peer.start_put_at(0, 0, 8).unwrap();
        assert_eq!(wait_any(&[&op], LONG).unwrap(), Waited::Ended(0));
        assert_eq!(wait_any(&[&op], Duration::ZERO).unwrap(), Waited::Ended(0));
        assert_eq!(op.wait_for(Duration::ZERO).ended().unwrap().unwrap(), 8);
        assert_eq!(wait(op).unwrap(), 8);
    }
}

#[test]
fn a_list_of_none_is_refused() {
    assert_eq!(wait_any::<()>(&[], LONG).unwrap_err().kind(), ErrorKind::InvalidConfig);
}
