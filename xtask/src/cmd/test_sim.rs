//! `cargo xtask test-sim`: every test that needs no hardware, in order, with a summary.
//!
//! A step that fails does not stop the others. A step that cannot run here is shown as skipped
//! with what to do about it, never as passed. `--keep FILE` stores the result of each; `--after FILE` runs those that were
//! skipped as a whole then, when something has been installed. The last line is `N passed, N failed, N skipped`:
//! the sum of cargo's own `test result` lines, plus one for each step that failed or was skipped
//! as a whole.

use crate::cmd;
use crate::record;
use crate::shell;
use crate::step_result::{Line, StepResult, summary, tests};
use crate::tools;
use crate::tree;
use crate::verdict::Verdict;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time that one step may take, its build included.
const STEP: Duration = Duration::from_secs(1200);

/// The other kind of processor that HMC runs on.
const OTHER: &str = if cfg!(target_arch = "aarch64") {
    "x86_64-unknown-linux-gnu"
} else {
    "aarch64-unknown-linux-gnu"
};

/// A target of the other byte order, which Miri interprets on any machine.
const BIG_ENDIAN: &str = "s390x-unknown-linux-gnu";

/// Seeds of the short run over simulated clusters.
const SIM_SEEDS: u32 = 2_000;

/// Seconds for each target of the short fuzz run.
const FUZZ_SECS: u64 = 5;
/// Where its chance starts: a change fails because of what it changed, not by chance.
const FUZZ_SEED: u32 = 1;

/// Preemptions in one execution of a loom model; within them the models are complete.
const PREEMPTIONS: &str = "3";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave out the slow steps: msrv, the other processor, process tests, a transport from elsewhere, attacks, Python, documents, clusters, loom, Miri, fuzz
    #[arg(long)]
    quick: bool,
    /// Write the result of each step to FILE
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Run only the steps that were skipped in the run that FILE is of; the table and the sum have the others as they were
    #[arg(long, value_name = "FILE", conflicts_with = "keep")]
    after: Option<PathBuf>,
}

/// One step: its name, whether `--quick` leaves it out, and how it is run.
struct Step {
    name: &'static str,
    slow: bool,
    run: fn(&Path) -> StepResult,
}

const STEPS: [Step; 16] = [
    Step { name: "tidy", slow: false, run: |_| cmd::tidy::run().into() },
    Step { name: "msrv", slow: true, run: |_| cmd::msrv::run().into() },
    Step { name: "the other processor", slow: true, run: other },
    Step { name: "workspace tests", slow: false, run: workspace },
    Step { name: "process tests (optimised)", slow: true, run: processes },
    Step { name: "a transport from elsewhere", slow: true, run: elsewhere },
    Step { name: "attacks, short", slow: true, run: |_| cmd::attack::step(&cmd::attack::STEP) },
    Step { name: "Python package", slow: true, run: cmd::wheel::step },
    Step {
        name: "documents",
        slow: true,
        run: |_| cmd::documents::step(&cmd::documents::Options::default()),
    },
    Step {
        name: "simulated clusters",
        slow: true,
        run: |_| cmd::sim::run(&cmd::sim::Options::seeds(SIM_SEEDS)).into(),
    },
    Step { name: "loom models", slow: true, run: loom },
    Step {
        name: "nopanic",
        slow: false,
        run: |_| cmd::nopanic::run(&cmd::nopanic::Options::default()).into(),
    },
    Step { name: "nostd", slow: false, run: |_| cmd::nostd::run().into() },
    Step {
        name: "Miri: wire, big-endian",
        slow: true,
        run: |root| {
            // The core has no unsafe code to check; a machine of the other byte order is the point.
            let what = ["-p", "hmc-core", "--test", "wire_golden", "--target", BIG_ENDIAN];
            miri(root, &what)
        },
    },
    Step {
        name: "Miri: hmc-mem",
        slow: true,
        run: |root| miri(root, &["-p", "hmc-mem", "--lib", "--no-default-features"]),
    },
    Step {
        name: "fuzz, short",
        slow: true,
        run: |_| {
            cmd::fuzz::run(&cmd::fuzz::Options {
                secs: FUZZ_SECS,
                target: None,
                seed: Some(FUZZ_SEED),
                planted: false,
            })
            .into()
        },
    },
];

/// Runs the steps and prints the summary.
pub(crate) fn run(options: &Options) -> Verdict {
    let root = tree::root();
    let mut before = match options.after.as_deref().map(record::read).transpose() {
        Ok(before) => before.unwrap_or_default(),
        Err(why) => return Verdict::Failed(why),
    };
    let mut table = Vec::new();
    for step in &STEPS {
        if let Some(place) = before.iter().position(|line| stands(line, step.name)) {
            table.push(before.swap_remove(place));
            continue;
        }
        table.push(Line::of(step.name.to_owned(), || {
            if options.quick && step.slow {
                return Verdict::skipped("left out by --quick", "run without --quick").into();
            }
            (step.run)(&root)
        }));
    }
    let kept = options.keep.as_deref().map_or(Ok(()), |path| record::write(path, &table));
    let total = summary(&table);
    if let Err(why) = kept {
        return Verdict::Failed(why);
    }
    if total.failed == 0 { Verdict::Passed } else { Verdict::failed("some steps failed") }
}

