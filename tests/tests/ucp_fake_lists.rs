//! Lists of transfers that UCX does in the call itself, where it maps the window: each is checked at both ends.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use hmc_core::queue::Transfer;
use hmc_core::range::Extent;
use hmc_core::region::{LocalRegion, WindowDesc};
use hmc_core::types::Access;
use hmc_core::work::{CompleteWhen, Opcode};
use hmc_tests::fake_ucp::FakeUcp;
use hmc_tests::ucx_pair::Built;

const LEN: u64 = 4096;

/// The same memory and window as `pair` has, taken for longer than they are.
fn boasted(pair: &Built) -> (LocalRegion, WindowDesc) {
    let extent = Extent::new(4 * LEN);
    (LocalRegion { extent, ..pair.local }, WindowDesc { extent, ..pair.window })
}

/// A transfer of `len` bytes here and as many there, at those places.
fn transfer(pair: &Built, opcode: Opcode, (here, there): (u64, u64), lens: (u64, u64)) -> Transfer {
    let (local, remote) = boasted(pair);
    Transfer {
        opcode,
        when: CompleteWhen::Visible,
        local: local.slice(here, lens.0).unwrap(),
        remote: remote.slice(there, lens.1).unwrap(),
    }
}

#[test]
fn each_transfer_of_a_list_lies_within_both_ends() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.set("maps", 1);
    let mut pair = Built::new(fake_ucp.library(), LEN, LEN, Access::all(), 1).unwrap();
    for opcode in [Opcode::Put, Opcode::Get] {
        let good = transfer(&pair, opcode, (0, 0), (8, 8));
        let last = transfer(&pair, opcode, (LEN - 8, LEN - 8), (8, 8));
        assert!(pair.near.0.try_transfer_list(&[good, last]), "{opcode:?}");
        for (what, at, lens) in [
            ("memory ends before it", (LEN - 7, 0), (8, 8)),
            ("the window ends before it", (0, LEN - 7), (8, 8)),
            ("both end before it", (LEN - 7, LEN - 7), (8, 8)),
            ("it is shorter there", (0, 0), (8, 7)),
            ("it is longer there", (0, 0), (7, 8)),
        ] {
            let bad = transfer(&pair, opcode, at, lens);
            // Behind one that is good, the memory and the window are known already.
            for list in [&[good, bad][..], &[bad]] {
                assert!(!pair.near.0.try_transfer_list(list), "{opcode:?}: {what}");
            }
        }
    }
    drop(pair);
    fake_ucp.assert_clean();
}
