//! The two ends of a message: the whole table of phases and notes, and transfers by hand.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

#[path = "common/rndv_counted.rs"]
mod rndv_counted;
#[path = "common/rndv_eager.rs"]
mod rndv_eager;

use std::collections::VecDeque;
use std::fmt::Write as _;

use hmc_core::limits::MAX_RNDV_HALF_BYTES;
use hmc_core::range::{Extent, Side};
use hmc_core::region::{Epoch, WindowId, WindowSlice};
use hmc_core::rndv::receiver::{Receiver, ReceiverOutput};
use hmc_core::rndv::sender::{PutChunk, Sender, SenderOutput};
use hmc_core::rndv::{AbortReason, RecvTarget, RndvError, RndvId, RndvMode, RndvMsg, RndvRole};
use hmc_core::window::WindowFault;
use hmc_core::work::Failure;

const ID: RndvId = RndvId(7);
/// Three pieces: 4, 4 and 2 bytes.
const LEN: u64 = 10;

fn area(offset: u64, len: u64) -> WindowSlice {
    let span = Extent::new(u64::MAX).span(Side::Remote, offset, len).unwrap();
    WindowSlice { window: WindowId(1), epoch: Epoch(2), span, expected: None }
}

fn staged() -> RecvTarget {
    RecvTarget::staged(area(100, 8)).unwrap()
}

fn end(from: RndvRole, how: Result<(), AbortReason>) -> RndvMsg {
    RndvMsg::End { id: ID, from, how }
}

/// The receiver has the message.
fn good() -> RndvMsg {
    end(RndvRole::Receiver, Ok(()))
}

/// The sender takes it back.
fn withdrawn() -> RndvMsg {
    end(RndvRole::Sender, Err(AbortReason::Cancelled))
}

/// What was asked for, without the puts' and copies' ranges.
fn sender_outputs(s: &mut Sender) -> Vec<SenderOutput> {
    std::iter::from_fn(|| s.poll()).take(32).collect()
}

fn receiver_outputs(r: &mut Receiver) -> Vec<ReceiverOutput> {
    std::iter::from_fn(|| r.poll()).take(32).collect()
}

/// Takes what is to be done, doing every put at once.
fn pump_sender(s: &mut Sender) {
    while let Some(output) = s.poll() {
        if let SenderOutput::Put(put) = output {
            s.put_done(put.seq, Ok(()));
        }
    }
}

fn senders() -> Vec<(&'static str, Sender)> {
    let after = |notes: &[RndvMsg]| {
        let mut s = Sender::new(ID, LEN);
        pump_sender(&mut s);
        for note in notes {
            s.receive(note).unwrap();
            pump_sender(&mut s);
        }
        s
    };
    let ready = RndvMsg::Ready { id: ID, target: staged() };
    let direct = RndvMsg::Ready { id: ID, target: RecvTarget::direct(area(0, LEN)) };
    let credit = |seq| RndvMsg::Credit { id: ID, seq };
    let taken = end(RndvRole::Receiver, Ok(()));
    let failed = |notes: &[RndvMsg]| {
        let mut s = after(notes);
        s.end(RndvError::Here(AbortReason::Cancelled));
        pump_sender(&mut s);
        s
    };
    let mut in_flight = after(&[]);
    in_flight.receive(&ready).unwrap();
    sender_outputs(&mut in_flight);
    let mut withdrawn = in_flight;
    withdrawn.end(RndvError::Here(AbortReason::DeadlineExceeded));
    sender_outputs(&mut withdrawn);
    let mut put = after(&[]);
    put.receive(&direct).unwrap();
    sender_outputs(&mut put);
    let mut all = vec![
        ("fresh", Sender::new(ID, LEN)),
        ("offered", after(&[])),
        ("two_puts_in_flight", in_flight),
        ("two_filled", after(&[ready])),
        ("three_filled", after(&[ready, credit(0)])),
        ("all_credited", after(&[ready, credit(0), credit(1), credit(2)])),
        ("direct_flies", put),
        ("direct_there", after(&[direct])),
        ("cancelled_early", failed(&[])),
        ("cancelled_staged", failed(&[ready])),
        ("cancelled_closing", failed(&[direct])),
        ("withdrawn", withdrawn),
        ("taken", after(&[direct, taken])),
        ("refused", after(&[end(RndvRole::Receiver, Err(AbortReason::TooLong { capacity: 3 }))])),
    ];
    all.extend(rndv_eager::senders());
    all.extend(rndv_counted::senders());
    all
}

