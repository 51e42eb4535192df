//! [`Outcome`]: the result of one run of one plan.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::finding::{Finding, Kind};
use super::node::Cluster;
use super::script::Plan;
use super::simulation::Simulation;
use super::stats::Stats;
use super::trace::{Trace, TraceSink};

/// One run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Over all inputs and outputs of nodes. The same seed and build give the same.
    pub hash: u64,
    /// What happened.
    pub stats: Stats,
    /// What was wrong.
    pub result: Result<(), Finding>,
    /// The last lines of the trace, if it was kept.
    pub tail: Vec<String>,
}

/// Runs one plan. `keep` the last lines of the trace; `print` gets all of them.
pub fn run_plan<C: Cluster>(
    plan: &Plan,
    cluster: C,
    keep: bool,
    print: Option<TraceSink>,
) -> Outcome {
    let mut world = Simulation::new(plan, cluster, Trace::new(keep, print));
    let result = catch_unwind(AssertUnwindSafe(|| world.run())).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_else(|| "a node panicked".to_owned());
        Err(Finding { kind: Kind::Panic, text })
    });
    Outcome { hash: world.trace.hash(), stats: world.stats, result, tail: world.trace.tail() }
}
