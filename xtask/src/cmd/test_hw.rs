//! `cargo xtask test-hw`: the suites over the real libraries and devices of this machine.
//!
//! What is missing is skipped with the reason and what to do about it, and the run then ends with status 77, never 0.
//! The tests are those that `cargo test` shows as ignored: they need more than a machine.

use crate::answer::{Answer, Counts, Line, summary, tests};
use crate::shell;
use crate::tree;
use crate::verdict::Verdict;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time for the build and all tests of one library.
const LIMIT: Duration = Duration::from_secs(1200);
/// Time to install something.
const INSTALL: Duration = Duration::from_secs(600);

/// Debian's package, and what kills a process in the middle of a call or lets the call fail; and the wheel from the Python
/// package index, with the version that is supported and tested.
const DEBIAN: [&str; 2] = ["libucx0", "strace"];
const WHEEL: &str = "libucx-cu12==1.22.0";

/// Tests with real processes that run over UCX as they do over our own transports.
const PROCESS_TESTS: [&str; 7] =
    ["death", "relay", "relay_ends", "revoke", "routes", "sessions", "visibility"];
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The suites over UCX (the only ones so far)
    #[arg(long)]
    ucx: bool,
    /// Only with the library that the loader finds, not with the wheel's
    #[arg(long)]
    system: bool,
    /// Install what is missing: UCX as Debian packages it (as root), and UCX's wheel in a virtual environment under target
    #[arg(long)]
    install: bool,
    /// Only the soaks, each for so many seconds (20 in a run of everything)
    #[arg(long, value_name = "SECONDS")]
    soak: Option<u64>,
    /// The seed of the soaks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Kill no process in the soaks
    #[arg(long)]
    no_kills: bool,
}

/// Lane sets over which UCX is soaked; see `tests/tests/soak.rs`.
const SOAKS: u64 = 3;
/// Seconds of each in a run of everything.
const SOAK_SECS: u64 = 20;

/// A UCX to test with.
struct Ucx {
    name: &'static str,
    /// Its library; `None` for the one that the loader finds by itself.
    library: Option<PathBuf>,
}

/// Finds a UCX, installing it when that was asked for.
type Find = fn(&Path, bool) -> Result<Ucx, Verdict>;

/// Runs the suites and prints the summary.
pub(crate) fn run(options: &Options) -> Verdict {
    // All suites there are, asked for or not.
    let _ = options.ucx;
    let root = tree::root();
    let mut table = Vec::new();
    let places: [(&str, Find); 2] = [("the system's", system), ("the wheel's", wheel)];
    let wanted = if options.system { 1 } else { 2 };
    for (name, find) in places.into_iter().take(wanted) {
        table.push(Line::of(format!("UCX, {name}"), || match find(&root, options.install) {
            Ok(ucx) if options.soak.is_some() => soaks(&root, &ucx, options),
            Ok(ucx) => suites(&root, &ucx).and(soaks(&root, &ucx, options)),
            Err(verdict) => verdict.into(),
        }));
    }
    verdict(
        summary(&table),
        table.iter().any(|l| matches!(l.answer.verdict, Verdict::Skipped { .. })),
    )
}

fn verdict(total: Counts, missing: bool) -> Verdict {
    if total.failed != 0 {
        return Verdict::failed("some suites failed");
    }
    if missing {
        return Verdict::skipped(
            "not every suite could run",
            "see the reasons above, or `--install`",
        );
    }
    Verdict::Passed
}

/// The UCX that the loader finds.
fn system(_: &Path, install: bool) -> Result<Ucx, Verdict> {
    let is_there = || {
        let listed = shell::capture(Command::new("ldconfig").arg("-p"));
        listed.is_ok_and(|out| out.stdout.contains("libucp.so.0"))
    };
    let can_kill = || shell::capture(Command::new("strace").arg("-V")).is_ok();
    if install && !(is_there() && can_kill()) {
        for arguments in [&["update", "-qq"][..], &["install", "-y", "-qq"]] {
            let mut command = Command::new("apt-get");
            command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
            if arguments.contains(&"install") {
                command.args(DEBIAN);
            }
            let done = shell::stream(&mut command, INSTALL).map_err(Verdict::Failed)?;
            // Without strace two tests say that it is missing.
            if !done.success && !is_there() {
                let why = format!("`{}`: {}", shell::shown(&command), done.why());
                return Err(Verdict::skipped(why, "`apt install libucx0` as root"));
            }
        }
    }
    if is_there() {
        return Ok(Ucx { name: "the system's", library: None });
    }
    let remedy = "`apt install libucx0`, or `cargo xtask test-hw --install` as root";
    Err(Verdict::skipped("no libucp.so.0 in the loader's folders", remedy))
}

