//! Listeners while a session runs: the process behind one is found without its rank; opened, closed and opened again.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may panic")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use hmc_std::{Address, ConnType, ErrorKind, Message, PeerRank, Session, want};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::env::{TempDir, until};
use hmc_tests::listening::Listening as _;

const LONG: Duration = Duration::from_secs(30);

fn session(rank: u32) -> Session {
    Session::builder(rank).tcp("127.0.0.1:0").buffer(4096).start().unwrap()
}

fn at(s: &Session) -> Address {
    Address::Tcp(s.tcp_addr().unwrap())
}

#[test]
fn whoever_listens_is_connected_by_its_address() {
    let (a, b) = (session(7), session(9));
    let peer = b.connect(&at(&a)).over(ConnType::Tcp).within(LONG).wait().unwrap();
    assert_eq!(peer.rank().0, 7);
    assert_eq!(peer.explain().conn, Some(ConnType::Tcp));
    assert_eq!(peer.explain().address, a.tcp_addr());
    b.buffer().write_at(0, b"by address").unwrap();
    peer.put_at(0, 100, 10).unwrap();
    let mut got = [0; 10];
    a.buffer().read_at(100, &mut got).unwrap();
    assert_eq!(&got, b"by address");
    let back = a.accept(9).within(LONG).wait().unwrap();
    assert_eq!(back.explain().address.map(|x| x.ip()), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    assert_ne!(back.explain().address, b.tcp_addr(), "the connection's port, not the listener's");
    // Again, and from the other side: the peer that there is.
    let again = b.connect(&at(&a)).within(LONG).wait().unwrap();
    assert_eq!(again.rank().0, 7);
    let other = a.connect(&at(&b)).within(LONG).wait().unwrap();
    assert_eq!(other.rank().0, 9);
    assert_eq!((a.stats().peers.len(), b.stats().peers.len()), (1, 1));
    drop(a);
    until("it is gone", LONG, || (!again.is_connected()).then_some(()));
    assert!(again.explain().address.is_some(), "known after its death, too");
}

#[test]
fn both_may_dial_each_other_at_once() {
    for _ in 0..20 {
        let (a, b) = (session(1), session(2));
        let (to_a, to_b) = (at(&a), at(&b));
        std::thread::scope(|s| {
            let one = s.spawn(|| {
                a.connect(&to_b).over(ConnType::Tcp).within(LONG).wait().unwrap().rank().0
            });
            assert_eq!(
                b.connect(&to_a).over(ConnType::Tcp).within(LONG).wait().unwrap().rank().0,
                1
            );
            assert_eq!(one.join().unwrap(), 2);
        });
    }
}

#[test]
fn a_folder_with_one_process_needs_no_rank() {
    let dir = TempDir::new();
    let me = Session::builder(5).uds(dir.path()).start().unwrap();
    let e = me.connect(&dir.address()).within(LONG).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert!(e.to_string().contains("`Session::peer` of its own rank"), "{e}");
    // A stale socket, as a killed process leaves it, is nobody.
    let stale = dir.path().join("hmc_ctrl_rank_77.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(stale.exists());
    let other = Session::builder(6).uds(dir.path()).start().unwrap();
    let peer = me.connect(&dir.address()).within(LONG).wait().unwrap();
    assert_eq!((peer.rank().0, peer.explain().address), (6, None));
    assert_eq!(peer.explain().conn, Some(ConnType::Shm));
    let outsider = Session::builder(8).start().unwrap();
    let e = outsider.connect(&dir.address()).within(LONG).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert!(e.to_string().contains("(5, 6)"), "it names them: {e}");
    drop((me, peer));
    let twin = Session::builder(6).start().unwrap();
    let e = twin.connect(&dir.address()).within(LONG).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::DuplicateRank, "{e}");
    drop(other);
    let e = outsider.connect(&dir.address()).within(LONG).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    let nowhere = Address::Uds(dir.path().join("none"));
    let e = outsider.connect(&nowhere).within(LONG).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
}

#[test]
fn a_connect_without_a_peer_is_reported_in_words() {
    let a = session(3);
    let e = a.connect(&at(&a)).within(LONG).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert!(
        e.to_string().contains("itself")
            && e.to_string().contains("`Session::peer` of its own rank"),
        "{e}"
    );
    let e = a.connect(&at(&a)).over(ConnType::Loopback).within(LONG).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    // Every way that leads to a listener on all addresses.
    let any = Session::builder(3).insecure().tcp("0.0.0.0:0").start().unwrap();
    for ip in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(127, 0, 0, 9)] {
        let port = any.tcp_addr().unwrap().port();
        let address = Address::Tcp(SocketAddr::from((ip, port)));
        let e = any.connect(&address).within(LONG).wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{ip}: {e}");
    }
    // Another process with the same rank is no self.
    let twin = SocketAddr::from((Ipv4Addr::LOCALHOST, any.tcp_addr().unwrap().port()));
    let e = a.connect(&Address::Tcp(twin)).within(LONG).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::DuplicateRank, "{e}");
    let job = Session::builder(4).job(99).tcp("127.0.0.1:0").start().unwrap();
    let e = a.connect(&at(&job)).within(LONG).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert!(e.to_string().contains("job"), "{e}");
    let far = Address::Tcp(SocketAddr::from(([192, 0, 2, 1], 9)));
    let e = a.connect(&far).within(LONG).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoCredentials, "{e}");
    // One that takes the connection and says nothing, and one that is not there.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(silent.local_addr().unwrap());
    let e = a.connect(&address).within(Duration::from_millis(50)).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
    drop(silent);
    let e = a.connect(&address).within(LONG).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
}

