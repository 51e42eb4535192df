//! `cargo xtask fuzz --secs N`: runs the fuzz targets of `fuzz/` one after the other.
//!
//! Needs a nightly compiler and cargo-fuzz; without them it says what is missing and ends with
//! status 77. The committed corpora are replayed by `cargo test` everywhere.

use crate::shell;
use crate::tools;
use crate::tree;
use crate::verdict::Verdict;
use std::path::Path;
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
}

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
        return Verdict::skipped(
            "no nightly toolchain",
            "`rustup toolchain install nightly`, then `cargo install cargo-fuzz`",
        );
    }
    if !tools::has_extension("nightly", "fuzz") {
        return Verdict::skipped(
            "cargo-fuzz is not installed",
            format!("`cargo install --locked cargo-fuzz --version {CARGO_FUZZ}`"),
        );
    }
    let mut crashed = Vec::new();
    for target in targets {
        let mut command = shell::cargo_of("nightly");
        command
            .current_dir(&root)
            .args(["fuzz", "run", &target, "--"])
            .arg(format!("-max_total_time={}", options.secs))
            // One second for one input, and memory that grows only with the input.
            .args(["-timeout=1", "-rss_limit_mb=512", "-print_final_stats=1"]);
        match shell::stream(&mut command, BUILD.saturating_add(Duration::from_secs(options.secs))) {
            Ok(out) if out.success => {}
            Ok(out) => crashed.push(format!("{target} ({})", out.why())),
            Err(why) => return Verdict::Failed(why),
        }
    }
    if crashed.is_empty() {
        return Verdict::Passed;
    }
    Verdict::failed(format!("{}; the input lies in fuzz/artifacts", crashed.join(", ")))
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
