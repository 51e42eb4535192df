//! Two sessions over one buffer: each has a rank and an end of its own, and peers of both reach the one memory.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use hmc_testkit::buffers::{BufferTransfers as _, Ends, wait};
use std::time::Duration;

use hmc_std::{Address, ConnType, Message, Peer, PeerRank, Prepared, Session, rank_of, want};
use hmc_tests::env::{TempDir, Via, until};
use hmc_tests::listening::Listening as _;

const LONG: Duration = Duration::from_secs(20);
const KIB: u64 = 1 << 10;

/// A session of `rank` over that buffer that listens everywhere.
fn start(prepared: &mut Prepared, rank: u32, dir: &TempDir) -> Session {
    prepared.set_rank(rank);
    prepared.listen_uds(dir.path());
    prepared.listen_tcp("127.0.0.1:0");
    prepared.start().unwrap()
}

fn client(rank: u32, to: &Session, dir: &TempDir, conn: ConnType) -> (Session, Peer) {
    let s = Session::builder(rank).buffer(64 * KIB).start().unwrap();
    let address = match conn {
        ConnType::Tcp => Address::Tcp(to.tcp_addr().unwrap()),
        _ => dir.address(),
    };
    let peer = s.connect(&address).rank(to.rank().0).over(conn).within(LONG).wait().unwrap();
    (s, peer)
}

fn holds(s: &Session, at: u64, want: &[u8]) -> bool {
    let mut got = vec![0; want.len()];
    s.buffer().read_at(at, &mut got).unwrap();
    got == want
}

/// What `conn` moves: both sessions take part, and one ends while the other transfers.
fn both_share_the_memory(conn: ConnType, first: &mut Prepared) {
    let dir = TempDir::new();
    let mut second = first.beside().unwrap();
    let (a, b) = (start(first, 1, &dir), start(&mut second, 2, &dir));
    assert_eq!((a.rank().0, b.rank().0), (1, 2));
    assert_ne!(a.tcp_addr(), b.tcp_addr());
    let ((ca, to_a), (cb, to_b)) = (client(10, &a, &dir, conn), client(11, &b, &dir, conn));
    assert_eq!((to_a.explain().conn, to_b.explain().conn), (Some(conn), Some(conn)));

    // What a peer of one puts, a peer of the other gets.
    ca.buffer().write_at(0, b"by the first").unwrap();
    to_a.put_at(0, 100, 12).unwrap();
    to_b.get_at(0, 100, 12).unwrap();
    assert!(holds(&cb, 0, b"by the first"), "{conn}");
    // Tags are of the one that they were sent to.
    to_a.send(Message::Tag(1)).wait().unwrap();
    to_b.send(Message::Tag(2)).wait().unwrap();
    assert_eq!(
        (
            b.recv(11, want::Tag).wait().map(|m| m.1).unwrap(),
            a.recv(10, want::Tag).wait().map(|m| m.1).unwrap()
        ),
        (2, 1)
    );
    assert!(a.peer(11).is_err() && b.peer(10).is_err());
    // Memory that one registers is a source of the other.
    let region = a.memory().allocate(KIB).unwrap().share().unwrap();
    region.fill(0, KIB, 0x5A).unwrap();
    let back = b.accept(11).within(LONG).wait().unwrap();
    let ends = Ends { local: region, remote: back.buffer().unwrap() };
    ends.put_at(0, 0, KIB).unwrap();
    back.send(Message::Tag(3)).wait().unwrap();
    assert_eq!(to_b.recv(want::Tag).wait().unwrap(), 3);
    assert!(holds(&cb, 0, &[0x5A; 1024]), "{conn}");

    // One ends, with all of its links, while a peer of the other writes.
    let op = to_b.start_put_at(0, 0, 64 * KIB).unwrap();
    a.shutdown().within(LONG).wait().unwrap();
    assert_eq!(wait(op).unwrap(), 64 * KIB, "{conn}");
    until("the other end knows", LONG, || (!to_a.is_connected()).then_some(()));
    cb.buffer().write_at(0, b"after that").unwrap();
    to_b.put_at(0, 32 * KIB, 10).unwrap();
    back.get_at(0, 0, 10).unwrap();
    assert!(holds(&b, 32 * KIB, b"after that") && holds(&b, 0, b"after that"), "{conn}");
    // And comes again, as another rank.
    let a = start(first, 5, &dir);
    let (c, to_a) = client(10, &a, &dir, conn);
    to_a.get_at(0, 32 * KIB, 10).unwrap();
    assert!(holds(&c, 0, b"after that"), "{conn}");
    drop(b);
    until("the other end knows", LONG, || (!to_b.is_connected()).then_some(()));
    to_a.put_at(0, 0, 64 * KIB).unwrap();
    assert!(holds(&a, 0, b"after that"), "{conn}");
}

