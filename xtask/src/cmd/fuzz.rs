//! `cargo xtask fuzz --secs N`: runs the fuzz targets of `fuzz/` one after the other.
//!
//! Needs a nightly compiler and a C++ compiler, and says so with status 77 where they are missing. With
//! cargo-fuzz the address sanitizer watches too; without it the targets are built with coverage by
//! hand. The committed corpora are replayed by `cargo test` everywhere. `--planted` runs each target
//! against a subject with one bug and wants it to be found.

use crate::shell;
use crate::tools;
use crate::tree;
use crate::verdict::Verdict;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The version of cargo-fuzz that the project was tried with.
const CARGO_FUZZ: &str = "0.13.2";

/// Time that a build may take before the first input is run.
const BUILD: Duration = Duration::from_secs(900);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
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
        if let Err(why) = build(&root) {
            return Verdict::Failed(why);
        }
    }
    let mut wrong = Vec::new();
    for target in targets {
        let mut command = if sanitized && !options.planted {
            let mut command = shell::cargo_of("nightly");
            command.current_dir(&root).args(["fuzz", "run", &target, "--"]);
            command
        } else {
            by_hand(&root, &target, options.planted)
        };
        command
            .arg(format!("-max_total_time={}", options.secs))
            .args(options.seed.map(|seed| format!("-seed={seed}")))
            // One second for one input, and memory that grows only with the input.
            .args(["-timeout=1", "-rss_limit_mb=512", "-print_final_stats=1"]);
        match shell::stream(&mut command, BUILD.saturating_add(Duration::from_secs(options.secs))) {
            Ok(out) if out.success == options.planted => {
                wrong.push(format!("{target} ({})", out.why()));
            }
            Ok(_) => {}
            Err(why) => return Verdict::Failed(why),
        }
    }
    match (wrong.is_empty(), options.planted) {
        (true, _) => Verdict::Passed,
        (false, false) => {
            Verdict::failed(format!("{}; the input lies in fuzz/artifacts", wrong.join(", ")))
        }
        (false, true) => Verdict::failed(format!("planted bugs not found: {}", wrong.join(", "))),
    }
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

/// A target that [`build`] built. What it finds goes where cargo-fuzz would put it; new inputs go to a folder
/// of their own, so that the committed corpus grows by decision only.
fn by_hand(root: &Path, target: &str, planted: bool) -> Command {
    let fuzz = root.join("fuzz");
    let found = fuzz.join("target/found").join(target);
    let artifacts = fuzz.join("artifacts").join(target);
    // Where a folder cannot be made libFuzzer says so and fails.
    let _ = std::fs::create_dir_all(&found);
    let _ = std::fs::create_dir_all(&artifacts);
    let mut command = Command::new(fuzz.join("target").join(HOST).join("release").join(target));
    if planted {
        // What it finds is no news: kept away from the artifacts.
        command.env("HMC_FUZZ_PLANTED", "1");
        command.arg(format!("-artifact_prefix={}/", found.display()));
    } else {
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    }
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
    use super::targets;

    #[test]
    fn a_folder_without_targets_is_an_error() {
        let why = targets(std::path::Path::new("/no/such/folder")).unwrap_err();
        assert!(why.contains("/no/such/folder"), "{why}");
    }
}
