//! `cargo xtask explore`: the long exhaustive explorations, every state to the end.
//!
//! The ordinary tests run the same models with fewer events. Takes minutes and some gigabytes.

use crate::shell;
use crate::tree;
use crate::verdict::Verdict;
use std::time::Duration;

/// Time for the build and both explorations.
const LIMIT: Duration = Duration::from_secs(3600);

/// Runs the explorations one after the other; they print states, edges and depth.
pub(crate) fn run() -> Verdict {
    let mut command = shell::cargo();
    command
        .current_dir(tree::root())
        .args(["test", "--package", "hmc-core", "--profile", "proofs"])
        .args(["--test", "explore_handshake", "--test", "explore_windows"])
        .args(["--", "--ignored", "--nocapture", "--test-threads=1"]);
    match shell::stream(&mut command, LIMIT) {
        Ok(out) if out.success => Verdict::Passed,
        Ok(out) => Verdict::failed(out.why()),
        Err(why) => Verdict::Failed(why),
    }
}
