//! `cargo xtask fuzz --secs N`: runs the fuzz targets of `fuzz/` one after the other.
//!
//! Needs a nightly compiler and a C++ compiler; ends with status 77 if they are missing. With
//! cargo-fuzz the address sanitizer watches too; without it the targets are built with coverage by
//! hand. The committed corpora are replayed by `cargo test` everywhere. `--planted` runs each target
//! against a subject with one bug and wants it to be found: an input that fails there, and that the
//! subject without the bug takes.

use crate::shell::{self, Outcome};
use crate::tools;
use crate::tree;
use crate::verdict::Verdict;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The version of cargo-fuzz that the project was tried with.
const CARGO_FUZZ: &str = "0.13.2";

/// Time that a build may take before the first input is run.
const BUILD: Duration = Duration::from_secs(900);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Seconds for each target
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) secs: u64,
    /// One target only
    #[arg(long)]
    pub(crate) target: Option<String>,
    /// Start every target's chance from here, so that a run can be had again; drawn if not given
    #[arg(long)]
    pub(crate) seed: Option<u32>,
    /// Run against the planted bugs: each target must find its own
    #[arg(long)]
    pub(crate) planted: bool,
}

/// Coverage for libFuzzer without cargo-fuzz: counters, and what comparisons compare.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions=on";

/// The status with which libFuzzer ends when an input failed. Not its own, 77, which says here that something is missing.
const FOUND: i32 = 86;

/// The target that is built for, named so that the flags stay away from build scripts.
const HOST: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

/// Runs the targets.
pub(crate) fn run(options: &Options) -> Verdict {
    let root = tree::root();
    let mut targets = match targets(&root) {
        Ok(all) => all,
        Err(why) => return Verdict::Failed(why),
    };
    if let Some(one) = &options.target {
        if !targets.contains(one) {
            return Verdict::failed(format!(
                "no fuzz target {one}; there are: {}",
                targets.join(", ")
            ));
        }
        targets = vec![one.clone()];
    }
    if !tools::has_toolchain("nightly") {
        return Verdict::skipped("no nightly toolchain", "`rustup toolchain install nightly`");
    }
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    if !shell::capture(Command::new(compiler).arg("--version")).is_ok_and(|out| out.success) {
        return Verdict::skipped("no C++ compiler, which libFuzzer is built with", "install g++");
    }
    let sanitized = tools::has_extension("nightly", "fuzz");
    if !sanitized {
        println!(
            "without the address sanitizer (`cargo install --locked cargo-fuzz --version {CARGO_FUZZ}`)"
        );
    }
    // Planted bugs are looked for without it.
    if (!sanitized || options.planted)
        && let Err(why) = build(&root)
    {
        return Verdict::Failed(why);
    }
    let wrong: Vec<String> = targets
        .iter()
        .filter_map(|target| {
            let result = if options.planted {
                planted(&root, target, options)
            } else {
                sound(&root, target, sanitized, options)
            };
            result.err().map(|why| format!("{target}: {why}"))
        })
        .collect();
    if wrong.is_empty() { Verdict::Passed } else { Verdict::failed(wrong.join("; ")) }
}

/// Runs a target for its time: no input may fail.
fn sound(root: &Path, target: &str, sanitized: bool, options: &Options) -> Result<(), String> {
    let mut command = if sanitized {
        let mut command = shell::cargo_of("nightly");
        command.current_dir(root).args(["fuzz", "run", target, "--"]);
        command
    } else {
        let artifacts = root.join("fuzz/artifacts").join(target);
        // If the folder cannot be created, libFuzzer reports that and fails.
        let _ = std::fs::create_dir_all(&artifacts);
        let mut command = by_hand(root, target);
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        command
    };
    let out = campaign(&mut command, options)?;
    if out.success { Ok(()) } else { Err(format!("{}; see fuzz/artifacts", out.why())) }
}

/// Runs a target against its planted bug: an input must fail, and the subject without the bug must take that input.
fn planted(root: &Path, target: &str, options: &Options) -> Result<(), String> {
    let input = root.join("fuzz/target/found").join(format!("{target}.planted"));
    if input.exists() {
        std::fs::remove_file(&input).map_err(|e| format!("{}: {e}", input.display()))?;
    }
    let mut command = by_hand(root, target);
    // Kept away from the artifacts, which are findings about the real subject.
    command.arg(format!("-exact_artifact_path={}", input.display()));
    command.arg(format!("-error_exitcode={FOUND}")).env("HMC_FUZZ_PLANTED", "1");
    let hunt = campaign(&mut command, options)?;
    let replay = if input.exists() {
        let mut command = Command::new(program(root, target));
        command.arg(&input).args(LIMITS).env("HMC_FUZZ_PLANTED", "0");
        Some(shell::stream(&mut command, BUILD)?)
    } else {
        None
    };
    is_the_bug(&hunt, replay.as_ref())
}

