//! The suites over RDMA verbs: the conformance suite, the process tests, a file between two processes of `hmc`, also in two network
//! namespaces, and the tests of the Python package.
//!
//! The programs are built before, since a VM has no use for a compiler: `test-hw --vm` runs this file's command in the guest.

use super::fabric_failure::{self, FabricFailure};
use super::namespaces;
use super::python::Python;
use super::single::{RDMA, Run, Seen, Tested, Which, build};
use super::suites::{
    CONFORMANCE, ELSEWHERE, NOT_BY_SOFT_ROCE, OF_UCX, PROCESS_TESTS, RDMA_TESTS, SHORT, SOAK,
};
use super::ucx_lanes;
use crate::cmd::demo::{self, Hosts, Via};
use crate::cmd::vm::guest;
use crate::shell;
use crate::step_result::{Counts, Line, StepResult, summary, verdict};
use crate::tree;
use crate::verdict::Verdict;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the kernel lists RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

/// Time for one test on a processor that is not emulated.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// Bytes of the file that `hmc put` sends.
const FILE_BYTES: u64 = 4 << 20;

/// What the suites run with.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The program hmc
    #[arg(long)]
    hmc: PathBuf,
    /// Time limit of one test in seconds
    #[arg(long)]
    limit: u64,
    /// Time limit of all in seconds
    #[arg(long)]
    time: u64,
    /// Write the results as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Only the short form
    #[arg(long)]
    short: bool,
    /// The Python package
    #[command(flatten)]
    python: Python,
    /// Programs of tests, NAME=PATH
    #[arg(required = true, value_parser = program)]
    programs: Vec<(String, PathBuf)>,
}

fn program(text: &str) -> Result<(String, PathBuf), String> {
    let parts = text.split_once('=').ok_or_else(|| format!("{text}: give NAME=PATH"))?;
    Ok((parts.0.to_owned(), parts.1.into()))
}

impl Options {
    /// Builds the programs, of the short form or of all suites.
    ///
    /// # Errors
    /// Words.
    pub(super) fn built(root: &Path, short: bool) -> Result<Self, String> {
        let names = [&RDMA_TESTS[..], &process_tests(short)].concat();
        let programs = build(root, &names)?;
        let mut command = shell::cargo();
        command.current_dir(root).args(["build", "--profile", "proofs"]);
        let hmc = shell::built(&mut command, "hmc-cli", &["hmc"])?;
        let python = if short { Python::default() } else { Python::built(root)? };
        Ok(Self { hmc, limit: LIMIT.as_secs(), time: 0, json: None, short, python, programs })
    }

    /// The program hmc.
    pub(super) fn hmc(&self) -> &Path {
        &self.hmc
    }

    /// Sets the limits, and the file of the results.
    pub(super) fn within(self, limit: Duration, time: Duration, json: Option<&Path>) -> Self {
        let (limit, time) = (limit.as_secs(), time.as_secs());
        Self { limit, time, json: json.map(Path::to_path_buf), ..self }
    }

    /// The arguments of the command that runs the suites with these.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut all: Vec<OsString> = vec!["test-hw-rdma".into(), "--hmc".into()];
        all.push(self.hmc.clone().into());
        all.extend(["--limit".into(), self.limit.to_string().into()]);
        all.extend(["--time".into(), self.time.to_string().into()]);
        if let Some(json) = &self.json {
            all.extend(["--json".into(), json.into()]);
        }
        all.extend(self.short.then(|| "--short".into()));
        all.extend(self.python.arguments());
        all.extend(self.programs.iter().map(|(name, path)| {
            let mut argument = OsString::from(format!("{name}="));
            argument.push(path);
            argument
        }));
        all
    }
}

/// The programs of process tests that run, of the short form or of all suites.
fn process_tests(short: bool) -> Vec<&'static str> {
    let is_wanted = |name: &&str| {
        let of = |test: &&str| test.split_once("::").is_some_and(|(program, _)| program == *name);
        !short || SHORT.iter().any(of)
    };
    PROCESS_TESTS.into_iter().filter(is_wanted).collect()
}

