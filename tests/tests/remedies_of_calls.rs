//! The rarer errors of operations, memory and windows: each has the kind, the rank and the words that tell its reader what to
//! do.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::future::Future as _;
use std::net::TcpListener;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hmc_core::limits::MAX_RNDV;
use hmc_std::ErrorKind::{
    Access as NotAllowed, Busy, Cancelled, Closed, DeadlineExceeded, Full, InvalidConfig, Length,
    NotFound, PeerDead, Quarantined, Range, Stale, Unsupported,
};
use hmc_std::{
    Access, Address, ConnType, Done, Message, Op, PeerRank, Session, SessionBuilder, wait_any,
    want::Wanted,
};
use hmc_testkit::buffers::{BufferMessages as _, BufferTransfers as _, wait};
use hmc_tests::env::{TempDir, until};
use hmc_tests::errors::Errors;
use hmc_tests::inside::Inside;
use hmc_tests::pair::Pair;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);
const LEN: u64 = 4096;

fn start(rank: u32, more: impl FnOnce(SessionBuilder) -> SessionBuilder) -> Session {
    more(Session::builder(rank).buffer(LEN)).start().unwrap()
}

#[test]
fn operations_that_cannot_be() {
    let mut e = Errors::new();
    let p = Pair::new(ConnType::Tcp, LEN);
    let (a, rank) = (&p.a, Some(1));
    let range = a.put_at(0, LEN - 1, 2);
    assert!(range.as_ref().is_err_and(|e| e.range().is_some_and(|r| (r.len, r.limit) == (2, LEN))));
    e.add("range", range, Range, rank, &["4096"]);
    // A future that has given its result has none left.
    let mut op = a.start_put_at(0, 0, 8).unwrap();
    op.wait_for(LONG).ended().unwrap().unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let polled = Pin::new(&mut op).poll(&mut cx);
    assert!(matches!(polled, Poll::Ready(Ok(Done { bytes: 8, .. }))), "{polled:?}");
    e.add("given", op.wait(), Stale, None, &["was given before"]);
    e.add("wait_any", wait_any::<()>(&[], SHORT), InvalidConfig, None, &["at least one"]);
    let nothing = a.recv(Wanted::Tag).within(SHORT).wait();
    e.add("recv", nothing, DeadlineExceeded, rank, &["waiting for a message", "wait longer"]);
    let window = a.window(77).within(SHORT).wait();
    e.add("window", window, DeadlineExceeded, rank, &["labelled 77", "look at the peer"]);
    // A message of more bytes than the receiver's buffer.
    let sent = a.start_send_at(0, 100).unwrap();
    let got = p.b.recv_data(&mut [0; 10]).within(LONG).wait().map(|d| d.bytes);
    let says = &["100 bytes", "space for 10", "nothing was written"];
    e.add_limit("space", got, Length, Some(0), (100, 10), says);
    e.add_limit("length", sent.wait(), Length, rank, (100, 10), &["space for 10"]);
    let sends: Vec<_> = (0..MAX_RNDV).map(|_| a.start_send_at(0, 8).unwrap()).collect();
    let more = a.start_send_at(0, 8);
    e.add_limit("messages", more, Full, rank, (65, 64), &["65 messages", "wait for some"]);
    sends[0].cancel();
    let cancelled = sends.into_iter().next().unwrap().wait();
    e.add("cancelled", cancelled, Cancelled, rank, &["cancelled"]);
    // One put has the only slot, since its tag finds no space in the inbox.
    let p = Pair::with(ConnType::Loopback, LEN, |b| b.slots(1).inbox(1, 1 << 20));
    let put = |tag| {
        let remote = p.a.buffer().unwrap();
        remote.put(0, p.sender().buffer().range(0, 8).unwrap()).notify(tag).start()
    };
    wait(put(1).unwrap()).unwrap();
    let _runs = put(2).unwrap();
    let says = &["2 operations", "the limit is 1", "use `start_blocking`"];
    e.add_limit("slots", put(3), Full, rank, (2, 1), says);
    e.check();
}

#[test]
fn memory_and_windows_that_cannot_be_had() {
    let mut e = Errors::new();
    let p = Pair::with(ConnType::Tcp, LEN, |b| b.windows(3));
    let (owner, user) = (p.receiver(), p.sender());
    let region = owner.memory().allocate(LEN).unwrap();
    let span = region.take(0, 64).unwrap();
    e.add("taken", region.take(10, 10), Busy, None, &["10 to 20", "wait for it or revoke it"]);
    e.add("shared", region.clone().share(), Busy, None, &["must be free to be shared"]);
    let shared = owner.memory().allocate(LEN).unwrap();
    let buffer = shared.clone().share().unwrap();
    e.add("private", shared.take(0, 1), Busy, None, &["shared buffer", "use another region"]);
    let own = |access| p.b.expose(buffer.range(0, 64).unwrap(), access, 1);
    // One is the buffer's.
    let windows = [own(Access::READ).unwrap(), own(Access::READ).unwrap()];
    let says = &["4 windows", "the limit is 3", "revoke one first"];
    e.add_limit("windows", own(Access::READ), Full, Some(0), (4, 3), says);
    let foreign = user.memory().allocate(LEN).unwrap().share().unwrap();
    let foreign = p.b.expose(foreign.range(0, 64).unwrap(), Access::READ, 1);
    e.add("foreign", foreign, InvalidConfig, None, &["session"]);
    let remote = p.a.window(1).within(LONG).wait().unwrap();
    let source = || user.memory().allocate(64).unwrap().take_all().unwrap();
    let put = |span| remote.put(0, span).start().and_then(Op::wait);
    e.add("access", put(source()), NotAllowed, Some(1), &["access"]);
    for window in windows {
        window.revoke().within(LONG).wait().unwrap();
    }
    e.add("no window", put(source()), NotFound, Some(1), &["no such window"]);
    let another = remote.put(0, span).start();
    e.add("another's memory", another, InvalidConfig, Some(1), &["register it with this one"]);
    e.check();
}