fn receivers() -> Vec<(&'static str, Receiver)> {
    let filled = |seq| RndvMsg::Filled { id: ID, seq };
    let there = end(RndvRole::Sender, Ok(()));
    let make = |place: Option<RecvTarget>, notes: &[RndvMsg], copy: bool| {
        let mut r = Receiver::new(ID, LEN);
        if let Some(place) = place {
            r.answer(LEN, place);
        }
        for i in 0..=notes.len() {
            while let Some(output) = r.poll() {
                if copy && matches!(output, ReceiverOutput::Copy(_)) {
                    r.copied(Ok(()));
                }
            }
            if let Some(note) = notes.get(i) {
                r.receive(note).unwrap();
            }
        }
        r
    };
    let (s, d) = (Some(staged()), Some(RecvTarget::direct(area(0, LEN))));
    let failed = |mut r: Receiver| {
        r.end(RndvError::Here(AbortReason::DeadlineExceeded));
        receiver_outputs(&mut r);
        r
    };
    let mut short = Receiver::new(ID, LEN);
    short.answer(LEN - 1, staged());
    receiver_outputs(&mut short);
    let mut answered = Receiver::new(ID, LEN);
    answered.answer(LEN, staged());
    let mut closing = make(s, &[filled(0), filled(1)], true);
    closing.receive(&filled(2)).unwrap();
    receiver_outputs(&mut closing);
    closing.receive(&there).unwrap();
    receiver_outputs(&mut closing);
    let mut all = vec![
        ("waiting", make(None, &[], true)),
        ("answered", answered),
        ("ready", make(s, &[], true)),
        ("copying_first", make(s, &[filled(0)], false)),
        ("both_full", make(s, &[filled(0), filled(1)], false)),
        ("two_copied", make(s, &[filled(0), filled(1)], true)),
        ("all_copied", make(s, &[filled(0), filled(1), filled(2)], true)),
        ("ready_direct", make(d, &[], true)),
        ("too_long", short),
        ("failed_ready", failed(make(s, &[], true))),
        ("failed_copying", failed(make(s, &[filled(0)], false))),
        ("failed_direct", failed(make(d, &[], true))),
        ("closing", closing),
        ("taken", make(s, &[filled(0), filled(1), filled(2), there], true)),
        ("taken_direct", make(d, &[there], true)),
        ("withdrawn", make(s, &[end(RndvRole::Sender, Err(AbortReason::Cancelled))], true)),
        ("never_wanted", make(None, &[end(RndvRole::Sender, Err(AbortReason::Cancelled))], true)),
    ];
    all.extend(rndv_eager::receivers());
    all.extend(rndv_counted::receivers());
    all
}

fn every_note() -> Vec<(&'static str, RndvMsg)> {
    let (id, other) = (ID, RecvTarget::direct(area(0, LEN + 1)));
    vec![
        ("offer", RndvMsg::Offer { id, len: LEN }),
        ("ready_staged", RndvMsg::Ready { id, target: staged() }),
        ("ready_direct", RndvMsg::Ready { id, target: RecvTarget::direct(area(0, LEN)) }),
        ("ready_misfit", RndvMsg::Ready { id, target: other }),
        ("filled_0", RndvMsg::Filled { id, seq: 0 }),
        ("filled_1", RndvMsg::Filled { id, seq: 1 }),
        ("filled_2", RndvMsg::Filled { id, seq: 2 }),
        ("filled_3", RndvMsg::Filled { id, seq: 3 }),
        ("credit_0", RndvMsg::Credit { id, seq: 0 }),
        ("credit_1", RndvMsg::Credit { id, seq: 1 }),
        ("credit_2", RndvMsg::Credit { id, seq: 2 }),
        ("credit_3", RndvMsg::Credit { id, seq: 3 }),
        ("sender_ends", end(RndvRole::Sender, Ok(()))),
        ("sender_fails", end(RndvRole::Sender, Err(AbortReason::Cancelled))),
        ("receiver_ends", end(RndvRole::Receiver, Ok(()))),
        ("receiver_fails", end(RndvRole::Receiver, Err(AbortReason::Cancelled))),
    ]
}

