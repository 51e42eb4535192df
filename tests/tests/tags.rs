//! Messages whose sender ends right after it sent them: each one whose call returned is received, in order, before the
//! end of the link is reported.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::Duration;

use hmc_std::{Message, Session, Who, want::Wanted};
use hmc_tests::actor::Actor;
use hmc_tests::attack::Context;
use hmc_tests::attack::tags::{self, BATCH, ENDS, PATHS, receiver, tags_of};
use hmc_tests::env::{TempDir, number, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
/// How many batches of each kind: `HMC_TEST_BATCHES`, or `default`.
fn batches(default: u64) -> u64 {
    number("HMC_TEST_BATCHES", default)
}

fn nothing_is_lost(batches: u64) {
    let kinds = u64::try_from(PATHS.len() * ENDS.len()).unwrap();
    tags::lost(&mut Context::rounds(ACTOR, kinds * batches)).expect_held();
}

#[test]
fn tags_of_a_sender_that_ends_at_once_are_all_received() {
    nothing_is_lost(batches(10));
}

/// The receiver's inbox is full when the sender ends: the rest waits where the system has it, and is received too.
#[test]
fn what_waits_for_a_full_inbox_is_received_after_the_sender_has_ended() {
    for path in PATHS {
        for end in ENDS {
            let dir = TempDir::new();
            let session = Session::builder(0)
                .uds(dir.path())
                .tcp("127.0.0.1:0")
                .buffer(4096)
                .inbox(8, 1 << 20)
                .redial(false)
                .start()
                .expect("a session");
            let mut actor = Actor::session(ACTOR, "rank=1 buffer=4096 redial=0");
            let to = path.address(&session, &dir);
            actor.request(&format!("connect 0 {} {} 20000", to, path.conn().name()));
            let peer = session.accept(1).within(LONG).wait().expect("it came");
            actor.send(&format!("tags 0 0 {BATCH} {end}"));
            // It has ended before anything is received.
            if end == "close" {
                let _ = actor.answer();
                drop(actor);
            } else {
                until("it ends", LONG, || actor.has_ended().then_some(()));
            }
            let tags = tags_of(&peer);
            assert!(tags.iter().copied().eq(0..BATCH), "{path:?} {end}: {tags:?}");
        }
    }
}

/// Who receives of anybody receives what the dead have sent, too.
#[test]
fn tags_of_the_dead_are_received_from_any() {
    let dir = TempDir::new();
    let session = receiver(&dir);
    let mut actor = Actor::session(ACTOR, "rank=1 buffer=4096 redial=0");
    actor.request(&format!("connect 0 {} shm 20000", dir.address()));
    session.accept(1).within(LONG).wait().expect("it came");
    assert!(
        session.peer(1).is_ok_and(|p| p.is_connected())
            && !session.peer(2).is_ok_and(|p| p.is_connected())
    );
    actor.send("tags 0 0 3 exit");
    until("the link is over", LONG, || (session.stats().peers_lost == 1).then_some(()));
    assert!(!session.peer(1).is_ok_and(|p| p.is_connected()));
    for tag in 0..3 {
        let (from, message) =
            session.recv(Who::Any, Wanted::Tag).within(LONG).wait().expect("it was sent");
        assert_eq!((from.0, message), (1, Message::Tag(tag)));
    }
}

#[test]
#[ignore = "9,000 processes: HMC_TEST_BATCHES=1000 cargo test -p hmc-tests --test tags -- --ignored"]
fn tags_of_a_thousand_senders_of_each_kind_are_all_received() {
    nothing_is_lost(batches(1000));
}
