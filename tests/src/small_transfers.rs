//! Many small transfers at once, over any transport: prepared lists that are run, and operations that are started.

use hmc_testkit::buffers::{BufferTransfers as _, Copy, Direction, has_ended, wait};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hmc_std::{ConnType, ErrorKind, Message, Op, SessionBuilder, Waited, wait_any, want::Wanted};

use crate::pair::{Pair, pattern};

const LONG: Duration = Duration::from_secs(20);
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BUFFER: u64 = 4 * MIB;

/// `count` copies of `len` bytes, of which no two touch, in another order there than here.
fn scattered(count: u64, len: u64) -> Vec<Copy> {
    // Odd, so every place is met once where `count` is a power of two.
    let place = |n: u64| n * 5 % count * 2 * len;
    (0..count).map(|n| Copy { local_offset: n * 2 * len, remote_offset: place(n), len }).collect()
}

fn read(session: &hmc_std::Session, at: u64, len: u64) -> Vec<u8> {
    let mut out = vec![0; usize::try_from(len).expect("small")];
    session.buffer().read_at(at, &mut out).expect("within the buffer");
    out
}

/// A run of a prepared list moves every byte of its list, both ways, however long it is, and nothing else.
///
/// # Panics
/// When it does not.
pub fn lists_are_run_whole(conn: ConnType) {
    let pair = Pair::new(conn, BUFFER);
    let (near, far) = (pair.sender(), pair.receiver());
    let source = pattern(BUFFER, 3);
    for (count, len) in [(64, 8), (1, 64 * KIB), (16, 100 * KIB), (256, 4 * KIB), (2, MIB), (0, 0)]
    {
        let copies = scattered(count, len);
        // A session's link to itself has one buffer: its second half is the other end.
        let shift = if conn == ConnType::Loopback { BUFFER / 2 } else { 0 };
        let fits =
            copies.iter().all(|c| c.local_offset.max(c.remote_offset) + len + shift <= BUFFER);
        if !fits {
            continue;
        }
        let copies: Vec<Copy> =
            copies.iter().map(|c| Copy { remote_offset: c.remote_offset + shift, ..*c }).collect();
        near.buffer().write_at(0, &source).expect("within the buffer");
        far.buffer().fill(shift, BUFFER - shift, 0xEE).expect("within the buffer");
        let put = pair.a.prepare_at(Direction::Put, &copies).expect("it fits");
        put.run().expect("a living peer");
        let mut whole = vec![0xEE; source.len()];
        for c in &copies {
            let (to, from) = (range(c.remote_offset, len), range(c.local_offset, len));
            whole[to].copy_from_slice(&source[from]);
        }
        let there = range(shift, BUFFER - shift);
        assert!(read(far, shift, BUFFER - shift) == whole[there], "{conn:?}: {count} x {len}");
        // And back, over other bytes.
        near.buffer().fill(0, BUFFER - shift, 0x11).expect("within the buffer");
        if shift != 0 {
            near.buffer().write_at(shift, &whole[range(shift, BUFFER - shift)]).expect("it fits");
        }
        let get = pair.a.prepare_at(Direction::Get, &copies).expect("it fits");
        get.run().expect("a living peer");
        for c in &copies {
            let want = &source[range(c.local_offset, len)];
            assert!(read(near, c.local_offset, len) == want, "{conn:?}: {count} x {len}, back");
        }
    }
    let outside = Copy { local_offset: 0, remote_offset: BUFFER - 4, len: 8 };
    let e = pair.a.prepare_at(Direction::Put, &[outside]).expect_err("outside");
    assert_eq!(e.kind(), ErrorKind::Range, "{e}");
}

/// Waits that nothing woke in a session.
fn overslept(session: &hmc_std::Session) -> u64 {
    session.stats().peers.iter().map(|p| p.overslept).sum()
}

