//! Requests: each operation in three ways, of each kind of memory, over each transport.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "tests may panic"
)]

use std::future::IntoFuture as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use hmc_std::{
    Access, ConnType, Done, ErrorKind, Op, Piece, Remote, Session, Waited, wait_any, want::Wanted,
};
use hmc_tests::pair::{Pair, pattern, transports};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(20);
/// Of each session: the first half is what is sent, the second what is received.
const BUFFER: u64 = 8 * MIB;
const HALF: u64 = BUFFER / 2;
/// Shorter than a word, of one copy, and of several pieces.
const LENGTHS: [u64; 5] = [1, 8, 64 * KIB, MIB, 3 * MIB + 5];

/// Two sessions, of which the near one holds the far one's buffer.
struct Ends {
    pair: Pair,
    remote: Remote,
}

impl Ends {
    fn new(conn: ConnType) -> Self {
        let pair = Pair::new(conn, BUFFER);
        let remote = pair.a.buffer().expect("it exposes a buffer");
        Self { pair, remote }
    }

    fn near(&self) -> &Session {
        self.pair.sender()
    }

    fn far(&self) -> &Session {
        self.pair.receiver()
    }

    /// Writes other bytes than were sent last.
    fn fill(&self, len: u64, seed: u64) -> Vec<u8> {
        let bytes = pattern(len, seed);
        self.near().buffer().write_at(0, &bytes).expect("in range");
        self.far().buffer().fill(HALF, HALF, 0xEE).expect("in range");
        bytes
    }

    /// What arrived at the far end's second half.
    fn arrived(&self, len: u64) -> Vec<u8> {
        read(self.far(), HALF, len)
    }
}

fn read(session: &Session, at: u64, len: u64) -> Vec<u8> {
    let mut out = vec![0; usize::try_from(len).expect("small")];
    session.buffer().read_at(at, &mut out).expect("in range");
    out
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return out;
        }
        thread::park_timeout(LONG);
    }
}

#[test]
fn a_put_of_a_range_arrives_in_each_way() {
    for conn in transports() {
        let ends = Ends::new(conn);
        for (n, len) in LENGTHS.into_iter().enumerate() {
            let put = || {
                let range = ends.near().buffer().range(0, len).expect("in range");
                ends.remote.put(HALF, range)
            };
            for way in 0..3 {
                let sent = ends.fill(len, n as u64 * 3 + way);
                let done: Done = match way {
                    0 => put().wait(),
                    1 => put().start().and_then(Op::wait),
                    _ => block_on(put().into_future()),
                }
                .expect("a living peer");
                assert_eq!(done.bytes, len, "{conn:?}");
                assert!(ends.arrived(len) == sent, "{conn:?}: {len} bytes, way {way}");
                assert!(ends.arrived(HALF)[sent.len()..].iter().all(|b| *b == 0xEE), "{conn:?}");
            }
        }
    }
}

#[test]
fn a_get_fills_a_range_in_each_way() {
    for conn in transports() {
        let ends = Ends::new(conn);
        for (n, len) in LENGTHS.into_iter().enumerate() {
            for way in 0..3 {
                let bytes = pattern(len, n as u64 * 3 + way);
                ends.far().buffer().write_at(0, &bytes).expect("in range");
                let range = ends.near().buffer().range(HALF, len).expect("in range");
                let get = ends.remote.get(0, range);
                let done: Done = match way {
                    0 => get.wait(),
                    1 => get.start().and_then(Op::wait),
                    _ => block_on(get.into_future()),
                }
                .expect("a living peer");
                assert_eq!(done.bytes, len, "{conn:?}");
                assert!(read(ends.near(), HALF, len) == bytes, "{conn:?}: {len} bytes, way {way}");
            }
        }
    }
}

