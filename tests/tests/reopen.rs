//! The place of a window is used again and again under a peer that does nothing but retry: no window is opened that lets
//! nobody in, and no revocation waits for an initiator that is not there.

use hmc_tests::attack::{Context, reopen};
use hmc_tests::env::number;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");

/// `HMC_TEST_REOPEN` says how often the place is used again. Where counts were set instead of kept, 600 to 800 lost one; the
/// model `window_place_is_used_again_under_one_that_retries` needs no luck.
#[test]
fn a_place_is_used_again_under_a_peer_that_retries() {
    let rounds = number("HMC_TEST_REOPEN", 400);
    reopen::retries(&mut Context::rounds(ACTOR, rounds)).expect_held();
}

/// The same by a peer that stands between the two steps of an entry each time.
#[test]
fn a_place_is_opened_under_a_peer_that_is_being_refused() {
    reopen::refused(&mut Context::rounds(ACTOR, 50)).expect_held();
}
