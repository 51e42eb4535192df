//! Many small transfers at once over the transports of every machine; over UCX see `ucp_fake_sessions.rs`.

use hmc_tests::pair::ALL;
use hmc_tests::small_transfers;

#[test]
fn lists_are_run_whole() {
    ALL.into_iter().for_each(small_transfers::lists_are_run_whole);
}

#[test]
fn lists_of_another_life_are_refused() {
    for conn in [hmc_std::ConnType::Shm, hmc_std::ConnType::Tcp] {
        small_transfers::lists_of_another_life_are_refused(conn);
    }
}

#[test]
fn operations_are_waited_for_in_any_order() {
    ALL.into_iter().for_each(small_transfers::operations_are_waited_for_in_any_order);
}

#[test]
fn nobody_oversleeps() {
    for conn in [hmc_std::ConnType::Shm, hmc_std::ConnType::Tcp] {
        small_transfers::nobody_oversleeps(conn, |builder| builder);
    }
}
