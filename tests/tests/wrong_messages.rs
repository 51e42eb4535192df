//! Messages of UCX against the rules, sent to a session that serves others, over the fake libucp: each ends its link
//! for its reason and changes no byte that the rules do not give it; an honest peer goes on.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeSet;
use std::sync::OnceLock;

use hmc_core::wire::data::DataKind;
use hmc_tests::env::until;
use hmc_tests::fake_ucp::{CallResult, FakeUcp};
use hmc_tests::wrong::messages::{CASES, TOO_MANY};
use hmc_tests::wrong::rig::{Rig, WINDOW};
use hmc_tests::wrong::target::{LONG, Target};
use hmc_tests::wrong::{checks, play};

/// The check of [`more_gets_than_agreed_end_the_link`].
const GETS: &str = "more gets than were agreed";
/// Messages with answers that are under way at a time (`AmReplies::SENDS` in `hmc-hw/src/ucx/am/replies.rs`).
const SENDS: u32 = 8;

/// UCX with lanes that only send messages.
fn messages_only() -> FakeUcp {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane("tcp/eth0");
    fake_ucp
}

#[test]
fn messages_against_the_rules_end_the_link() {
    assert!(!played().is_empty());
}

/// Plays all cases, once, and gives the checks that have found them.
fn played() -> &'static BTreeSet<&'static str> {
    static PLAYED: OnceLock<BTreeSet<&str>> = OnceLock::new();
    PLAYED.get_or_init(|| {
        let fake_ucp = messages_only();
        let mut target = Target::over_ucx(fake_ucp.library());
        play(CASES, &mut target);
        drop(target);
        fake_ucp.await_clean();
        CASES.iter().map(|case| case.check).collect()
    })
}

/// Gets are answered as fast as messages leave. Those of the answers do not, here.
#[test]
fn more_gets_than_agreed_end_the_link() {
    let fake_ucp = messages_only();
    let mut target = Target::over_ucx(fake_ucp.library());
    let mut rig = Rig::new(&mut target);
    let get = rig.request(DataKind::Read, 1, WINDOW);
    for _ in 0..SENDS {
        let before = fake_ucp.calls("ucp_am_send_nbx");
        // The request is the next message, its answer the one after.
        fake_ucp.rule("ucp_am_send_nbx", 2, CallResult::Held);
        rig.send(&get, &[]);
        until("it is answered", LONG, || {
            (fake_ucp.calls("ucp_am_send_nbx") == before + 2).then_some(())
        });
    }
    fake_ucp.clear_rules();
    for _ in 0..TOO_MANY {
        rig.send(&get, &[]);
    }
    rig.assert_ended("gets without end", GETS);
    drop(target);
    fake_ucp.await_clean();
}

/// All checks that end a link over messages are among those above: a new one needs a case that reaches it.
#[test]
fn every_check_of_the_messages_has_a_case() {
    let reached: BTreeSet<&str> = played().iter().copied().chain([GETS]).collect();
    let there = checks::of_messages();
    let there: BTreeSet<&str> = there.iter().map(String::as_str).collect();
    let unreached: Vec<_> = there.difference(&reached).collect();
    let gone: Vec<_> = reached.difference(&there).collect();
    assert!(unreached.is_empty(), "no case reaches these checks: {unreached:?}");
    assert!(gone.is_empty(), "these checks are not in the sources: {gone:?}");
}
