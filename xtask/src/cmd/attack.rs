//! `cargo xtask attack`: attacks what README.md and SECURITY.md promise, one row for each promise (`tests/src/attack`).
//!
//! Each row runs in a process of its own, twice: in a build without planted bugs, where the promise must hold, and with the
//! row's bug planted, where it must be broken. A row that holds beside its bug proves nothing and fails. A process that ends by
//! a signal, or hangs, has broken its promise; one that ends by a panic could not make its attack, which fails as well.

use crate::planted::{Planted, Shown};
use crate::shell;
use crate::step_result::{Counts, StepResult};
use crate::tree;
use crate::verdict::Verdict;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

mod table;

use table::{End, Row, Run, Tried, print, read, row, table};

/// Time that a row may take in its short form.
const SHORT: Duration = Duration::from_secs(45);
/// Rows that run at the same time: they wait more than they work.
const AT_ONCE: usize = 6;
/// The variable that plants a bug (`hmc_tests::attack::planted`).
const MUTANT: &str = "HMC_MUTANT";
/// Seed of the run that is a step of `test-sim`: a change fails because of what it changed, not by chance.
const SEED: u64 = 1;

/// What is built: the rows, and the processes that they start.
const PACKAGE: &str = "hmc-tests";
const PROGRAMS: [&str; 2] = ["attack", "actor"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Of all choices
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Only rows whose name contains this
    #[arg(long, value_name = "ROW")]
    only: Option<String>,
    /// Attempts for so many seconds a row, instead of a number of them
    #[arg(long, value_name = "N")]
    secs: Option<u64>,
    /// Print the rows, and run none
    #[arg(long)]
    list: bool,
    /// Write the table to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The short form of all rows.
pub(crate) const STEP: Options =
    Options { seed: SEED, only: None, secs: None, list: false, json: None };

/// Runs the rows and prints the table.
pub(crate) fn run(options: &Options) -> Verdict {
    step(options).verdict
}

/// The same with the number of rows that passed, failed and were skipped.
pub(crate) fn step(options: &Options) -> StepResult {
    match attack(options) {
        Ok(result) => result,
        Err(why) => Verdict::Failed(why).into(),
    }
}

fn attack(options: &Options) -> Result<StepResult, String> {
    let root = tree::root();
    let plain = build(&root)?;
    let rows = chosen(list(&plain)?, options.only.as_deref())?;
    if options.list {
        for row in &rows {
            println!("{:<24} {:<16} {:<20} {}", row.name, row.document, row.mutant, row.promise);
        }
        return Ok(Verdict::Passed.into());
    }
    let is_attacked = |shown| shown == Shown::Attack;
    let planted = Planted::new(&root)?.build(PACKAGE, &PROGRAMS, is_attacked)?;
    let scratch = Scratch::new()?;
    let begun = Instant::now();
    let tried = all(&rows, &plain, &planted, options, &scratch.0);
    let counts = print(&tried);
    let secs = begun.elapsed().as_secs_f64();
    let Counts { passed, failed, skipped } = counts;
    println!(
        "{passed} passed, {failed} failed, {skipped} skipped; seed {}; {secs:.1} s",
        options.seed
    );
    if let Some(path) = &options.json {
        let text = format!("{:#}\n", table(&tried, options.seed));
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let verdict = match failed {
        0 => Verdict::Passed,
        n => {
            Verdict::failed(format!("{n} rows; again: cargo xtask attack --seed {}", options.seed))
        }
    };
    Ok(StepResult { verdict, counts })
}

/// Builds the program, and that of the processes that it starts. Where it is.
fn build(root: &Path) -> Result<PathBuf, String> {
    let mut command = shell::cargo();
    command.current_dir(root).args(["build", "--profile", "proofs"]);
    shell::built(&mut command, PACKAGE, &PROGRAMS)
}

fn list(program: &Path) -> Result<Vec<Row>, String> {
    let out = shell::capture(Command::new(program).arg("--list"))?;
    let rows: Option<Vec<Row>> = out.stdout.lines().map(row).collect();
    match rows {
        Some(rows) if out.success && !rows.is_empty() => Ok(rows),
        _ => Err(format!("{} lists no rows: {}", program.display(), out.stderr)),
    }
}

fn chosen(rows: Vec<Row>, only: Option<&str>) -> Result<Vec<Row>, String> {
    let Some(only) = only else { return Ok(rows) };
    let rows: Vec<Row> = rows.into_iter().filter(|row| row.name.contains(only)).collect();
    match rows.is_empty() {
        true => Err(format!("no row's name contains `{only}`; --list prints all")),
        false => Ok(rows),
    }
}

/// A folder for what the rows leave behind.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, String> {
        // Short: names of local sockets are limited.
        let dir = std::env::temp_dir().join(format!("hmc-a{}", std::process::id()));
        std::fs::create_dir(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs all rows in both builds, some at a time.
fn all(
    rows: &[Row],
    plain: &Path,
    planted: &Path,
    options: &Options,
    scratch: &Path,
) -> Vec<Tried> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(row) = rows.get(index) else { return };
            let first = once(row, plain, None, options, scratch);
            let second = (first.end != End::Skipped)
                .then(|| once(row, planted, Some(&row.mutant), options, scratch));
            let tried = Tried { row: row.clone(), plain: first, planted: second };
            if let Ok(mut done) = done.lock() {
                done.push((index, tried));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(worker);
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, tried)| tried).collect()
}

/// Runs a row in a process of its own.
fn once(row: &Row, program: &Path, mutant: Option<&str>, options: &Options, scratch: &Path) -> Run {
    let mut command = Command::new(program);
    command.args(["--row", &row.name, "--seed", &options.seed.to_string()]);
    command.env("TMPDIR", scratch).env_remove(MUTANT).env("RUST_BACKTRACE", "0");
    let mut deadline = SHORT;
    if let Some(secs) = options.secs {
        command.arg("--secs").arg(secs.to_string());
        deadline = deadline.saturating_add(Duration::from_secs(secs));
    }
    if let Some(mutant) = mutant {
        command.env(MUTANT, mutant);
    }
    let begun = Instant::now();
    let (end, attempts, seen) = match shell::within(&mut command, deadline) {
        Ok(out) => read(&out),
        Err(why) => (End::Unmade, 0, why),
    };
    Run { end, attempts, seen, time: begun.elapsed() }
}

#[cfg(test)]
mod tests {
    use super::{chosen, row};

    #[test]
    fn a_name_that_no_row_has_is_an_error() {
        let a_row = || row("name\tdoc.md\tBug\tit is so").unwrap();
        assert_eq!(chosen(vec![a_row()], Some("am")), Ok(vec![a_row()]));
        assert!(chosen(vec![a_row()], Some("NOSUCH")).is_err());
        assert_eq!(row("name\tdoc.md\tBug\t"), None, "without a promise");
    }
}