/// Whether a step of an earlier run needs no other.
fn stands(line: &Line, name: &str) -> bool {
    line.name == name && !matches!(line.result.verdict, Verdict::Skipped { .. })
}

/// Checks the workspace for the other kind of processor. Nothing is linked or run: that needs its tools.
fn other(root: &Path) -> StepResult {
    if !tools::has_target(OTHER) {
        return Verdict::skipped(
            format!("no standard library for {OTHER}"),
            format!("`rustup target add {OTHER}`"),
        )
        .into();
    }
    let mut command = shell::cargo();
    command.current_dir(root).args(["check", "--workspace", "--locked", "--target", OTHER]);
    match shell::stream(&mut command, STEP) {
        Ok(out) if out.success => Verdict::Passed.into(),
        Ok(out) => Verdict::failed(format!("does not check for {OTHER}: {}", out.why())).into(),
        Err(why) => Verdict::Failed(why).into(),
    }
}

/// Everything but the process tests, which want an optimised build, with the documents' examples.
fn workspace(root: &Path) -> StepResult {
    let mut command = shell::cargo();
    command.args(["test", "--workspace", "--exclude", "hmc-tests", "--no-fail-fast"]);
    tests(command.current_dir(root), STEP)
}

fn processes(root: &Path) -> StepResult {
    let mut command = shell::cargo();
    command.args(["test", "--profile", "proofs", "--package", "hmc-tests", "--no-fail-fast"]);
    tests(command.current_dir(root), STEP)
}

/// A project of its own that brings a transport: the conformance suite and two processes over it.
fn elsewhere(root: &Path) -> StepResult {
    let mut command = shell::cargo();
    command
        .args(["test", "--locked", "--no-fail-fast"])
        .args(["--manifest-path", "examples/own_transport/Cargo.toml"])
        // What both need was built there for the workspace.
        .arg("--target-dir")
        .arg(root.join("target"));
    tests(command.current_dir(root), STEP)
}

fn loom(root: &Path) -> StepResult {
    let mut command = shell::cargo();
    command
        .args([
            "test",
            "--package",
            "hmc-mem",
            "--profile",
            "proofs",
            "--test",
            "loom",
            "--no-default-features",
        ])
        .arg("--target-dir")
        .arg(root.join("target/loom"))
        // Each model reports its number of executions.
        .args(["--", "--nocapture"])
        .env("LOOM_MAX_PREEMPTIONS", PREEMPTIONS)
        .env("RUSTFLAGS", "--cfg loom");
    tests(command.current_dir(root), STEP)
}

fn miri(root: &Path, what: &[&str]) -> StepResult {
    if !tools::has_extension("nightly", "miri") {
        return Verdict::skipped(
            "Miri is not installed",
            "`rustup toolchain install nightly --component miri,rust-src`",
        )
        .into();
    }
    let mut command = shell::cargo_of("nightly");
    command
        .args(["miri", "test"])
        .args(what)
        .arg("--target-dir")
        .arg(root.join("target/miri"))
        // An interpreter is slow: a property test tries fewer cases under it.
        .env("PROPTEST_CASES", "4")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
        // The tests read stored texts; nothing else of the machine is touched.
        .env("MIRIFLAGS", "-Zmiri-strict-provenance -Zmiri-disable-isolation");
    tests(command.current_dir(root), STEP)
}

#[cfg(test)]
mod tests_of_runs {
    use super::{STEPS, stands};
    use crate::step_result::{Line, StepResult};
    use crate::verdict::Verdict;
    use std::time::Duration;

    #[test]
    fn nothing_is_installed_before_the_tests_of_a_bare_machine() {
        let script = std::fs::read_to_string(crate::tree::root().join(".ci/run")).unwrap();
        let is_code = |l: &&str| !["#", "echo"].iter().any(|word| l.trim_start().starts_with(word));
        let code: Vec<&str> = script.lines().filter(is_code).collect();
        let first = |what: &str| code.iter().position(|line| line.contains(what)).unwrap();
        let tests = first("cargo xtask test-sim --keep");
        assert!(tests < first("rustup ") && tests < first("--install"));
        assert!(first("test-hw --ucx --system --install") < first("cargo xtask test-sim --after"));
        let ways = ["rustup ", "apt-get", "pip install", "--install"];
        assert!(code[..tests].iter().all(|line| ways.iter().all(|way| !line.contains(way))));
    }

    #[test]
    fn only_what_was_skipped_runs_again() {
        let line = |verdict: Verdict| Line {
            name: STEPS[0].name.to_owned(),
            result: StepResult::from(verdict),
            time: Duration::ZERO,
        };
        assert!(stands(&line(Verdict::Passed), STEPS[0].name));
        assert!(stands(&line(Verdict::failed("why")), STEPS[0].name));
        assert!(!stands(&line(Verdict::skipped("a", "b")), STEPS[0].name));
        assert!(!stands(&line(Verdict::Passed), STEPS[1].name));
    }
}
