//! The place of a window is used again and again under a peer that does nothing but retry: no window is opened that lets
//! nobody in, and no revocation waits for an initiator that is not there.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hmc_std::{Access, ConnType, Route, Window};
use hmc_tests::pair::Pair;
use hmc_tests::scene::{bound, number};

const LONG: Duration = Duration::from_secs(20);

/// How often the place is used again. Where counts were set instead of kept, 600 to 800 lost one; the model
/// `window_place_is_used_again_under_one_that_retries` needs no luck.
fn rounds() -> u64 {
    number("HMC_TEST_REOPEN", 400)
}

/// Puts through the newest window until that is gone, and then goes on for a while: its refusals and the owner's next
/// opening meet at the word.
fn retry(route: &Route, entered: &AtomicU64, round: u64) {
    while route.put(0, 0, 8).is_ok() {
        entered.store(round, Ordering::Release);
    }
    for _ in 0..50 {
        let _ = route.put(0, 0, 8);
    }
}

#[test]
fn a_place_is_used_again_under_a_peer_that_retries() {
    let pair = Pair::new(ConnType::Shm, 4096);
    let region = pair.receiver().allocate(4096).unwrap();
    let (rounds, entered) = (rounds(), AtomicU64::new(0));
    let (own, to_target) = (pair.sender().buffer(), pair.sender().peer(1).unwrap());
    std::thread::scope(|s| {
        let initiator = s.spawn(|| {
            for round in 1..=rounds {
                let window = to_target.remote_window(round, LONG).expect("it was exposed");
                let route = to_target.between(own, &window).expect("its own");
                let first = route.put(0, 0, 8);
                assert!(
                    first.is_ok(),
                    "round {round}: a window that was just opened refuses: {first:?}"
                );
                entered.store(round, Ordering::Release);
                retry(&route, &entered, round);
            }
        });
        let mut slowest = Duration::ZERO;
        for round in 1..=rounds {
            let span = region.take_all().expect("it came back");
            let window: Window =
                pair.b.expose(span, Access::all(), round).map_err(|(e, _)| e).unwrap();
            let begun = Instant::now();
            while entered.load(Ordering::Acquire) < round {
                if initiator.is_finished() || begun.elapsed() > LONG {
                    initiator.join().expect("it goes on");
                    panic!("round {round}: the peer never got in");
                }
                std::thread::yield_now();
            }
            let begun = Instant::now();
            drop(window.revoke(LONG).expect("its peer is healthy"));
            slowest = slowest.max(begun.elapsed());
        }
        assert!(slowest < bound(Duration::from_secs(2)), "a revocation took {slowest:?}");
        initiator.join().expect("it goes on");
    });
}
