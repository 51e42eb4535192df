//! Memory that a peer reaches by UCX's lanes of shared memory: it comes back when the peer says that it is out, or ends.
//! What its owner then sees must never change.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests may panic")]

use std::ptr::NonNull;
use std::time::Duration;

use hmc_std::{Access, ConnType, Peer, Session};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, bound, until};
use hmc_tests::lent::{LEN as LENT, OWN, Owner, owned};
use hmc_tests::listening::Listening as _;
use hmc_tests::pair::Pair;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const LANES: [&str; 2] = ["posix,cma,self", "sysv,cma,self"];
const LEN: u64 = 64 << 10;

/// Where a session of rank 1 is reached, by a local socket or by TCP.
fn address_of(session: &Session, dir: &TempDir, by_tcp: bool) -> String {
    if by_tcp {
        format!("tcp://{}", session.tcp_addr().unwrap())
    } else {
        format!("uds://{}", dir.path().display())
    }
}

/// A peer that is stopped is dead by its silence, not by the end of a stream. It cannot say that it is out of a window: the
/// end of its process does.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn windows_come_back_at_the_death_of_a_silent_peer() {
    for lanes in LANES {
        let dir = TempDir::new();
        let session = Session::builder(1).uds(dir.path()).ucx().ucx_key("TLS", lanes);
        let session = session.tcp("127.0.0.1:0").buffer(4096).start().unwrap();
        // By either listener: over TCP the kernel does not report the peer's process.
        for by_tcp in [false, true] {
            let address = address_of(&session, &dir, by_tcp);
            let mut actor = Actor::session(ACTOR, &format!("rank=0 ucx tls={lanes} buffer=4096"));
            actor.request(&format!("connect 1 {address} ucx 20000"));
            let peer = session.accept(0).within(LONG).wait().unwrap();
            let region = session
                .memory()
                .register(hmc_std::memory::HeapBytes::from(vec![0; 64 << 10]))
                .unwrap();
            let window = peer.expose(region.take_all().unwrap(), Access::all(), 3);
            let window = window.map_err(|(e, _)| e).unwrap();
            actor.request("find 1 3 20000");
            assert_eq!(peer.explain().conn, Some(ConnType::Ucx));
            peer.put_at(0, 0, 8).expect("the link moves bytes");
            actor.stop();
            until("its silence is noticed", LONG, || (!peer.is_connected()).then_some(()));
            drop(window);
            assert_eq!(session.stats().quarantined_bytes, LEN, "over {lanes}, {address}");
            let killed = actor.kill();
            until("the dead give it back", LONG, || {
                (session.stats().quarantined_bytes == 0).then_some(())
            });
            assert!(killed.elapsed() < bound(Duration::from_secs(2)), "{:?}", killed.elapsed());
            region.take_all().unwrap();
        }
    }
}

/// What the other process writes, or the source of a get holds.
const THEIRS: u8 = 0xAB;

/// A session of this process in which a peer, a process of its own, has a window of lent memory.
fn lending(lanes: &str, by_tcp: bool) -> (Session, Peer, Actor) {
    let dir = TempDir::new();
    let session = Session::builder(1).uds(dir.path()).ucx().ucx_key("TLS", lanes).buffer(4096);
    let session = session.tcp("127.0.0.1:0").redial(false).start().unwrap();
    let mut actor = Actor::session(ACTOR, &format!("rank=0 redial=0 ucx tls={lanes} buffer=4096"));
    actor.request(&format!("connect 1 {} ucx 20000", address_of(&session, &dir, by_tcp)));
    let peer = session.accept(0).within(LONG).wait().unwrap();
    peer.put_at(0, 0, 8).expect("the link moves bytes");
    (session, peer, actor)
}

/// Stops a peer, as a rule in the middle of its copy.
fn stop_if(stops: bool, actor: &Actor) -> bool {
    if stops {
        actor.stop();
    }
    stops
}