fn brief(note: &RndvMsg) -> String {
    match note {
        RndvMsg::Offer { len, .. } => format!("offer({len})"),
        RndvMsg::Ready { target: place, .. } => format!("ready({:?})", place.mode()),
        RndvMsg::Filled { seq, .. } => format!("filled({seq})"),
        RndvMsg::Credit { seq, .. } => format!("credit({seq})"),
        RndvMsg::End { from, how, .. } => format!("end({from:?} {how:?})"),
    }
}

fn table() -> String {
    let mut text = String::new();
    for (name, start) in senders() {
        for (what, note) in every_note() {
            let mut s = start;
            let line = match s.receive(&note) {
                Err(v) => {
                    assert_eq!(s, start, "a violation changes nothing");
                    format!("{v:?}")
                }
                Ok(()) => {
                    let outputs = sender_outputs(&mut s);
                    let outputs = outputs.iter().map(|o| match o {
                        SenderOutput::Send(note) => brief(note),
                        SenderOutput::Put(p) => {
                            let (to, n) = (p.target.span.offset(), p.source.len());
                            format!("put({} {n}@{to})", p.seq)
                        }
                        other => format!("{other:?}"),
                    });
                    let outputs: Vec<_> = outputs.collect();
                    format!("{:?} [{}]{}", s.phase(), outputs.join(", "), over(s.is_finished()))
                }
            };
            writeln!(text, "sender {name} {:?} {what} => {line}", start.phase()).unwrap();
        }
    }
    for (name, start) in receivers() {
        for (what, note) in every_note() {
            let mut r = start;
            let line = match r.receive(&note) {
                Err(v) => {
                    assert_eq!(r, start, "a violation changes nothing");
                    format!("{v:?}")
                }
                Ok(()) => {
                    let outputs = receiver_outputs(&mut r);
                    let outputs = outputs.iter().map(|o| match o {
                        ReceiverOutput::Send(note) => brief(note),
                        ReceiverOutput::Copy(c) => format!("copy({} {})", c.seq, c.to.len()),
                        other => format!("{other:?}"),
                    });
                    let outputs: Vec<_> = outputs.collect();
                    format!("{:?} [{}]{}", r.phase(), outputs.join(", "), over(r.is_finished()))
                }
            };
            writeln!(text, "receiver {name} {:?} {what} => {line}", start.phase()).unwrap();
        }
    }
    text
}

fn over(is: bool) -> &'static str {
    if is { " over" } else { "" }
}

#[test]
fn every_phase_takes_every_note_as_stored() {
    let (got, stored) = (table(), include_str!("rndv_table.txt"));
    assert_eq!(got.lines().count(), (21 + 24) * 16);
    for (got, stored) in got.lines().zip(stored.lines()) {
        assert_eq!(got, stored);
    }
    assert_eq!(got, stored);
}

/// Prints the table, for a deliberate change.
#[test]
#[ignore = "prints the table, compares nothing: `cargo test -p hmc-core --test rndv -- --ignored --nocapture`"]
fn print_table() {
    print!("{}", table());
}

/// Both ends, doing what they ask for at once and handing their notes over in order. Gives the
/// ranges that were put and copied.
fn run(
    s: &mut Sender,
    r: &mut Receiver,
    place: RecvTarget,
    capacity: u64,
) -> (Vec<PutChunk>, u64, Outcome) {
    let (mut to_r, mut to_s) = (VecDeque::new(), VecDeque::new());
    let (mut puts, mut copied, mut outcome) = (Vec::new(), 0, Outcome::default());
    for _ in 0..100_000 {
        while let Some(output) = s.poll() {
            match output {
                SenderOutput::Send(note) => to_r.push_back(note),
                SenderOutput::Put(put) => {
                    puts.push(put);
                    s.put_done(put.seq, Ok(()));
                }
                SenderOutput::SendEager | SenderOutput::Withdraw => panic!("nothing flies here"),
                SenderOutput::Ended(how) => assert!(outcome.sender.replace(how).is_none()),
                SenderOutput::Free => outcome.free += 1,
            }
        }
        while let Some(output) = r.poll() {
            match output {
                ReceiverOutput::Send(note) => to_s.push_back(note),
                ReceiverOutput::Copy(copy) => {
                    assert_eq!(copy.to.offset(), copied);
                    copied += copy.to.len();
                    r.copied(Ok(()));
                }
                ReceiverOutput::Revoke => r.fenced(),
                ReceiverOutput::Ended(how) => assert!(outcome.receiver.replace(how).is_none()),
                ReceiverOutput::Free => outcome.free += 1,
            }
        }
        let (a, b) = (to_r.pop_front(), to_s.pop_front());
        match a {
            Some(RndvMsg::Offer { .. }) => r.answer(capacity, place),
            Some(note) => r.receive(&note).unwrap(),
            None if b.is_none() => break,
            None => {}
        }
        if let Some(note) = b {
            s.receive(&note).unwrap();
        }
    }
    assert!(s.is_finished() && r.is_finished());
    (puts, copied, outcome)
}

