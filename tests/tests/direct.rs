//! Gets and puts through mapped windows, which take no lock: windows and links that end under them.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hmc_core::types::Access;
use hmc_sim::rng::Rng;
use hmc_std::peer::Route;
use hmc_std::window::RemoteWindow;
use hmc_std::{ConnBuffer, ConnType, ErrorKind, Peer, Session};
use hmc_tests::env::{seed, until};
use hmc_tests::pair::Pair;

const LONG: Duration = Duration::from_secs(20);
const LEN: u64 = 1 << 20;
const BYTES: usize = 1 << 20;
/// What the peer's pages hold. Pages that nobody has hold zeros.
const THEIRS: u8 = 0x55;
const OURS: u8 = 0xAA;
const THREADS: u32 = 2;

fn buffer(session: &Session, byte: u8) -> ConnBuffer {
    let buffer = session.share(session.allocate(LEN).unwrap()).unwrap();
    buffer.write_at(0, &vec![byte; BYTES]).unwrap();
    buffer
}

/// Gets all of the window until that fails: why. A get that is a success has the peer's bytes.
fn get_until_it_ends(route: &Route, into: &ConnBuffer, begun: &AtomicU32) -> ErrorKind {
    let (mut bytes, ours) = (vec![0; BYTES], vec![OURS; BYTES]);
    for n in 0.. {
        into.write_at(0, &ours).unwrap();
        match route.get(0, 0, LEN) {
            Ok(()) => into.read_at(0, &mut bytes).unwrap(),
            Err(e) => return e.kind(),
        }
        let wrong = bytes.iter().position(|b| *b != THEIRS);
        assert_eq!(wrong, None, "get {n} was a success with {:#x}", bytes[wrong.unwrap_or(0)]);
        if n == 0 {
            begun.fetch_add(1, Ordering::Release);
        }
    }
    unreachable!("it ends")
}

/// Threads get, and after a while `end` ends what they get from. Why their gets ended.
fn while_threads_get(
    (from, peer): (&Session, &Peer),
    window: &RemoteWindow,
    rng: &mut Rng,
    end: impl FnOnce(),
) -> Vec<ErrorKind> {
    let begun = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (into, begun) = (buffer(from, OURS), &begun);
                let route = peer.between(&into, window).unwrap();
                scope.spawn(move || get_until_it_ends(&route, &into, begun))
            })
            .collect();
        until("all have got something", LONG, || {
            (begun.load(Ordering::Acquire) == THREADS).then_some(())
        });
        let (spin, start) = (Duration::from_micros(rng.below(300)), Instant::now());
        while start.elapsed() < spin {
            std::hint::spin_loop();
        }
        end();
        threads.into_iter().map(|t| t.join().expect("no wrong byte")).collect()
    })
}

#[test]
fn a_get_that_a_revocation_meets_gives_bytes_of_the_window_or_fails() {
    let mut rng = Rng::new(seed(31));
    let p = Pair::new(ConnType::Shm, 4096);
    let theirs = buffer(p.receiver(), THEIRS);
    for round in 1..=100 {
        let window = p.b.expose_buffer(&theirs, 0, LEN, Access::all(), round).unwrap();
        let remote = p.a.remote_window(round, LONG).unwrap();
        let ends = while_threads_get((p.sender(), &p.a), &remote, &mut rng, || {
            window.revoke(LONG).expect("the threads get out");
        });
        let is_gone = |e: &ErrorKind| {
            matches!(e, ErrorKind::Revoked | ErrorKind::StaleEpoch | ErrorKind::NotFound)
        };
        assert!(ends.iter().all(is_gone), "round {round}: {ends:?}");
    }
}

#[test]
fn a_get_that_the_end_of_a_link_meets_gives_bytes_of_the_window_or_fails() {
    let mut rng = Rng::new(seed(32));
    for round in 0..20 {
        let Pair { mut sessions, a, b, dir: _dir } = Pair::new(ConnType::Shm, 4096);
        let theirs = buffer(&sessions[0], THEIRS);
        let _window = b.expose_buffer(&theirs, 0, LEN, Access::all(), 7).unwrap();
        let remote = a.remote_window(7, LONG).unwrap();
        let receiver = sessions.remove(0);
        let ends = while_threads_get((&sessions[0], &a), &remote, &mut rng, || {
            receiver.shutdown(LONG).expect("in order");
        });
        let is_over = |e: &ErrorKind| {
            matches!(e, ErrorKind::PeerDead | ErrorKind::Closed | ErrorKind::Revoked)
        };
        assert!(ends.iter().all(is_over), "round {round}: {ends:?}");
    }
}

