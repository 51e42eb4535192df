//! From a list of mutants to a report: draws a sample, compiles it together, and runs the suites with each.

use super::copy::Copy;
use super::list::{Mutant, drawn};
use super::report::{Equivalents, Outcome, Report, Row};
use super::run::{Runner, assess, baselines, known};
use super::settle::{Settled, Way, by_number, settle, spliced};
use super::suites::{Baseline, Build, Suite, build};
use crate::verdict::Verdict;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Suites of the copy that cargo does not build.
pub(super) type More<'p> = dyn Fn(&Path, Option<&Mutant>) -> Result<Vec<Suite>, Verdict> + 'p;

/// What is mutated, and what must notice it.
pub(super) struct Plan<'p> {
    /// The tree.
    pub(super) root: &'p Path,
    /// Where the copy and what is built of it lie.
    pub(super) work: PathBuf,
    /// The packages that are mutated.
    pub(super) packages: Vec<&'p str>,
    pub(super) builds: Vec<Build>,
    /// Suites that cargo does not build, of the copy; for one mutant alone, or for those that were inserted together.
    pub(super) more: &'p More<'p>,
    /// Paths, and the names of suites that matter for them.
    pub(super) table: &'p [(&'p str, &'p [&'p str])],
    pub(super) sample: usize,
    /// Mutants that run at a time.
    pub(super) jobs: usize,
    pub(super) seed: u64,
    /// Time that a suite may take with a mutant beyond four times what it takes without.
    pub(super) slack: Duration,
    /// Time after which no more suites run with a mutant.
    pub(super) patience: Duration,
    /// The stored list of equivalent mutants.
    pub(super) equivalent: &'p str,
}

/// Assesses a sample of `candidates`; `all` has every mutant of the tree.
///
/// # Errors
/// Why there is no figure.
pub(super) fn run(
    plan: &Plan<'_>,
    all: &[Mutant],
    candidates: Vec<Mutant>,
) -> Result<Report, Verdict> {
    let order = drawn(candidates, plan.seed);
    let files: BTreeSet<String> = order.iter().map(|m| m.file.clone()).collect();
    let copy = Copy::new(plan.root, &plan.work, &plan.packages, &files).map_err(Verdict::Failed)?;
    let drawn = draw(plan, &copy, &order).map_err(Verdict::Failed)?;
    let equivalents = Equivalents::read(plan.equivalent);
    let mut rows = Vec::new();
    for number in &drawn.numbers {
        let fate = if drawn.settled.unviable.contains(number) {
            Some(Outcome::Unviable)
        } else {
            drawn.settled.absent.contains(number).then_some(Outcome::Absent)
        };
        if let (Some(outcome), Some(mutant)) = (fate, by_number(&order, *number)) {
            let row = Row {
                number: *number,
                mutant: mutant.clone(),
                outcome,
                alone: false,
                seconds: 0.0,
            };
            row.print();
            rows.push(row);
        }
    }
    assess_all(plan, &copy, &order, &drawn, &equivalents, &mut rows)?;
    rows.sort_by_key(|row| row.number);
    let stale = equivalents.stale(all, &rows);
    Ok(Report { seed: plan.seed, wanted: plan.sample, rows, stale, skipped: Vec::new() })
}

/// A sample: what was looked at, what became of it, and what is run.
struct Drawn {
    /// All numbers up to the last that is run.
    numbers: Vec<u32>,
    settled: Settled,
    joint: BTreeSet<u32>,
    alone: BTreeSet<u32>,
}

/// Takes mutants in the order of the seed until there are enough that compile. Numbers count from 1 in that order.
fn draw(plan: &Plan<'_>, copy: &Copy, order: &[Mutant]) -> Result<Drawn, String> {
    let last = u32::try_from(order.len()).map_err(|_| "too many mutants".to_owned())?;
    let mut settled = Settled::default();
    let mut taken = 0_u32;
    loop {
        let viable = (1..=taken).filter(|n| settled.is_viable(*n)).count();
        let missing = plan.sample.saturating_sub(viable);
        if missing == 0 || taken >= last {
            break;
        }
        // A fifth or so does not compile.
        let next = u32::try_from(missing.saturating_mul(5).div_ceil(4)).unwrap_or(last);
        let upto = taken.saturating_add(next).min(last);
        println!("=== inserting mutants {} to {upto} of {last} ===", taken.saturating_add(1));
        let mut numbers: Vec<u32> = settled.joint.iter().copied().collect();
        numbers.extend(taken.saturating_add(1)..=upto);
        let found = settle(copy, &plan.packages, order, &numbers)?;
        // Those of earlier rounds were tried together with the new ones.
        settled.joint = found.joint;
        settled.alone.extend(found.alone);
        settled.unviable.extend(found.unviable);
        settled.absent.extend(found.absent);
        taken = upto;
    }
    let viable: Vec<u32> =
        (1..=taken).filter(|n| settled.is_viable(*n)).take(plan.sample).collect();
    let end = viable.last().copied().unwrap_or(taken);
    let (joint, alone) = viable.into_iter().partition(|n| settled.joint.contains(n));
    Ok(Drawn { numbers: (1..=end).collect(), settled, joint, alone })
}

