//! Links of several queue pairs, over the fake libibverbs: both ends use as many as the one has that has fewer.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::Arc;

use hmc_core::transport::Progress as _;
use hmc_core::wire::cursor::WireErrorKind;
use hmc_core::work::Opcode;
use hmc_hw::verbs::fault::VerbsFault;
use hmc_tests::fake_ibv::{self, FakeIbv, VerbsFate};
use hmc_tests::verbs_planes::{End, meet};

/// Where a greeting has the number of queue pairs.
const COUNT_AT: usize = 2;
/// What a greeting has of each.
const LANE_BYTES: usize = 8;

fn end(lanes: usize) -> End {
    End::with_host(&Arc::default(), lanes, true)
}

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
}

#[test]
fn both_ends_use_the_smaller_number_of_queue_pairs() {
    let fake = FakeIbv::take();
    for (ours, theirs, both) in [(2, 4, 2), (4, 2, 2), (1, 16, 1), (16, 1, 1), (16, 16, 16)] {
        let (mut near, far, window) = meet(end(ours), end(theirs));
        assert_eq!(fake.count("qps"), 2 * both, "{ours} and {theirs}");
        near.fill(7);
        // What goes to its queue pair waits behind it.
        fake.rule("write", 1, VerbsFate::Held);
        for index in 0..64 {
            near.post(&near.work(index, Opcode::Put, &window, (u64::from(index) * 64, 64)));
        }
        let first = near.poll_for(100).len();
        assert_eq!(u64::try_from(first).unwrap(), 64 - 64 / both, "{ours} and {theirs}");
        assert_eq!(fake.release(), 1);
        let done = near.complete(64 - first);
        assert!(done.iter().all(|(_, result)| *result == Ok(64)), "{done:?}");
        assert_eq!(far.count_from(0, 7), 4096);
        fake.clear_rules();
        drop((near, far));
        fake.assert_clean();
    }
}

#[test]
fn a_session_has_one_queue_pair_at_least_and_sixteen_at_most() {
    let fake = FakeIbv::take();
    for (wanted, count) in [(0, 1), (1, 1), (16, 16), (17, 16), (usize::MAX, 16)] {
        assert_eq!(end(wanted).greeting().1[COUNT_AT], count, "{wanted}");
    }
    fake.assert_clean();
}

#[test]
fn a_peer_without_queue_pairs_or_with_too_many_is_refused() {
    let fake = FakeIbv::take();
    for (count, added) in [(0, 0), (17, 0), (17, LANE_BYTES)] {
        let (mut near, mut far) = (end(4), end(16));
        let (kind, mut bytes) = far.greeting();
        bytes[COUNT_AT] = count;
        bytes.resize(bytes.len() + added, 0);
        let fault = near.try_receive((kind, &bytes)).expect_err("no number of queue pairs");
        let VerbsFault::Note(e) = &fault else { panic!("{fault:?}") };
        let named = WireErrorKind::Value { field: "number of queue pairs", value: count.into() };
        assert!(e.kind == named && !near.plane.is_ready(), "{e:?}");
        assert_eq!(fake.count("qps"), 4 + 16, "it gives nothing up");
        drop((near, far));
        fake.assert_clean();
    }
}
