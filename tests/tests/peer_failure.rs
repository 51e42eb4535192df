//! Peers that are killed or stopped in the middle of a transfer: everything ends, in time, and the
//! next connection works.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use hmc_core::types::Access;
use hmc_std::{Error, ErrorKind, Op, Peer, Result, Session, want::Wanted};
use hmc_testkit::buffers::{BufferTransfers as _, has_ended, wait};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, Via, bound, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(20);
/// Longer than the silence after which a peer is dead.
const DEAD_AFTER: Duration = Duration::from_secs(3);
/// The survivor's bound for every operation after a kill.
const DEAD_BY: Duration = Duration::from_secs(1);

/// A session here (rank 0) and one in another process (rank 1), connected.
struct Scene {
    session: Session,
    actor: Actor,
    peer: Peer,
    dir: TempDir,
    via: Via,
    settings: String,
}

impl Scene {
    fn new(via: Via, buffer: u64, we_dial: bool) -> Self {
        let dir = TempDir::new();
        let path = dir.path().display().to_string();
        let session = Session::builder(0)
            .uds(dir.path())
            .tcp("127.0.0.1:0")
            .buffer(buffer)
            .start()
            .expect("a session");
        let settings = format!("rank=1 uds={path} tcp=127.0.0.1:0 buffer={buffer}");
        let mut actor = Actor::session(ACTOR, &settings);
        if we_dial {
            session
                .connect(&dir.address())
                .rank(1)
                .over(via.conn())
                .within(LONG)
                .wait()
                .expect("connected");
        } else {
            let via = via.conn().name();
            actor.request(&format!("connect 0 uds://{path} {via} 20000"));
        }
        let peer = session.accept(1).within(LONG).wait().expect("it came");
        assert_eq!(peer.explain().conn, Some(via.conn()));
        Self { session, actor, peer, dir, via, settings }
    }

    /// The other process starts again and is connected; data moves both ways.
    fn again(mut self) {
        self.actor = Actor::session(ACTOR, &self.settings);
        let peer = self
            .session
            .connect(&self.dir.address())
            .rank(1)
            .over(self.via.conn())
            .within(LONG)
            .wait()
            .expect("the next connection works");
        assert_eq!(peer.explain().conn, Some(self.via.conn()));
        self.session.buffer().fill(0, 4096, 0x5C).unwrap();
        peer.put_at(0, 4096, 4096).expect("the next put works");
        let crc = self.session.buffer().crc32c(0, 4096).unwrap();
        assert_eq!(self.actor.request("crc 4096 4096"), crc.to_string());
        assert!(!self.peer.is_connected(), "the old life stays over");
        let e = self.peer.put_at(0, 0, 8).expect_err("the old life stays over");
        assert_eq!(e.kind(), ErrorKind::PeerDead);
    }
}

fn assert_dead(what: &str, e: &Error) {
    assert_eq!(e.kind(), ErrorKind::PeerDead, "{what}: {e}");
}

/// What an operation moved, or how it failed.
fn ended(op: &Op) -> Result<u64> {
    op.wait_for(LONG).ended().expect("it ends in time")
}

/// A thread that waits for a message which never comes, until the peer is dead.
fn listener(peer: &Peer) -> std::thread::JoinHandle<(Error, Instant)> {
    let peer = peer.clone();
    std::thread::spawn(move || {
        // Longer than all that is waited for before the kill.
        let e = peer.recv(Wanted::Any).within(4 * LONG).wait().expect_err("nobody sends");
        (e, Instant::now())
    })
}

/// Mapped memory: this end copies by itself, so the peer dies under a copy.
fn killed_under_a_copy(we_dial: bool) {
    let s = Scene::new(Via::Shm, 256 * MIB, we_dial);
    let waiter = listener(&s.peer);
    // Most of what was posted waits behind the first, unless this thread was kept from posting for so long.
    let ops = until("the copies are far from done", 2 * LONG, || {
        let post = |_| s.peer.start_put_at(0, 0, 256 * MIB).expect("posted");
        let ops: Vec<_> = (0..96).map(post).collect();
        if !has_ended(&ops[95]) {
            return Some(ops);
        }
        for op in ops {
            wait(op).expect("nobody was killed");
        }
        None
    });
    let killed = s.actor.kill();
    let ends: Vec<_> = ops.iter().map(ended).collect();
    let took = killed.elapsed();
    println!("all operations had ended after {took:?}");
    assert!(took < bound(DEAD_BY), "the survivor's operations took {took:?}");
    assert_dead("the last put", ends[95].as_ref().expect_err("it was in flight"));
    for e in ends.iter().filter_map(|r| r.as_ref().err()) {
        assert_dead("a put", e);
    }
    let (e, at) = waiter.join().unwrap();
    assert_dead("a receive", &e);
    assert!(at - killed < bound(DEAD_BY), "a receiver woke after {:?}", at - killed);
    s.again();
}

