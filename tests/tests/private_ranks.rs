//! Peers that are told apart by their addresses: both ends of one rank, two servers of one rank, names that are no ranks.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{Address, ConnType, ErrorKind, Message, Peer, PeerRank, Session, Who, want};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::env::{TempDir, until};
use hmc_tests::listening::Listening as _;

const LONG: Duration = Duration::from_secs(20);

fn server(rank: u32) -> (Session, Address) {
    let s = Session::builder(rank).tcp("127.0.0.1:0").private_ranks().buffer(64).start().unwrap();
    let at = Address::Tcp(s.tcp_addr().unwrap());
    (s, at)
}

fn client(rank: u32) -> Session {
    Session::builder(rank).private_ranks().buffer(64).start().unwrap()
}

fn holds(s: &Session, at: u64, want: &[u8]) -> bool {
    let mut got = vec![0; want.len()];
    s.buffer().read_at(at, &mut got).unwrap();
    got == want
}

/// Bytes and a tag to the peer, and back.
fn talk(from: &Session, to: &Session, there: &Peer, back: &Peer) {
    from.buffer().write_at(0, b"there").unwrap();
    there.put_at(0, 8, 5).unwrap();
    there.send(Message::Tag(3)).wait().unwrap();
    assert_eq!(back.recv(want::Tag).wait().unwrap(), 3);
    assert!(holds(to, 8, b"there"));
    to.buffer().write_at(0, b"back.").unwrap();
    back.put_at(0, 16, 5).unwrap();
    back.send(Message::Tag(4)).wait().unwrap();
    assert_eq!(there.recv(want::Tag).wait().unwrap(), 4);
    assert!(holds(from, 16, b"back."));
}

#[test]
fn both_ends_may_have_one_rank() {
    let (s, at) = server(0);
    let (a, b) = (client(0), client(0));
    let to_s =
        a.connect(&at).rank(PeerRank::Alias(1)).over(ConnType::Tcp).within(LONG).wait().unwrap();
    let to_a = s.accept(Who::Any).within(LONG).wait().unwrap();
    assert!(to_s.rank().0 >= 4096 && to_a.rank().0 >= 4096, "{} {}", to_s.rank(), to_a.rank());
    talk(&a, &s, &to_s, &to_a);
    let from_b =
        b.connect(&at).rank(PeerRank::Alias(0)).over(ConnType::Tcp).within(LONG).wait().unwrap();
    let to_b = s.accept(Who::Any).within(LONG).wait().unwrap();
    assert_eq!(
        to_b.rank(),
        s.accept(Who::Namesake).or_unread().within(LONG).wait().unwrap().rank()
    );
    talk(&b, &s, &from_b, &to_b);
    talk(&a, &s, &to_s, &to_a);
    // One end goes and comes back: a number is never given twice.
    to_s.disconnect().within(LONG).wait().unwrap();
    until("the end is known", LONG, || (!to_a.is_connected()).then_some(()));
    let again =
        a.connect(&at).rank(PeerRank::Alias(1)).over(ConnType::Tcp).within(LONG).wait().unwrap();
    let to_a = s.accept(Who::Any).within(LONG).wait().unwrap();
    assert!(to_a.rank() > to_b.rank());
    talk(&a, &s, &again, &to_a);
    assert_eq!(to_s.send(Message::Tag(1)).wait().unwrap_err().kind(), ErrorKind::PeerDead);
}

#[test]
fn both_ends_may_have_one_rank_over_local_sockets() {
    let dir = TempDir::new();
    let s = Session::builder(5).uds(dir.path()).private_ranks().buffer(64).start().unwrap();
    let a = client(5);
    let to_s = a
        .connect(&Address::Uds(dir.path().into()))
        .rank(PeerRank::Alias(5))
        .within(LONG)
        .wait()
        .unwrap();
    assert_eq!(to_s.explain().conn, Some(ConnType::Shm));
    talk(&a, &s, &to_s, &s.accept(Who::Any).within(LONG).wait().unwrap());
}

#[test]
fn two_servers_of_one_rank_are_distinguished() {
    let ((s, at_s), (t, at_t)) = (server(0), server(0));
    let a = client(1);
    let to_s =
        a.connect(&at_s).rank(PeerRank::Alias(0)).over(ConnType::Tcp).within(LONG).wait().unwrap();
    let to_t =
        a.connect(&at_t).rank(PeerRank::Alias(0)).over(ConnType::Tcp).within(LONG).wait().unwrap();
    assert_eq!(to_s.rank().0, 0);
    talk(&a, &s, &to_s, &s.accept(1).within(LONG).wait().unwrap());
    talk(&a, &t, &to_t, &t.accept(1).within(LONG).wait().unwrap());
    // The same address again is the same peer.
    let same =
        a.connect(&at_s).rank(PeerRank::Alias(0)).over(ConnType::Tcp).within(LONG).wait().unwrap();
    assert_eq!(same.rank().0, 0);
}

#[test]
fn a_name_need_not_be_the_rank() {
    let (s, at) = server(3);
    let a = client(1);
    for name in [3, 7, 1, 100_000, u32::MAX] {
        let peer = a
            .connect(&at)
            .rank(PeerRank::Alias(name))
            .over(ConnType::Tcp)
            .within(LONG)
            .wait()
            .unwrap();
        assert_eq!(peer.rank().0, 3, "{name}");
        talk(&a, &s, &peer, &s.accept(1).within(LONG).wait().unwrap());
    }
}

#[test]
fn who_does_not_allow_it_lets_no_namesake_in() {
    let s = Session::builder(0).tcp("127.0.0.1:0").start().unwrap();
    let at = Address::Tcp(s.tcp_addr().unwrap());
    let e = client(0)
        .connect(&at)
        .rank(PeerRank::Alias(1))
        .over(ConnType::Tcp)
        .within(LONG)
        .wait()
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert!(s.peers().is_empty());
}
