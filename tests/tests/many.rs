//! Many small transfers at once over the transports of every machine; over UCX see `ucx_standin_sessions.rs`.

use hmc_tests::many;
use hmc_tests::pair::ALL;

#[test]
fn lists_are_run_whole() {
    ALL.into_iter().for_each(many::lists_are_run_whole);
}

#[test]
fn lists_of_another_life_are_refused() {
    for conn in [hmc_std::ConnType::Shm, hmc_std::ConnType::Tcp] {
        many::lists_of_another_life_are_refused(conn);
    }
}

#[test]
fn names_are_given_and_taken() {
    ALL.into_iter().for_each(many::names_are_given_and_taken);
}

#[test]
fn nobody_oversleeps() {
    for conn in [hmc_std::ConnType::Shm, hmc_std::ConnType::Tcp] {
        many::nobody_oversleeps(conn, |builder| builder);
    }
}