#[test]
fn bytes_that_are_lent_arrive_and_come() {
    for conn in transports() {
        let ends = Ends::new(conn);
        for len in [0, 8, 64 * KIB, MIB + 1, 3 * MIB + 5] {
            for way in 0..2 {
                ends.fill(0, 0);
                let sent = pattern(len, 7 + way);
                let put = ends.remote.put(HALF, &sent);
                let done = if way == 0 { put.wait() } else { block_on(put.into_future()) };
                assert_eq!(done.expect("a living peer").bytes, len, "{conn:?}");
                assert!(ends.arrived(len) == sent, "{conn:?}: {len} bytes, way {way}");
                assert!(ends.arrived(HALF)[sent.len()..].iter().all(|b| *b == 0xEE), "{conn:?}");
                let mut got = vec![0; sent.len()];
                let get = ends.remote.get(HALF, &mut got);
                let done = if way == 0 { get.wait() } else { block_on(get.into_future()) };
                assert_eq!(done.expect("a living peer").bytes, len, "{conn:?}");
                assert!(got == sent, "{conn:?}: {len} bytes, way {way}");
            }
        }
        let mut eight = [0; 8];
        ends.remote.put(HALF, b"an array").wait().expect("a living peer");
        ends.remote.get(HALF, &mut eight).wait().expect("a living peer");
        assert_eq!(&eight, b"an array");
    }
}

#[test]
fn a_span_goes_into_its_operation_and_comes_back() {
    for conn in transports() {
        let ends = Ends::new(conn);
        let region = ends.near().memory().allocate(4 * MIB).expect("memory");
        for len in LENGTHS {
            ends.fill(0, 0);
            let mut span = region.take(5, len).expect("free");
            let sent = pattern(len, len);
            span.write_at(0, &sent).expect("in range");
            let done = ends.remote.put(HALF, span).wait().expect("a living peer");
            assert!(ends.arrived(len) == sent, "{conn:?}: {len} bytes");
            let mut span = done.memory;
            span.fill(0);
            let op = ends.remote.get(HALF, span).start().expect("a living peer");
            let busy = region.take(0, 4 * MIB).map(drop);
            assert_eq!(
                busy.map_err(|e| e.kind()),
                Err(ErrorKind::Busy),
                "{conn:?}: it is not free"
            );
            let done = block_on(op).expect("a living peer");
            assert!(done.memory.as_slice() == sent, "{conn:?}: {len} bytes");
        }
        assert!(region.take_all().is_ok(), "all spans came back");
    }
}

#[test]
fn a_notification_follows_its_bytes() {
    for conn in transports() {
        let ends = Ends::new(conn);
        for (tag, len) in [0, 8, 64 * KIB, 2 * MIB + 1].into_iter().enumerate() {
            let tag = tag as u64;
            let sent = ends.fill(len, 11 + tag);
            let range = ends.near().buffer().range(0, len).expect("in range");
            ends.remote.put(HALF, range).notify(tag).wait().expect("a living peer");
            let _ = ends.pair.b.recv(Wanted::ThisTag(tag)).within(LONG).wait().expect("a tag");
            assert!(ends.arrived(len) == sent, "{conn:?}: {len} bytes");
            // The same of lent bytes.
            let lent = pattern(len, 29 + tag);
            ends.remote.put(HALF, &lent).notify(tag + 100).wait().expect("a living peer");
            let _ =
                ends.pair.b.recv(Wanted::ThisTag(tag + 100)).within(LONG).wait().expect("a tag");
            assert!(ends.arrived(len) == lent, "{conn:?}: {len} bytes");
            let more =
                ends.pair.b.recv(Wanted::Any).within(Duration::ZERO).wait().map_err(|e| e.kind());
            assert_eq!(more.map(drop), Err(ErrorKind::DeadlineExceeded), "one tag a put");
        }
    }
}

