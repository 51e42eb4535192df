//! Messages of any size over the simulated NIC: random interleavings of control messages, puts and copies, and aborts at any
//! step. Completed messages equal their source, each end finishes once, and released memory is never written again.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::as_conversions,
    reason = "tests may panic"
)]

mod world;

use hmc_core::rndv::{AbortReason, RndvError};
use hmc_sim::fault::{Faults, Rate};
use proptest::prelude::*;
use world::{End, Target, Trouble, World};

fn play(seed: u64, trouble: Trouble) -> usize {
    let mut w = World::new(seed, trouble);
    w.ends.iter_mut().for_each(|end| end.sends_eagerly = true);
    let steps = 200 + w.rng.below(600);
    let death = if trouble.death { w.rng.below(steps) } else { u64::MAX };
    for step in 0..steps {
        let who = w.rng.index(2);
        if w.rng.below(100) < 4 && w.ends[who].sources.len() < 8 && w.ends[who].alive {
            let half = 1 + w.rng.below(48);
            let len = w.rng.below(5 * half) as usize;
            let bytes = w.rng.bytes(len);
            w.ends[who].send(bytes);
            let direct = w.rng.below(3) == 0;
            // Sometimes too small; sometimes large.
            let capacity = match w.rng.below(12) {
                0 => len as u64 / 2,
                1 => len as u64 * 2,
                _ => 5 * 48,
            };
            w.ends[1 - who].wants.push_back((capacity, if direct { 0 } else { half }));
        } else if w.rng.below(100) < 3 {
            w.ends[who].pair_up();
        }
        if step == death {
            w.kill(who);
        }
        w.step(false);
    }
    // Calm: everything ends by itself, or by its deadline where a completion was lost.
    let lossy = trouble.faults.lost != Rate::NEVER;
    for round in 0..400_000 {
        for end in &mut w.ends {
            if end.alive {
                end.pair_up();
            }
        }
        let quiet = |e: &End| e.received.is_empty() && e.outgoing.is_empty();
        if w.ends.iter().all(|e| e.is_finished() && quiet(e)) {
            break;
        }
        if lossy && round == 4_000 {
            for who in 0..2 {
                for at in 0..w.ends[who].sources.len() {
                    w.ends[who].end_source(at, RndvError::Here(AbortReason::DeadlineExceeded));
                }
            }
        }
        if lossy && round == 12_000 {
            w.kill(0);
        }
        w.step(true);
    }
    assert!(w.ends.iter().all(End::is_finished), "something never ended");
    w.check();
    w.ends.iter().map(|e| e.sources.iter().filter(|s| matches!(s.ended, Some(Ok(_)))).count()).sum()
}

const CONDITIONS: Trouble = Trouble { faults: Faults::CONDITIONS, endings: 0, death: false };
const ENDINGS: Trouble = Trouble { endings: 40, ..CONDITIONS };
const FAILING: Trouble = Trouble {
    faults: Faults { failed: Rate::percent(5), ..Faults::CONDITIONS },
    endings: 10,
    death: false,
};
const DEATH: Trouble = Trouble { endings: 10, death: true, ..CONDITIONS };
const STORM: Trouble = Trouble { faults: Faults::STORM, endings: 20, death: false };

/// Plays fixed seeds. Gives the messages that arrived.
fn all(trouble: Trouble) -> usize {
    (0..40).map(|seed| play(seed, trouble)).sum()
}

#[test]
fn messages_arrive_under_every_trouble() {
    let sent = all(CONDITIONS);
    assert!(sent > 150, "{sent} messages");
    for trouble in [ENDINGS, FAILING, DEATH, STORM] {
        assert!(all(trouble) > 0);
    }
}

proptest! {
    // A failure prints its seed; to play it again, give it to `play` in the test above.
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    #[test]
    fn under_network_conditions_everything_arrives(seed in any::<u64>()) {
        play(seed, CONDITIONS);
    }

    #[test]
    fn endings_at_any_step_end_both_ends_once(seed in any::<u64>()) {
        play(seed, ENDINGS);
    }

    #[test]
    fn failed_puts_end_both_ends_once(seed in any::<u64>()) {
        play(seed, FAILING);
    }

    #[test]
    fn death_at_any_step_ends_everything(seed in any::<u64>()) {
        play(seed, DEATH);
    }

    #[test]
    fn lost_and_doubled_completions_break_nothing(seed in any::<u64>()) {
        play(seed, STORM);
    }
}

/// A model of the half-buffers must be able to fail: a receiver that gives its credit before it
/// copied out, as the C++ HMC's does, is found.
#[test]
fn a_credit_before_the_copy_corrupts_in_this_model() {
    let corrupted = (0..200).any(|seed| {
        let mut w = World::new(seed, CONDITIONS);
        let bytes = w.rng.bytes(64);
        w.ends[0].send(bytes.clone());
        w.ends[1].wants.push_back((64, 8));
        for _ in 0..4000 {
            w.step(true);
            // The early credit: the machine believes that it copied, the bytes stay where they are.
            let t = w.ends[1].targets.first_mut();
            if let Some(copy) = t.and_then(|t| t.copy.take()) {
                w.ends[1].targets[0].machine.copied(Ok(()));
                w.ends[1].run_target(0);
                for _ in 0..w.rng.below(60) {
                    w.step(true);
                    if w.ends[1].targets[0].copy.is_some() {
                        break;
                    }
                }
                let next = w.ends[1].targets[0].copy.replace(copy);
                let at = copy.to.offset();
                let m = w.ends[1].targets[0].memory.as_ref().unwrap();
                let (dest, halves) = (m.dest, m.halves.unwrap());
                let mut late = vec![0; copy.to.len() as usize];
                assert!(w.ends[1].nic().read(halves, (copy.seq % 2) * 8, &mut late));
                assert!(w.ends[1].nic().write(dest, at, &late));
                w.ends[1].targets[0].copy = next;
            }
        }
        let mut got = vec![0; 64];
        let dest = w.ends[1].targets[0].memory.as_ref().unwrap().dest;
        assert!(w.ends[1].nic().read(dest, 0, &mut got));
        got != bytes
    });
    assert!(corrupted, "early credits were never punished");
}

/// Both modes take part, side by side.
#[test]
fn staged_and_direct_messages_share_a_link() {
    for seed in 0..20 {
        let mut w = World::new(seed, CONDITIONS);
        for half in [0, 8, 0, 8] {
            w.ends[0].send(vec![seed as u8; 30]);
            w.ends[1].wants.push_back((30, half));
        }
        for _ in 0..20_000 {
            w.step(true);
        }
        assert!(w.ends.iter().all(End::is_finished));
        w.check();
        let direct = |t: &&Target| t.memory.as_ref().unwrap().halves.is_none();
        assert_eq!(w.ends[1].targets.iter().filter(direct).count(), 2);
        assert!(w.ends[1].targets.iter().all(|t| t.ended == Some(Ok(30))));
    }
}
