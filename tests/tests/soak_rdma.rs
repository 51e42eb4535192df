//! The soak over RDMA verbs, in processes of its own.

use std::process::Command;

use hmc_tests::env::{number, seed};

/// Unless `HMC_SOAK_SECS` says otherwise.
const SECS: u64 = 20;

#[test]
#[ignore = "needs an RDMA device: `cargo xtask test-hw --vm`"]
fn over_rdma() {
    let seconds: u64 = number("HMC_SOAK_SECS", SECS);
    let mut command = Command::new(env!("CARGO_BIN_EXE_soak"));
    command.args(["--via", "rdma", "--seconds", &seconds.to_string()]);
    command.args(["--seed", &seed(1).to_string()]);
    let status = command.status().expect("the soak was built");
    assert!(status.success(), "soak over RDMA: {status}");
}
