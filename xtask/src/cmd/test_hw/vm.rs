//! The suites over RDMA verbs in a VM with soft-RoCE devices: built here, run there, in one boot.

use super::pair::{self, Victim};
use super::rdma::{LIMIT, Options, one_test, report};
use crate::cmd::vm;
use crate::shell;
use crate::step_result::{Line, StepResult, summary, verdict};
use crate::verdict::Verdict;
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

/// How many times longer a test may take on an emulated processor.
const EMULATED: u32 = 5;

/// The file of the figures, in the output folder: one in each line.
const FIGURES: &str = "test-hw-perf.json";

/// Time of the boot, of a test that is killed at its end, and of the end.
const BOOT: Duration = Duration::from_secs(30);

/// Builds the programs and runs the suites in the VM. The build counts towards the time, except for the short form.
pub(super) fn run(root: &Path, time: Duration, json: Option<&Path>, short: bool) -> Verdict {
    let begun = Instant::now();
    let options = match Options::built(root, short) {
        Ok(options) => options,
        Err(why) => return Verdict::Failed(why),
    };
    let hmc = options.hmc().to_path_buf();
    let left = || time.saturating_sub(begun.elapsed());
    let verdict = if short {
        in_vm(root, options, time, json)
    } else {
        // The two VMs come first, since their time is short.
        let (own, steps) = in_own_vms(root, &hmc, left);
        let suites = StepResult::from(in_vm(root, options, left(), json));
        let added = json.map_or(Ok(()), |file| add_steps(file, steps));
        let added = StepResult::from(Verdict::from_result(added));
        suites.and(own.into()).and(added).verdict
    };
    println!("{:.0} s in all, build and boot included", begun.elapsed().as_secs_f64());
    verdict
}

/// Builds the measuring program and runs its rows over RDMA verbs in the VM. The build does not count towards the time.
pub(super) fn measure(root: &Path, time: Duration, json: Option<&Path>) -> Verdict {
    let mut command = shell::cargo();
    // As the suites: a release takes minutes more, and no figure of the VM is a speed.
    command.current_dir(root).args(["build", "--profile", "proofs"]);
    let program = match shell::built(&mut command, "hmc-benches", &["hmc-bench"]) {
        Ok(program) => program,
        Err(why) => return Verdict::Failed(why),
    };
    let what = Work { name: "the measurement", results: FIGURES };
    what.run(root, time, json, |emulated, results| {
        if emulated {
            println!("the processor is emulated: only the ratios are figures");
        }
        let quick = ["--rdma", "--quick", "--json"].map(OsString::from);
        let mut words: Vec<OsString> = vec![program.into()];
        words.extend(quick);
        words.push(results.into());
        words
    })
}

/// Runs the steps that take VMs of their own. Returns their verdict and the report of each.
fn in_own_vms(root: &Path, hmc: &Path, left: impl Fn() -> Duration) -> (Verdict, Vec<Value>) {
    let out = root.join("target/vm/test-hw");
    let killed = |name: &str, victim| {
        Line::of(name.to_owned(), || one_test(pair::run(hmc, &out, victim, left())))
    };
    let table = [
        killed("two VMs, receiver killed", Victim::Receiver),
        killed("two VMs, sender killed", Victim::Sender),
        Line::of("figures beside perftest".to_owned(), || one_test(measure(root, left(), None))),
    ];
    let figures = std::fs::read_to_string(out.join(FIGURES)).unwrap_or_default();
    let figures: Vec<Value> =
        figures.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let tests: [&[Value]; 3] = [&[], &[], &figures];
    let skipped = table.iter().any(|l| matches!(l.result.verdict, Verdict::Skipped { .. }));
    let steps = table.iter().zip(tests).map(|(line, tests)| report(line, tests)).collect();
    (verdict(summary(&table), skipped), steps)
}

/// Adds steps to the results in a JSON file.
fn add_steps(file: &Path, steps: Vec<Value>) -> Result<(), String> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|e| failed(&e))?;
    let mut value: Value = serde_json::from_str(&text).map_err(|e| failed(&e))?;
    let list = value.get_mut("steps").and_then(Value::as_array_mut);
    list.ok_or_else(|| failed(&"no steps"))?.extend(steps);
    std::fs::write(file, format!("{value:#}\n")).map_err(|e| failed(&e))
}

fn in_vm(root: &Path, options: Options, time: Duration, json: Option<&Path>) -> Verdict {
    let ourselves = match std::env::current_exe() {
        Ok(path) => path,
        Err(e) => return Verdict::failed(format!("the path of this program: {e}")),
    };
    let what = Work { name: "the suites", results: "test-hw.json" };
    what.run(root, time, json, |emulated, results| {
        let limit = if emulated { LIMIT.saturating_mul(EMULATED) } else { LIMIT };
        println!(
            "the processor is {}emulated; {} s for a test",
            if emulated { "" } else { "not " },
            limit.as_secs()
        );
        let options = options.within(limit, time.saturating_sub(BOOT), Some(results));
        std::iter::once(ourselves.into()).chain(options.arguments()).collect()
    })
}

/// What runs in the VM.
struct Work {
    name: &'static str,
    /// The file of its results, in the output folder.
    results: &'static str,
}

impl Work {
    /// Runs a command, which is told whether the processor is emulated and where its results go. Copies these to `json`.
    fn run(
        &self,
        root: &Path,
        time: Duration,
        json: Option<&Path>,
        command: impl FnOnce(bool, &Path) -> Vec<OsString>,
    ) -> Verdict {
        let failed = |what: &Path, e| Verdict::failed(format!("{}: {e}", what.display()));
        let out = root.join("target/vm/test-hw");
        let results = out.join(self.results);
        if let Err(e) = std::fs::create_dir_all(&out) {
            return failed(&out, e);
        }
        // Those of an earlier run are not those of this one.
        let _ = std::fs::remove_file(&results);
        let ends = vm::ends_of(1, &out, time, |emulated| command(emulated, &results));
        if let Some(file) = json
            && results.exists()
            && let Err(e) = std::fs::copy(&results, file)
        {
            return failed(file, e);
        }
        let name = self.name;
        match ends.map(|ends| ends.first().map_or(0, |ended| ended.status)) {
            Ok(0) => Verdict::Passed,
            Ok(1) => Verdict::failed(format!("{name} failed in the VM")),
            Ok(77) => {
                Verdict::skipped(format!("{name} could not all run"), "see the reasons above")
            }
            Ok(124) => Verdict::failed(format!("the VM was killed after {} s", time.as_secs())),
            Ok(status) => Verdict::failed(format!("{name} ended with status {status} in the VM")),
            Err(verdict) => verdict,
        }
    }
}