/// The UCX of the Python package index, in an environment of its own.
fn wheel(root: &Path, install: bool) -> Result<Ucx, Verdict> {
    let home = root.join("target/test-hw/ucx");
    if library_in(&home).is_none() && install {
        let pip = home.join("bin/pip");
        let mut steps = [Command::new("python3"), Command::new(&pip)];
        let [make, fill] = &mut steps;
        make.args(["-m", "venv"]).arg(&home);
        fill.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", WHEEL]);
        for command in &mut steps {
            let done = shell::stream(command, INSTALL).map_err(|why| {
                Verdict::skipped(
                    why,
                    "`apt install python3-venv`, then `cargo xtask test-hw --install`",
                )
            })?;
            if !done.success {
                let why = format!("`{}`: {}", shell::shown(command), done.why());
                return Err(Verdict::skipped(why, format!("`pip install {WHEEL}`")));
            }
        }
    }
    match library_in(&home) {
        Some(library) => Ok(Ucx { name: "the wheel's", library: Some(library) }),
        None => Err(Verdict::skipped(
            format!("{WHEEL} is not installed under {}", home.display()),
            "`cargo xtask test-hw --install`",
        )),
    }
}

/// The folder of libucp in a virtual environment.
fn library_in(home: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(home.join("lib")).ok()?.flatten();
    let folders = versions.map(|v| v.path().join("site-packages/libucx/lib"));
    folders.into_iter().find(|folder| folder.join("libucp.so.0").exists())
}

/// The conformance suite over single lanes, the partitions, the death in the middle of a message, ends under puts and sends that fail, then
/// the process tests over all lanes of this machine and over TCP alone.
fn suites(root: &Path, ucx: &Ucx) -> Answer {
    println!("with {} library", ucx.name);
    let lanes = [
        "ucx_lanes",
        "ucx_sessions",
        "ucx_fences",
        "ucx_quiet",
        "ucx_killed",
        "ucx_exits",
        "ucx_failed_sends",
        "partition",
    ];
    let mut lanes = test(root, ucx, &lanes);
    let mut all = test(root, ucx, &PROCESS_TESTS);
    let mut tcp = test(root, ucx, &PROCESS_TESTS);
    lanes.args(["--ignored", "--nocapture"]);
    for processes in [&mut all, &mut tcp] {
        processes.env("HMC_UCX", "1").env("HMC_TEST_VIA", "ucx");
    }
    tcp.env("UCX_TLS", "tcp");
    let mut total = Answer::from(Verdict::Passed);
    for command in [&mut lanes, &mut all, &mut tcp] {
        total = total.and(tests(command, LIMIT));
    }
    total
}

/// The soak over each kind of lane.
fn soaks(root: &Path, ucx: &Ucx, options: &Options) -> Answer {
    let seconds = options.soak.unwrap_or(SOAK_SECS);
    let mut command = test(root, ucx, &["soak"]);
    command.args(["--ignored", "--nocapture"]);
    command.env("HMC_SOAK_SECS", seconds.to_string());
    command.env("HMC_TEST_SEED", options.seed.to_string());
    if options.no_kills {
        command.env("HMC_SOAK_KILLS", "0");
    }
    let all = Duration::from_secs(seconds.saturating_mul(SOAKS));
    tests(&mut command, LIMIT.saturating_add(all))
}

/// `cargo test` of process tests with that library.
fn test(root: &Path, ucx: &Ucx, names: &[&str]) -> Command {
    let mut command = shell::cargo();
    command.args(["test", "--profile", "proofs", "--package", "hmc-tests", "--no-fail-fast"]);
    for name in names {
        command.args(["--test", name]);
    }
    match &ucx.library {
        Some(library) => command.env("HMC_UCX_LIB", library),
        None => command.env_remove("HMC_UCX_LIB"),
    };
    // One test at a time: each has processes or workers of its own, and deadlines.
    command.args(["--", "--test-threads=1"]).current_dir(root);
    command
}

#[cfg(test)]
mod tests_of_verdicts {
    use super::verdict;
    use crate::answer::Counts;
    use crate::verdict::Verdict;

    #[test]
    fn a_skipped_suite_is_never_a_pass() {
        let counts = |failed| Counts { passed: 3, failed, skipped: 0 };
        assert_eq!(verdict(counts(0), false), Verdict::Passed);
        assert!(matches!(verdict(counts(0), true), Verdict::Skipped { .. }));
        assert!(matches!(verdict(counts(1), true), Verdict::Failed(_)));
    }
}
