//! Data frames against the protocol, sent to a session that serves others, over TCP and over the local socket beside shared
//! memory: each ends its link for its reason and changes no byte that the protocol does not give it; an honest peer goes on.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use hmc_tests::wrong::{Group, acks, answers, puts, requests};

static PUTS: Group = Group::new(puts::CASES);
static REQUESTS: Group = Group::new(requests::CASES);
static ANSWERS: Group = Group::new(answers::CASES);
static ACKS: Group = Group::new(acks::CASES);

#[test]
fn puts_that_break_their_announcement_end_the_link() {
    assert_eq!(PUTS.reached().len(), 3);
}

#[test]
fn more_requests_than_agreed_end_the_link() {
    assert_eq!(REQUESTS.reached().len(), 3);
}

#[test]
fn answers_that_do_not_fit_end_the_link() {
    assert_eq!(ANSWERS.reached().len(), 4);
}

#[test]
fn acknowledgements_of_the_wrong_operation_end_the_link() {
    assert_eq!(ACKS.reached().len(), 6);
}