#[test]
fn what_does_not_fit_moves_nothing() {
    for conn in transports() {
        let ends = Ends::new(conn);
        ends.fill(BUFFER, 3);
        ends.far().buffer().fill(0, BUFFER, 0xEE).expect("in range");
        let range = ends.near().buffer().range(0, 8).expect("in range");
        let span = || ends.near().memory().allocate(64).expect("memory").take_all().expect("free");
        let kind = |r: Result<Done, hmc_std::Error>| r.map(drop).map_err(|e| e.kind());
        for at in [BUFFER - 7, BUFFER, u64::MAX] {
            assert_eq!(kind(ends.remote.put(at, range).wait()), Err(ErrorKind::Range), "{at}");
            let started = ends.remote.put(at, range).start().map(drop).map_err(|e| e.kind());
            assert_eq!(started, Err(ErrorKind::Range), "{at}");
            let lent = ends.remote.put(at, &[0; 8]).notify(1).wait();
            assert_eq!(kind(lent), Err(ErrorKind::Range), "{at}");
            let awaited = block_on(ends.remote.get(at, range).into_future());
            assert_eq!(kind(awaited), Err(ErrorKind::Range), "{at}");
            let failed = ends.remote.put(at, span()).wait().expect_err("out of the window");
            assert_eq!(failed.kind(), ErrorKind::Range);
            assert_eq!(failed.reclaim().wait().expect("it was never under way").len(), 64);
        }
        if conn != ConnType::Loopback {
            assert!(read(ends.far(), 0, BUFFER).iter().all(|b| *b == 0xEE), "{conn:?}");
        }
        let range = ends.near().buffer().range(BUFFER - 7, 8).map(drop).map_err(|e| e.kind());
        assert_eq!(range, Err(ErrorKind::Range));
    }
}

#[test]
fn nothing_happens_before_a_request_is_finished() {
    for conn in transports() {
        let ends = Ends::new(conn);
        ends.fill(8, 1);
        let range = ends.near().buffer().range(0, 8).expect("in range");
        drop(ends.remote.put(HALF, range));
        drop(ends.remote.put(HALF, range).into_future());
        ends.remote.put(HALF + 8, range).wait().expect("a living peer");
        assert_eq!(ends.arrived(8), [0xEE; 8], "{conn:?}");
    }
}

#[test]
fn an_operation_that_has_ended_tells_everybody() {
    for conn in transports() {
        let ends = Ends::new(conn);
        for len in [8, 2 * MIB] {
            ends.fill(len, 1);
            let range = ends.near().buffer().range(0, len).expect("in range");
            let op = ends.remote.put(HALF, range).start().expect("a living peer");
            let results = thread::scope(|s| {
                let wait = || op.wait_for(LONG).ended().expect("in time").expect("a living peer");
                let all: Vec<_> = (0..4).map(|_| s.spawn(wait)).collect();
                all.into_iter().map(|t| t.join().expect("no panic")).collect::<Vec<_>>()
            });
            assert_eq!(results, [len; 4], "{conn:?}");
            op.cancel();
            let polled = op.poll_ended(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Ready(Ok(n)) if n == len), "{conn:?}: {polled:?}");
            assert!(matches!(op.wait_for(Duration::ZERO), Waited::Ended(Ok(n)) if n == len));
            assert_eq!(op.wait().expect("it ended well").bytes, len, "{conn:?}");
        }
    }
}

/// Pieces of `len` bytes that touch none of the others, in another order there than here.
fn pieces(near: &Session, count: u64, len: u64) -> Vec<Piece<'_>> {
    let piece = |n: u64| {
        let here = near.buffer().range(n * 2 * len, len).expect("in range");
        Piece::new(here, HALF + (n * 5 % count) * 2 * len)
    };
    (0..count).map(piece).collect()
}

#[test]
fn a_list_arrives_in_each_way_and_nothing_else() {
    for conn in transports() {
        let ends = Ends::new(conn);
        for (count, len) in [(64, 8), (1, 64 * KIB), (16, 100 * KIB), (256, 4 * KIB), (2, MIB)] {
            let pieces = pieces(ends.near(), count, len);
            let plan = ends.remote.put_list(&pieces).prepare().expect("it fits");
            assert_eq!((plan.len(), plan.is_empty()), (pieces.len(), false));
            for way in 0..6 {
                let sent = ends.fill(HALF, 31 + way);
                let list = || ends.remote.put_list(&pieces);
                let done: Done = match way {
                    0 => list().wait(),
                    1 => list().start().and_then(Op::wait),
                    2 => block_on(list().into_future()),
                    3 => plan.again().wait(),
                    4 => plan.again().start().and_then(Op::wait),
                    _ => block_on(plan.again().into_future()),
                }
                .expect("a living peer");
                assert_eq!(done.bytes, count * len, "{conn:?}");
                let mut whole = vec![0xEE; usize::try_from(HALF).expect("small")];
                for n in 0..count {
                    let to = usize::try_from((n * 5 % count) * 2 * len).expect("small");
                    let from = usize::try_from(n * 2 * len).expect("small");
                    let len = usize::try_from(len).expect("small");
                    whole[to..to + len].copy_from_slice(&sent[from..from + len]);
                }
                assert!(ends.arrived(HALF) == whole, "{conn:?}: {count} x {len}, way {way}");
                // And back, over other bytes.
                ends.near().buffer().fill(0, HALF, 0).expect("in range");
                let back = ends.remote.get_list(&pieces);
                match way % 3 {
                    0 => back.wait(),
                    1 => back.start().and_then(Op::wait),
                    _ => block_on(back.into_future()),
                }
                .expect("a living peer");
                let mut whole = vec![0; sent.len()];
                for n in 0..count {
                    let from = usize::try_from(n * 2 * len).expect("small");
                    let len = usize::try_from(len).expect("small");
                    whole[from..from + len].copy_from_slice(&sent[from..from + len]);
                }
                assert!(read(ends.near(), 0, HALF) == whole, "{conn:?}: {count} x {len} back");
            }
        }
    }
}

