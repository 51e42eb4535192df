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

use hmc_sim::world::run::{Options, Summary, run};
use world_toy::{Bug, Toys};

fn campaign(bug: Bug, first: u64, seeds: u64) -> Summary {
    let options = Options { first, seeds, ..Options::default() };
    run(&options, || Toys(bug), |_| {})
}

#[test]
fn an_honest_toy_passes() {
    let seeds = std::env::var("SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    let sum = campaign(Bug::None, 0, seeds);
    println!("{sum}");
    for failure in &sum.failures {
        panic!("{failure}");
    }
    assert_eq!(sum.seeds, seeds);
}
