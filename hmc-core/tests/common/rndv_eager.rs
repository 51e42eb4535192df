//! Messages whose bytes come with their offer.

use hmc_core::limits::MAX_RNDV;
use hmc_core::rndv::receiver::{CopyOut, Receiver, ReceiverOutput};
use hmc_core::rndv::sender::{Sender, SenderOutput, SenderPhase};
use hmc_core::rndv::{AbortReason, OfferCounter, RndvError, RndvId, RndvMsg, RndvRole, Violation};
use hmc_core::work::Failure;

use super::{ID, LEN, end, good, receiver_outputs, sender_outputs, staged, withdrawn};

const CANCELLED: RndvError = RndvError::Here(AbortReason::Cancelled);

/// One whose bytes were sent.
fn sent() -> Sender {
    let mut s = Sender::eager(ID, LEN);
    assert_eq!(sender_outputs(&mut s), [SenderOutput::SendEager]);
    s
}

/// One that somebody takes.
fn taken() -> Receiver {
    let mut r = Receiver::eager(ID, LEN);
    r.take(LEN);
    r
}

/// The whole message, to be copied out.
fn copy(r: &mut Receiver) {
    let outputs = receiver_outputs(r);
    let [ReceiverOutput::Copy(CopyOut { seq: 0, to })] = outputs[..] else {
        panic!("{outputs:?}");
    };
    assert_eq!((to.offset(), to.len()), (0, LEN));
}

/// The rows of the stored table.
pub(super) fn senders() -> Vec<(&'static str, Sender)> {
    let mut over = sent();
    over.receive(&good()).unwrap();
    sender_outputs(&mut over);
    let mut failed = sent();
    failed.end(CANCELLED);
    sender_outputs(&mut failed);
    vec![("eager_sent", sent()), ("eager_taken", over), ("eager_withdrawn", failed)]
}

/// The rows of the stored table.
pub(super) fn receivers() -> Vec<(&'static str, Receiver)> {
    let mut copying = taken();
    copy(&mut copying);
    let mut over = copying;
    over.copied(Ok(()));
    receiver_outputs(&mut over);
    let mut short = Receiver::eager(ID, LEN);
    short.take(LEN - 1);
    receiver_outputs(&mut short);
    vec![
        ("eager_waiting", Receiver::eager(ID, LEN)),
        ("eager_copying", copying),
        ("eager_over", over),
        ("eager_too_long", short),
    ]
}

#[test]
fn an_eager_message_is_over_with_the_receivers_end() {
    let (mut s, mut r) = (sent(), taken());
    assert_eq!(s.phase(), SenderPhase::Offered);
    copy(&mut r);
    assert_eq!(receiver_outputs(&mut r), [], "a copy runs");
    r.copied(Ok(()));
    let said = [ReceiverOutput::Send(good()), ReceiverOutput::Ended(Ok(LEN)), ReceiverOutput::Free];
    assert_eq!(receiver_outputs(&mut r), said);
    assert!(r.is_finished() && r.has_ended());
    s.receive(&good()).unwrap();
    assert_eq!(sender_outputs(&mut s), [SenderOutput::Ended(Ok(LEN)), SenderOutput::Free]);
    assert!(s.is_finished());
}

#[test]
fn an_eager_message_without_bytes_needs_no_copy() {
    let mut r = Receiver::eager(ID, 0);
    r.take(0);
    assert!(receiver_outputs(&mut r).contains(&ReceiverOutput::Ended(Ok(0))) && r.is_finished());
}