#[test]
fn two_sessions_over_one_buffer_are_two_ranks() {
    for via in Via::all() {
        both_share_the_memory(
            via.conn(),
            &mut Session::builder(0).buffer(64 * KIB).prepare().unwrap(),
        );
    }
}

/// Each has a part in UCX of its own, also over a buffer that the part of the first made.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn two_sessions_over_one_buffer_have_two_parts_in_ucx() {
    for of_ucx in [false, true] {
        let builder = Session::builder(0).buffer(64 * KIB);
        let mut first = if of_ucx { builder.ucx() } else { builder }.prepare().unwrap();
        first.use_ucx(true);
        both_share_the_memory(ConnType::Ucx, &mut first);
    }
}

/// The buffer lives as long as either.
#[test]
fn the_memory_outlives_the_session_that_made_it() {
    let dir = TempDir::new();
    let first = Session::builder(0).buffer(64 * KIB).prepare().unwrap();
    let mut second = first.beside().unwrap();
    first.buffer().write_at(0, b"kept").unwrap();
    drop(first);
    let b = start(&mut second, 2, &dir);
    let (c, to_b) = client(3, &b, &dir, ConnType::Shm);
    to_b.get_at(8, 0, 4).unwrap();
    assert!(holds(&c, 8, b"kept"));
}

/// The same, where UCX made it: the first one's part in UCX is gone.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn the_memory_of_ucx_outlives_the_session_that_made_it() {
    let dir = TempDir::new();
    let mut first = Session::builder(0).buffer(64 * KIB).ucx().prepare().unwrap();
    let mut second = first.beside().unwrap();
    second.use_ucx(true);
    let a = start(&mut first, 1, &dir);
    let (ca, to_a) = client(4, &a, &dir, ConnType::Ucx);
    to_a.put_at(0, 0, 64 * KIB).unwrap();
    let b = start(&mut second, 2, &dir);
    b.buffer().write_at(0, b"kept").unwrap();
    drop((a, first, to_a, ca));
    let (c, to_b) = client(3, &b, &dir, ConnType::Ucx);
    to_b.get_at(8, 0, 4).unwrap();
    assert!(holds(&c, 8, b"kept"));
    to_b.put_at(0, 32 * KIB, 16 * KIB).unwrap();
    b.accept(3).within(LONG).wait().unwrap().put_at(0, 0, 64 * KIB).unwrap();
    assert!(holds(&c, 0, b"kept"));
}

/// Whoever is called by a number beyond all ranks is found by its socket, and has the rank that both ends compute.
#[test]
fn any_number_has_a_rank() {
    for n in [0, 1, 2048, 4095] {
        assert_eq!(rank_of(n), n);
    }
    let many = |step: u32| (0..1000u32).map(|i| rank_of(100_000 + i * step)).collect::<Vec<_>>();
    for ranks in [1, 2, 4096, 1 << 16].map(many) {
        assert!(ranks.iter().all(|r| (2048..3069).contains(r)));
        let mut different = ranks.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), ranks.len());
    }
    let dir = TempDir::new();
    let s = Session::builder(rank_of(100_000)).uds(dir.path()).buffer(64).start().unwrap();
    let c = Session::builder(rank_of(u32::MAX)).buffer(64).start().unwrap();
    let peer = c
        .connect(&dir.address())
        .rank(PeerRank::Alias(100_000))
        .over(ConnType::Shm)
        .within(LONG)
        .wait()
        .unwrap();
    assert_eq!(peer.rank(), s.rank());
    peer.send(Message::Tag(7)).wait().unwrap();
    assert_eq!(s.recv(rank_of(u32::MAX), want::Tag).wait().map(|m| m.1).unwrap(), 7);
}