/// Builds and runs: first what is compiled together, then the others one by one.
fn assess_all(
    plan: &Plan<'_>,
    copy: &Copy,
    order: &[Mutant],
    drawn: &Drawn,
    equivalents: &Equivalents,
    rows: &mut Vec<Row>,
) -> Result<(), Verdict> {
    println!("=== building the tests with {} mutants in them ===", drawn.joint.len());
    let built = built(plan, copy, order, &drawn.joint, Way::Together, None)?;
    println!("=== {} suites without a mutant ===", built.len());
    let runner = Runner::new(plan.slack, plan.patience).map_err(Verdict::Failed)?;
    let times = baselines(built, &runner).map_err(Verdict::Failed)?;
    println!("=== mutants ===");
    let assessor =
        Assessor { table: plan.table, limits: (plan.slack, plan.patience), order, equivalents };
    rows.extend(assessor.several(plan.jobs, &drawn.joint, &times).map_err(Verdict::Failed)?);
    for number in &drawn.alone {
        let one = BTreeSet::from([*number]);
        let suites = built_alone(plan, copy, order, &one)?;
        let baselines: Vec<Baseline> = suites.into_iter().map(|s| known(s, &times)).collect();
        rows.push(assessor.one(*number, &baselines, &runner, true).map_err(Verdict::Failed)?);
    }
    Ok(())
}

/// What the runs with mutants need.
struct Assessor<'j> {
    table: &'j [(&'j str, &'j [&'j str])],
    /// A runner's slack and patience.
    limits: (Duration, Duration),
    order: &'j [Mutant],
    equivalents: &'j Equivalents,
}

impl Assessor<'_> {
    /// Runs the suites with one mutant.
    fn one(
        &self,
        number: u32,
        baselines: &[Baseline],
        runner: &Runner,
        alone: bool,
    ) -> Result<Row, String> {
        let mutant = by_number(self.order, number).ok_or("a number without a mutant")?;
        let begun = Instant::now();
        let fate = assess(baselines, number, mutant, self.table, runner)?;
        let outcome = self.equivalents.outcome(mutant, fate);
        let seconds = begun.elapsed().as_secs_f64();
        let row = Row { number, mutant: mutant.clone(), outcome, alone, seconds };
        row.print();
        Ok(row)
    }

    /// Runs the suites with each of several mutants, with so many at a time.
    fn several(
        &self,
        jobs: usize,
        numbers: &BTreeSet<u32>,
        baselines: &[Baseline],
    ) -> Result<Vec<Row>, String> {
        let queue = Mutex::new(numbers.iter());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            let runner = Runner::new(self.limits.0, self.limits.1)?;
            let mut rows = Vec::new();
            while let Some(number) = next() {
                rows.push(self.one(*number, baselines, &runner, false)?);
            }
            Ok(rows)
        };
        let done: Vec<Result<Vec<Row>, String>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
            let ended = |t: std::thread::ScopedJoinHandle<'_, _>| {
                t.join().unwrap_or_else(|_| Err("a thread of this command panicked".to_owned()))
            };
            threads.into_iter().map(ended).collect()
        });
        done.into_iter().try_fold(Vec::new(), |mut all, rows| {
            all.extend(rows?);
            Ok(all)
        })
    }
}

fn built_alone(
    plan: &Plan<'_>,
    copy: &Copy,
    order: &[Mutant],
    one: &BTreeSet<u32>,
) -> Result<Vec<Suite>, Verdict> {
    let mutant = one.first().and_then(|number| by_number(order, *number));
    println!("=== building the tests with one mutant in place ===");
    built(plan, copy, order, one, Way::Alone, mutant)
}

/// All suites, built with these mutants.
fn built(
    plan: &Plan<'_>,
    copy: &Copy,
    order: &[Mutant],
    numbers: &BTreeSet<u32>,
    way: Way,
    alone: Option<&Mutant>,
) -> Result<Vec<Suite>, Verdict> {
    let (texts, _) = spliced(copy, order, numbers, way).map_err(Verdict::Failed)?;
    copy.change(&texts).map_err(Verdict::Failed)?;
    let mut suites = Vec::new();
    for one in &plan.builds {
        suites.extend(build(copy, one).map_err(Verdict::Failed)?);
    }
    suites.extend((plan.more)(copy.place(), alone)?);
    Ok(suites)
}