#[test]
fn shm_the_listener_is_killed_under_a_copy() {
    killed_under_a_copy(true);
}

#[test]
fn shm_the_dialer_is_killed_under_a_copy() {
    killed_under_a_copy(false);
}

/// The peer is stopped first, so that what it has to do for an operation cannot be done; then it is
/// killed.
fn killed_while_stopped(via: Via, we_dial: bool) {
    let mut s = Scene::new(via, 64 * MIB, we_dial);
    let adopted =
        s.session.memory().register(hmc_std::memory::HeapBytes::from(vec![3; 1 << 20])).unwrap();
    let lent = s.session.memory().allocate(MIB).unwrap();
    let window = s.peer.expose(lent.take_all().unwrap(), Access::all(), 9).expect("exposed");
    s.actor.request("expose 0 5 1048576 0 adopted");
    let remote = s.peer.window(5).within(LONG).wait().expect("told");
    s.actor.stop();
    let mut ops = Vec::new();
    if via == Via::Tcp {
        // More than the kernel's buffers take.
        for _ in 0..4 {
            ops.push(s.peer.start_put_at(0, 0, 64 * MIB).expect("posted"));
            ops.push(s.peer.start_get_at(0, 0, 64 * MIB).expect("posted"));
        }
    }
    let span = adopted.take_all().unwrap();
    let by_target = remote.put(0, span).start().expect("posted");
    let waiter = listener(&s.peer);
    for op in &ops {
        assert!(!has_ended(op), "an operation on a stopped peer ended");
    }
    let killed = s.actor.kill();
    for op in ops {
        assert_dead("an operation", &ended(&op).expect_err("in flight"));
    }
    let failed = by_target.wait().expect_err("in flight");
    assert_dead("a put of a span", failed.error());
    failed.reclaim().within(Duration::ZERO).wait().expect("the dead cannot touch it");
    let took = killed.elapsed();
    assert!(took < bound(DEAD_BY), "the survivor's operations took {took:?}");
    let (e, at) = waiter.join().unwrap();
    assert_dead("a receive", &e);
    assert!(at - killed < bound(DEAD_BY), "a receiver woke after {:?}", at - killed);
    // What was lent to the dead comes back.
    let span =
        window.revoke().within(Duration::from_secs(1)).wait().expect("the dead hold nothing");
    assert_eq!(span.len(), MIB);
    s.again();
}

#[test]
fn shm_the_listener_is_killed_before_it_copies() {
    killed_while_stopped(Via::Shm, true);
}

#[test]
fn shm_the_dialer_is_killed_before_it_copies() {
    killed_while_stopped(Via::Shm, false);
}

#[test]
fn tcp_the_listener_is_killed_with_its_buffers_full() {
    killed_while_stopped(Via::Tcp, true);
}

#[test]
fn tcp_the_dialer_is_killed_with_its_buffers_full() {
    killed_while_stopped(Via::Tcp, false);
}

/// The initiator dies in the middle of its put: the target goes on, and its memory is its own.
#[test]
fn the_target_survives_the_death_of_an_initiator() {
    for via in Via::all() {
        let mut s = Scene::new(via, 64 * MIB, false);
        s.actor.request("fill 0 67108864 170");
        for round in 0..5 {
            let waiter = listener(&s.peer);
            s.actor.send("put_nb 0 0 0 67108864 64");
            // Its first bytes are here: it is in the middle of its puts.
            let mut seen = [0; 1];
            until("bytes arrive", LONG, || {
                if let Some(Err(e)) = s.actor.answer_now() {
                    panic!("{via:?} round {round}: it could not begin its puts: {e}");
                }
                s.session.buffer().read_at(0, &mut seen).unwrap();
                (seen[0] == 170).then_some(())
            });
            let killed = s.actor.kill();
            let (e, at) = waiter.join().unwrap();
            assert_dead("a receive", &e);
            assert!(at - killed < bound(DEAD_BY), "{via:?} round {round}: {:?}", at - killed);
            assert_dead("a put", &s.peer.put_at(0, 0, 8).expect_err("dead"));
            // Nobody writes any more.
            s.session.buffer().fill(0, 64 * MIB, 1).unwrap();
            let crc = s.session.buffer().crc32c(0, 64 * MIB).unwrap();
            s.actor = Actor::session(ACTOR, &s.settings);
            let (name, path) = (via.conn().name(), s.dir.path().display().to_string());
            s.actor.request(&format!("connect 0 uds://{path} {name} 20000"));
            s.peer = s.session.accept(1).within(LONG).wait().expect("it came back");
            assert_eq!(s.session.buffer().crc32c(0, 64 * MIB).unwrap(), crc);
            s.peer.put_at(0, 0, 4096).expect("its next life is served");
            s.actor.request("fill 0 67108864 170");
        }
    }
}

