//! Data frames against the protocol, sent to a session that serves others, over TCP and over the local socket beside shared
//! memory: each ends its link for its reason and changes no byte that the protocol does not give it; an honest peer goes on.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_tests::wrong::malformed::{self, check_of};
use hmc_tests::wrong::rig::{LIE, Rig};
use hmc_tests::wrong::target::Target;
use hmc_tests::wrong::{BOTH, Group, acks, answers, puts, regions, requests};

static PUTS: Group = Group::new(puts::CASES);
static REQUESTS: Group = Group::new(requests::CASES);
static ANSWERS: Group = Group::new(answers::CASES);
static ACKS: Group = Group::new(acks::CASES);
static REGIONS: Group = Group::new(regions::CASES);

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

#[test]
fn announcements_of_wrong_memory_end_the_link() {
    assert_eq!(REGIONS.reached().len(), 3);
}

#[test]
fn malformed_frames_end_the_link() {
    let frames = malformed::all();
    assert!(frames.len() > 30, "{}", frames.len());
    for via in BOTH {
        let mut target = Target::new(*via);
        for frame in &frames {
            let mut rig = Rig::new(&mut target);
            // What follows could be payload.
            let _ = rig.rogue.send_bytes(&[&frame.bytes[..], &[LIE; 256]].concat());
            rig.assert_ended(frame.what, &frame.check);
        }
    }
}

/// The same while the session waits for bytes: an answer that leaves its operation brings none of them.
#[test]
fn an_answer_beyond_its_operation_writes_nothing() {
    for via in BOTH {
        let mut target = Target::new(*via);
        for (offset, len) in [(0, 65), (1, 64), (64, 1), (u64::MAX, 2)] {
            let mut rig = Rig::new(&mut target);
            rig.inline();
            let seq = rig.get(64).seq;
            let answer = DataFrame {
                flags: DataFlags::LAST,
                total: 64,
                offset,
                len,
                ..DataFrame::new(DataKind::ReadData, seq)
            };
            let _ = rig.rogue.send_bytes(&[&answer.emit()[..], &[LIE; 128]].concat());
            rig.assert_ended("an answer beyond its operation", &check_of(&answer.emit()));
        }
    }
}
