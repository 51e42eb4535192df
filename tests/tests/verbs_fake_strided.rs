//! Lists of runs over RDMA verbs, by the fake libibverbs: their bytes, and how many operations are posted for them.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use hmc_std::{ConnType, Piece, Progress};
use hmc_tests::fake_ibv::{FakeIbv, run_ignored};
use hmc_tests::pair::Pair;
use hmc_tests::strided::{BUFFER, compare_lists, count_transfers};
use hmc_tests::verbs_sessions::Two;

#[test]
fn lists_over_the_fake_library() {
    run_ignored();
}

#[test]
#[ignore = "`lists_over_the_fake_library` runs it as a process"]
fn a_list_of_runs_moves_what_its_blocks_would() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    fake.set("ticker_us", 50);
    let pair = Pair::new(ConnType::Rdma, BUFFER);
    compare_lists(&pair, 12);
    assert!(fake.calls("write") > 12 && fake.calls("read") > 12, "by the NIC");
    drop(pair);
    fake.await_clean();
}

#[test]
#[ignore = "`lists_over_the_fake_library` runs it as a process"]
fn an_operation_is_posted_for_each_block_and_one_for_adjacent_blocks() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    let two = Two::new(&fake, Progress::Thread);
    two.put_and_compare(1);
    let remote = two.peer.buffer().unwrap();
    let piece = Piece::new(two.source.buffer().range(0, 8).unwrap(), 0);
    count_transfers(&remote, piece, || fake.calls("write"), || fake.calls("read"));
    drop(remote);
    two.end(&fake);
}