/// A lost peer is dialed again by itself, and is found under a new life.
#[test]
fn the_lower_rank_dials_again() {
    for via in Via::all() {
        let mut s = Scene::new(via, MIB, true);
        drop(std::mem::replace(&mut s.actor, Actor::spawn(ACTOR)));
        until("the death is known", bound(DEAD_BY), || (!s.peer.is_connected()).then_some(()));
        // Counted once the dead link has been taken down, which ends after it stopped being usable.
        let counted = || (s.session.stats().peers_lost == 1).then_some(());
        until("the death is counted, once", bound(DEAD_BY), counted);
        // On the same socket path; the TCP port is learned again from its HELLO.
        let answer = s.actor.request(&format!("start {}", s.settings));
        assert!(!answer.is_empty());
        let peer =
            s.session.accept(1).within(bound(Duration::from_secs(8))).wait().expect("dialed again");
        s.session.buffer().fill(0, 100, 9).unwrap();
        peer.put_at(0, 0, 100).expect("a put over the new link");
        assert_eq!(peer.explain().conn, Some(via.conn()));
    }
}

/// Nobody can dial a session that does not listen: it dials again by itself, although its rank is the higher one.
#[test]
fn who_does_not_listen_dials_again() {
    let dir = TempDir::new();
    let settings = format!("rank=1 uds={}", dir.path().display());
    let actor = Actor::session(ACTOR, &settings);
    let session = Session::builder(5).buffer(MIB).start().unwrap();
    let peer =
        session.connect(&dir.address()).rank(1).over(Via::Shm.conn()).within(LONG).wait().unwrap();
    drop(actor);
    until("the death is known", bound(DEAD_BY), || (!peer.is_connected()).then_some(()));
    let _actor = Actor::session(ACTOR, &settings);
    let peer =
        session.accept(1).within(bound(Duration::from_secs(8))).wait().expect("dialed again");
    assert!(peer.is_connected());
}

/// Of two that both listen the lower rank dials again, and the other one waits for that: a process that took the lower rank
/// since, and dials nobody, is left alone.
#[test]
fn the_higher_rank_waits_to_be_dialed() {
    let dir = TempDir::new();
    let own = TempDir::new();
    let settings = format!("rank=1 uds={}", dir.path().display());
    let actor = Actor::session(ACTOR, &settings);
    let session = Session::builder(5).uds(own.path()).buffer(MIB).start().unwrap();
    let peer =
        session.connect(&dir.address()).rank(1).over(Via::Shm.conn()).within(LONG).wait().unwrap();
    drop(actor);
    until("the death is known", bound(DEAD_BY), || (!peer.is_connected()).then_some(()));
    let _actor = Actor::session(ACTOR, &settings);
    // The first six dials of one who dials again are due by then.
    let e = session.accept(1).within(Duration::from_secs(2)).wait().expect_err("nobody dials");
    assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
    session
        .connect(&dir.address())
        .rank(1)
        .over(Via::Shm.conn())
        .within(LONG)
        .wait()
        .expect("it is there");
}

/// Also one that stays away for a while: dials find nobody, and nothing else happens in the session. It is dialed
/// over the transport by which it was connected, whoever chose that.
#[test]
fn a_peer_that_stays_away_for_a_while_is_dialed_again() {
    for (via, we_dial) in Via::all().into_iter().flat_map(|via| [(via, true), (via, false)]) {
        let mut s = Scene::new(via, MIB, we_dial);
        drop(std::mem::replace(&mut s.actor, Actor::spawn(ACTOR)));
        until("the death is known", bound(DEAD_BY), || (!s.peer.is_connected()).then_some(()));
        s.session.accept(1).within(Duration::from_secs(1)).wait().expect_err("nobody is there");
        s.actor.request(&format!("start {}", s.settings));
        let peer =
            s.session.accept(1).within(bound(Duration::from_secs(8))).wait().expect("dialed again");
        assert_eq!(peer.explain().conn, Some(via.conn()));
        s.session.buffer().fill(0, 4096, 9).unwrap();
        peer.put_at(0, 0, 4096).expect("a put over the new link");
        let crc = s.session.buffer().crc32c(0, 4096).unwrap();
        assert_eq!(s.actor.request("crc 0 4096"), crc.to_string());
    }
}

