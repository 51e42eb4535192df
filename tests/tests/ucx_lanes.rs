//! The real UCX of this machine keeps the promises of the suite that the simulated NIC keeps: two workers in this process,
//! one after the other over each kind of lane that a machine without a NIC has.

use hmc_hw::ucx::library::{Library, Search};
use hmc_sim::conformance::transport::run;
use hmc_tests::ucx_pair::{Pair, UcxSetup, WITHOUT_TAGS};

/// `mapped`: the target's memory comes from UCX.
fn suite(tls: &str, mapped: bool) {
    // As hmc-std searches: the library that `HMC_UCX_LIB` names, else the system's.
    let named = std::env::var_os("HMC_UCX_LIB").filter(|name| !name.is_empty()).map(Into::into);
    let library = Library::load(&Search { named, ..Search::default() });
    let library = library.expect("cargo xtask test-hw found it");
    println!("UCX {} at {}", library.version(), library.path().display());
    let report = run(|| Pair::new(UcxSetup::lanes(library, tls, mapped)));
    println!("{tls}:\n{report}");
    report.assert_passed_but(tls, &WITHOUT_TAGS);
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn tcp_lanes() {
    suite("tcp", false);
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn posix_lanes_into_mapped_memory() {
    suite("posix,self", true);
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn sysv_and_cma_lanes_into_heap_memory() {
    suite("sysv,cma,self", false);
}