/// Whether a search found the planted bug: libFuzzer reports a failed input, and that input, which it wrote, passes
/// without the bug.
fn is_the_bug(hunt: &Outcome, replay: Option<&Outcome>) -> Result<(), String> {
    match (hunt.code, replay) {
        (Some(0), _) => Err("the planted bug was not found".to_owned()),
        (Some(FOUND), Some(replay)) if replay.success => Ok(()),
        (Some(FOUND), Some(replay)) => {
            Err(format!("what was found fails without the planted bug too ({})", replay.why()))
        }
        (Some(FOUND), None) => Err("what was found was not written".to_owned()),
        _ => Err(format!("no search for the planted bug: {}", hunt.why())),
    }
}

/// One second for one input, and memory that grows only with the input.
const LIMITS: [&str; 2] = ["-timeout=1", "-rss_limit_mb=512"];

fn campaign(command: &mut Command, options: &Options) -> Result<Outcome, String> {
    command
        .arg(format!("-max_total_time={}", options.secs))
        .args(options.seed.map(|seed| format!("-seed={seed}")))
        .args(LIMITS)
        .arg("-print_final_stats=1");
    shell::stream(command, BUILD.saturating_add(Duration::from_secs(options.secs)))
}

/// Builds all targets with coverage, into `fuzz/target`.
fn build(root: &Path) -> Result<(), String> {
    let mut command = shell::cargo_of("nightly");
    command
        .current_dir(root.join("fuzz"))
        .args(["build", "--release", "--bins", "--target", HOST, "--target-dir", "target"])
        .env("RUSTFLAGS", COVERAGE);
    match shell::stream(&mut command, BUILD) {
        Ok(out) if out.success => Ok(()),
        Ok(out) => Err(format!("the fuzz targets do not build: {}", out.why())),
        Err(why) => Err(why),
    }
}

/// The program of a target that [`build`] built.
fn program(root: &Path, target: &str) -> PathBuf {
    root.join("fuzz/target").join(HOST).join("release").join(target)
}

/// A target that [`build`] built, over its corpus. New inputs go to a folder of their own, so that the committed corpus
/// grows by decision only.
fn by_hand(root: &Path, target: &str) -> Command {
    let fuzz = root.join("fuzz");
    let found = fuzz.join("target/found").join(target);
    // If the folder cannot be created, libFuzzer reports that and fails.
    let _ = std::fs::create_dir_all(&found);
    let mut command = Command::new(program(root, target));
    command.args([found, fuzz.join("corpus").join(target)]);
    command
}

/// The names of the targets, from the files of `fuzz/fuzz_targets`.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|e| Some(e.file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
        .collect();
    names.sort();
    if names.is_empty() {
        return Err(format!("no targets in {}", folder.display()));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::{FOUND, is_the_bug, targets};
    use crate::shell::Outcome;

    fn ended(code: Option<i32>, timed_out: bool) -> Outcome {
        let (stdout, stderr) = (String::new(), String::new());
        Outcome { success: code == Some(0), code, timed_out, stdout, stderr }
    }

    #[test]
    fn only_an_input_that_fails_by_the_planted_bug_is_a_find() {
        let (good, bad) = (ended(Some(0), false), ended(Some(FOUND), false));
        let found = |code, replay| is_the_bug(&ended(code, false), replay);
        assert_eq!(found(Some(FOUND), Some(&good)), Ok(()));
        let why = |result: Result<(), String>| result.unwrap_err();
        assert!(why(found(Some(0), None)).contains("not found"));
        assert!(why(found(Some(FOUND), None)).contains("not written"));
        assert!(why(found(Some(FOUND), Some(&bad))).contains("without the planted bug too"));
        // A sanitizer or an assertion of libFuzzer's own, a panic at the start, memory, time, a signal.
        for code in [Some(1), Some(70), Some(71), Some(77), Some(101), None] {
            assert!(why(found(code, Some(&good))).contains("no search"), "{code:?}");
        }
        assert!(is_the_bug(&ended(None, true), Some(&good)).is_err());
    }

    #[test]
    fn a_folder_without_targets_is_an_error() {
        let why = targets(std::path::Path::new("/no/such/folder")).unwrap_err();
        assert!(why.contains("/no/such/folder"), "{why}");
    }
}
