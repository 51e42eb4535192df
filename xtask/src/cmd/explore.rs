//! `cargo xtask explore`: the long exhaustive explorations, every state to the end.
//!
//! The ordinary tests run the same models with fewer events. Takes minutes and some gigabytes.

use crate::shell;
use crate::step_result::tests_of_each;
use crate::tree;
use crate::verdict::Verdict;
use std::time::Duration;

/// Time for the build and both explorations.
const LIMIT: Duration = Duration::from_secs(3600);

/// The programs of tests; the long plans are their ignored tests.
pub(crate) const PROGRAMS: [&str; 2] = ["explore_handshake", "explore_windows"];

/// Runs the explorations one after the other; they print states, edges and depth.
pub(crate) fn run() -> Verdict {
    let mut command = shell::cargo();
    command
        .current_dir(tree::root())
        .args(["test", "--package", "hmc-core", "--profile", "proofs"])
        .args(PROGRAMS.iter().flat_map(|name| ["--test", name]))
        .args(["--", "--ignored", "--nocapture", "--test-threads=1"]);
    tests_of_each(&mut command, PROGRAMS.len(), LIMIT)
}
