//! `send_data` and `recv_data` over every transport: any length, either side first, several at once,
//! from and to any memory.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::as_conversions,
    reason = "tests may panic"
)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use hmc_core::limits::{MAX_RNDV, RNDV_HALF_BYTES};
use hmc_std::memory::SharedBytes;
use hmc_std::{ConnType, Done, ErrorKind, Op};
use hmc_testkit::buffers::BufferMessages as _;
use hmc_tests::env::{Via, until};
use hmc_tests::pair::{Pair, both, pattern, transports};

const LONG: Duration = Duration::from_secs(30);
const HALF: u64 = RNDV_HALF_BYTES;
const MIB: u64 = 1 << 20;

#[test]
fn bytes_that_others_write_meanwhile_are_sent_and_received() {
    for conn in transports() {
        let p = Pair::new(conn, 64);
        let (mut from, mut to) = (vec![1u8; 3_000_001], vec![0u8; 3_000_001]);
        let (src, dst) = (SharedBytes::of_mut(&mut from), SharedBytes::of_mut(&mut to));
        let e = p.b.recv_data(dst.read_only()).within(LONG).wait().map(|d| d.bytes).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{conn:?}: {e}");
        let (whole, over, passes) =
            (src.extent().whole(), AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    for byte in [2, 1] {
                        src.fill(whole, byte).unwrap();
                    }
                    dst.fill(whole, 2).unwrap();
                    passes.fetch_add(1, Ordering::SeqCst);
                }
            });
            let begun = || (passes.load(Ordering::SeqCst) > 0).then_some(());
            until("bytes are written", LONG, begun);
            let (sent, got) = both(
                true,
                || p.a.send_data(src).within(LONG).wait(),
                || p.b.recv_data(dst).within(LONG).wait().map(|d| d.bytes),
            );
            over.store(true, Ordering::SeqCst);
            sent.unwrap();
            assert_eq!(got.unwrap(), whole.len(), "{conn:?}");
        });
        assert!(to.iter().all(|b| [1, 2].contains(b)), "{conn:?}");
        let (sent, got) = both(
            true,
            || p.a.send_data(&from).wait(),
            || p.b.recv_data(&mut to).wait().map(|d| d.bytes),
        );
        sent.unwrap();
        got.unwrap();
        assert!(to == from, "{conn:?}");
    }
}

#[test]
fn every_length_arrives_from_slices_to_slices() {
    for conn in transports() {
        let p = Pair::new(conn, 4096);
        let lengths = [0, 1, HALF - 1, HALF, HALF + 1, 3 * HALF + HALF / 2, 64 * MIB];
        for (i, len) in lengths.into_iter().enumerate() {
            for first in [true, false] {
                let bytes = pattern(len, i as u64);
                // A buffer longer than the message: its length is reported.
                let mut out = vec![0xEE; len as usize + 100];
                let (sent, got) = both(
                    first,
                    || p.a.send_data(&bytes).wait(),
                    || p.b.recv_data(&mut out).wait().map(|d| d.bytes),
                );
                sent.unwrap();
                assert_eq!(got.unwrap(), len, "{conn:?}");
                assert!(out[..len as usize] == bytes, "{conn:?}: {len} bytes differ");
                assert!(out[len as usize..].iter().all(|b| *b == 0xEE), "beyond the message");
            }
        }
    }
}

#[test]
fn every_length_arrives_between_buffers_and_spans() {
    for conn in transports() {
        let p = Pair::new(conn, 64 * MIB + 4096);
        let lengths = [0, 1, HALF - 1, HALF, HALF + 1, 3 * HALF + HALF / 2, 32 * MIB];
        let source = p.sender().memory().allocate(64 * MIB).unwrap();
        for (i, len) in lengths.into_iter().enumerate() {
            let bytes = pattern(len, 50 + i as u64);
            // On loopback both buffers are one: two places in it.
            let (from, to) = (0, 32 * MIB + 77);
            p.sender().buffer().write_at(from, &bytes).unwrap();
            let (sent, got) =
                both(i % 2 == 0, || p.a.send_data_at(from, len), || p.b.recv_data_at(to, len));
            sent.unwrap();
            assert_eq!(got.unwrap(), len);
            let mut out = vec![0; len as usize];
            p.receiver().buffer().read_at(to, &mut out).unwrap();
            assert!(out == bytes, "{conn:?}: {len} bytes differ in the buffer");

            // A span of memory that peers can map, into one of adopted memory, and back.
            for adopted in [false, true] {
                let mut src = source.take(i as u64, len).unwrap();
                src.write_at(0, &bytes).unwrap();
                let space = len + 10;
                let dst = if adopted {
                    p.receiver()
                        .memory()
                        .register(hmc_std::memory::HeapBytes::from(vec![0xEE; space as usize]))
                        .unwrap()
                } else {
                    p.receiver().memory().allocate(space).unwrap()
                };
                let receive = p.b.recv_data(dst.take_all().unwrap()).start().unwrap();
                let send = p.a.send_data(src).start().unwrap();
                let Done { bytes: got, memory: span } = receive.wait().unwrap();
                assert_eq!(got, len);
                let same = span.as_slice()[..len as usize] == bytes[..];
                assert!(same, "{conn:?} adopted {adopted}: {len} bytes differ in the span");
                let Done { bytes: sent, memory: span } = send.wait().unwrap();
                assert_eq!((sent, span.len()), (len, len));
                drop(span);
                drop(source.take(i as u64, len).expect("nobody holds the range"));
            }
        }
    }
}