/// The same between processes that live on, when it was the other one that dialed first: an answer to a dial
/// tells the life of which the peer spoke last.
#[test]
fn a_peer_that_dialed_first_is_dialed_again() {
    let s = Scene::new(Via::Tcp, MIB, false);
    s.actor.stop();
    until("its silence is noticed", LONG, || (!s.peer.is_connected()).then_some(()));
    s.actor.resume();
    let peer =
        s.session.accept(1).within(bound(Duration::from_secs(12))).wait().expect("a new link");
    s.session.buffer().fill(0, 100, 9).unwrap();
    peer.put_at(0, 0, 100).expect("a put over the new link");
}

fn stopped(via: Via) {
    let mut s = Scene::new(via, 64 * MIB, true);
    s.actor.request("expose 0 5 1048576 0 adopted");
    let remote = s.peer.window(5).within(LONG).wait().expect("told");
    let span = s.session.memory().allocate(MIB).unwrap().take_all().unwrap();
    let start = Instant::now();
    s.actor.stop();
    let op = remote.put(0, span).start().expect("posted");
    let waiter = listener(&s.peer);
    let (e, at) = waiter.join().unwrap();
    assert_dead("a receive", &e);
    let failed = op.wait().expect_err("a put to a stopped peer");
    assert_dead("a put", failed.error());
    let (took, all) = (at - start, start.elapsed());
    assert!(took > Duration::from_millis(1500), "dead after only {took:?} of silence");
    assert!(all < bound(Duration::from_secs(3)), "dead after {all:?}");
    s.actor.resume();
    // The stopped process learns that its link is over; a new one comes by redial (this end has the
    // lower rank), and the old names stay dead.
    let peer =
        s.session.accept(1).within(bound(Duration::from_secs(12))).wait().expect("a new link");
    s.session.buffer().fill(0, 4096, 0x77).unwrap();
    peer.put_at(0, 0, 4096).expect("a put over the new link");
    let crc = s.session.buffer().crc32c(0, 4096).unwrap();
    assert_eq!(s.actor.request("crc 0 4096"), crc.to_string());
    assert_dead("the old life", &s.peer.put_at(0, 0, 8).expect_err("over"));
    let old = s.actor.try_request("send 0 1").expect_err("its old life is over too");
    assert!(old.starts_with("PeerDead"), "{old}");
}

#[test]
fn a_stopped_peer_is_dead_by_its_silence_on_shm() {
    stopped(Via::Shm);
}

#[test]
fn a_stopped_peer_is_dead_by_its_silence_on_tcp() {
    stopped(Via::Tcp);
}

/// Processes of one system that get no time together (a container that is paused, a machine with too much to do) are not
/// each other's silence: the one that goes on first waits for the other.
#[test]
fn peers_that_were_stopped_together_go_on_together() {
    for via in Via::all() {
        let dir = TempDir::new();
        let path = dir.path().display();
        let settings = |rank: u32| format!("rank={rank} uds={path} tcp=127.0.0.1:0 buffer=4096");
        let [mut a, mut b] = [0, 1].map(|rank| Actor::session(ACTOR, &settings(rank)));
        a.request(&format!("connect 1 uds://{path} {} 20000", via.conn().name()));
        b.request("meet 0 20000");
        for actor in [&a, &b] {
            actor.stop();
        }
        let (_nobody, silence) = channel::<()>();
        silence.recv_timeout(DEAD_AFTER).expect_err("nobody sends");
        a.resume();
        // Of the peer's silence up to 0.9 s count before that: its period, with what an answer may take, and a tick of ours.
        let e = a.try_request("recv 1 300").expect_err("nobody sends");
        assert!(e.starts_with("DeadlineExceeded"), "{via:?}: {e}");
        b.resume();
        a.request("put 1 0 0 4096");
        b.request("send 0 7");
        assert_eq!(a.request("recv 1 20000"), "7", "{via:?}: over the same link");
        // Whoever goes on being silent is dead all the same.
        b.stop();
        let e = a.try_request("recv 1 20000").expect_err("nobody sends");
        assert!(e.starts_with("PeerDead"), "{via:?}: {e}");
        assert!(a.dismiss().success());
    }
}