#[derive(Debug, Default)]
struct Outcome {
    sender: Option<Result<u64, RndvError>>,
    receiver: Option<Result<u64, RndvError>>,
    free: u32,
}

#[test]
fn any_length_arrives_whole() {
    let half = 4096;
    let lengths = [0, 1, half - 1, half, half + 1, 2 * half, 3 * half + half / 2, 64 << 20];
    for len in lengths {
        for mode in [RndvMode::Staged, RndvMode::Direct] {
            let place = match mode {
                RndvMode::Staged => RecvTarget::staged(area(64, 2 * half)).unwrap(),
                RndvMode::Direct => RecvTarget::direct(area(64, len)),
            };
            let (mut s, mut r) = (Sender::new(ID, len), Receiver::new(ID, len));
            let (puts, copied, o) = run(&mut s, &mut r, place, len);
            assert_eq!((o.sender, o.receiver, o.free), (Some(Ok(len)), Some(Ok(len)), 2));
            assert_eq!(puts.iter().map(|p| p.source.len()).sum::<u64>(), len, "{len} {mode:?}");
            if mode == RndvMode::Staged {
                assert_eq!(copied, len);
                assert!(puts.iter().all(|p| p.source.offset() == p.seq * half));
                let at = |p: &PutChunk| 64 + (p.seq % 2) * half;
                assert!(puts.iter().all(|p| p.target.span.offset() == at(p)));
            } else {
                assert!(puts.len() <= 1);
            }
        }
    }
}

#[test]
fn more_than_four_gibibytes_arrive_whole() {
    let len = (5 << 30) + 3;
    let place = RecvTarget::staged(area(0, 2 * MAX_RNDV_HALF_BYTES)).unwrap();
    let (mut s, mut r) = (Sender::new(ID, len), Receiver::new(ID, len));
    let (puts, copied, o) = run(&mut s, &mut r, place, u64::MAX);
    assert_eq!((puts.len(), copied), (6, len));
    assert_eq!(o.receiver, Some(Ok(len)));
}

#[test]
fn a_message_longer_than_the_capacity_is_refused_on_both_ends_and_nothing_moves() {
    let (mut s, mut r) = (Sender::new(ID, LEN), Receiver::new(ID, LEN));
    let (puts, copied, o) = run(&mut s, &mut r, staged(), LEN - 1);
    assert!(puts.is_empty() && copied == 0);
    let why = AbortReason::TooLong { capacity: LEN - 1 };
    assert_eq!(o.sender, Some(Err(RndvError::There(why))));
    assert_eq!(o.receiver, Some(Err(RndvError::Here(why))));
    assert_eq!(o.free, 2);
}

#[test]
fn pieces_that_land_out_of_order_are_reported_in_order() {
    let mut s = Sender::new(ID, LEN);
    sender_outputs(&mut s);
    s.receive(&RndvMsg::Ready { id: ID, target: staged() }).unwrap();
    assert_eq!(sender_outputs(&mut s).len(), 2, "two puts fly");
    s.put_done(1, Ok(()));
    assert_eq!(sender_outputs(&mut s), []);
    s.put_done(1, Ok(()));
    s.put_done(2, Ok(()));
    assert_eq!(sender_outputs(&mut s), [], "what does not fly is passed over");
    s.put_done(0, Ok(()));
    let filled = |seq| SenderOutput::Send(RndvMsg::Filled { id: ID, seq });
    assert_eq!(sender_outputs(&mut s), [filled(0), filled(1)]);
}

