//! The soak over each transport, in processes of its own: a library that ends the process ends that one.

use std::process::Command;

use hmc_tests::scene::seed;

/// A short one, for every run of the tests.
const SHORT_SECS: u64 = 4;
/// One over UCX's lanes, unless `HMC_SOAK_SECS` says otherwise.
const SECS: u64 = 20;

fn kills() -> Option<std::ffi::OsString> {
    std::env::var_os("HMC_SOAK_KILLS")
}

fn soak(arguments: &[&str], seconds: u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_soak"));
    command.args(arguments).args(["--seconds", &seconds.to_string()]);
    command.args(["--seed", &seed(1).to_string()]);
    if kills().is_some_and(|k| k == "0") {
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
    let asked = std::env::var("HMC_SOAK_SECS").ok().and_then(|s| s.parse().ok());
    soak(&["--via", "ucx", "--lanes", lanes], asked.unwrap_or(SECS));
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
