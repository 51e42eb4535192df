//! Memory that a peer may still copy from or into when its session ends: it stays until the peer's process, or its answer,
//! says that the copy is over. Safe code only: what the owner of the memory sees must never change after it came back.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::Duration;

use hmc_core::kinds::Access;
use hmc_std::future::{Op, WaitError};
use hmc_std::{ConnType, Peer, Session};
use hmc_tests::actor::Actor;
use hmc_tests::lent::{LEN, Owner, owned};
use hmc_tests::pair::Pair;
use hmc_tests::scene::{TempDir, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
/// What the source of a get holds.
const THEIRS: u8 = 0xAB;

/// A session here, and one of another process that exposes memory which cannot be mapped.
struct Scene {
    session: Session,
    peer: Peer,
    actor: Actor,
    _dir: TempDir,
}

impl Scene {
    /// With a rank that no other test has: what is held is the whole process's.
    fn new(rank: u32) -> Self {
        let dir = TempDir::new();
        let session = Session::builder(0).redial(false).start().unwrap();
        let settings = format!("rank={rank} redial=0 uds={}", dir.path().display());
        let mut actor = Actor::session(ACTOR, &settings);
        let peer = session.connect_with(rank, &dir.address(), ConnType::Shm, LONG).unwrap();
        actor.ask(&format!("expose 0 5 {LEN} {THEIRS} adopted"));
        Self { session, peer, actor, _dir: dir }
    }

    /// A get that has begun.
    fn get(&self) -> (Owner, Op) {
        let (owner, lent) = Owner::new(0);
        let remote = self.peer.remote_window(5, LONG).unwrap();
        let span = self.session.register(lent).unwrap().take_all().unwrap();
        let op = self.peer.get_span(span, &remote, 0).map_err(|e| e.error).unwrap();
        let Err(WaitError::Running(op)) = op.wait(Duration::from_millis(1)) else {
            panic!("256 MiB were copied within 1 ms");
        };
        (owner, op)
    }
}

/// Ends everything of this end, in the order of a program that returns.
fn end(op: Op, peer: Peer, session: Session) {
    drop(op);
    drop(peer);
    let _ = session.shutdown(Duration::from_millis(1));
}

/// What the process holds of that peer, in bytes.
fn held_of(rank: u32) -> Vec<u64> {
    hmc_std::held().into_iter().filter(|h| h.peer.0 == rank).map(|h| h.bytes).collect()
}

fn hears_the_end(actor: &mut Actor) {
    until("the target hears of the end", LONG, || {
        (actor.ask("connected 0") == "false").then_some(())
    });
}

#[test]
fn memory_of_a_get_outlives_its_session() {
    for round in 0..4 {
        let mut s = Scene::new(1);
        let (owner, op) = s.get();
        until("the copy begins", LONG, || (owner.first_byte() == THEIRS).then_some(()));
        end(op, s.peer, s.session);
        until("the memory comes back", LONG, || owner.is_back().then_some(()));
        hears_the_end(&mut s.actor);
        assert_eq!(owner.changed(), 0, "bytes written after the memory came back, round {round}");
        until("nothing is held", LONG, || held_of(1).is_empty().then_some(()));
    }
}

#[test]
fn memory_of_a_get_from_a_stopped_target_outlives_its_session() {
    let mut s = Scene::new(2);
    let (owner, op) = s.get();
    until("the copy begins", LONG, || (owner.first_byte() == THEIRS).then_some(()));
    s.actor.stop();
    end(op, s.peer, s.session);
    assert!(!owner.is_back(), "the stopped target may still copy");
    assert_eq!(held_of(2), [u64::try_from(LEN).unwrap()]);
    assert!(
        hmc_std::held().iter().any(|h| h.peer.0 == 2 && h.since.elapsed().is_ok_and(|e| e < LONG))
    );
    s.actor.resume();
    until("the memory comes back", LONG, || owner.is_back().then_some(()));
    hears_the_end(&mut s.actor);
    assert_eq!(owner.changed(), 0, "bytes written after the memory came back");
}

#[test]
fn memory_of_a_get_from_a_target_that_dies_comes_back() {
    let s = Scene::new(3);
    let (owner, op) = s.get();
    s.actor.stop();
    end(op, s.peer, s.session);
    assert!(!owner.is_back(), "the stopped target may still copy");
    assert_eq!(held_of(3), [u64::try_from(LEN).unwrap()]);
    let _ = s.actor.kill();
    until("the memory comes back", LONG, || owner.is_back().then_some(()));
    until("nothing is held", LONG, || held_of(3).is_empty().then_some(()));
}

/// The target's session ends while it copies, and its control connection ends first: that is no fence.
#[test]
fn memory_of_a_get_whose_target_leaves_comes_back_after_the_last_copy() {
    let mut left = 0;
    for round in 0..100 {
        let mut pair = Pair::new(ConnType::Shm, 4096);
        let region = pair.receiver().register_vec(vec![THEIRS; LEN]).unwrap();
        let window = pair.b.expose(region.take_all().unwrap(), Access::all(), 5);
        let window = window.map_err(|(e, _)| e).unwrap();
        let remote = pair.a.remote_window(5, LONG).unwrap();
        let (owner, lent) = Owner::new(0);
        let span = pair.sender().register(lent).unwrap().take_all().unwrap();
        let op = pair.a.get_span(span, &remote, 0).map_err(|e| e.error).unwrap();
        until("the copy begins", LONG, || (owner.first_byte() == THEIRS).then_some(()));
        let leaver = pair.sessions.remove(0);
        let leaves = std::thread::spawn(move || leaver.shutdown(Duration::from_millis(1)));
        match op.wait(LONG) {
            // All was copied before it left.
            Ok(span) => drop(span),
            // Back at once, or when the keeper lets go.
            Err(WaitError::Failed(e)) => {
                left += 1;
                drop(e);
            }
            Err(e) => panic!("{e:?}"),
        }
        drop(pair.a);
        until("the memory comes back", LONG, || owner.is_back().then_some(()));
        let _ = leaves.join().unwrap();
        drop((window, pair.b));
        assert_eq!(owner.changed(), 0, "bytes written after the memory came back, round {round}");
        if left == 4 {
            return;
        }
    }
    panic!("{left} of 100 copies met the end of their target");
}

/// Whoever holds memory ends as others do, and with a child that knows of nothing.
#[test]
fn what_is_held_keeps_no_process_and_no_child() {
    for ends in [false, true] {
        let dir = TempDir::new();
        let path = dir.path().display().to_string();
        let mut target = Actor::session(ACTOR, &format!("rank=1 redial=0 uds={path}"));
        let mut initiator = Actor::session(ACTOR, "rank=0 redial=0");
        initiator.ask(&format!("connect 1 uds://{path} shm 20000"));
        target.ask(&format!("expose 0 5 {LEN} {THEIRS} adopted"));
        assert_eq!(keepers(&initiator), 0);
        initiator.ask(&format!("get_fixed 1 5 {LEN}"));
        target.stop();
        let _ = initiator.try_ask("end 1");
        assert_eq!(initiator.ask("held"), format!("{LEN} in the child 0"));
        assert_eq!(keepers(&initiator), 1);
        if ends {
            assert!(initiator.dismiss().success());
            return;
        }
        target.resume();
        let none = "0 in the child 0";
        until("all is let go", LONG, || (initiator.ask("held") == none).then_some(()));
        until("the thread ends", LONG, || (keepers(&initiator) == 0).then_some(()));
    }
}

/// How many threads that process has to look after what it holds.
fn keepers(of: &Actor) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", of.pid())).unwrap();
    let names = tasks.flatten().map(|t| std::fs::read_to_string(t.path().join("comm")));
    names.flatten().filter(|name| name.trim() == "hmc-keeper").count()
}

#[test]
fn memory_of_a_put_outlives_its_session() {
    for round in 0..4 {
        let mut pair = Pair::new(ConnType::Shm, 4096);
        let region = pair.receiver().register_vec(vec![0; LEN]).unwrap();
        let span = region.take_all().unwrap();
        let window = pair.b.expose(span, Access::all(), 5).map_err(|(e, _)| e).unwrap();
        let remote = pair.a.remote_window(5, LONG).unwrap();
        let (owner, lent) = Owner::new(THEIRS);
        let span = pair.sender().register(lent).unwrap().take_all().unwrap();
        let op = pair.a.put_span(span, &remote, 0).map_err(|e| e.error).unwrap();
        let mut first = [0];
        until("the copy begins", LONG, || {
            window.read_at(0, &mut first).unwrap();
            (first[0] == THEIRS).then_some(())
        });
        let session = pair.sessions.pop().unwrap();
        end(op, pair.a, session);
        until("the memory comes back", LONG, || owner.is_back().then_some(()));
        until("the end is heard of", LONG, || (!pair.b.is_connected()).then_some(()));
        let span = window.revoke(LONG).unwrap();
        assert_eq!(
            owned(span.as_slice()),
            0,
            "bytes read after the memory came back, round {round}"
        );
    }
}