/// One end lends a slice, the other gives its buffer: the sender copies into the receiver's memory, or the receiver out of halves.
#[test]
fn every_length_arrives_between_slices_and_buffers() {
    for conn in transports() {
        let p = Pair::new(conn, 32 * MIB);
        for (i, len) in [1, HALF, HALF + 1, 9 * HALF + 7, 32 * MIB].into_iter().enumerate() {
            let bytes = pattern(len, 70 + i as u64);
            let mut out = vec![0; len as usize];
            for first in [true, false] {
                let (sent, got) =
                    both(first, || p.a.send_data(&bytes).wait(), || p.b.recv_data_at(0, len));
                sent.unwrap();
                assert_eq!(got.unwrap(), len, "{conn:?}");
                out.fill(0);
                p.receiver().buffer().read_at(0, &mut out).unwrap();
                assert!(out == bytes, "{conn:?}: {len} bytes differ in the buffer");
                p.sender().buffer().write_at(0, &bytes).unwrap();
                out.fill(0);
                let (sent, got) = both(
                    first,
                    || p.a.send_data_at(0, len),
                    || p.b.recv_data(&mut out).wait().map(|d| d.bytes),
                );
                sent.unwrap();
                assert_eq!(got.unwrap(), len, "{conn:?}");
                assert!(out == bytes, "{conn:?}: {len} bytes differ in the slice");
            }
        }
    }
}

#[test]
fn eight_at_once_are_matched_in_their_order() {
    for conn in transports() {
        let p = Pair::new(conn, 64 * MIB);
        let lens: Vec<u64> =
            (0..8).map(|i| if i % 2 == 0 { 3 * HALF + i } else { 1000 * i }).collect();
        let at = |i: usize| i as u64 * 8 * MIB;
        let mut sends: Vec<Op> = Vec::new();
        let regions: Vec<_> =
            lens.iter().map(|len| p.receiver().memory().allocate(len + HALF).unwrap()).collect();
        for (i, len) in lens.iter().enumerate() {
            p.sender().buffer().write_at(at(i), &pattern(*len, i as u64)).unwrap();
            sends.push(p.a.start_send_at(at(i), *len).unwrap());
        }
        let receives: Vec<_> =
            regions.iter().map(|r| p.b.recv_data(r.take_all().unwrap()).start().unwrap()).collect();
        // Waited for from the last to the first.
        for (i, receive) in receives.into_iter().enumerate().rev() {
            let Done { bytes: len, memory: span } = receive.wait().unwrap();
            assert_eq!(len, lens[i], "{conn:?}: message {i}");
            let got = &span.as_slice()[..len as usize];
            assert!(got == pattern(len, i as u64), "{conn:?}: message {i} differs");
        }
        for s in sends {
            s.wait().unwrap();
        }
    }
}

#[test]
fn both_directions_at_once() {
    for conn in Via::all().into_iter().map(Via::conn) {
        let p = Pair::new(conn, 4096);
        let (x, y) = (pattern(9 * HALF + 5, 1), pattern(7 * HALF + 9, 2));
        let (mut to_a, mut to_b) = (vec![0; y.len()], vec![0; x.len()]);
        std::thread::scope(|s| {
            s.spawn(|| p.a.send_data(&x).wait().unwrap());
            s.spawn(|| p.b.send_data(&y).wait().unwrap());
            s.spawn(|| p.a.recv_data(&mut to_a).wait().map(|d| d.bytes).unwrap());
            p.b.recv_data(&mut to_b).wait().map(|d| d.bytes).unwrap();
        });
        assert!(to_a == y && to_b == x, "{conn:?}");
    }
}

