//! Runs suites: once without a mutant, to know what they take and reach, and then with each mutant until one of them fails.

use super::list::Mutant;
use super::suites::{Baseline, Kind, Suite, relevant};
use crate::shell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the file of notes; as in `switch.txt`.
const NOTES_LEN: usize = 1 << 16;
/// Time that a suite may take without a mutant.
const PATIENCE: Duration = Duration::from_secs(1200);
/// Attempts to run one, and whether its switches take notes.
const ATTEMPTS: [bool; 4] = [true, true, false, false];
/// With one: so many times what it took without, and the runner's slack.
const TIMES: f64 = 4.0;

/// The result of the suites for a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// A test fails with it.
    Caught(String),
    /// A suite does not end in its time with it, nor in twice that: it hangs, or the machine is busy.
    TimedOut(String),
    /// All pass; the reason says how many.
    Missed(String),
}

/// Where suites keep files while they run, how much longer than without a mutant they may take, and when no more of them run.
#[derive(Debug)]
pub(super) struct Runner {
    folder: PathBuf,
    slack: Duration,
    patience: Duration,
}

impl Runner {
    /// A folder of its own: killed tests leave files.
    ///
    /// # Errors
    /// Words.
    pub(super) fn new(slack: Duration, patience: Duration) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("hmc-mutants-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let runner = Self { folder: std::env::temp_dir().join(name), slack, patience };
        runner.clear()?;
        Ok(runner)
    }

    /// Empties it. Tests run as other users, too.
    fn clear(&self) -> Result<(), String> {
        use std::os::unix::fs::PermissionsExt as _;
        let _ = std::fs::remove_dir_all(&self.folder);
        std::fs::create_dir_all(&self.folder)
            .and_then(|()| {
                std::fs::set_permissions(&self.folder, std::fs::Permissions::from_mode(0o1777))
            })
            .map_err(|e| format!("{}: {e}", self.folder.display()))
    }

    fn environment(&self, command: &mut Command) {
        command.env("TMPDIR", &self.folder);
    }

    /// A file of notes without any note.
    fn notes(&self) -> Result<PathBuf, String> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.folder.join("notes");
        std::fs::write(&path, vec![0_u8; NOTES_LEN])
            .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)))
            .map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs each suite without a mutant.
///
/// # Errors
/// Words, when one fails: against a broken baseline nothing is caught.
pub(super) fn baselines(suites: Vec<Suite>, runner: &Runner) -> Result<Vec<Baseline>, String> {
    let mut out = Vec::new();
    for suite in suites {
        let Some(baseline) = passing(suite, runner)? else { continue };
        let reached = baseline.reached.as_ref().map(BTreeSet::len);
        let reached = reached.map_or_else(|| "unknown".to_owned(), |count| count.to_string());
        println!(
            "    {:<44} {:>7.1} s, mutants reached: {reached}",
            baseline.suite.name, baseline.seconds
        );
        out.push(baseline);
    }
    if out.is_empty() { Err("no test was run".to_owned()) } else { Ok(out) }
}

/// Wants a suite to pass; none if it has no tests. A busy machine has a few attempts, the last ones without notes: a suite that
/// fails when its switches take notes passes then, and what it reaches is not known.
fn passing(suite: Suite, runner: &Runner) -> Result<Option<Baseline>, String> {
    let mut why = String::new();
    for notes in ATTEMPTS {
        runner.clear()?;
        let path = runner.notes()?;
        let mut command = suite.command(None);
        command.env("HMC_MUTATION", "0");
        if notes {
            command.env("HMC_MUTATION_NOTES", &path);
        }
        runner.environment(&mut command);
        let begun = Instant::now();
        let out = shell::watch(&mut command, PATIENCE, |_| true)?;
        if suite.kind == Kind::Harness && out.stdout.contains("running 0 tests") {
            return Ok(None);
        }
        if out.success {
            let seconds = begun.elapsed().as_secs_f64();
            let reached = if notes { Some(read_notes(&path)?) } else { None };
            return Ok(Some(Baseline { suite, seconds, reached }));
        }
        let failed: Vec<&str> = out.stdout.lines().filter_map(|line| suite.failed(line)).collect();
        why =
            format!("{} fails without a mutant: {}: {}", suite.name, out.why(), failed.join(", "));
        println!("    {why}");
    }
    Err(why)
}

