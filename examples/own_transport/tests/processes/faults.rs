//! The other process is killed, or stopped, in the middle of its puts: nothing hangs, and memory comes back.

use std::time::Duration;

use crate::other::{Other, PATIENCE, until};
use hmc_std::{Access, ErrorKind, Region, Session, Span, Window, want};

const LABEL: u64 = 1;
const LEN: u64 = 1 << 20;
/// Longer than a peer that runs needs, so that one that does not is told apart.
const SHORT: Duration = Duration::from_millis(200);

/// A window of a region into which the other process puts, which begins at `at`.
fn under_load(other: &mut Other, session: &Session, at: u64) -> (Region, Window<Span>) {
    let peer = session.peer(1).expect("connected");
    let region = session.memory().allocate(LEN * 2).expect("memory");
    let span = region.take(at, LEN).expect("it is free");
    let window = peer.expose(span, Access::WRITE, LABEL).map_err(|(e, _)| e).expect("exposed");
    other.send(&format!("load {LABEL}"));
    other.expect("loading");
    (region, window)
}

/// Waits until the range is free, and takes it.
fn taken(region: &Region, at: u64) -> Span {
    let mut span = None;
    until("the range comes back", || {
        span = region.take(at, LEN).ok();
        span.is_some()
    });
    span.expect("it was taken")
}

/// Waits until nothing of the session is held back.
fn nothing_is_held(session: &Session) {
    until("nothing is held", || {
        let stats = session.stats();
        stats.quarantined_bytes == 0 && stats.quarantined_links == 0
    });
}

#[test]
fn a_killed_peer_ends_what_runs_and_memory_comes_back() {
    let mut other = Other::start();
    let (session, peer) = other.connect();
    let (region, window) = under_load(&mut other, &session, 64);
    // Tags are answered by the peer, so that some of these run when it ends.
    session.buffer().write_at(0, b"12345678").expect("it fits");
    let remote = peer.buffer().expect("it exposes one");
    let range = session.buffer().range(0, 8).expect("in range");
    let start = |tag| remote.put(0, range).notify(tag).start().expect("there is space");
    let ops: Vec<_> = (0..64).map(start).collect();
    other.kill();
    for op in ops {
        match op.wait().map_err(|e| e.kind()) {
            Ok(_) | Err(ErrorKind::PeerDead) => {}
            other => panic!("an operation ended as {other:?}"),
        }
    }
    until("the death is known", || !peer.is_connected());
    let late = remote.put(0, range).wait().map(drop).map_err(|e| e.kind());
    assert_eq!(late, Err(ErrorKind::PeerDead));
    let mut span = window.revoke().within(PATIENCE).wait().expect("nobody is there any more");
    span.fill(0x5A);
    assert!(span.as_slice().iter().all(|b| *b == 0x5A));
    drop(span);
    drop(taken(&region, 64));
    nothing_is_held(&session);
}

/// Parts of pages cannot be replaced under a peer that may be inside them.
#[test]
fn a_stopped_peer_leaves_memory_in_quarantine_until_it_goes_on() {
    let mut other = Other::start();
    let (session, peer) = other.connect();
    let (region, window) = under_load(&mut other, &session, 64);
    other.stop();
    let refused = window.revoke().within(SHORT).wait().map(drop).map_err(|e| e.kind());
    assert_eq!(refused, Err(ErrorKind::Quarantined));
    assert_eq!(session.stats().quarantined_bytes, LEN);
    assert_eq!(region.take(64, LEN).map(drop).map_err(|e| e.kind()), Err(ErrorKind::Busy));
    other.go_on();
    let mut span = taken(&region, 64);
    span.fill(0x5A);
    other.expect("ended Revoked");
    assert!(span.as_slice().iter().all(|b| *b == 0x5A), "the peer was out");
    nothing_is_held(&session);
    // The link goes on.
    other.send("tag 4");
    assert_eq!(peer.recv(want::Tag).wait().expect("it is there"), 4);
    other.expect("done");
}

#[test]
fn a_stopped_peer_that_is_killed_gives_memory_back() {
    let mut other = Other::start();
    let (session, _peer) = other.connect();
    let (region, window) = under_load(&mut other, &session, 64);
    other.stop();
    let refused = window.revoke().within(SHORT).wait().map(drop).map_err(|e| e.kind());
    assert_eq!(refused, Err(ErrorKind::Quarantined));
    other.kill();
    drop(taken(&region, 64));
    nothing_is_held(&session);
}

/// Whole pages are replaced: the peer's descriptor has the old ones.
#[test]
fn whole_pages_are_replaced_under_a_stopped_peer() {
    let mut other = Other::start();
    let (session, peer) = other.connect();
    let (region, window) = under_load(&mut other, &session, 0);
    other.stop();
    let mut span = window.revoke().within(SHORT).wait().expect("fresh pages");
    span.fill(0x5A);
    other.go_on();
    other.expect("ended Revoked");
    assert!(span.as_slice().iter().all(|b| *b == 0x5A), "the peer wrote into the old pages");
    drop(span);
    // Such a region has no file any more.
    let again = peer.expose(region.take(LEN, LEN).expect("free"), Access::WRITE, LABEL + 1);
    assert_eq!(again.map(drop).map_err(|(e, _)| e.kind()), Err(ErrorKind::Unsupported));
    nothing_is_held(&session);
}

/// An operation ends at its deadline; what the peer has to answer is answered when it goes on.
#[test]
fn a_stopped_peer_ends_no_link_and_an_operation_ends_at_its_deadline() {
    let mut other = Other::start();
    let (session, peer) = other.connect();
    session.buffer().write_at(0, b"stopped!").expect("it fits");
    other.stop();
    // The copy needs no peer, the tag does.
    let remote = peer.buffer().expect("it exposes one");
    let range = session.buffer().range(0, 8).expect("in range");
    remote.put(0, range).wait().expect("a put by this end alone");
    let late = remote.put(8, range).notify(6).within(SHORT).wait();
    assert_eq!(late.map(drop).map_err(|e| e.kind()), Err(ErrorKind::DeadlineExceeded));
    other.go_on();
    other.send("notified");
    other.expect("done 6");
    let mut got = [0; 8];
    remote.get(8, &mut got).wait().expect("got");
    assert_eq!(&got, b"stopped!");
}
