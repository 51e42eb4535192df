//! Lists of runs over the fake libucp: their bytes, and how many transfers UCX is called for.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use hmc_std::{ConnType, Piece};
use hmc_tests::fake_ucp::FakeUcp;
use hmc_tests::pair::Pair;
use hmc_tests::strided::{BUFFER, compare_lists, count_transfers};

#[test]
fn a_list_of_runs_moves_what_its_blocks_would() {
    let fake_ucp = FakeUcp::take();
    for maps in [0, 1] {
        fake_ucp.set("maps", maps);
        for delay in [0, 5] {
            for knob in ["put_delay", "get_delay", "flush_delay"] {
                fake_ucp.set(knob, delay);
            }
            let pair = Pair::new(ConnType::Ucx, BUFFER);
            compare_lists(&pair, 6);
            drop(pair);
            fake_ucp.await_clean();
        }
    }
}

#[test]
fn ucx_is_called_for_each_block_and_once_for_adjacent_blocks() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.set("maps", 0);
    let pair = Pair::new(ConnType::Ucx, BUFFER);
    let remote = pair.a.buffer().unwrap();
    let piece = Piece::new(pair.sender().buffer().range(0, 8).unwrap(), 0);
    remote.put_list(&[piece]).wait().unwrap();
    let calls = |of| fake_ucp.calls(of);
    count_transfers(&remote, piece, || calls("ucp_put_nbx"), || calls("ucp_get_nbx"));
    drop((remote, pair));
    fake_ucp.await_clean();
}