/// A thread that waits for an operation or a message is woken by it: no wait relies on poll timeouts, which exist for events
/// without a socket.
///
/// # Panics
/// When many do.
pub fn nobody_oversleeps(conn: ConnType, more: impl Fn(SessionBuilder) -> SessionBuilder) {
    const TIME: Duration = Duration::from_secs(1);
    let pair = Pair::with(conn, BUFFER, |builder| more(builder.spin(Duration::ZERO)));
    let (a, b) = (&pair.a, &pair.b);
    // One who waits, and one who looks instead and so ends what the other waits for. Both then let go of the link: nothing
    // else comes that would wake a sleeper.
    let (gate, over) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for n in 0.. {
                gate.wait();
                if over.load(Ordering::Acquire) {
                    return;
                }
                let len = [8, 4 * KIB, 100 * KIB][n % 3];
                a.put_at(MIB, MIB, len).expect("a living peer");
                gate.wait();
            }
        });
        let begun = Instant::now();
        loop {
            over.store(begun.elapsed() >= TIME, Ordering::Release);
            gate.wait();
            if over.load(Ordering::Acquire) {
                return;
            }
            let op = a.start_put_at(2 * MIB, 2 * MIB, 64).expect("a living peer");
            while !has_ended(&op) {
                std::hint::spin_loop();
            }
            wait(op).expect("a living peer");
            gate.wait();
        }
    });
    // Messages, beside puts of another thread.
    std::thread::scope(|threads| {
        let begun = Instant::now();
        threads.spawn(move || {
            while begun.elapsed() < TIME {
                a.put_at(MIB, MIB, 4 * KIB).expect("a living peer");
            }
        });
        threads.spawn(|| {
            loop {
                match b.recv(Wanted::Any).within(LONG).wait().expect("a tag") {
                    Message::Tag(u64::MAX) => break,
                    Message::Tag(n) => b.send(Message::Tag(n)).wait().expect("a living peer"),
                    other => panic!("{other:?}"),
                }
            }
        });
        for n in 0.. {
            a.send(Message::Tag(n)).wait().expect("a living peer");
            assert_eq!(a.recv(Wanted::Any).within(LONG).wait().expect("a tag"), Message::Tag(n));
            if begun.elapsed() >= TIME {
                break;
            }
        }
        a.send(Message::Tag(u64::MAX)).wait().expect("a living peer");
    });
    let slept = pair.sessions.iter().map(overslept).sum::<u64>();
    println!("{conn:?}: {slept} waits were woken by nothing");
    // On a loaded machine a process sometimes does not run for 50 ms.
    assert!(slept <= 3, "{conn:?}: {slept} waits were woken by nothing");
}

/// The places of `len` bytes from `at`.
fn range(at: u64, len: u64) -> std::ops::Range<usize> {
    let place = |n: u64| usize::try_from(n).expect("small");
    place(at)..place(at + len)
}

/// A list belongs to the life of the peer for which it was prepared.
///
/// # Panics
/// When not.
pub fn lists_of_another_life_are_refused(conn: ConnType) {
    let pair = Pair::new(conn, 64 * KIB);
    let list = pair.a.prepare_at(Direction::Put, &scattered(4, 8)).expect("it fits");
    pair.a.disconnect().within(LONG).wait().expect("connected");
    let again = pair
        .sender()
        .connect(&pair.dir.address())
        .rank(1)
        .over(conn)
        .within(LONG)
        .wait()
        .expect("again");
    let e = list.run().expect_err("of a life that is over");
    assert_eq!(e.kind(), ErrorKind::PeerDead, "{conn:?}: {e}");
    let anew = again.prepare_at(Direction::Put, &scattered(4, 8)).expect("it fits");
    anew.run().expect("a living peer");
}

/// An operation keeps its result until it is waited for, and its slot no longer than it runs; they may be waited for in any
/// order.
///
/// # Panics
/// When not.
pub fn operations_are_waited_for_in_any_order(conn: ConnType) {
    let pair = Pair::new(conn, 64 * KIB);
    let (near, far, peer) = (pair.sender(), pair.receiver(), &pair.a);
    let source = pattern(16 * KIB, 8);
    near.buffer().write_at(0, &source).expect("within the buffer");
    for round in 0..3 {
        let mut ops: Vec<_> = (0..64)
            .map(|n| {
                peer.start_put_at(n * 64, 32 * KIB + n * 64, 64 - round).expect("there is space")
            })
            .collect();
        // The last one first, and one of them by any.
        let last = ops.pop().expect("64");
        assert_eq!(wait(last).expect("a living peer"), 64 - round);
        let by_reference: Vec<&Op> = ops.iter().collect();
        let Waited::Ended(at) = wait_any(&by_reference, LONG).expect("descriptors") else {
            panic!("{conn:?}: none of them ends");
        };
        assert_eq!(wait(ops.swap_remove(at)).expect("a living peer"), 64 - round);
        for op in ops {
            // Asked by reference, it keeps its result.
            let ended = op.wait_for(LONG).ended().expect("it ends").expect("a living peer");
            assert_eq!(ended, 64 - round);
            assert!(has_ended(&op));
            op.cancel();
            assert_eq!(wait(op).expect("a living peer"), 64 - round);
        }
        for n in 0..64 {
            let want = &source[range(n * 64, 64 - round)];
            assert!(read(far, 32 * KIB + n * 64, 64 - round) == want, "{conn:?}: put {n}");
        }
    }
    // More than there are slots, and none waited for meanwhile.
    let begin = |_| peer.start_put_at(0, 32 * KIB, 8).expect("completed operations free slots");
    let many: Vec<_> = (0..1000).map(begin).collect();
    for op in many {
        assert_eq!(wait(op).expect("a living peer"), 8);
    }
    let op = peer.start_put_at(0, 32 * KIB, 8).expect("space");
    assert_eq!(wait(op).expect("a living peer"), 8);
    let puts = near.stats().peers.iter().map(|p| p.puts).sum::<u64>();
    assert!(puts > 3 * 64, "{puts} puts were counted");
}
