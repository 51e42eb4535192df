//! What a thread that waits for its partners does between two sleeps.

#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

use std::sync::atomic::Ordering;
use std::time::{Duration as StdDuration, Instant};

use hmc_core::time::Duration;
use hmc_mem::shared::SharedBytes;

use super::{Call, Message, Round, SPIN_NS};
use crate::api::group::Group;
use crate::api::group::channel::tests::Pair;
use crate::base::clock;

/// More than a ring.
const LEN: usize = 300 << 10;

fn call(group: &Group) -> Call<'_> {
    let by = clock::now().after(Duration::from_nanos(20_000_000_000));
    Call { members: &group.members, by, blocks: true }
}

/// As if it had slept: partners are to wake it, until something comes. Then it looks on for as long as at first.
#[test]
fn a_member_that_was_woken_spins_again() {
    let pair = Pair::new("spins");
    let [ours, theirs] = pair.groups();
    let mut received = vec![0; LEN];
    let mut receives = Round::new(call(&ours));
    receives.begin(Message::Receive(1, SharedBytes::of_mut(&mut received))).expect("begun");
    receives.announce(0).expect("announced");
    let is_parked = || ours.members.is_parked.load(Ordering::Relaxed);
    assert!(ours.members.set_parked(true) && !ours.members.set_parked(true));
    assert!(!receives.look().expect("nothing came"));
    assert!(is_parked(), "it sleeps on");
    // As much as the ring holds.
    let sent = vec![7; LEN];
    let mut sends = Round::new(call(&theirs));
    sends.begin(Message::Send(0, SharedBytes::of(&sent))).expect("begun");
    sends.announce(0).expect("sent");
    let begun = Instant::now();
    assert!(!receives.look().expect("a part came"));
    assert!(begun.elapsed() >= StdDuration::from_nanos(SPIN_NS), "{:?}", begun.elapsed());
    assert!(!is_parked(), "nobody has to wake it meanwhile");
    drop((sends, receives));
    assert!(received.starts_with(&[7; 256 << 10]) && received.ends_with(&[0; LEN - (256 << 10)]));
}
