//! Messages of which the receiver counts the bytes that are put.

use hmc_core::rndv::receiver::{Receiver, ReceiverOutput};
use hmc_core::rndv::sender::{Sender, SenderOutput};
use hmc_core::rndv::{AbortReason, RecvTarget, RndvError, RndvMsg, RndvRole, Violation};
use hmc_core::window::WindowFault;
use hmc_core::work::Failure;

use super::{
    ID, LEN, area, end, good, pump_sender, receiver_outputs, sender_outputs, staged, withdrawn,
};

const CANCELLED: RndvError = RndvError::Here(AbortReason::Cancelled);

fn direct() -> RecvTarget {
    RecvTarget::direct(area(0, LEN))
}

/// One whose put runs.
fn putting() -> Sender {
    let mut s = Sender::new(ID, LEN).counted();
    sender_outputs(&mut s);
    s.receive(&RndvMsg::Ready { id: ID, target: direct() }).unwrap();
    assert!(matches!(sender_outputs(&mut s)[..], [SenderOutput::Put(_)]));
    s
}

/// One that has sent READY.
fn ready() -> Receiver {
    let mut r = Receiver::new(ID, LEN).counted();
    assert!(!r.is_counted(), "its place is not known");
    r.answer(LEN, direct());
    let target = direct();
    assert_eq!(receiver_outputs(&mut r), [ReceiverOutput::Send(RndvMsg::Ready { id: ID, target })]);
    assert!(r.is_counted());
    r
}

/// The rows of the stored table.
pub(super) fn senders() -> Vec<(&'static str, Sender)> {
    let mut put = putting();
    pump_sender(&mut put);
    put.put_done(0, Ok(()));
    assert_eq!(sender_outputs(&mut put), [], "the receiver sees that by itself");
    let mut over = put;
    over.receive(&good()).unwrap();
    sender_outputs(&mut over);
    let mut failed = putting();
    failed.end(CANCELLED);
    sender_outputs(&mut failed);
    vec![
        ("counted_flies", putting()),
        ("counted_there", put),
        ("counted_taken", over),
        ("counted_withdrawn", failed),
    ]
}

/// The rows of the stored table.
pub(super) fn receivers() -> Vec<(&'static str, Receiver)> {
    let mut over = ready();
    over.all_put();
    receiver_outputs(&mut over);
    let mut failed = ready();
    failed.end(CANCELLED);
    receiver_outputs(&mut failed);
    vec![("counted_ready", ready()), ("counted_over", over), ("counted_failed", failed)]
}

#[test]
fn a_counted_message_is_over_with_the_receivers_end() {
    let mut r = ready();
    r.all_put();
    let said = [ReceiverOutput::Send(good()), ReceiverOutput::Revoke];
    assert_eq!(receiver_outputs(&mut r)[..2], said);
    r.fenced();
    assert_eq!(receiver_outputs(&mut r), [ReceiverOutput::Free]);
    assert!(r.is_finished() && r.has_ended());
    // It may come before the put has passed its fence here: only then the source is free.
    let mut s = putting();
    s.receive(&good()).unwrap();
    assert_eq!(sender_outputs(&mut s), [SenderOutput::Ended(Ok(LEN))]);
    assert!(!s.is_finished());
    s.put_done(0, Err(Failure::Window(WindowFault::Revoked)));
    assert_eq!(sender_outputs(&mut s), [SenderOutput::Free], "the receiver has its bytes");
    assert!(s.is_finished());
}

/// The connection of its put is lost: only the receiver knows whether the bytes came, and its END may be on its way.
#[test]
fn a_counted_message_whose_answer_is_lost_ends_as_the_receiver_says() {
    let lost = || {
        let mut s = putting();
        s.put_done(0, Err(Failure::PeerDead));
        assert_eq!(sender_outputs(&mut s), [], "nothing is known");
        s
    };
    let mut good_end = lost();
    good_end.receive(&good()).unwrap();
    assert_eq!(sender_outputs(&mut good_end), [SenderOutput::Ended(Ok(LEN)), SenderOutput::Free]);
    let mut dead = lost();
    dead.end(RndvError::PeerDead);
    let ended = SenderOutput::Ended(Err(RndvError::PeerDead));
    assert_eq!(sender_outputs(&mut dead), [ended, SenderOutput::Free]);
    assert!(good_end.is_finished() && dead.is_finished());
}

#[test]
fn without_bytes_nothing_is_counted() {
    let mut r = Receiver::new(ID, 0).counted();
    r.answer(0, RecvTarget::direct(area(0, 0)));
    let outputs = receiver_outputs(&mut r);
    assert!(outputs.contains(&ReceiverOutput::Send(good())), "{outputs:?}");
    let mut s = Sender::new(ID, 0).counted();
    sender_outputs(&mut s);
    s.receive(&RndvMsg::Ready { id: ID, target: RecvTarget::direct(area(0, 0)) }).unwrap();
    assert_eq!(sender_outputs(&mut s), []);
    s.receive(&good()).unwrap();
    assert!(sender_outputs(&mut s).contains(&SenderOutput::Ended(Ok(0))) && s.is_finished());
}

#[test]
fn halves_are_not_counted() {
    let mut r = Receiver::new(ID, LEN).counted();
    r.answer(LEN, staged());
    receiver_outputs(&mut r);
    r.all_put();
    assert_eq!((r.is_counted(), receiver_outputs(&mut r)), (false, vec![]));
    let mut s = Sender::new(ID, LEN).counted();
    sender_outputs(&mut s);
    s.receive(&RndvMsg::Ready { id: ID, target: staged() }).unwrap();
    pump_sender(&mut s);
    assert_eq!(s.receive(&good()), Err(Violation::NotNow), "nothing was copied out");
}

/// A receiver that has not answered counts nothing.
#[test]
fn bytes_count_only_once_the_place_was_named() {
    let mut r = Receiver::new(ID, LEN).counted();
    r.all_put();
    r.answer(LEN, direct());
    r.all_put();
    assert_eq!(receiver_outputs(&mut r).len(), 1, "READY");
}

#[test]
fn a_failure_that_crosses_with_the_end_of_a_counted_message_changes_nothing_there() {
    let (mut s, mut r) = (putting(), ready());
    s.end(CANCELLED);
    let told = sender_outputs(&mut s);
    assert_eq!(told[..2], [SenderOutput::Send(withdrawn()), SenderOutput::Withdraw]);
    r.all_put();
    receiver_outputs(&mut r);
    r.receive(&withdrawn()).unwrap();
    assert_eq!(r.receive(&end(RndvRole::Sender, Ok(()))), Err(Violation::NotNow));
    r.fenced();
    receiver_outputs(&mut r);
    s.receive(&good()).unwrap();
    s.put_done(0, Ok(()));
    sender_outputs(&mut s);
    assert!(s.is_finished() && r.is_finished());
    // Nobody was told of this one, and the receiver has the message.
    let mut s = putting();
    s.end(CANCELLED);
    s.receive(&good()).unwrap();
    assert_eq!(sender_outputs(&mut s), [SenderOutput::Ended(Ok(LEN))]);
    // And this one comes before the count is complete.
    let mut r = ready();
    r.receive(&withdrawn()).unwrap();
    r.all_put();
    let outputs = receiver_outputs(&mut r);
    let answer = end(RndvRole::Receiver, Err(AbortReason::Cancelled));
    assert_eq!(outputs[..2], [ReceiverOutput::Send(answer), ReceiverOutput::Revoke]);
}