#[test]
fn a_source_is_free_only_when_every_put_is_fenced() {
    for why in [RndvError::Here(AbortReason::Cancelled), RndvError::PeerDead] {
        let mut s = Sender::new(ID, LEN);
        sender_outputs(&mut s);
        s.receive(&RndvMsg::Ready { id: ID, target: staged() }).unwrap();
        sender_outputs(&mut s);
        s.end(why);
        assert!(!sender_outputs(&mut s).contains(&SenderOutput::Free));
        s.put_done(0, Err(Failure::Cancelled));
        assert_eq!(sender_outputs(&mut s), []);
        s.put_done(1, Ok(()));
        assert_eq!(sender_outputs(&mut s), [SenderOutput::Free]);
        assert_eq!(s.is_finished(), why == RndvError::PeerDead);
    }
}

#[test]
fn a_place_that_was_taken_back_is_explained_by_the_receiver() {
    let mut s = Sender::new(ID, LEN);
    sender_outputs(&mut s);
    s.receive(&RndvMsg::Ready { id: ID, target: RecvTarget::direct(area(0, LEN)) }).unwrap();
    sender_outputs(&mut s);
    s.put_done(0, Err(Failure::Window(WindowFault::Revoked)));
    assert_eq!(sender_outputs(&mut s), [], "its last word is on its way");
    let why = AbortReason::DeadlineExceeded;
    s.receive(&end(RndvRole::Receiver, Err(why))).unwrap();
    let ended = SenderOutput::Ended(Err(RndvError::There(why)));
    assert!(sender_outputs(&mut s).contains(&ended));
    assert!(s.is_finished());
    // Should it never come, the deadline does; another failure is told at once.
    let mut s = Sender::new(ID, LEN);
    sender_outputs(&mut s);
    s.receive(&RndvMsg::Ready { id: ID, target: staged() }).unwrap();
    sender_outputs(&mut s);
    s.put_done(0, Err(Failure::Window(WindowFault::Access)));
    let failed = RndvError::Failed(Failure::Window(WindowFault::Access));
    assert!(sender_outputs(&mut s).contains(&SenderOutput::Ended(Err(failed))));
}

#[test]
fn halves_are_free_only_when_the_place_is_fenced_and_no_copy_runs() {
    for why in [RndvError::Here(AbortReason::Cancelled), RndvError::PeerDead] {
        let mut r = Receiver::new(ID, LEN);
        r.answer(LEN, staged());
        r.fenced();
        receiver_outputs(&mut r);
        r.receive(&RndvMsg::Filled { id: ID, seq: 0 }).unwrap();
        receiver_outputs(&mut r);
        r.end(why);
        let outputs = receiver_outputs(&mut r);
        assert!(outputs.contains(&ReceiverOutput::Revoke));
        assert!(!outputs.contains(&ReceiverOutput::Free), "not fenced, and a copy runs");
        r.fenced();
        assert_eq!(receiver_outputs(&mut r), [], "a copy runs");
        r.copied(Ok(()));
        assert_eq!(receiver_outputs(&mut r), [ReceiverOutput::Free]);
    }
}

#[test]
fn an_end_ends_once_and_the_first_reason_stays() {
    let mut s = Sender::new(ID, 0);
    s.end(RndvError::Here(AbortReason::Cancelled));
    s.end(RndvError::Here(AbortReason::DeadlineExceeded));
    s.end(RndvError::PeerDead);
    let ended = |o: &SenderOutput| matches!(o, SenderOutput::Ended(_));
    let outputs = sender_outputs(&mut s);
    let all: Vec<_> = outputs.iter().filter(|o| ended(o)).collect();
    assert_eq!(all, [&SenderOutput::Ended(Err(RndvError::Here(AbortReason::Cancelled)))]);
    assert!(s.is_finished());
}

#[test]
fn halves_are_of_equal_and_bounded_length() {
    assert!(RecvTarget::staged(area(0, 0)).is_none());
    assert!(RecvTarget::staged(area(0, 7)).is_none());
    assert!(RecvTarget::staged(area(0, 2 * MAX_RNDV_HALF_BYTES)).is_some());
    assert!(RecvTarget::staged(area(0, 2 * MAX_RNDV_HALF_BYTES + 2)).is_none());
    let [a, b] = staged().halves();
    assert_eq!((a.span.offset(), a.span.len()), (100, 4));
    assert_eq!((b.span.offset(), b.span.len()), (104, 4));
}