/// The tag of a list comes when all of its pieces can be read, of each run its own; of one without pieces it comes, too.
#[test]
fn a_notification_follows_the_last_piece() {
    for conn in transports() {
        let ends = Ends::new(conn);
        let pieces = pieces(ends.near(), 32, 60 * KIB);
        let plan = ends.remote.put_list(&pieces).prepare().expect("it fits");
        for tag in 0..20 {
            let sent = ends.fill(HALF, 31 + tag);
            let op = plan.again().notify(tag).start().expect("a living peer");
            let _ = ends.pair.b.recv(Wanted::ThisTag(tag)).within(LONG).wait().expect("a tag");
            for n in 0..32_u64 {
                let from = usize::try_from(n * 120 * KIB).expect("small");
                let there = read(ends.far(), HALF + (n * 5 % 32) * 120 * KIB, 60 * KIB);
                assert!(there == sent[from..from + there.len()], "{conn:?}: piece {n} of {tag}");
            }
            assert_eq!(op.wait().expect("a living peer").bytes, 32 * 60 * KIB);
        }
        assert_eq!(ends.remote.put_list(&[]).notify(77).wait().expect("a living peer").bytes, 0);
        let _ = ends.pair.b.recv(Wanted::ThisTag(77)).within(LONG).wait().expect("a tag");
        let more =
            ends.pair.b.recv(Wanted::Any).within(Duration::ZERO).wait().map_err(|e| e.kind());
        assert_eq!(more.map(drop), Err(ErrorKind::DeadlineExceeded), "one tag a list");
    }
}

/// A list whose last piece does not fit moves nothing; one may have pieces of several buffers.
#[test]
fn a_list_is_checked_whole_and_takes_pieces_of_several_buffers() {
    for conn in transports() {
        let ends = Ends::new(conn);
        let other = ends.near().memory().allocate(64).expect("memory").share().expect("free");
        other.fill(0, 64, 7).expect("in range");
        ends.fill(8, 1);
        let first = Piece::new(ends.near().buffer().range(0, 8).expect("in range"), HALF);
        for bad in [BUFFER - 7, u64::MAX] {
            let list = [first, Piece::new(other.range(0, 8).expect("in range"), bad)];
            let e = ends.remote.put_list(&list).wait().map(drop).map_err(|e| e.kind());
            assert_eq!(e, Err(ErrorKind::Range), "{conn:?}");
            let e = ends.remote.get_list(&list).prepare().map(drop).map_err(|e| e.kind());
            assert_eq!(e, Err(ErrorKind::Range), "{conn:?}");
        }
        assert_eq!(ends.arrived(8), [0xEE; 8], "{conn:?}");
        let list =
            [first, Piece::new(other.all(), HALF + 8), Piece::new(first_range(&ends), HALF + 72)];
        let done = ends.remote.put_list(&list).wait().expect("a living peer");
        assert_eq!(done.bytes, 80);
        let arrived = ends.arrived(80);
        assert_eq!((&arrived[..8], &arrived[72..]), (&pattern(8, 1)[..], &pattern(8, 1)[..]));
        assert_eq!(arrived[8..72], [7; 64], "{conn:?}");
    }
}

fn first_range(ends: &Ends) -> hmc_std::LocalRange<'_> {
    ends.near().buffer().range(0, 8).expect("in range")
}