/// Copies are counted whichever way they go: under the lock the first, without it those after.
#[test]
fn the_first_copy_of_each_handle_finds_the_window_and_all_are_counted() {
    let p = Pair::new(ConnType::Shm, LEN);
    let before = p.sender().stats();
    for n in 0..4 {
        p.a.put(8 * n, 8 * n, 8).unwrap();
        p.a.get(8 * n, 8 * n, 8).unwrap();
    }
    let other = p.a.clone();
    other.put(0, 0, 8).unwrap();
    let of = |s: &hmc_std::metrics::Stats| {
        let peer = s.peers.first().expect("it is connected");
        (peer.puts, peer.gets, peer.bytes_out)
    };
    let (was, is) = (of(&before), of(&p.sender().stats()));
    assert_eq!((is.0 - was.0, is.1 - was.1, is.2 - was.2), (5, 4, 72));
}

/// A put that is over when its call returns has a name like any other: good for one wait, and for whatever else names serve.
#[test]
fn operations_that_are_over_at_once_have_names_like_others() {
    let Pair { mut sessions, a, b: _b, dir: _dir } = Pair::new(ConnType::Shm, LEN);
    let receiver = sessions.remove(0);
    let near = &sessions[0];
    let before = near.stats().peers[0].puts;
    // The first goes under the lock, as do those that find all places in use; a long one is copied in pieces.
    let mut ops: Vec<_> = (0..600).map(|n| a.put_nb(0, 8 * n, 8).unwrap()).collect();
    ops.push(a.put_nb(0, 0, 0).unwrap());
    ops.push(a.get_nb(8, 8, 8).unwrap());
    assert_eq!(ops.iter().collect::<std::collections::HashSet<_>>().len(), ops.len());
    for (n, op) in ops.iter().enumerate() {
        assert!(a.test(*op).unwrap(), "{n}");
        a.cancel(*op).unwrap();
    }
    let stale = |op| {
        assert_eq!(a.wait(op).unwrap_err().kind(), ErrorKind::Stale);
        assert_eq!(a.test(op).unwrap_err().kind(), ErrorKind::Stale);
        assert_eq!(a.cancel(op).unwrap_err().kind(), ErrorKind::Stale);
    };
    let bytes = |n: usize| if n == 600 { 0 } else { 8 };
    // By name, as a future that is dropped, beside others, and all at once.
    for (n, op) in ops.iter().enumerate().filter(|(n, _)| n % 4 == 0) {
        assert_eq!(a.wait(*op).unwrap(), bytes(n));
        stale(*op);
    }
    for op in ops.iter().skip(1).step_by(4) {
        drop(a.watch(*op).unwrap());
        stale(*op);
    }
    let rest: Vec<_> = ops.iter().copied().skip(2).step_by(4).collect();
    assert_eq!(near.wait_all(&rest).unwrap(), rest.iter().fold(0, |sum, _| sum + 8));
    let mut rest: Vec<_> = ops.iter().copied().skip(3).step_by(4).collect();
    while !rest.is_empty() {
        let (n, moved) = near.wait_any(&rest, LONG).unwrap();
        assert_eq!(moved.unwrap(), 8);
        stale(rest.remove(n));
    }
    let peer = &near.stats().peers[0];
    assert_eq!((peer.puts - before, peer.in_flight), (601, 0));
    // Names outlive the window and the link.
    let op = a.put_nb(0, 0, 8).unwrap();
    assert_eq!(a.put_nb(LEN - 4, 0, 8).unwrap_err().kind(), ErrorKind::Range);
    assert_eq!(a.put_nb(0, LEN - 4, 8).unwrap_err().kind(), ErrorKind::Range);
    receiver.shutdown(LONG).expect("in order");
    until("the link is over", LONG, || a.put_nb(0, 0, 8).is_err().then_some(()));
    assert_eq!(a.wait(op).unwrap(), 8);
    stale(op);
}

/// Threads that begin and wait for operations of one link never meet a name of another's.
#[test]
fn names_of_several_threads_are_their_own() {
    let p = Pair::new(ConnType::Shm, LEN);
    p.a.put(0, 0, 8).unwrap();
    std::thread::scope(|scope| {
        for thread in 1..=4_u64 {
            let peer = p.a.clone();
            scope.spawn(move || {
                for round in 0..2000_u64 {
                    let count = 1 + round % 40;
                    // Each thread moves another number of bytes.
                    let ops: Vec<_> =
                        (0..count).map(|_| peer.put_nb(0, 8 * thread, thread).unwrap()).collect();
                    for op in ops {
                        assert_eq!(peer.wait(op).unwrap(), thread);
                    }
                }
            });
        }
    });
    assert_eq!(p.sender().stats().peers[0].in_flight, 0);
}