#[test]
fn a_peer_that_has_no_data_plane() {
    let mut e = Errors::new();
    let old = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = start(0, |b| b);
    let peer = near
        .connect(&Address::Tcp(old.local_addr().unwrap()))
        .rank(PeerRank::Cxx(4))
        .within(LONG)
        .wait()
        .unwrap();
    let region = near.memory().allocate(LEN).unwrap();
    let says: &[&str] = &["upstream dialect", "connect natively"];
    e.add("send", peer.send_data(b"x").wait(), Unsupported, Some(4), says);
    let receive = peer.recv_data(region.take_all().unwrap()).start();
    e.add("receive", receive, Unsupported, Some(4), says);
    let window = peer.expose(region.take_all().unwrap(), Access::READ, 1).map_err(|(e, _)| e);
    e.add("expose", window, Unsupported, Some(4), says);
    e.add("put", peer.put_at(0, 0, 8), NotFound, Some(4), &["exposes no buffer"]);
    e.check();
}

#[test]
fn peers_and_sessions_that_are_gone() {
    let mut e = Errors::new();
    for conn in [ConnType::Shm, ConnType::Tcp] {
        let Pair { mut sessions, a, b, dir: _dir } = Pair::new(conn, LEN);
        let region = sessions[1].memory().allocate(LEN).unwrap();
        let op = a.start_put_at(0, 0, 8).unwrap();
        wait(op).unwrap();
        let receiver = sessions.remove(0);
        let name = format!("{conn:?}");
        receiver.shutdown().within(LONG).wait().unwrap();
        until("its goodbye has come", LONG, || (!a.is_connected()).then_some(()));
        for (what, r) in [
            ("put", a.put_at(0, 0, 8)),
            ("send_tag", a.send(Message::Tag(1)).wait()),
            ("send_data", a.send_data(b"x").wait().map(drop)),
            ("recv", a.recv(Wanted::Any).within(LONG).wait().map(drop)),
        ] {
            let closed = r.as_ref().is_err_and(|e| e.kind() == Closed);
            let kind = if closed { Closed } else { PeerDead };
            e.add(&format!("{name} {what}"), r, kind, Some(1), &["rank 1"]);
        }
        let expose = a.expose(region.take_all().unwrap(), Access::READ, 1).map_err(|(e, _)| e);
        let closed = expose.as_ref().is_err_and(|e| e.kind() == Closed);
        e.add(&name, expose, if closed { Closed } else { PeerDead }, Some(1), &["rank 1"]);
        drop(b);
    }
    e.check();
}

/// A peer inside a window that does not get out: what is held back, and that no more is lent until it is.
#[test]
fn memory_that_is_held_back() {
    let mut e = Errors::new();
    let dir = TempDir::new();
    let session = start(0, |b| b.uds(dir.path()).max_quarantine(0));
    let mut inside = Inside::join(1, &dir.address());
    let peer = session.accept(1).within(LONG).wait().unwrap();
    let region = session.memory().allocate(2 * LEN).unwrap();
    // No whole page: the old ones cannot be left to the peer.
    let window = peer.expose(region.take(0, 64).unwrap(), Access::all(), 1);
    let window = window.map_err(|(e, _)| e).unwrap();
    let remote = inside.find(1);
    inside.enter(&remote).unwrap();
    let held = window.revoke().within(SHORT).wait();
    e.add("held", held, Quarantined, Some(1), &["64 bytes", "they return when it does or dies"]);
    let more = peer.expose(region.take(LEN, 64).unwrap(), Access::all(), 2).map_err(|(e, _)| e);
    let says = &["64 bytes quarantined", "wait for their processes to end"];
    e.add_limit("more", more, Quarantined, None, (64, 0), says);
    e.add("taken", region.take(0, 1), Busy, None, &["wait for it or revoke it"]);
    inside.leave(&remote);
    until("they are back", LONG, || region.take(0, 64).ok());
    e.check();
}

#[test]
fn collectives_that_cannot_be() {
    let mut e = Errors::new();
    let p = Pair::new(ConnType::Tcp, LEN);
    let session = p.sender();
    e.add(
        "twice",
        session.group(&[0, 1, 1]).wait(),
        InvalidConfig,
        None,
        &["rank 1", "name each once"],
    );
    e.add("lacks", session.group(&[1]).wait(), InvalidConfig, None, &["own rank, 0", "add it"]);
    let group = session.group(&[0, 1]).wait().unwrap();
    let root = group.broadcast(2, &mut [0; 8]).wait();
    e.add("root", root, InvalidConfig, None, &["root 2", "the last position of the group, 1"]);
    let gather = group.allgather(&[0; 8], &mut [0; 8]).wait();
    e.add("length", gather, Length, None, &["needs 16", "2 members", "nothing was sent"]);
    e.check();
}
