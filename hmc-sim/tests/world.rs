//! The world over a toy: it passes, it repeats, and each way to break it is found.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "tests may panic, and a toy has no documents"
)]

mod world_toy;

use hmc_sim::world::finding::Kind;
use hmc_sim::world::run::{Options, Summary, run, run_plan};
use hmc_sim::world::script::Plan;
use hmc_sim::world::swarm::RunShape;
use world_toy::{Bug, Toys};

/// Seeds that each broken toy gets.
const SEEDS_FOR_A_BUG: u64 = 300;

fn campaign(bug: Bug, seeds: u64, threads: usize) -> Summary {
    let shape = RunShape { rndv: true, ..RunShape::default() };
    let options = Options { seeds, threads, shape, ..Options::default() };
    run(&options, || Toys(bug), |_| {})
}

#[test]
fn an_honest_toy_passes() {
    let seeds = 500;
    let sum = campaign(Bug::None, seeds, 0);
    println!("{sum}");
    if let Some(failure) = sum.failures.first() {
        panic!("{failure}");
    }
    assert_eq!(sum.seeds, seeds);
    assert!(sum.stats.requests > 100 * seeds && sum.stats.all_faults() > seeds);
    assert!(sum.stats.faults.iter().all(|count| *count > 0), "every kind of fault happened");
    assert!(sum.stats.results[0] > sum.stats.requests / 2, "most requests do something");
}

fn is_found(bug: Bug, kinds: &[Kind]) {
    let sum = campaign(bug, SEEDS_FOR_A_BUG, 1);
    let Some(failure) = sum.failures.first() else {
        panic!("{bug:?} was not found in {SEEDS_FOR_A_BUG} seeds");
    };
    println!(
        "{bug:?}: {:?}, seed {}, {} of {} steps: {}",
        failure.finding.kind,
        failure.seed,
        failure.steps.len(),
        failure.full_steps,
        failure.shrunk.text
    );
    assert!(kinds.contains(&failure.finding.kind), "{bug:?} was found as\n{failure}");
    assert_eq!(
        failure.shrunk.kind, failure.finding.kind,
        "the shrunk script fails in the same way"
    );
    let small = failure.steps.len();
    assert!(small <= 12 || small <= failure.full_steps / 8, "{small} steps are left\n{failure}");
    let text = failure.to_string();
    assert!(text.contains(&format!("--seed {} --trace", failure.seed)), "{text}");
}

/// One test for each planted bug, so that they run side by side.
macro_rules! found {
    ($($name:ident: $bug:ident => $($kind:ident)|+;)*) => {$(
        #[test]
        fn $name() {
            is_found(Bug::$bug, &[$(Kind::$kind),+]);
        }
    )*};
}

found! {
    ack_before_bytes: AckBeforeBytes => NotDone;
    lost_on_reset: LostOnReset => Hang | Late;
    done_on_reset: DoneOnReset => NotDone;
    late_after_revoke: LateAfterRevoke => StrayBytes | NotDone;
    two_answers: TwoAnswers => Results;
    hang_on_partition: HangOnPartition => Late | Hang | Stuck;
    wrong_offset: WrongOffset => NotDone | StrayBytes;
    notify_overtakes: NotifyOvertakes => NotDone;
    out_of_range: OutOfRange => NotDone | StrayBytes;
    no_rights: NoRights => NotDone | StrayBytes;
    evict_on_duplicate: EvictOnDuplicate => Unexplained;
    no_heartbeat: NoHeartbeat => Peers | Stuck;
    get_early: GetEarly => NotDone | StrayBytes;
    late_get: LateGet => StrayBytes;
    tags_backwards: TagsBackwards => Lost | Messages;
    tag_lost: TagLost => Lost;
    no_redial: NoRedial => Stuck | Unexplained;
    silent_down: SilentDown => Peers | Stuck | Messages;
    spin: Spin => Livelock;
    sends_reversed: SendsReversed => Messages | NotDone | Lost;
    impatient: Impatient => Unexplained | Stuck;
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let once = campaign(Bug::None, 20, 1);
    let again = campaign(Bug::None, 20, 2);
    assert_eq!((once.hash, &once.stats), (again.hash, &again.stats));
    let mut hashes: Vec<u64> = (0..20)
        .map(|seed| {
            let plan = Plan::generate(seed, &RunShape::default());
            let run = run_plan(&plan, Toys(Bug::None), false, None);
            // Keeping a trace changes nothing.
            assert_eq!(run.hash, run_plan(&plan, Toys(Bug::None), true, None).hash);
            run.hash
        })
        .collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 20, "different seeds, different runs");
}

#[test]
fn many_ranks_and_long_times_pass() {
    for shape in [
        RunShape { ranks: Some(64), requests: Some(500), ..RunShape::default() },
        RunShape { ranks: Some(4), requests: Some(60), hours: 2, ..RunShape::default() },
    ] {
        let options = Options { seeds: 2, shape, ..Options::default() };
        let sum = run(&options, || Toys(Bug::None), |_| {});
        println!("{sum}");
        if let Some(failure) = sum.failures.first() {
            panic!("{failure}");
        }
        let minutes = u64::from(shape.hours) * 2 * 50;
        assert!(sum.stats.virtual_ns >= minutes * 60_000_000_000);
    }
}
