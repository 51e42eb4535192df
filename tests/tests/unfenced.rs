//! Memory that a peer may still copy from or into when its session ends: it stays until the peer's process, or its answer,
//! says that the copy is over. Safe code only: what the owner of the memory sees must never change after it came back.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::Duration;

use hmc_core::types::Access;
use hmc_std::ConnType;
use hmc_tests::actor::Actor;
use hmc_tests::attack::Context;
use hmc_tests::attack::unfenced::{self, Scene, THEIRS, end, held_of};
use hmc_tests::env::{TempDir, until};
use hmc_tests::lent::{LEN, Owner};
use hmc_tests::pair::Pair;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);

#[test]
fn memory_of_a_get_outlives_its_session() {
    unfenced::get(&mut Context::rounds(ACTOR, 4)).expect_held();
}

#[test]
fn memory_of_a_get_from_a_stopped_target_outlives_its_session() {
    unfenced::get_from_a_stopped_target(&mut Context::rounds(ACTOR, 1)).expect_held();
}

#[test]
fn memory_of_a_put_to_a_stopped_target_outlives_its_session() {
    unfenced::put_to_a_stopped_target(&mut Context::rounds(ACTOR, 1)).expect_held();
}

#[test]
fn memory_of_a_get_from_a_target_that_exits_comes_back() {
    let s = Scene::new(ACTOR, 3);
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
        let region = pair
            .receiver()
            .memory()
            .register(hmc_std::memory::HeapBytes::from(vec![THEIRS; LEN]))
            .unwrap();
        let window = pair.b.expose(region.take_all().unwrap(), Access::all(), 5);
        let window = window.map_err(|(e, _)| e).unwrap();
        let remote = pair.a.window(5).within(LONG).wait().unwrap();
        let (owner, lent) = Owner::new(0);
        let span = pair.sender().memory().register(lent).unwrap().take_all().unwrap();
        let op = remote.get(0, span).start().unwrap();
        until("the copy begins", LONG, || (owner.first_byte() == THEIRS).then_some(()));
        let leaver = pair.sessions.remove(0);
        let leaves =
            std::thread::spawn(move || leaver.shutdown().within(Duration::from_millis(1)).wait());
        let _ = op.wait_for(LONG).ended().expect("it ends");
        match op.wait() {
            // All was copied before it left.
            Ok(done) => drop(done),
            // Back at once, or when the keeper lets go.
            Err(failed) => {
                left += 1;
                drop(failed);
            }
        }
        drop((remote, pair.a));
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
        initiator.request(&format!("connect 1 uds://{path} shm 20000"));
        target.request(&format!("expose 0 5 {LEN} {THEIRS} adopted"));
        assert_eq!(keepers(&initiator), 0);
        initiator.request(&format!("get_fixed 1 5 {LEN}"));
        target.stop();
        let _ = initiator.try_request("end 1");
        assert_eq!(initiator.request("held"), format!("{LEN} in the child 0"));
        assert_eq!(keepers(&initiator), 1);
        if ends {
            assert!(initiator.dismiss().success());
            return;
        }
        target.resume();
        let none = "0 in the child 0";
        until("all is let go", LONG, || (initiator.request("held") == none).then_some(()));
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
    unfenced::put(&mut Context::rounds(ACTOR, 4)).expect_held();
}
