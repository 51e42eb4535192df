//! A file from `hmc put` to `hmc serve`, in the middle of which the interface of the sender's device goes down, and another one once
//! it is up again.

use crate::shell;
use crate::verdict::Verdict;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The script, which judges by itself.
const SCRIPT: &str = include_str!("link_down.sh");

/// Its time limit: for a file of some megabytes on an emulated processor, and the time after which a peer is given up.
const LIMIT: Duration = Duration::from_secs(180);

/// Runs the script.
pub(super) fn run(hmc: &Path) -> Verdict {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "link-down"]).arg(hmc);
    match shell::stream(&mut command, LIMIT) {
        Ok(outcome) if outcome.success => Verdict::Passed,
        Ok(outcome) => Verdict::Failed(outcome.why()),
        Err(why) => Verdict::Failed(why),
    }
}
