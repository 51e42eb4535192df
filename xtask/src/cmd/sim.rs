//! `cargo xtask sim`: builds the simulator in release and hands all arguments on to it; for `--mutants` the one of the copy in which
//! all mutants are ([`crate::planted`]).

use crate::planted::{Planted, Shown};
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
    let mut command = match command(options) {
        Ok(command) => command,
        Err(why) => return Verdict::Failed(why),
    };
    match shell::stream(&mut command, PATIENCE) {
        Ok(out) if out.success => Verdict::Passed,
        Ok(out) => Verdict::failed(format!("`{}`: {}", shell::shown(&command), out.why())),
        Err(why) => Verdict::Failed(why),
    }
}

fn command(options: &Options) -> Result<Command, String> {
    let root = tree::root();
    let mut command = if options.arguments.iter().any(|a| a == "--mutants") {
        let is_simulated = |shown| shown == Shown::Simulation;
        Command::new(Planted::new(&root)?.build("hmc-tests", &["sim"], is_simulated)?)
    } else {
        let mut command = shell::cargo();
        command.args([
            "run",
            "--release",
            "--quiet",
            "--package",
            "hmc-tests",
            "--bin",
            "sim",
            "--",
        ]);
        command
    };
    command.current_dir(&root).args(&options.arguments);
    Ok(command)
}
