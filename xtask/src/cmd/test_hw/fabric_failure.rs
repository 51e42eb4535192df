//! A file from `hmc put` to `hmc serve`, in the middle of which the fabric fails, and another one once it works again.

use crate::shell;
use crate::verdict::Verdict;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The script, which checks the result itself.
const SCRIPT: &str = include_str!("fabric_failure.sh");

/// Its time limit: for files of some megabytes on an emulated processor, and the times after which a peer is given up.
const LIMIT: Duration = Duration::from_secs(180);

/// How the fabric fails.
#[derive(Clone, Copy, Debug)]
pub(super) enum FabricFailure {
    /// The interface of the sender's device goes down.
    Down,
    /// No packet arrives any more, and nothing says so.
    Silent,
}

/// Runs the script.
pub(super) fn run(hmc: &Path, failure: FabricFailure) -> Verdict {
    let name = match failure {
        FabricFailure::Down => "down",
        FabricFailure::Silent => "silent",
    };
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "fabric-failure"]).arg(hmc).arg(name);
    match shell::stream(&mut command, LIMIT) {
        Ok(outcome) if outcome.success => Verdict::Passed,
        Ok(outcome) => Verdict::Failed(outcome.why()),
        Err(why) => Verdict::Failed(why),
    }
}