/// The baseline of a suite that was built anew, which knows no time of its own: that of the same name among the others.
pub(super) fn known(suite: Suite, others: &[Baseline]) -> Baseline {
    let seconds = others.iter().find(|b| b.suite.name == suite.name).map_or(60.0, |b| b.seconds);
    Baseline { suite, seconds, reached: None }
}

fn read_notes(path: &Path) -> Result<BTreeSet<u32>, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(bytes.iter().zip(0_u32..).filter(|(b, _)| **b == 1).map(|(_, number)| number).collect())
}

/// Runs the suites that reach a mutant until one fails with it.
///
/// # Errors
/// Words, when one cannot be started.
pub(super) fn assess(
    baselines: &[Baseline],
    number: u32,
    mutant: &Mutant,
    table: &[(&str, &[&str])],
    runner: &Runner,
) -> Result<Fate, String> {
    let mut unsure = Vec::new();
    let reaching = relevant(baselines, number, mutant, table);
    let begun = Instant::now();
    for (passed, baseline) in reaching.iter().enumerate() {
        if passed > 0 && begun.elapsed() >= runner.patience {
            let why = format!("{passed} of {} suites execute it and pass", reaching.len());
            return Ok(Fate::Missed(format!("{why}; no more were run")));
        }
        runner.clear()?;
        if let Some(fate) = failing(baseline, number, runner, &mut unsure)? {
            return Ok(fate);
        }
    }
    let mut why = if reaching.is_empty() {
        "never executed by any suite".to_owned()
    } else {
        format!("{} suites execute it and pass", reaching.len())
    };
    if !unsure.is_empty() {
        why = format!("{why}; failed once and passed when it was run again: {}", unsure.join(", "));
    }
    Ok(Fate::Missed(why))
}

/// How the suite fails with the mutant; what fails only once is `unsure` and counts for nothing.
fn failing(
    baseline: &Baseline,
    number: u32,
    runner: &Runner,
    unsure: &mut Vec<String>,
) -> Result<Option<Fate>, String> {
    let suite = &baseline.suite;
    let limit = Duration::try_from_secs_f64(baseline.seconds * TIMES)
        .unwrap_or(PATIENCE)
        .saturating_add(runner.slack);
    let run = |only: Option<&str>, limit: Duration| {
        let mut command = suite.command(only);
        command.env("HMC_MUTATION", number.to_string());
        runner.environment(&mut command);
        let mut failed = None;
        let out = shell::watch(&mut command, limit, |line| {
            failed = suite.failed(line).map(str::to_owned);
            failed.is_none()
        })?;
        Ok::<_, String>((out, failed))
    };
    let (out, failed) = run(None, limit)?;
    if out.success {
        return Ok(None);
    }
    let test = failed.filter(|name| !name.is_empty());
    let name = match &test {
        Some(test) => format!("{}::{test}", suite.name),
        None if out.timed_out => {
            format!("{} (time: more than {:.0} s)", suite.name, limit.as_secs_f64())
        }
        None => format!("{} ({})", suite.name, out.why()),
    };
    // On a busy machine a test of deadlines sometimes fails, and needs more time than on a quiet one.
    let (again, _) = run(test.as_deref(), limit.saturating_mul(2))?;
    if !again.success {
        let only_late = test.is_none() && out.timed_out && again.timed_out;
        return Ok(Some(if only_late { Fate::TimedOut(name) } else { Fate::Caught(name) }));
    }
    unsure.push(name);
    Ok(None)
}
