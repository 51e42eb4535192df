//! Campaigns: many seeds over all cores, and one seed again.
//!
//! Each seed gets a world and a cluster of its own; seeds share nothing, so the order and the number of
//! threads change no result.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::finding::Finding;
use super::node::Cluster;
pub use super::outcome::{Outcome, run_plan};
use super::script::{Plan, Step};
use super::shrink::shrink;
use super::stats::Stats;
use super::swarm::RunShape;
use super::trace::TraceSink;

/// What a campaign does.
#[derive(Clone, Debug)]
pub struct Options {
    /// The first seed.
    pub first: u64,
    /// How many seeds.
    pub seeds: u64,
    /// What each of them is like.
    pub shape: RunShape,
    /// Threads; zero: one for each core.
    pub threads: usize,
    /// Gets every line of the trace (wants one thread and few seeds).
    pub trace: Option<TraceSink>,
    /// Stop after so many failures; zero: never.
    pub stop_after: usize,
    /// Arguments that a replay needs besides seed, ranks and hours.
    pub replay: String,
    /// Runs that shrinking one failure may take; zero: do not shrink.
    pub shrink_runs: u32,
}

impl Default for Options {
    fn default() -> Self {
        let shape = RunShape::default();
        Self {
            first: 0,
            seeds: 1,
            shape,
            threads: 0,
            trace: None,
            stop_after: 1,
            replay: String::new(),
            shrink_runs: 300,
        }
    }
}

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Its ranks.
    pub ranks: u32,
    /// What was wrong in the full run.
    pub finding: Finding,
    /// Steps of the full script.
    pub full_steps: usize,
    /// What is left of the script.
    pub steps: Vec<Step>,
    /// What is wrong in the shrunk run.
    pub shrunk: Finding,
    /// The last lines of the shrunk run.
    pub tail: Vec<String>,
    /// Arguments that run the seed again.
    pub replay: String,
}

/// The sum of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds that ran.
    pub seeds: u64,
    /// Seeds without any fault.
    pub clean: u64,
    /// All that happened.
    pub stats: Stats,
    /// Seeds that failed, by number.
    pub failures: Vec<Failure>,
    /// Of all runs, whatever their order.
    pub hash: u64,
    /// Time it took.
    pub elapsed: Duration,
    /// Processor time of all threads, where the system tells.
    pub cpu: Duration,
    /// Threads it took.
    pub threads: usize,
}

/// Runs seeds until they are all done or enough of them failed. `make` gives each world its cluster;
/// `progress` is called with the number of seeds that are done, by any thread.
pub fn run<C: Cluster>(
    options: &Options,
    make: impl Fn() -> C + Sync,
    progress: impl Fn(u64) + Sync,
) -> Summary {
    let begin = Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if options.threads == 0 { cores } else { options.threads };
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let enough = AtomicBool::new(false);
    let sum = Mutex::new(Summary { threads, ..Summary::default() });
    let worker = || {
        let before = cpu_time();
        let mut own = Summary::default();
        while !enough.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= options.seeds {
                break;
            }
            let seed = options.first.wrapping_add(index);
            let plan = Plan::generate(seed, &options.shape);
            let outcome = run_plan(&plan, make(), false, options.trace);
            own.seeds += 1;
            own.clean += u64::from(plan.clean);
            own.stats.add(&outcome.stats);
            own.hash ^= (outcome.hash ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            if let Err(finding) = outcome.result {
                own.failures.push(explain(options, plan, finding, &make));
                if own.failures.len() >= options.stop_after.max(1) && options.stop_after != 0 {
                    enough.store(true, Ordering::Relaxed);
                }
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
        if let Ok(mut sum) = sum.lock() {
            sum.seeds += own.seeds;
            sum.clean += own.clean;
            sum.stats.add(&own.stats);
            sum.hash ^= own.hash;
            sum.cpu += cpu_time().saturating_sub(before);
            sum.failures.append(&mut own.failures);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(worker);
        }
        worker();
    });
    let mut sum = sum.into_inner().unwrap_or_default();
    sum.failures.sort_by_key(|failure| failure.seed);
    sum.elapsed = begin.elapsed();
    sum
}

/// Processor time of this thread so far; zero where Linux does not tell.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

fn explain<C: Cluster>(
    options: &Options,
    plan: Plan,
    finding: Finding,
    make: &impl Fn() -> C,
) -> Failure {
    let (seed, ranks, full_steps) = (plan.seed, plan.ranks, plan.steps.len());
    let small = shrink(plan, finding.kind, options.shrink_runs, make);
    let outcome = run_plan(&small, make(), true, None);
    let shrunk = outcome.result.err().unwrap_or_else(|| finding.clone());
    let mut replay = format!("--seed {seed}");
    let RunShape { ranks: fixed, hours, .. } = options.shape;
    if let Some(ranks) = fixed {
        replay += &format!(" --ranks {ranks}");
    }
    if hours != 0 {
        replay += &format!(" --hours {hours}");
    }
    if !options.replay.is_empty() {
        replay += &format!(" {}", options.replay);
    }
    replay += " --trace";
    let tail = outcome.tail;
    Failure { seed, ranks, finding, full_steps, steps: small.steps, shrunk, tail, replay }
}
