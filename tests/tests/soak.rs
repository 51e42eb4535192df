//! The soak over each transport, in processes of its own: a library that ends the process ends that one.

use std::process::Command;

use hmc_tests::env::{number, seed};

/// A short one, for every run of the tests.
const SHORT_SECS: u64 = 4;
/// One over UCX's lanes, unless `HMC_SOAK_SECS` says otherwise.
const SECS: u64 = 20;

fn soak(arguments: &[&str], seconds: u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_soak"));
    command.args(arguments).args(["--seconds", &seconds.to_string()]);
    command.args(["--seed", &seed(1).to_string()]);
    if number("HMC_SOAK_KILLS", 1u8) == 0 {
        command.arg("--no-kills");
    }
    let status = command.status().expect("the soak was built");
    assert!(status.success(), "soak {}: {status}", arguments.join(" "));
}

#[test]
fn over_shm() {
    soak(&["--via", "shm"], SHORT_SECS);
}

#[test]
fn over_tcp() {
    soak(&["--via", "tcp"], SHORT_SECS);
}

fn over_ucx(lanes: &str) {
    soak(&["--via", "ucx", "--lanes", lanes], number("HMC_SOAK_SECS", SECS));
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn over_ucx_tcp_lanes() {
    over_ucx("tcp,self");
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn over_ucx_posix_and_cma_lanes() {
    over_ucx("posix,cma,self");
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn over_ucx_sysv_and_cma_lanes() {
    over_ucx("sysv,cma,self");
}
