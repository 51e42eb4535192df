//! Data frames against the protocol, sent to a session that serves others, over TCP and over the local socket beside shared
//! memory: each ends its link for its reason and changes no byte that the protocol does not give it; an honest peer goes on.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeSet;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_std::ErrorKind;
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::wrong::malformed::{self, check_of};
use hmc_tests::wrong::rig::{LIE, Rig};
use hmc_tests::wrong::target::{LONG, Target};
use hmc_tests::wrong::{BOTH, Group, acks, answers, checks, puts, regions, requests};

static PUTS: Group = Group::new(puts::CASES);
static REQUESTS: Group = Group::new(requests::CASES);
static ANSWERS: Group = Group::new(answers::CASES);
static ACKS: Group = Group::new(acks::CASES);
static REGIONS: Group = Group::new(regions::CASES);

#[test]
fn puts_that_break_their_announcement_end_the_link() {
    assert_eq!(PUTS.reached().len(), 4);
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

/// All checks of a data stream that end it are among those above: a new one needs a case that reaches it.
#[test]
fn every_check_of_a_stream_has_a_case() {
    let groups = [&PUTS, &REQUESTS, &ANSWERS, &ACKS, &REGIONS];
    let reached: BTreeSet<&str> = groups.iter().flat_map(|g| g.reached()).copied().collect();
    let there = checks::of_streams();
    let there: BTreeSet<&str> = there.iter().map(String::as_str).collect();
    let unreached: Vec<_> = there.difference(&reached).collect();
    let gone: Vec<_> = reached.difference(&there).collect();
    assert!(unreached.is_empty(), "no case reaches these checks: {unreached:?}");
    assert!(gone.is_empty(), "these checks are not in the sources: {gone:?}");
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

/// How a future ends that is polled again and again.
fn poll<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let begun = Instant::now();
    loop {
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(output) = polled {
            return output;
        }
        assert!(begun.elapsed() < LONG, "it does not end");
    }
}

/// Every way to wait for an operation gives the reason, though the operation ends before the link is known to be over.
#[test]
fn a_waiter_gets_the_reason() {
    for via in BOTH {
        let mut target = Target::new(*via);
        for _ in 0..20 {
            let mut rig = Rig::new(&mut target);
            rig.inline();
            let peer = rig.peer.clone();
            let span = rig.target.session.memory().allocate(128).unwrap().take_all().unwrap();
            let errors = std::thread::scope(|scope| {
                let future = peer.start_get_at(0, 0, 128).unwrap();
                let seq = rig.rogue.read_data().0.seq;
                let op = peer.buffer().unwrap().get(0, span).start().unwrap();
                let calls = [
                    scope.spawn(|| poll(future).unwrap_err()),
                    scope.spawn(|| poll(op).unwrap_err().into()),
                    scope.spawn(|| peer.get_at(0, 0, 128).unwrap_err()),
                ];
                // Those of the span and of the call.
                let _ = (rig.rogue.read_data(), rig.rogue.read_data());
                rig.answer(seq, (64, 64), 128, DataFlags::LAST);
                calls.map(|call| call.join().unwrap())
            });
            for e in errors {
                assert_eq!(e.kind(), ErrorKind::PeerDead, "{e}");
                let reason = "it broke the protocol: an answer out of order";
                assert!(e.to_string().contains(reason), "{via:?}: {e}");
            }
            rig.assert_ended("three that wait", "an answer out of order");
        }
    }
}

/// The peer may go on for as long as it likes: what it has sent by then on its control connection is enough. A link that
/// waited for that connection's end would take 2.5 s each time.
#[test]
fn a_link_that_ends_for_a_reason_ends_at_once() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let begun = Instant::now();
        for _ in 0..20 {
            let mut rig = Rig::new(&mut target);
            rig.answer(7, (0, 8), 8, DataFlags::LAST);
            rig.assert_ended("an answer to nobody", "an answer that nobody asked for");
        }
        assert!(begun.elapsed() < LONG, "{via:?}: {:?}", begun.elapsed());
    }
}