#[test]
fn a_receiver_with_less_space_refuses_on_both_ends_and_nothing_is_written() {
    for conn in transports() {
        let p = Pair::new(conn, 8 * MIB);
        for len in [100, 4 * HALF] {
            let bytes = pattern(len, 3);
            let mut out = vec![0xEE; len as usize - 1];
            let (sent, got) = both(
                true,
                || p.a.send_data(&bytes).wait(),
                || p.b.recv_data(&mut out).wait().map(|d| d.bytes),
            );
            for e in [sent.unwrap_err(), got.unwrap_err()] {
                assert_eq!(e.kind(), ErrorKind::Length, "{conn:?}: {e}");
                let (long, space) = (len.to_string(), (len - 1).to_string());
                let text = e.to_string();
                assert!(text.contains(&long) && text.contains(&space), "{text}");
            }
            assert!(out.iter().all(|b| *b == 0xEE), "{conn:?}: bytes were written");
            let dst = p.receiver().memory().allocate(len - 1).unwrap();
            let receive = p.b.recv_data(dst.take_all().unwrap()).start().unwrap();
            assert_eq!(p.a.send_data(&bytes).wait().unwrap_err().kind(), ErrorKind::Length);
            let failed = receive.wait().unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::Length);
            // Over UCX the place may have been exposed: it is back once the sender has released it.
            let span = failed.reclaim().within(LONG).wait().expect("it is back");
            assert!(span.as_slice().iter().all(|b| *b == 0));
            // The next message is not disturbed.
            let next = &bytes[..len as usize - 1];
            let (sent, got) = both(
                false,
                || p.a.send_data(next).wait(),
                || p.b.recv_data(&mut out).wait().map(|d| d.bytes),
            );
            sent.unwrap();
            assert_eq!(got.unwrap(), len - 1);
            assert_eq!(out, next);
        }
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_message_is_a_future_that_is_woken() {
    for conn in transports() {
        let p = Pair::new(conn, 16 * MIB);
        p.sender().buffer().write_at(0, &pattern(5 * HALF, 6)).unwrap();
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&flag));
        let mut cx = Context::from_waker(&waker);
        let dst = p.receiver().memory().allocate(5 * HALF).unwrap();
        let mut receive = pin!(p.b.recv_data(dst.take_all().unwrap()).start().unwrap());
        assert!(receive.as_mut().poll(&mut cx).is_pending());
        let send = p.a.start_send_at(0, 5 * HALF).unwrap();
        // Nobody waits: the sessions' threads do it all.
        until("the future is woken", LONG, || flag.0.load(Ordering::Acquire).then_some(()));
        let Poll::Ready(Ok(Done { bytes: len, memory: span })) = receive.as_mut().poll(&mut cx)
        else {
            panic!("{conn:?}: woken for nothing");
        };
        assert_eq!(len, 5 * HALF);
        assert!(span.as_slice() == pattern(len, 6));
        send.wait().unwrap();
    }
}

#[test]
fn no_more_than_the_limit_are_under_way() {
    let p = Pair::new(Via::Tcp.or_requested().conn(), 8192);
    let sends: Vec<_> = (0..MAX_RNDV).map(|_| p.a.start_send_at(0, 5000).unwrap()).collect();
    let e = p.a.start_send_at(0, 8).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Full, "{e}");
    for _ in 0..MAX_RNDV {
        assert_eq!(p.b.recv_data_at(0, 5000).unwrap(), 5000);
    }
    for s in sends {
        s.wait().unwrap();
    }
    p.a.start_send_at(0, 8).unwrap().cancel();
}

