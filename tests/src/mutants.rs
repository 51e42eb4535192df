//! `cargo xtask sim --mutants`: plants one bug after the other and counts the seeds until the world notices.
//!
//! No check here knows which bug is planted: a bug counts as found when a seed fails by the world's general rules.
//! Bugs that no world can show are shown by the tests that [`crate::elsewhere`] names, which run here too.
//! Is part of the copy of the workspace that the command makes, where all of them are planted (`--cfg hmc_mutants`).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hmc_core::mutant::{ALL, Mutant, activate};
use hmc_sim::world::finding::{Finding, Kind};
use hmc_sim::world::run::run_plan;
use hmc_sim::world::script::Plan;
use hmc_sim::world::swarm::RunShape;

use crate::campaign;
use crate::cluster::Sessions;
use crate::elsewhere::{self, Test};

/// As `cargo xtask sim` draws it, so that a seed means the same there.
const SHAPE: RunShape =
    RunShape { ranks: None, requests: None, hours: 0, rndv: true, more_faults: 0 };

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The first seed of each.
    pub first: u64,
    /// Seeds for each bug at most.
    pub limit: u64,
    /// Time for each bug at most.
    pub time: Duration,
    /// Seeds that must pass without any bug.
    pub green: u64,
    /// Only bugs whose name contains this.
    pub only: Option<String>,
    /// Threads; zero: one for each processor.
    pub threads: usize,
}

/// How a search ended.
#[derive(Debug, Default)]
struct Hunt {
    /// The lowest seed that failed.
    found: Option<(u64, Finding)>,
    seeds: u64,
    requests: u64,
    elapsed: Duration,
}

/// What noticed it: the oracle of bytes, answers and messages, or the watch over time.
const fn noticed_by(kind: Kind) -> &'static str {
    match kind {
        Kind::Late | Kind::Hang | Kind::Stuck | Kind::Livelock => "liveness",
        Kind::Panic => "panic",
        Kind::Interface | Kind::Health => "border",
        Kind::StrayBytes => "stray bytes",
        _ => "oracle",
    }
}

/// Runs seeds with a bug planted until one fails that passes without it.
fn hunt(options: &Options, mutant: Mutant) -> Hunt {
    let mut sum = Hunt::default();
    let (mut first, end) = (options.first, options.first + options.limit);
    while first < end {
        activate(Some(mutant));
        let left = options.time.saturating_sub(sum.elapsed);
        let run = seeds(options, first, end - first, left);
        activate(None);
        sum.seeds += run.seeds;
        sum.requests += run.requests;
        sum.elapsed += run.elapsed;
        let Some((seed, finding)) = run.found else { break };
        if run_plan(&Plan::generate(seed, &SHAPE), Sessions, false, None).result.is_ok() {
            sum.found = Some((seed, finding));
            break;
        }
        // The seed fails anyway: it says nothing about this bug.
        first = seed + 1;
    }
    sum
}

/// Runs seeds until one fails, or enough passed, or the time is up.
fn seeds(options: &Options, first: u64, limit: u64, time: Duration) -> Hunt {
    let begun = Instant::now();
    let (next, done, requests) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let found: Mutex<Option<(u64, Finding)>> = Mutex::new(None);
    let worker = || {
        while !stop.load(Ordering::Relaxed) && begun.elapsed() < time {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= limit {
                break;
            }
            let seed = first + index;
            let plan = Plan::generate(seed, &SHAPE);
            let outcome = run_plan(&plan, Sessions, false, None);
            requests.fetch_add(outcome.stats.requests, Ordering::Relaxed);
            done.fetch_add(1, Ordering::Relaxed);
            if let (Err(finding), Ok(mut found)) = (outcome.result, found.lock()) {
                stop.store(true, Ordering::Relaxed);
                // Lower seeds may still run on other threads: the lowest counts.
                if found.as_ref().is_none_or(|(lowest, _)| seed < *lowest) {
                    *found = Some((seed, finding));
                }
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if options.threads == 0 { cores } else { options.threads };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(worker);
        }
        worker();
    });
    Hunt {
        found: found.into_inner().unwrap_or_default(),
        seeds: done.into_inner(),
        requests: requests.into_inner(),
        elapsed: begun.elapsed(),
    }
}

