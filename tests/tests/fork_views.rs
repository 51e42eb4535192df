//! Addresses of a session's memory in a forked child. Alone in its file: a fork copies whatever other threads hold.

use hmc_tests::attack::{Context, forks};

/// Addresses of the parent's memory that were handed out before: the child maps much, and starts a session of its own,
/// and still reads nothing there.
#[test]
fn a_view_from_before_the_fork_faults_and_the_child_has_sessions_of_its_own() {
    forks::views(&mut Context::rounds(env!("CARGO_BIN_EXE_actor"), 2)).expect_held();
}
