//! Every way in which 2 or 3 ranks can meet, lose and find each other again: dials that cross, a process
//! that claims a rank which is taken, restarts, connections lost at any point, goodbyes.
//!
//! The machines are the crate's ([`ControlConn`], [`RankTable`]); what is around them does what a driver does, in
//! any order. No clock: a dial may be given up and a connection lost at any time, which is all that
//! deadlines do.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

mod explore;
#[path = "explore/handshake_model.rs"]
mod handshake_model;

use explore::{Broken, Report, explore};
use handshake_model::{Bug, HandshakeModel, Plan};

const TWO: Plan = Plan { ranks: &[0, 1], dials: 2, cuts: 1, restarts: 1, byes: 0, bug: Bug::None };
const THREE: Plan =
    Plan { ranks: &[0, 1, 2], dials: 1, cuts: 1, restarts: 0, byes: 0, bug: Bug::None };
/// The third process claims the rank of the second.
const CLAIMED: Plan =
    Plan { ranks: &[0, 1, 1], dials: 1, cuts: 1, restarts: 1, byes: 0, bug: Bug::None };

fn run(plan: Plan) -> Result<Report, Broken> {
    let begun = std::time::Instant::now();
    let mut model = HandshakeModel::new(plan);
    let got = explore(&mut model, 20_000_000);
    match &got {
        Ok(r) => println!(
            "{plan:?}: {r:?}, {} machines, {} tables, {:.1} s",
            model.controls.len(),
            model.tables.len(),
            begun.elapsed().as_secs_f64()
        ),
        Err(b) => println!("{plan:?}: {b:#?}"),
    }
    got
}

#[test]
fn two_ranks_always_connect_and_never_twice() {
    let r = run(TWO).unwrap();
    assert!(r.states > 10_000, "{r:?}");
}

#[test]
fn three_ranks_always_connect_and_never_twice() {
    let r = run(THREE).unwrap();
    assert!(r.states > 10_000, "{r:?}");
}

#[test]
fn a_rank_that_is_claimed_twice_stays_with_its_first_holder() {
    let r = run(CLAIMED).unwrap();
    assert!(r.states > 1_000, "{r:?}");
}

#[test]
#[ignore = "minutes and gigabytes: `cargo xtask explore`"]
fn long_every_meeting() {
    let two = run(Plan { dials: 3, cuts: 2, byes: 1, ..TWO }).unwrap();
    let three = run(Plan { cuts: 2, restarts: 1, ..THREE }).unwrap();
    let claimed = run(Plan { cuts: 2, byes: 1, ..CLAIMED }).unwrap();
    let all = two.states + three.states + claimed.states;
    println!("handshake: {all} states");
    assert!(all >= 1_000_000, "{all} states");
}

#[test]
fn planted_bugs_are_found() {
    for (plan, bug, wanted) in [
        (CLAIMED, Bug::EvictOnDuplicate, "take a rank that belongs to"),
        (TWO, Bug::TakeTheStale, "two live links"),
        (TWO, Bug::ForgetTheRefusal, "nothing can ever settle"),
        (TWO, Bug::AnswerWithTheFirstLife, "nothing can ever settle"),
    ] {
        let found = run(Plan { bug, ..plan }).unwrap_err();
        assert!(found.why.contains(wanted), "{bug:?}: {found:#?}");
    }
}
