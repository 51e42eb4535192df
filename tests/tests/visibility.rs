//! Whoever has the tag can read the bytes: put then tag, and put_notify, in every size.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::{Duration, Instant};

use hmc_sim::rng::Rng;
use hmc_std::{
    Message, Peer, Session,
    want::{self, Wanted},
};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::env::{TempDir, Via, bound, seed};

const LONG: Duration = Duration::from_secs(20);
const BUFFER: u64 = 1 << 20;
/// Pairs of put and tag, over all transports and ways.
const PAIRS: u64 = 100_000;

/// Mostly small, sometimes up to 1 MiB.
fn size(rng: &mut Rng) -> u64 {
    match rng.below(1000) {
        0 => 1 + rng.below(BUFFER),
        1..=20 => 1 + rng.below(64 << 10),
        21..=200 => 1 + rng.below(4096),
        _ => 1 + rng.below(64),
    }
}

/// What pair `n` carries: a length and a byte.
fn what(seed: u64, n: u64) -> (u64, u8) {
    let mut rng = Rng::new(seed ^ (n << 20));
    let len = size(&mut rng);
    (len, u8::try_from(n % 251).unwrap())
}

/// The receiver: for each tag the bytes must be there, at that moment. Answers each, so that the
/// sender may write again.
fn receive(target: &Session, source: u32, seed: u64, pairs: u64, notify: bool) {
    let peer = target.accept(source).within(LONG).wait().unwrap();
    let mut seen = vec![0; usize::try_from(BUFFER).unwrap()];
    for n in 0..pairs {
        let tag = if notify {
            peer.recv(want::Notify).wait().unwrap()
        } else {
            peer.recv(Wanted::Tag).within(LONG).wait().map(|_| n).unwrap()
        };
        assert_eq!(tag, n, "tags come in order");
        let (len, byte) = what(seed, n);
        let seen = &mut seen[..usize::try_from(len).unwrap()];
        target.buffer().read_at(0, seen).unwrap();
        if let Some(at) = seen.iter().position(|b| *b != byte) {
            panic!("seed {seed}: tag {n} came before byte {at} of its {len}");
        }
        peer.send(Message::Tag(n)).wait().unwrap();
    }
}

fn send(source: &Session, peer: &Peer, seed: u64, pairs: u64, notify: bool) {
    for n in 0..pairs {
        let (len, byte) = what(seed, n);
        source.buffer().fill(0, len, byte).unwrap();
        if notify {
            peer.put_notify_at(0, 0, len, n).unwrap();
        } else {
            peer.put_at(0, 0, len).unwrap();
            peer.send(Message::Tag(n)).wait().unwrap();
        }
        assert_eq!(peer.recv(want::Tag).wait().unwrap(), n);
    }
}

fn run(via: Via, notify: bool, pairs: u64) {
    let seed = seed(5);
    let dir = TempDir::new();
    let target =
        Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(BUFFER).start().unwrap();
    let source = Session::builder(0).buffer(BUFFER).start().unwrap();
    let peer = source.connect(&dir.address()).rank(1).over(via.conn()).within(LONG).wait().unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&target, 0, seed, pairs, notify));
        send(&source, &peer, seed, pairs, notify);
        receiver.join().unwrap();
    });
    let us = start.elapsed().as_secs_f64() * 1e6;
    println!("visibility_{via:?}_notify_{notify} {:.1} us a pair", us / pairs_f(pairs));
    assert!(start.elapsed() < bound(Duration::from_secs(60)));
}

#[test]
fn shm_put_then_tag() {
    run(Via::Shm, false, PAIRS / 4);
}

#[test]
fn shm_put_notify() {
    run(Via::Shm, true, PAIRS / 4);
}

#[test]
fn tcp_put_then_tag() {
    run(Via::Tcp, false, PAIRS / 4);
}

#[test]
fn tcp_put_notify() {
    run(Via::Tcp, true, PAIRS / 4);
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn ucx_put_then_tag() {
    run(Via::Ucx, false, PAIRS / 4);
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn ucx_put_notify() {
    run(Via::Ucx, true, PAIRS / 4);
}

/// Fewer: the kernel of a VM is the NIC, and its processor may be emulated.
#[test]
#[ignore = "needs an RDMA device: `cargo xtask test-hw --vm`"]
fn rdma_put_then_tag() {
    run(Via::Rdma, false, PAIRS / 200);
}

#[test]
#[ignore = "needs an RDMA device: `cargo xtask test-hw --vm`"]
fn rdma_put_notify() {
    run(Via::Rdma, true, PAIRS / 200);
}

/// The tags of a loopback link, in one thread.
#[test]
fn loopback() {
    let s = Session::builder(0).buffer(BUFFER).start().unwrap();
    let peer = s.peer(0).unwrap();
    for n in 0..2000 {
        let (len, byte) = what(3, n);
        let len = len.min(BUFFER / 2);
        s.buffer().fill(0, len, byte).unwrap();
        peer.put_notify_at(0, BUFFER / 2, len, n).unwrap();
        assert_eq!(peer.recv(want::Notify).wait().unwrap(), n);
        let mut seen = vec![0; usize::try_from(len).unwrap()];
        s.buffer().read_at(BUFFER / 2, &mut seen).unwrap();
        assert!(seen.iter().all(|b| *b == byte));
    }
}

fn pairs_f(pairs: u64) -> f64 {
    u32::try_from(pairs).map_or(1.0, f64::from)
}
