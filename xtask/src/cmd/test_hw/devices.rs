//! The suites over devices, by the real libraries of this machine.

use crate::debian;
use crate::shell;
use crate::step_result::{self, Line, summary, verdict};
use crate::verdict::Verdict;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// PoCL makes OpenCL devices of the processor, with the loader that finds it, and the header that declarations are compared with.
const DEBIAN: [&str; 3] = ["pocl-opencl-icd", "ocl-icd-libopencl1", "opencl-c-headers"];

/// Time for the programs with one driver, build included.
const LIMIT: Duration = Duration::from_secs(600);

/// Two devices of PoCL, so that one copies to the other: `basic` copies in the calling thread, `pthread` in its own.
const DRIVERS: [&str; 2] = ["basic basic", "pthread pthread"];

/// Runs the suites over the OpenCL devices of this machine.
pub(super) fn opencl(root: &Path, install: bool) -> Verdict {
    let mut table = Vec::new();
    if install {
        table.push(Line::of("installation".to_owned(), || match debian::install(&DEBIAN) {
            Ok(()) => Verdict::Passed.into(),
            Err(why) => Verdict::skipped(why, "`apt install pocl-opencl-icd` as root").into(),
        }));
    }
    for driver in DRIVERS {
        table.push(Line::of(format!("OpenCL, PoCL's {driver}"), || {
            step_result::tests(&mut tests(root, driver), LIMIT)
        }));
    }
    table.push(Line::of("OpenCL's declarations".to_owned(), || {
        step_result::tests(&mut declarations(root), LIMIT)
    }));
    let is_missing = |line: &Line| matches!(line.result.verdict, Verdict::Skipped { .. });
    let missing = table.iter().any(is_missing);
    verdict(summary(&table), missing)
}

/// The devices of other drivers pass the suite as well. One of 1 GiB may be filled.
fn tests(root: &Path, driver: &str) -> Command {
    let mut command = shell::cargo();
    command
        .current_dir(root)
        .args(["test", "--locked", "--profile", "proofs", "--package", "hmc-tests"])
        .args(["--test", "opencl", "--", "--nocapture"])
        .env("POCL_DEVICES", driver)
        .env("POCL_MEMORY_LIMIT", "1");
    command
}

fn declarations(root: &Path) -> Command {
    let mut command = shell::cargo();
    command
        .current_dir(root)
        .args(["test", "--locked", "--profile", "proofs", "--package", "hmc-hw", "--lib"])
        .args(["opencl::tests", "--", "--nocapture"]);
    command
}