/// The first words of a finding, for a line of a table.
fn short(text: &str) -> String {
    let mut short: String = text.chars().take(90).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

fn report(mutant: Mutant, class: &str, hunt: &Hunt) {
    let (name, s) = (format!("{mutant:?}"), hunt.elapsed.as_secs_f64());
    match &hunt.found {
        Some((seed, finding)) => {
            let (by, kind) = (noticed_by(finding.kind), format!("{:?}", finding.kind));
            println!("{name:<25} {class:<34} {by:<12} {kind:<12} {seed:>6} {s:>7.2} s");
            println!("    {}", short(&finding.text));
        }
        None => {
            let n = hunt.seeds;
            println!("{name:<25} {class:<34} NOT FOUND in {n} seeds, {s:.2} s");
        }
    }
}

/// Runs the test that shows a bug, and says in a line whether it did.
fn is_shown(test: Test, mutant: Mutant, class: &str) -> bool {
    let begun = Instant::now();
    let shown = test.shows(mutant);
    let (name, s) = (format!("{mutant:?}"), begun.elapsed().as_secs_f64());
    match &shown {
        Ok(said) => {
            println!("{name:<25} {class:<34} {:<12} {:<12} {:>6} {s:>7.2} s", test.what, "test", 1);
            println!("    {}", short(said));
        }
        Err(why) => println!("{name:<25} {class:<34} NOT FOUND, {s:.2} s: {why}"),
    }
    println!("    {}", test.command(mutant));
    shown.is_ok()
}

/// The planted bugs that are asked for.
fn wanted(options: &Options) -> Vec<(Mutant, &'static str)> {
    let is_wanted = |mutant: &Mutant| {
        options.only.as_ref().is_none_or(|only| format!("{mutant:?}").contains(only))
    };
    ALL.iter().filter(|(mutant, _)| is_wanted(mutant)).copied().collect()
}

/// Looks for each planted bug, and for none.
///
/// # Errors
/// Words, when not all of them were found, when seeds fail without any, or when no bug is asked for.
pub fn run(options: &Options) -> Result<(), String> {
    let wanted = wanted(options);
    if wanted.is_empty() {
        let names: Vec<String> = ALL.iter().map(|(mutant, _)| format!("{mutant:?}")).collect();
        let only = options.only.as_deref().unwrap_or_default();
        return Err(format!("no planted bug has `{only}` in its name: {}", names.join(", ")));
    }
    // A panic is a finding with its text, not a page on the screen.
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    activate(None);
    let sound = seeds(options, options.first, options.green, Duration::MAX);
    if let Some((seed, finding)) = &sound.found {
        println!(
            "without any planted bug, seed {seed} fails: {:?}: {}",
            finding.kind, finding.text
        );
    } else {
        let (n, requests, s) = (sound.seeds, sound.requests, sound.elapsed.as_secs_f64());
        println!("without any planted bug: {n} seeds pass, {requests} operations, {s:.1} s");
    }
    println!(
        "{:<25} {:<34} {:<12} {:<12} {:>6} {:>9}",
        "planted bug", "class of fault", "noticed by", "finding", "seed", "time"
    );
    let (mut all, mut found, mut most) = (0u32, 0u32, 0u64);
    for (mutant, class) in wanted {
        if let Some(test) = elsewhere::test_of(mutant) {
            all += 1;
            found += u32::from(is_shown(test, mutant, class));
            continue;
        }
        let hunt = hunt(options, mutant);
        report(mutant, class, &hunt);
        all += 1;
        if let Some((seed, _)) = &hunt.found {
            found += 1;
            most = most.max(seed - options.first + 1);
        }
    }
    let s = begun.elapsed().as_secs_f64();
    println!("{found} of {all} planted bugs found, each within {most} seeds; {s:.0} s in all");
    let failed = usize::from(sound.found.is_some());
    campaign::bugs(campaign::seeds(options.green, sound.seeds, sound.requests, failed), found, all)
}
