//! Gets and puts through mapped windows, which take no lock: windows and links that end under them.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use hmc_testkit::buffers::{BufferTransfers as _, Ends, has_ended, wait};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hmc_core::types::Access;
use hmc_sim::rng::Rng;
use hmc_std::{ConnBuffer, ConnType, ErrorKind, Op, Remote, Session, wait_any};
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
    let buffer = session.memory().allocate(LEN).unwrap().share().unwrap();
    buffer.write_at(0, &vec![byte; BYTES]).unwrap();
    buffer
}

/// Gets all of the window until that fails: why. A get that is a success has the peer's bytes.
fn get_until_it_ends(ends: &Ends, begun: &AtomicU32) -> ErrorKind {
    let (mut bytes, ours) = (vec![0; BYTES], vec![OURS; BYTES]);
    for n in 0.. {
        ends.local.write_at(0, &ours).unwrap();
        match ends.get_at(0, 0, LEN) {
            Ok(()) => ends.local.read_at(0, &mut bytes).unwrap(),
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
    from: &Session,
    window: &Remote,
    rng: &mut Rng,
    end: impl FnOnce(),
) -> Vec<ErrorKind> {
    let begun = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let begun = &begun;
                let ends = Ends { local: buffer(from, OURS), remote: window.clone() };
                scope.spawn(move || get_until_it_ends(&ends, begun))
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
        let window = p.b.expose(theirs.range(0, LEN).unwrap(), Access::all(), round).unwrap();
        let remote = p.a.window(round).within(LONG).wait().unwrap();
        let ends = while_threads_get(p.sender(), &remote, &mut rng, || {
            window.revoke().within(LONG).wait().expect("the threads get out");
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
        let _window = b.expose(theirs.range(0, LEN).unwrap(), Access::all(), 7).unwrap();
        let remote = a.window(7).within(LONG).wait().unwrap();
        let receiver = sessions.remove(0);
        let ends = while_threads_get(&sessions[0], &remote, &mut rng, || {
            receiver.shutdown().within(LONG).wait().expect("in order");
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
        p.a.put_at(8 * n, 8 * n, 8).unwrap();
        p.a.get_at(8 * n, 8 * n, 8).unwrap();
    }
    let other = p.a.clone();
    other.put_at(0, 0, 8).unwrap();
    let of = |s: &hmc_std::metrics::Stats| {
        let peer = s.peers.first().expect("it is connected");
        (peer.puts, peer.gets, peer.bytes_out)
    };
    let (was, is) = (of(&before), of(&p.sender().stats()));
    assert_eq!((is.0 - was.0, is.1 - was.1, is.2 - was.2), (5, 4, 72));
}

/// An operation that is over when it was started is one like any other: good for one result, in each way, whatever becomes of
/// its link.
#[test]
fn operations_that_are_over_at_once_are_waited_for_like_others() {
    let Pair { mut sessions, a, b: _b, dir: _dir } = Pair::new(ConnType::Shm, LEN);
    let receiver = sessions.remove(0);
    let near = &sessions[0];
    let remote = a.buffer().unwrap();
    let here = |at, len| near.buffer().range(at, len).unwrap();
    let before = near.stats().peers[0].puts;
    // The first goes under the lock. More than there are slots: none takes one.
    let mut ops: Vec<_> =
        (0..600).map(|n| remote.put(8 * n, here(0, 8)).start().unwrap()).collect();
    ops.push(remote.put(0, here(0, 0)).start().unwrap());
    ops.push(remote.get(8, here(8, 8)).start().unwrap());
    assert_eq!(near.stats().peers[0].in_flight, 0);
    let bytes = |n: usize| if n == 600 { 0 } else { 8 };
    for (n, op) in ops.iter().enumerate() {
        assert!(has_ended(op), "{n}");
        op.cancel();
        assert_eq!(op.wait_for(LONG).ended().unwrap().unwrap(), bytes(n));
    }
    // Waited for, as a future, dropped, and beside others.
    let mut beside = Vec::new();
    for (n, mut op) in ops.into_iter().enumerate() {
        match n % 4 {
            0 => assert_eq!(wait(op).unwrap(), bytes(n)),
            1 => {
                let mut cx = Context::from_waker(Waker::noop());
                let Poll::Ready(done) = Pin::new(&mut op).poll(&mut cx) else {
                    panic!("{n}: it is over");
                };
                assert_eq!(done.unwrap().bytes, bytes(n));
                // It gives its result once.
                assert_eq!(wait(op).unwrap_err().kind(), ErrorKind::Stale);
            }
            2 => drop(op),
            _ => beside.push(op),
        }
    }
    while !beside.is_empty() {
        let by_reference: Vec<&Op> = beside.iter().collect();
        let n = wait_any(&by_reference, LONG).unwrap().ended().unwrap();
        assert_eq!(wait(beside.remove(n)).unwrap(), 8);
    }
    let peer = &near.stats().peers[0];
    assert_eq!((peer.puts - before, peer.in_flight), (601, 0));
    // Results outlive the window and the link.
    let op = a.start_put_at(0, 0, 8).unwrap();
    assert_eq!(a.start_put_at(LEN - 4, 0, 8).unwrap_err().kind(), ErrorKind::Range);
    assert_eq!(a.start_put_at(0, LEN - 4, 8).unwrap_err().kind(), ErrorKind::Range);
    receiver.shutdown().within(LONG).wait().expect("in order");
    until("the link is over", LONG, || a.start_put_at(0, 0, 8).is_err().then_some(()));
    assert_eq!(wait(op).unwrap(), 8);
}

/// Threads that begin and wait for operations of one link never meet a result of another's.
#[test]
fn results_of_several_threads_are_their_own() {
    let p = Pair::new(ConnType::Shm, LEN);
    p.a.put_at(0, 0, 8).unwrap();
    std::thread::scope(|scope| {
        for thread in 1..=4_u64 {
            let peer = p.a.clone();
            scope.spawn(move || {
                for round in 0..2000_u64 {
                    let count = 1 + round % 40;
                    // Each thread moves another number of bytes.
                    let ops: Vec<_> = (0..count)
                        .map(|_| peer.start_put_at(0, 8 * thread, thread).unwrap())
                        .collect();
                    for op in ops {
                        assert_eq!(wait(op).unwrap(), thread);
                    }
                }
            });
        }
    });
    assert_eq!(p.sender().stats().peers[0].in_flight, 0);
}