fn resume_if(stopped: bool, actor: &Actor) {
    if stopped {
        actor.resume();
    }
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn memory_of_a_window_outlives_its_session() {
    for round in 0..8 {
        let lanes = LANES[round % 2];
        let (session, peer, mut actor) = lending(lanes, round > 3);
        let (owner, lent) = Owner::new(0);
        let span = session.memory().register(lent).unwrap().take_all().unwrap();
        let window = peer.expose(span, Access::all(), 5).map_err(|(e, _)| e).unwrap();
        actor.request("find 1 5 20000");
        actor.send(&format!("put_window 1 5 {LENT} {THEIRS}"));
        until("the copy begins", LONG, || (owner.first_byte() == THEIRS).then_some(()));
        let stops = stop_if(round % 4 > 1, &actor);
        drop((window, peer));
        let _ = session.shutdown().within(Duration::from_millis(1)).wait();
        assert!(!(stops && owner.is_back()), "the stopped peer may still copy, {lanes}");
        resume_if(stops, &actor);
        until("the memory comes back", LONG, || owner.is_back().then_some(()));
        let _ = actor.answer();
        assert_eq!(
            owner.changed(),
            0,
            "bytes written after the memory came back, {lanes}, {round}"
        );
    }
}

/// The session's own buffer, which was made without UCX: its lanes copy to its addresses, where something else lies as soon
/// as it is gone.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn the_buffer_outlives_its_session() {
    for round in 0..8 {
        let (lanes, dir) = (LANES[round % 2], TempDir::new());
        let len = u64::try_from(LENT).unwrap();
        let part = Session::builder(1).uds(dir.path()).ucx_key("TLS", lanes).buffer(len);
        let mut prepared = part.tcp("127.0.0.1:0").redial(false).prepare().unwrap();
        prepared.use_ucx(true);
        let session = prepared.start().unwrap();
        let start = NonNull::new(session.buffer().as_ptr()).unwrap();
        let settings = format!("rank=0 redial=0 ucx tls={lanes} buffer={len}");
        let mut actor = Actor::session(ACTOR, &settings);
        let address = address_of(&session, &dir, round > 3);
        actor.request(&format!("connect 1 {address} ucx 20000"));
        session
            .accept(0)
            .within(LONG)
            .wait()
            .unwrap()
            .put_at(0, 0, 8)
            .expect("the link moves bytes");
        actor.request(&format!("fill 0 {len} {THEIRS}"));
        actor.send(&format!("put 1 0 0 {len}"));
        let mut first = [0];
        until("the copy begins", LONG, || {
            session.buffer().read_at(0, &mut first).unwrap();
            (first[0] == THEIRS).then_some(())
        });
        let stops = stop_if(round % 4 > 1, &actor);
        drop(prepared);
        let _ = session.shutdown().within(Duration::from_millis(1)).wait();
        drop(session);
        if stops {
            assert!(Owner::at(start).is_none(), "the stopped peer may still copy, {lanes}");
            let held = hmc_std::held();
            assert!(held.iter().any(|h| h.peer.0 == 0 && h.bytes == len), "{held:?}");
        }
        resume_if(stops, &actor);
        let owner = until("the memory is given back", LONG, || Owner::at(start));
        let _ = actor.answer();
        assert_eq!(
            owner.changed(),
            0,
            "bytes written after the memory came back, {lanes}, {round}"
        );
    }
}

/// Both ends are of this process, whose end is no fence: only the word of the initiator is one.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn memory_that_is_read_outlives_its_session() {
    for round in 0..8 {
        let lanes = LANES[round % 2];
        let mut pair = Pair::with(ConnType::Ucx, 4096, |part| part.ucx_key("TLS", lanes));
        pair.a.put_at(0, 0, 8).expect("the link moves bytes");
        let (owner, lent) = Owner::new(THEIRS);
        let span = pair.receiver().memory().register(lent).unwrap().take_all().unwrap();
        let window = pair.b.expose(span, Access::all(), 5).map_err(|(e, _)| e).unwrap();
        let remote = pair.a.window(5).within(LONG).wait().unwrap();
        let region = pair
            .sender()
            .memory()
            .register(hmc_std::memory::HeapBytes::from(vec![0; LENT]))
            .unwrap();
        let to = region.take_all().unwrap();
        let op = remote.get(0, to).within(LONG).start().unwrap();
        let leaver = pair.sessions.remove(0);
        drop((window, pair.b));
        let _ = leaver.shutdown().within(Duration::from_millis(1)).wait();
        until("the memory comes back", LONG, || owner.is_back().then_some(()));
        let _ = op.wait();
        let mut span = None;
        until("the operation's memory comes back", LONG, || {
            span = region.take_all().ok();
            span.is_some().then_some(())
        });
        let read = span.map_or(0, |span| owned(span.as_slice()));
        assert_eq!(read, 0, "bytes of {OWN:#x} read after the memory came back, {lanes}, {round}");
    }
}
