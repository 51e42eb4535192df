//! One busy peer takes no turn from the others.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::VecDeque;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hmc_std::memory::Span;
use hmc_std::{Access, Address, ConnType, Message, Session, Who, want::Wanted};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::env::{TempDir, until};
use hmc_tests::listening::Listening as _;
use hmc_tests::raw_frames::{dial, send_raw};

const LONG: Duration = Duration::from_secs(20);
const BLOCK: u64 = 8 << 20;
const LABEL: u64 = 5;

/// A peer that always has copies queued at the target (puts into user memory, which the target's background thread executes)
/// does not delay another's puts and timers: heartbeats continue.
#[test]
fn queued_copies_of_one_peer_do_not_shut_out_another() {
    let dir = TempDir::new();
    let target = Session::builder(1)
        .uds(dir.path())
        .tcp("127.0.0.1:0")
        .buffer(4096)
        .heartbeat(Some(Duration::from_millis(200)))
        .start()
        .unwrap();
    let session = |rank, conn| {
        let s = Session::builder(rank).buffer(4096).start().unwrap();
        let peer = s.connect(&dir.address()).rank(1).over(conn).within(LONG).wait().unwrap();
        (s, peer)
    };
    let (busy, to_target) = session(0, ConnType::Shm);
    let (_quiet, other) = session(2, ConnType::Tcp);
    let vector = || vec![0u8; usize::try_from(BLOCK).unwrap()];
    let space = target
        .memory()
        .register(hmc_std::memory::HeapBytes::from(vector()))
        .unwrap()
        .take_all()
        .unwrap();
    let _window = target.peer(0).unwrap().expose(space, Access::all(), LABEL).unwrap();
    let window = to_target.window(LABEL).within(LONG).wait().unwrap();
    let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let post = |span: Span| window.put(0, span).start().unwrap();
            let span = || {
                busy.memory()
                    .register(hmc_std::memory::HeapBytes::from(vector()))
                    .unwrap()
                    .take_all()
                    .unwrap()
            };
            let mut in_flight: VecDeque<_> = (0..8).map(|_| post(span())).collect();
            while let Some(op) = in_flight.pop_front() {
                let span = op.wait().unwrap().memory;
                moved.fetch_add(1, Ordering::Relaxed);
                if !stop.load(Ordering::Relaxed) {
                    in_flight.push_back(post(span));
                }
            }
        });
        until("the load runs", LONG, || (moved.load(Ordering::Relaxed) > 2).then_some(()));
        let before = moved.load(Ordering::Relaxed);
        let results: Vec<_> = (0..20).map(|_| other.put_at(0, 0, 4096)).collect();
        let during = moved.load(Ordering::Relaxed) - before;
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap();
        for r in results {
            r.expect("a put beside the load");
        }
        println!("{during} blocks were copied beside 20 puts");
    });
    assert!(to_target.is_connected() && other.is_connected());
    assert_eq!(target.stats().peers_lost, 0);
}

/// A peer of the lowest rank that sends faster than its messages are taken leaves those of the others their turn.
#[test]
fn messages_of_one_peer_do_not_shut_out_those_of_another() {
    let dir = TempDir::new();
    let builder = Session::builder(0).uds(dir.path()).tcp("127.0.0.1:0").accept_upstream();
    let receiver = builder.start().unwrap();
    let other = Session::builder(2).start().unwrap();
    let from_other = other.connect(&Address::Uds(dir.path().into())).rank(0).wait().unwrap();
    // A node of the C++ HMC as rank 1, and empty structs of it in one piece.
    let mut busy = dial(receiver.tcp_addr().unwrap());
    assert!(send_raw(&mut busy, b"\x02\0\0\x80\x04\0\0\0\x01\0\0\0"));
    let structs = b"\x02\0\0\0\0\0\0\0".repeat(8192);
    let end = busy.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || while send_raw(&mut busy, &structs) {});
        let is_ahead = || receiver.stats().peers.iter().any(|p| p.rank.0 == 1 && p.inbox > 500);
        until("the busy peer is ahead", LONG, || is_ahead().then_some(()));
        from_other.send(Message::bytes(b"one")).wait().unwrap();
        let next = || receiver.recv(Who::Any, Wanted::Bytes).within(LONG).wait().unwrap().0.0;
        let heard = (0..20_000).any(|_| next() == 2);
        end.shutdown(Shutdown::Both).unwrap();
        assert!(heard, "20,000 messages of one peer came before the only one of another");
    });
}