/// Half-buffers are as long as what is to be received, and those of a crowd do not stay exposed for ever.
#[test]
fn half_buffers_are_no_longer_than_messages_and_no_more_than_needed() {
    for conn in Via::all().into_iter().map(Via::conn) {
        let p = Pair::new(conn, 4096);
        let exposed = || p.receiver().stats().peers[0].exposed_bytes;
        let before = exposed();
        let sent = p.a.start_send_at(0, 100).unwrap();
        assert_eq!(p.b.recv_data_at(0, 100).unwrap(), 100);
        sent.wait().unwrap();
        assert_eq!(exposed() - before, 2 * 4096, "{conn:?}: two pages for a short message");
        for round in 0..3 {
            let receives: Vec<_> = (0..20).map(|_| p.b.start_recv_at(0, 4000).unwrap()).collect();
            assert!(exposed() - before >= 20 * 2 * 4096, "{conn:?}: one pair for each");
            let sends: Vec<_> = (0..20).map(|_| p.a.start_send_at(0, 8).unwrap()).collect();
            for r in receives {
                assert_eq!(r.wait().unwrap().bytes, 8, "{conn:?}, round {round}");
            }
            for s in sends {
                s.wait().unwrap();
            }
            until("half-buffers are given back", LONG, || {
                (exposed() - before <= 8 * 2 * 4096).then_some(())
            });
        }
        // A longer one needs longer halves; what is there serves again.
        let bytes = pattern(3 * HALF, 1);
        let mut out = vec![0; bytes.len()];
        let (sent, got) = both(
            true,
            || p.a.send_data(&bytes).wait(),
            || p.b.recv_data(&mut out).wait().map(|d| d.bytes),
        );
        sent.unwrap();
        assert_eq!(got.unwrap(), 3 * HALF);
        assert!(out == bytes);
        assert!(exposed() - before <= 2 * HALF + 8 * 2 * 4096, "{conn:?}");
    }
}

/// It is received where it belongs, through a window that serves all of them and is open only meanwhile.
#[test]
fn a_long_message_over_tcp_needs_no_half_buffers() {
    let p = Pair::new(ConnType::Tcp, MIB);
    let exposed = || p.receiver().stats().peers[0].exposed_bytes;
    let before = exposed();
    for len in [64 << 10, MIB / 2, MIB] {
        p.sender().buffer().write_at(0, &pattern(len, len)).unwrap();
        let receive = p.b.start_recv_at(0, len).unwrap();
        assert_eq!(exposed(), before, "no message has come");
        p.a.start_send_at(0, len).unwrap().wait().unwrap();
        assert_eq!(receive.wait().unwrap().bytes, len);
        assert_eq!(exposed(), before);
        let mut got = vec![0; len as usize];
        p.receiver().buffer().read_at(0, &mut got).unwrap();
        assert!(got == pattern(len, len));
    }
}

#[test]
fn two_pairs_at_once() {
    let pairs = [Via::Shm, Via::Tcp].map(|via| Pair::new(via.or_requested().conn(), 4096));
    std::thread::scope(|s| {
        for (i, p) in pairs.iter().enumerate() {
            s.spawn(move || {
                for round in 0..20 {
                    p.a.send_data(&pattern(3 * HALF + round, i as u64 * 100 + round))
                        .wait()
                        .unwrap();
                }
            });
            s.spawn(move || {
                for round in 0..20 {
                    let mut out = vec![0; 4 * HALF as usize];
                    let len = p.b.recv_data(&mut out).wait().map(|d| d.bytes).unwrap();
                    assert_eq!(len, 3 * HALF + round);
                    let want = pattern(len, i as u64 * 100 + round);
                    assert!(out[..len as usize] == want, "pair {i}, round {round}");
                }
            });
        }
    });
}

#[test]
fn by_rank_too() {
    let p = Pair::new(Via::Tcp.or_requested().conn(), 16_384);
    // One that goes by puts, and one that goes with its offer.
    let long = pattern(5000, 1);
    let (sent, got) = both(
        true,
        || p.sender().peer(1)?.send_data(&long).wait(),
        || {
            let mut out = [0; 6000];
            p.receiver()
                .peer(0)?
                .recv_data(&mut out)
                .wait()
                .map(|d| d.bytes)
                .map(|n| out[..n as usize].to_vec())
        },
    );
    sent.unwrap();
    assert_eq!(got.unwrap(), long);
    p.sender().buffer().write_at(10, b"offset").unwrap();
    let (there, back) = (p.sender().peer(1).unwrap(), p.receiver().peer(0).unwrap());
    let (sent, got) = both(false, || there.send_data_at(10, 6), || back.recv_data_at(20, 6));
    sent.unwrap();
    assert_eq!(got.unwrap(), 6);
    let mut out = [0; 6];
    p.receiver().buffer().read_at(20, &mut out).unwrap();
    assert_eq!(&out, b"offset");
    assert_eq!(p.sender().peer(9).unwrap_err().kind(), ErrorKind::NotFound);
    let e = there.send_data_at(16_000, 385).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Range);
}
