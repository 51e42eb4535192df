//! Two processes over the transport: puts, gets, tags, messages, revocations; and that it is used only where it is named.

use crate::other::{Other, PATIENCE, until};
use hmc_std::{Access, ConnType, ErrorKind, Message, Session, want};
use own_transport::domain::MemfileDomain;
use own_transport::name::MEMFILE;

/// More than one copy of 1 MiB, and no multiple of anything.
const LEN: u64 = (2 << 20) + 12_345;

fn bytes(seed: u8) -> Vec<u8> {
    let step = seed | 1;
    std::iter::successors(Some(seed), |b| Some(b.wrapping_mul(5).wrapping_add(step)))
        .take(usize::try_from(LEN).expect("small"))
        .collect()
}

#[test]
fn what_one_process_puts_the_other_has_and_puts_back() {
    let mut other = Other::start();
    let (session, peer) = other.connect();
    let (sent, mut got) = (bytes(3), bytes(0));
    session.buffer().write_at(0, &sent).expect("it fits");
    let remote = peer.buffer().expect("it exposes one");
    let all = session.buffer().range(0, LEN).expect("in range");
    remote.put(0, all).wait().expect("put");
    session.buffer().write_at(0, &got).expect("it fits");
    remote.get(0, all).wait().expect("got");
    session.buffer().read_at(0, &mut got).expect("in range");
    assert!(got == sent, "a get of what was put");
    session.buffer().write_at(0, &bytes(0)).expect("it fits");
    other.send(&format!("mirror {LEN}"));
    peer.send(Message::Tag(77)).wait().expect("sent");
    assert_eq!(peer.recv(want::Tag).wait().expect("answered"), 77);
    session.buffer().read_at(0, &mut got).expect("in range");
    assert!(got == sent, "what the other process put");
    other.expect("done");
    let (out, _) = {
        let stats = session.stats();
        let of_peer = stats.peers.first().expect("one peer");
        (of_peer.conn, of_peer.rank)
    };
    assert_eq!(out, Some(MEMFILE));
}

#[test]
fn tags_follow_their_bytes_and_messages_go_both_ways() {
    let mut other = Other::start();
    let (_session, peer) = other.connect();
    let remote = peer.buffer().expect("it exposes one");
    for tag in [5, 0, u64::MAX] {
        other.send("notified");
        remote.put(9, b"tagged").notify(tag).wait().expect("put, and delivered");
        other.expect(&format!("done {tag}"));
    }
    let mut got = [0; 6];
    remote.get(9, &mut got).wait().expect("got");
    assert_eq!(&got, b"tagged");
    other.send(&format!("message {LEN}"));
    let (sent, mut back) = (bytes(9), bytes(0));
    peer.send_data(&sent).wait().expect("sent");
    assert_eq!(peer.recv_data(&mut back).wait().map(|d| d.bytes).expect("received"), LEN);
    assert!(back == sent, "the message came back");
    other.expect("done");
}

#[test]
fn a_window_is_taken_back_while_the_peer_puts_into_it() {
    let mut other = Other::start();
    let (session, peer) = other.connect();
    let region = session.memory().allocate(LEN).expect("memory");
    for label in 1..=8 {
        let span = region.take_all().expect("all of it is free");
        let window = peer.expose(span, Access::WRITE, label).map_err(|(e, _)| e).expect("exposed");
        other.send(&format!("load {label}"));
        other.expect("loading");
        let mut span = window.revoke().within(PATIENCE).wait().expect("the peer lets go of it");
        // From here on no byte of it changes.
        span.fill(0xEE);
        other.expect("ended Revoked");
        assert!(span.as_slice().iter().all(|b| *b == 0xEE), "round {label}");
    }
    assert_eq!(session.stats().quarantined_bytes, 0);
}

/// The kernel enforces it, too: the peer has a descriptor for reading alone.
#[test]
fn a_window_for_reading_cannot_be_written() {
    let mut other = Other::start();
    let (session, peer) = other.connect();
    let span = session.memory().allocate(64).expect("memory").take_all().expect("free");
    let window = peer.expose(span, Access::READ, 1).map_err(|(e, _)| e).expect("exposed");
    other.send("load 1");
    other.expect("ended Access");
    drop(window);
}

#[test]
fn it_is_named_in_explain_and_used_only_where_it_is_named() {
    let other = Other::start();
    let (_session, peer) = other.connect();
    assert_eq!(peer.explain().conn, Some(MEMFILE));
    let explained = peer.explain().to_string();
    assert!(
        explained.starts_with("memfile\n  memfile: chosen: asked for by name; lanes: pwrite(2)"),
        "{explained}"
    );
    assert!(explained.contains("trust: the kernel keeps the peer inside the files"), "{explained}");
    let auto = Session::builder(2).transport(MemfileDomain).start().expect("a session");
    let peer = auto.connect(&other.address()).rank(1).wait().expect("connected");
    assert_eq!(peer.explain().conn, Some(ConnType::Shm), "{}", peer.explain());
    let without = Session::builder(3).start().expect("a session");
    let refused = without.connect(&other.address()).rank(1).over(MEMFILE).within(PATIENCE).wait();
    let why = refused.map(|peer| peer.explain().to_string()).expect_err("it has no such transport");
    assert_eq!(why.kind(), ErrorKind::Unavailable, "{why}");
    assert!(why.to_string().contains("memfile is not in this build"), "{why}");
}

#[test]
fn a_peer_without_the_transport_is_refused_by_name() {
    let dir = std::env::temp_dir().join(format!("own-transport-without-{}", std::process::id()));
    let without = Session::builder(1).uds(&dir).start().expect("a session");
    let session = Session::builder(0).transport(MemfileDomain).start().expect("a session");
    let refused = session
        .connect(&hmc_std::Address::Uds(dir.clone()))
        .rank(1)
        .over(MEMFILE)
        .within(PATIENCE)
        .wait();
    let why = refused.map(|peer| peer.explain().to_string()).expect_err("it has no such transport");
    assert_eq!(why.kind(), ErrorKind::Unavailable, "{why}");
    assert!(why.to_string().contains("no memfile: the peer does not have the transport"), "{why}");
    until("nobody is connected", || without.peers().is_empty());
    drop((without, session));
    let _ = std::fs::remove_dir_all(dir);
}