/// Builds the programs and runs the suites with a device of this machine.
pub(super) fn native(root: &Path, time: Duration, json: Option<&Path>, short: bool) -> Verdict {
    if devices().is_empty() {
        return Verdict::skipped(
            format!("no RDMA device in {DEVICES}"),
            "a machine with a NIC, or `cargo xtask test-hw --vm`",
        );
    }
    match Options::built(root, short) {
        Ok(options) => run(&options.within(LIMIT, time, json)),
        Err(why) => Verdict::Failed(why),
    }
}

/// The RDMA devices of this machine.
fn devices() -> Vec<String> {
    let entries = std::fs::read_dir(DEVICES).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Whether all devices are those of soft-RoCE, which alone name the network interface that they belong to.
fn is_soft() -> bool {
    devices().iter().all(|name| Path::new(DEVICES).join(name).join("parent").exists())
}

/// Runs the suites and prints the table.
pub(crate) fn run(options: &Options) -> Verdict {
    let devices = devices();
    println!("RDMA devices: {}", devices.join(", "));
    let until = Instant::now().checked_add(Duration::from_secs(options.time));
    let (mut table, mut steps) = (Vec::new(), Vec::new());
    let is_wanted = |name: &str| match name {
        PYTHON | SOAK => !options.short,
        // It changes the network of the machine.
        NAMESPACES => !options.short && guest::is_here(),
        // The VM has a libucx with a module for RDMA devices.
        UCX_LANES | LINK_DOWN | SILENCE => !options.short && guest::is_here(),
        _ => true,
    };
    for (name, step) in SUITES.iter().filter(|(name, _)| is_wanted(name)) {
        let mut tested = Vec::new();
        let line = Line::of((*name).to_owned(), || step(options, until, &mut tested));
        steps.push(report(&line, &tested));
        table.push(line);
        // After each, since the time of a VM may end.
        let value = json!({ "devices": devices, "steps": steps });
        if let Some(file) = &options.json
            && let Err(e) = std::fs::write(file, format!("{value:#}\n"))
        {
            return Verdict::failed(format!("{}: {e}", file.display()));
        }
    }
    let missing = table.iter().any(|l| matches!(l.result.verdict, Verdict::Skipped { .. }));
    verdict(summary(&table), missing)
}

/// Runs a suite, and adds its tests to the list.
type Suite = fn(&Options, Option<Instant>, &mut Vec<Value>) -> StepResult;

/// The suites that the short form does not run.
const PYTHON: &str = "Python package";
const NAMESPACES: &str = "two network namespaces";
const LINK_DOWN: &str = "the link goes down";
const SILENCE: &str = "packets are lost";
const UCX_LANES: &str = "UCX over its own queue pairs";

const SUITES: &[(&str, Suite)] = &[
    (CONFORMANCE, |options, until, tested| {
        suite(options, &[CONFORMANCE], Which::Ignored, until, tested)
    }),
    ("hmc serve and hmc put", |options, _, _| {
        one_test(demo::moved_by(&options.hmc, Via::Rdma, FILE_BYTES, &Hosts::default()))
    }),
    (NAMESPACES, |options, _, _| one_test(namespaces::move_file(&options.hmc, FILE_BYTES))),
    (LINK_DOWN, |options, _, _| one_test(fabric_failure::run(&options.hmc, FabricFailure::Down))),
    (SILENCE, |options, _, _| one_test(fabric_failure::run(&options.hmc, FabricFailure::Silent))),
    (UCX_LANES, |options, _, _| one_test(ucx_lanes::move_file(&options.hmc, FILE_BYTES))),
    ("process tests", |options, until, tested| {
        suite(options, &process_tests(options.short), Which::All, until, tested)
    }),
    (SOAK, |options, until, tested| suite(options, &[SOAK], Which::Ignored, until, tested)),
    (PYTHON, |options, until, tested| options.python.tests(&tree::root(), until, tested)),
];

/// The result of a step that is one test.
pub(super) fn one_test(verdict: Verdict) -> StepResult {
    let passed = u64::from(verdict == Verdict::Passed);
    StepResult { verdict, counts: Counts { passed, ..Counts::default() } }
}

fn suite(
    options: &Options,
    names: &[&str],
    which: Which,
    until: Option<Instant>,
    tested: &mut Vec<Value>,
) -> StepResult {
    let is_short = options.short && which == Which::All;
    // The limit is longer where the processor is emulated.
    let slowdown = options.limit.checked_div(LIMIT.as_secs()).unwrap_or(1).max(1).to_string();
    let run = Run {
        over: RDMA,
        root: &tree::root(),
        programs: names,
        which,
        environment: vec![
            ("HMC_TEST_VIA", Some("rdma".into())),
            ("HMC_TEST_SLOWDOWN", Some(slowdown.into())),
        ],
        only: if is_short { &SHORT } else { &[] },
        elsewhere: match which {
            Which::All if !is_short => [&ELSEWHERE[..], &OF_UCX].concat(),
            _ => Vec::new(),
        },
        unfit: if which == Which::All && !is_short && is_soft() { NOT_BY_SOFT_ROCE } else { &[] },
        without_bytes: &[],
        limit: Duration::from_secs(options.limit),
        until,
    };
    let of = |name: &&str| options.programs.iter().find(|(known, _)| known == *name).cloned();
    let programs: Vec<_> = names.iter().filter_map(of).collect();
    match run.run_all(&programs) {
        Ok(list) => {
            tested.extend(list.iter().map(test));
            run.summed(&list)
        }
        Err(why) => Verdict::Failed(why).into(),
    }
}

/// A test.
fn test(Tested { name, seen, time }: &Tested) -> Value {
    let (word, bytes, why) = match seen {
        Seen::Moved { bytes, .. } => ("passed", *bytes, None),
        Seen::WithoutBytes => ("without bytes", 0, None),
        Seen::Skipped => ("skipped", 0, None),
        Seen::Failed(why) => ("failed", 0, Some(why)),
    };
    let seconds = time.as_secs_f64();
    json!({ "name": name, "result": word, "bytes": bytes, "why": why, "seconds": seconds })
}

/// A step with its tests.
pub(super) fn report(line: &Line, tests: &[Value]) -> Value {
    let Line { name, result, time } = line;
    json!({
        "name": name,
        "verdict": result.verdict.word(),
        "detail": result.verdict.detail(),
        "seconds": time.as_secs_f64(),
        "passed": result.counts.passed,
        "failed": result.counts.failed,
        "skipped": result.counts.skipped,
        "tests": tests,
    })
}

#[cfg(test)]
mod tests {
    use super::{ELSEWHERE, OF_UCX, Options, PROCESS_TESTS, Python, SHORT, process_tests, program};
    use clap::Parser;

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_arguments_are_those_that_the_command_reads() {
        let programs = vec![("a".to_owned(), "/t/a b=c".into())];
        let json = Some("/out/x.json".into());
        let hmc = "/t/hmc".into();
        let (python, short) = (Python::default(), false);
        let mut options = Options { hmc, limit: 60, time: 100, json, short, python, programs };
        let pythons: [(bool, &[&str]); 3] = [
            (false, &["--no-python", "no python3", "`apt`"]),
            (false, &["--python", "/t/p"]),
            (true, &[]),
        ];
        for (short, words) in pythons {
            let needed = ["test-hw-rdma", "--hmc=h", "--limit=1", "--time=1", "a=b"];
            options.python = Parsed::parse_from(needed.iter().chain(words)).options.python;
            options.short = short;
            let read = Parsed::parse_from(options.arguments()).options;
            assert_eq!((read.arguments(), read.short), (options.arguments(), short));
            assert_eq!(options.python.arguments(), words);
        }
        assert!(program("x").is_err());
    }

    #[test]
    fn the_short_form_runs_tests_that_the_long_one_runs() {
        assert_eq!(process_tests(true), ["peer_failure", "revoke"]);
        assert_eq!(process_tests(false), PROCESS_TESTS);
        let elsewhere = [&ELSEWHERE[..], &OF_UCX].concat();
        assert!(SHORT.iter().all(|test| !elsewhere.contains(test)));
    }
}