/// Listens at a TCP address, and says where.
fn listens(host: &Session, at: &str) -> Result<SocketAddr, hmc_std::Error> {
    let listener = host.listen(&tcp(at.parse().unwrap()))?;
    match listener.address() {
        Address::Tcp(addr) => Ok(*addr),
        other => panic!("{other}"),
    }
}

fn tcp(addr: SocketAddr) -> Address {
    Address::Tcp(addr)
}

/// Puts over `peer` and reads what came.
fn puts(from: &Session, peer: &hmc_std::Peer, to: &Session, value: u8) {
    from.buffer().fill(0, 64, value).unwrap();
    peer.put_at(0, 0, 64).unwrap();
    let mut got = [0; 64];
    to.buffer().read_at(0, &mut got).unwrap();
    assert_eq!(got, [value; 64]);
}

#[test]
fn listeners_open_and_close_while_links_are_up() {
    let host = Session::builder(0).buffer(4096).start().unwrap();
    assert_eq!(host.tcp_addr(), None);
    let listens = |at: &str| listens(&host, at);
    let first = listens("127.0.0.1:0").unwrap();
    assert_eq!(host.tcp_addr(), Some(first));
    let second = listens("127.0.0.1:0").unwrap();
    assert_eq!((host.tcp_addr(), host.tcp_addrs()), (Some(first), vec![first, second]));
    let mut guests = Vec::new();
    for rank in 1..20 {
        let guest = Session::builder(rank).buffer(4096).redial(false).start().unwrap();
        let peer =
            guest.connect(&tcp(first)).rank(0).over(ConnType::Tcp).within(LONG).wait().unwrap();
        let open = host.info().listeners;
        for listener in &open {
            listener.close();
        }
        assert_eq!(host.tcp_addr(), None);
        let late = Session::builder(rank + 100).start().unwrap();
        let e = late.connect(&tcp(first)).rank(0).wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
        guests.push((guest, peer));
        for (guest, peer) in &guests {
            puts(guest, peer, &host, u8::try_from(rank).unwrap());
        }
        // Another process may have the port meanwhile; then it is free again.
        let other = TcpListener::bind(first).unwrap();
        let e = listens(&first.to_string()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
        drop(other);
        assert_eq!(listens(&first.to_string()).unwrap(), first);
        // That one is another listener.
        open[0].close();
        assert_eq!(host.tcp_addr(), Some(first));
    }
    assert_eq!(host.peers().len(), guests.len());
}

#[test]
fn a_local_listener_leaves_nothing_behind() {
    let dir = TempDir::new();
    let host = Session::builder(0).buffer(4096).start().unwrap();
    for round in 1..10 {
        let listener = host.listen(&dir.address()).unwrap();
        assert_eq!(listener.address(), &dir.address());
        let path = host.uds_paths().into_iter().next().unwrap();
        assert!(path.exists());
        let e = host.listen(&dir.address()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::DuplicateRank, "{e}");
        let guest = Session::builder(round).buffer(4096).start().unwrap();
        let peer = guest.connect(&dir.address()).rank(0).wait().unwrap();
        assert_eq!(peer.explain().conn, Some(ConnType::Shm));
        listener.close();
        assert!(!path.exists() && host.uds_paths().into_iter().next().is_none());
        puts(&guest, &peer, &host, 7);
        // The rank is free in that folder.
        drop(Session::builder(0).uds(dir.path()).start().unwrap());
    }
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let e = host.listen(&dir.address()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
}

#[test]
fn clients_without_proof_are_refused_until_they_are_allowed() {
    let host = Session::builder(0).buffer(4096).start().unwrap();
    let e = listens(&host, "0.0.0.0:0").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoCredentials, "{e}");
    let two = Address::Local { dir: "/tmp".into(), endpoint: ([127, 0, 0, 1], 0).into() };
    let e = host.listen(&two).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert_eq!(host.tcp_addr(), None);
    let guest = Session::builder(1).buffer(4096).start().unwrap();
    let far = tcp(SocketAddr::from(([0, 0, 0, 0], 1)));
    assert_eq!(guest.connect(&far).rank(0).wait().unwrap_err().kind(), ErrorKind::NoCredentials);
    host.listen(&Address::tcp(([0, 0, 0, 0], 0)).unauthenticated()).unwrap();
    let far = Address::tcp(([0, 0, 0, 0], host.tcp_addr().unwrap().port()));
    for dialed in [guest.connect(&far).wait(), guest.connect(&far).rank(0).wait()] {
        assert_eq!(dialed.unwrap_err().kind(), ErrorKind::NoCredentials, "at this end, too");
    }
    let cxx = guest.connect(&far).rank(PeerRank::Cxx(0)).wait();
    assert_eq!(cxx.unwrap_err().kind(), ErrorKind::NoCredentials);
    let peer = guest.connect(&far.unauthenticated()).rank(0).wait().unwrap();
    puts(&guest, &peer, &host, 3);
}

/// A client of one of several listeners gets its address: the others may be unreachable for it.
#[test]
fn each_listener_leads_to_both_connections() {
    let host = Session::builder(0).buffer(4096).start().unwrap();
    let addresses: Vec<_> =
        (1..5).map(|n| listens(&host, &format!("127.0.0.{n}:0")).unwrap()).collect();
    assert_eq!(host.tcp_addr(), addresses.first().copied());
    for (rank, address) in (1..).zip(&addresses) {
        let guest = Session::builder(rank).buffer(4096).start().unwrap();
        let peer =
            guest.connect(&tcp(*address)).rank(0).over(ConnType::Tcp).within(LONG).wait().unwrap();
        puts(&guest, &peer, &host, 9);
        assert_eq!(peer.explain().address, Some(*address));
    }
}

#[test]
fn the_end_of_a_session_closes_its_listeners_while_peers_exist() {
    let host = session(0);
    let (addr, at_host) = (host.tcp_addr().unwrap(), at(&host));
    let guest = session(1);
    let _there = guest.connect(&at_host).rank(0).wait().unwrap();
    let kept = host.accept(1).within(LONG).wait().unwrap();
    host.shutdown().within(LONG).wait().unwrap();
    TcpListener::bind(addr).unwrap();
    assert!(!kept.is_connected());
}

#[test]
fn a_peer_that_left_is_found_as_long_as_its_messages_are_unread() {
    let (a, b) = (session(1), session(2));
    let peer = b.connect(&at(&a)).over(ConnType::Tcp).within(LONG).wait().unwrap();
    assert_eq!(
        a.accept(2).or_unread().within(LONG).wait().unwrap().rank().0,
        2,
        "while it is here"
    );
    peer.send(Message::Tag(7)).wait().unwrap();
    peer.send(Message::bytes(b"last words")).wait().unwrap();
    drop((peer, b));
    until("it has left", LONG, || (!a.peer(2).is_ok_and(|p| p.is_connected())).then_some(()));
    let soon = Duration::from_millis(20);
    assert_eq!(a.accept(2).within(soon).wait().unwrap_err().kind(), ErrorKind::DeadlineExceeded);
    let met = a.accept(2).or_unread().within(LONG).wait().unwrap();
    assert_eq!(met.recv(want::Tag).wait().unwrap(), 7);
    assert_eq!(
        a.accept(2).or_unread().within(LONG).wait().unwrap().recv(want::Bytes).wait().unwrap(),
        b"last words"
    );
    assert_eq!(
        a.accept(2).or_unread().within(soon).wait().unwrap_err().kind(),
        ErrorKind::DeadlineExceeded
    );
}

#[test]
fn ranks_that_nobody_can_have_are_refused_at_once() {
    let (a, b) = (session(1), session(2));
    let refused = |r: Result<hmc_std::Peer, hmc_std::Error>| {
        let e = r.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
        assert!(e.to_string().contains("4095"), "{e}");
    };
    for rank in [4096, u32::MAX] {
        refused(b.connect(&at(&a)).rank(rank).wait());
        refused(b.accept(rank).within(LONG).wait());
        refused(b.accept(rank).or_unread().within(LONG).wait());
    }
    let other = b.connect(&at(&a)).rank(4095).wait().unwrap_err();
    assert!(!other.to_string().contains("beyond"), "{other}");
}