#[test]
fn an_eager_message_that_was_withdrawn_is_received_or_answered_but_not_both() {
    // It meets one that waits, or one that is being copied.
    let mut copying = taken();
    copy(&mut copying);
    for mut r in [Receiver::eager(ID, LEN), copying] {
        let mut s = sent();
        s.end(CANCELLED);
        assert_eq!(sender_outputs(&mut s)[0], SenderOutput::Send(withdrawn()));
        r.receive(&withdrawn()).unwrap();
        assert_eq!(r.receive(&withdrawn()), Err(Violation::NotNow), "once");
        r.copied(Ok(()));
        let outputs = receiver_outputs(&mut r);
        let answer = end(RndvRole::Receiver, Err(AbortReason::Cancelled));
        assert_eq!(outputs[0], ReceiverOutput::Send(answer));
        assert!(r.is_finished() && !outputs.contains(&ReceiverOutput::Ended(Ok(LEN))));
        s.receive(&answer).unwrap();
        sender_outputs(&mut s);
        assert!(s.is_finished());
    }
    // It crosses with the receiver's END: received, and the sender has failed.
    let (mut s, mut r) = (sent(), taken());
    s.end(CANCELLED);
    sender_outputs(&mut s);
    copy(&mut r);
    r.copied(Ok(()));
    receiver_outputs(&mut r);
    assert_eq!(r.receive(&end(RndvRole::Sender, Ok(()))), Err(Violation::NotNow));
    r.receive(&withdrawn()).unwrap();
    assert_eq!(receiver_outputs(&mut r), []);
    s.receive(&good()).unwrap();
    assert_eq!(sender_outputs(&mut s), []);
    assert!(s.is_finished());
}

/// Nobody was told of the failure, and the receiver has the message.
#[test]
fn a_failure_that_was_not_told_gives_way_to_the_receivers_end() {
    let mut s = sent();
    s.end(CANCELLED);
    s.receive(&good()).unwrap();
    assert_eq!(sender_outputs(&mut s), [SenderOutput::Ended(Ok(LEN)), SenderOutput::Free]);
    assert!(s.is_finished());
}

#[test]
fn a_copy_that_fails_fails_an_eager_message_at_both_ends() {
    let mut r = taken();
    copy(&mut r);
    r.copied(Err(Failure::UnknownRegion));
    let outputs = receiver_outputs(&mut r);
    let answer = end(RndvRole::Receiver, Err(AbortReason::Failed));
    assert_eq!(outputs[0], ReceiverOutput::Send(answer));
    assert!(!r.is_finished(), "the sender answers");
    let mut s = sent();
    s.receive(&answer).unwrap();
    let outputs = sender_outputs(&mut s);
    let said = end(RndvRole::Sender, Err(AbortReason::Failed));
    assert_eq!(outputs[0], SenderOutput::Send(said));
    assert!(s.is_finished());
    r.receive(&said).unwrap();
    assert!(r.is_finished());
}

#[test]
fn a_message_is_answered_or_taken_as_it_was_offered() {
    let mut eager = Receiver::eager(ID, LEN);
    eager.answer(LEN, staged());
    assert!(eager.is_open() && eager.is_eager());
    let mut offered = Receiver::new(ID, LEN);
    offered.take(LEN);
    assert!(offered.is_open() && !offered.is_eager());
    let mut s = sent();
    let ready = RndvMsg::Ready { id: ID, target: staged() };
    assert_eq!(s.receive(&ready), Err(Violation::NotNow));
    let mut s = Sender::new(ID, LEN);
    sender_outputs(&mut s);
    assert_eq!(s.receive(&good()), Err(Violation::NotNow), "its bytes were not sent");
}

#[test]
fn only_the_failure_of_a_message_that_was_offered_is_late() {
    let mut offers = OfferCounter::new();
    let failure = |id| RndvMsg::End {
        id: RndvId(id),
        from: RndvRole::Sender,
        how: Err(AbortReason::Cancelled),
    };
    assert!(!offers.is_late(&failure(0)), "nothing was offered");
    let count = 3 * MAX_RNDV;
    for n in 0..count {
        offers.offer(RndvId(n)).unwrap();
        offers.offer_finished();
    }
    let late: Vec<_> = (0..count + 3).filter(|n| offers.is_late(&failure(*n))).collect();
    assert_eq!(late, (0..count).collect::<Vec<_>>());
    let other = |from, how| RndvMsg::End { id: RndvId(count - 1), from, how };
    for note in [
        other(RndvRole::Sender, Ok(())),
        other(RndvRole::Receiver, Err(AbortReason::Cancelled)),
        RndvMsg::Filled { id: RndvId(count - 1), seq: 0 },
    ] {
        assert!(!offers.is_late(&note), "{note:?}");
    }
}