#[test]
fn a_window_is_found_however_it_is_waited_for() {
    for conn in transports() {
        let ends = Ends::new(conn);
        let (near, far) = (&ends.pair.a, &ends.pair.b);
        let expose = |label| {
            let span = ends.far().memory().allocate(64).expect("memory").take_all().expect("free");
            far.expose(span, Access::all(), label).map_err(|(e, _)| e).expect("a living peer")
        };
        let none = near.window(5).within(Duration::from_millis(5));
        let e = none.wait().map(drop).map_err(|e| e.kind());
        assert_eq!(e, Err(ErrorKind::DeadlineExceeded), "{conn:?}");
        let begun = std::time::Instant::now();
        let none = near.window(5).within(Duration::from_millis(20));
        let e = block_on(none.into_future()).map(drop).map_err(|e| e.kind());
        assert_eq!(e, Err(ErrorKind::DeadlineExceeded), "{conn:?}");
        assert!(begun.elapsed() >= Duration::from_millis(20) && begun.elapsed() < LONG);
        for label in [5, 6] {
            let found = thread::scope(|s| {
                let waiting = s.spawn(|| {
                    let find = near.window(label);
                    if label == 5 { find.wait() } else { block_on(find.into_future()) }
                });
                let window = expose(label);
                (waiting.join().expect("no panic").expect("it is exposed"), window)
            });
            assert_eq!(found.0.len(), 64);
            found.0.put(0, &[label as u8; 64]).wait().expect("a living peer");
            let span = found.1.revoke().within(LONG).wait().expect("nobody is in it");
            assert_eq!(span.as_slice(), [label as u8; 64]);
            let e = found.0.put(0, b"x").wait().map(drop).map_err(|e| e.kind());
            assert!(e.is_err(), "{conn:?}: it was taken back");
        }
    }
}

#[test]
fn one_of_several_operations_is_waited_for() {
    for conn in transports() {
        let ends = Ends::new(conn);
        ends.fill(HALF, 1);
        let start = |len| {
            let range = ends.near().buffer().range(0, len).expect("in range");
            ends.remote.put(HALF, range).start().expect("a living peer")
        };
        let mut ops = vec![start(3 * MIB), start(8), start(2 * MIB), start(64 * KIB)];
        while !ops.is_empty() {
            let all: Vec<&Op> = ops.iter().collect();
            let Ok(Waited::Ended(n)) = wait_any(&all, LONG) else { panic!("{conn:?}: none") };
            ops.swap_remove(n).wait().expect("a living peer");
        }
        let none = wait_any::<()>(&[], LONG).map(drop).map_err(|e| e.kind());
        assert_eq!(none, Err(ErrorKind::InvalidConfig));
    }
}

#[test]
fn a_transfer_without_bytes_is_over_in_each_way() {
    for conn in transports() {
        let ends = Ends::new(conn);
        let none = ends.near().buffer().range(7, 0).expect("in range");
        let moved = |done: Done| done.bytes;
        assert_eq!(ends.remote.put(0, none).wait().map(moved).expect("nothing"), 0);
        let op = ends.remote.get(BUFFER, none).start().expect("nothing");
        assert!(matches!(block_on(op), Ok(Done { bytes: 0, .. })), "{conn:?}");
        let put = ends.remote.put(0, none).into_future();
        assert_eq!(block_on(put).map(moved).expect("nothing"), 0);
        let list = ends.remote.put_list(&[]).into_future();
        assert_eq!(block_on(list).map(moved).expect("nothing"), 0);
    }
}

#[test]
fn several_threads_lend_at_the_same_time() {
    for conn in transports() {
        let ends = Ends::new(conn);
        thread::scope(|s| {
            for n in 0..4_u64 {
                let remote = &ends.remote;
                s.spawn(move || {
                    for round in 0..50 {
                        let (sent, at) = (pattern(40 * KIB, n + round * 4), n * MIB);
                        remote.put(at, &sent).wait().expect("a living peer");
                        let mut got = vec![0; sent.len()];
                        remote.get(at, &mut got).wait().expect("a living peer");
                        assert!(got == sent, "{conn:?}: thread {n}, round {round}");
                    }
                });
            }
        });
    }
}
