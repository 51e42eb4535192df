//! A session that ends while its operations are under way at a peer that is stopped: none of their memory comes back before
//! the peer is out of it, whatever the operations are and however the session ends.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::Duration;

use hmc_sim::rng::Rng;
use hmc_std::{ConnType, Session};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, number, until};
use hmc_tests::lent::Owner;
use hmc_tests::planted;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
/// Bytes of the target's window, and of each piece of lent memory.
const LEN: usize = 64 << 10;
/// What lent memory holds while it is lent, and what the target's window holds.
const LENT: u8 = 0x22;
const THEIRS: u8 = 0xAB;

/// One session, one target, some operations, one end.
fn play(rank: u32, rng: &mut Rng) {
    let dir = TempDir::new();
    let session = Session::builder(0).redial(false).start().unwrap();
    let settings = format!("rank={rank} redial=0 uds={}", dir.path().display());
    let mut target = Actor::session(ACTOR, &settings);
    let peer =
        session.connect(&dir.address()).rank(rank).over(ConnType::Shm).within(LONG).wait().unwrap();
    target.request(&format!("expose 0 5 {LEN} {THEIRS} adopted"));
    let remote = peer.window(5).within(LONG).wait().unwrap();
    target.stop();
    let mut owners = Vec::new();
    let mut ops = Vec::new();
    for _ in 0..1 + rng.below(3) {
        let (owner, lent) = Owner::of(LEN, LENT);
        let span = session.memory().register(lent).unwrap().take_all().unwrap();
        let op = match rng.below(2) {
            0 => remote.get(0, span).start(),
            _ => remote.put(0, span).start(),
        };
        ops.push(op.unwrap());
        owners.push(owner);
    }
    let how = rng.below(3);
    let what = format!("{} operations, end {how}", owners.len());
    match how {
        // The handles first, then the session, and the other way round.
        0 => {
            drop((ops, remote, peer));
            drop(session);
        }
        1 => {
            let _ = session.shutdown().within(Duration::from_millis(rng.below(20))).wait();
            drop((ops, remote, peer));
        }
        _ => {
            drop(session);
            drop((peer, remote, ops));
        }
    }
    for owner in &owners {
        assert!(!owner.is_back(), "{what}: memory came back while the stopped peer may use it");
    }
    let held: u64 = hmc_std::held().iter().filter(|h| h.peer.0 == rank).map(|h| h.bytes).sum();
    assert_eq!(held, u64::try_from(owners.len() * LEN).unwrap(), "{what}");
    let lives = rng.below(2) == 0;
    if lives {
        target.resume();
    } else {
        let _ = target.kill();
    }
    for owner in &owners {
        until("the memory comes back", LONG, || owner.is_back().then_some(()));
    }
    if lives {
        until("the target notices the end", LONG, || {
            (target.request("connected 0") == "false").then_some(())
        });
    }
    for owner in &owners {
        assert_eq!(owner.changed(), 0, "{what}: bytes were written after the memory came back");
    }
}

/// Rounds of random operations and ends; `HMC_TEST_SEED` repeats one run.
#[test]
fn memory_under_operations_outlives_a_session_that_ends() {
    planted::activate();
    let seed = number("HMC_TEST_SEED", u64::from(std::process::id()));
    println!("seed = {seed}");
    let mut rng = Rng::new(seed);
    for round in 1..=12 {
        play(round, &mut rng);
    }
}
