//! `cargo xtask sim`: builds the simulator in release and hands all arguments on to it.

use crate::shell;
use crate::tree;
use crate::verdict::Verdict;
use std::process::Command;
use std::time::Duration;

/// Time that a campaign may take; the program itself reports its progress.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// Arguments of the simulator; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Options {
    /// A campaign of that many seeds.
    pub(crate) fn seeds(count: u32) -> Self {
        Self { arguments: vec!["--seeds".to_owned(), count.to_string()] }
    }
}

/// Builds and runs.
pub(crate) fn run(options: &Options) -> Verdict {
    let mut command = command(options);
    match shell::stream(&mut command, PATIENCE) {
        Ok(out) if out.success => Verdict::Passed,
        Ok(out) => Verdict::failed(format!("`{}`: {}", shell::shown(&command), out.why())),
        Err(why) => Verdict::Failed(why),
    }
}

fn command(options: &Options) -> Command {
    let root = tree::root();
    let mut command = shell::cargo();
    command.current_dir(&root);
    command.args(["run", "--release", "--quiet", "--package", "hmc-tests", "--bin", "sim"]);
    if options.arguments.iter().any(|a| a == "--mutants") {
        // Planted bugs are compiled in, so nothing of this build may mix with another.
        command.env("RUSTFLAGS", "--cfg hmc_mutants");
        command.arg("--target-dir").arg(root.join("target/mutants"));
    }
    command.arg("--").args(&options.arguments);
    command
}
