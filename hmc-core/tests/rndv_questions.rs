//! What the two ends of a message answer when they are asked, and messages of special lengths.
#![allow(clippy::unwrap_used, clippy::as_conversions, reason = "tests may panic")]

use hmc_core::limits::MAX_RNDV;
use hmc_core::range::{Extent, Side};
use hmc_core::region::{Epoch, WindowId, WindowSlice};
use hmc_core::rndv::receiver::{Receiver, ReceiverOutput};
use hmc_core::rndv::sender::{Sender, SenderOutput};
use hmc_core::rndv::{
    AbortReason, OfferCounter, RecvTarget, RndvError, RndvId, RndvMsg, RndvRole, Violation,
};
use hmc_core::wire::cursor::{Reader, WireErrorKind, Writer};
use hmc_core::wire::rndv::{emit_rndv, parse_rndv, rndv_len};
use hmc_core::work::Failure;

const ID: RndvId = RndvId(3);

fn area(len: u64) -> WindowSlice {
    let span = Extent::new(u64::MAX).span(Side::Remote, 64, len).unwrap();
    WindowSlice { window: WindowId(1), epoch: Epoch(2), span, expected: None }
}

fn staged() -> RecvTarget {
    RecvTarget::staged(area(8)).unwrap()
}

fn end(from: RndvRole, how: Result<(), AbortReason>) -> RndvMsg {
    RndvMsg::End { id: ID, from, how }
}

/// Does all that the receiver asks for, and returns the notes that it sent.
fn sent_notes(r: &mut Receiver) -> Vec<RndvMsg> {
    let mut notes = Vec::new();
    while let Some(output) = r.poll() {
        match output {
            ReceiverOutput::Send(note) => notes.push(note),
            ReceiverOutput::Copy(_) => r.copied(Ok(())),
            ReceiverOutput::Revoke => r.fenced(),
            ReceiverOutput::Ended(_) | ReceiverOutput::Free => {}
        }
    }
    notes
}

#[test]
fn a_receiver_knows_the_length() {
    for len in [0, 1, 2, 1 << 40] {
        let r = Receiver::new(ID, len);
        assert_eq!((r.id(), r.len(), r.is_empty()), (ID, len, len == 0));
    }
}

#[test]
fn a_receiver_is_open_until_somebody_answered_or_something_ended_it() {
    let fresh = Receiver::new(ID, 8);
    assert!(fresh.is_open() && !fresh.is_failed());

    let mut answered = fresh;
    answered.answer(8, staged());
    assert!(!answered.is_open() && !answered.is_failed());

    let mut ended = fresh;
    ended.end(RndvError::Here(AbortReason::Cancelled));
    assert!(!ended.is_open() && ended.is_failed(), "by this end");

    let mut withdrawn = fresh;
    withdrawn.receive(&end(RndvRole::Sender, Err(AbortReason::Cancelled))).unwrap();
    assert!(!withdrawn.is_open() && withdrawn.is_failed(), "by the sender");

    // What is not open takes no answer.
    for mut closed in [answered, ended, withdrawn] {
        let before = closed;
        closed.answer(8, staged());
        closed.refuse(RndvError::Failed(Failure::Unsupported));
        assert_eq!(closed, before);
    }
}

#[test]
fn a_note_names_its_sender() {
    let (id, seq) = (ID, 0);
    for note in [RndvMsg::Offer { id, len: 1 }, RndvMsg::Filled { id, seq }] {
        assert_eq!(note.from(), RndvRole::Sender, "{note:?}");
    }
    for note in [RndvMsg::Ready { id, target: staged() }, RndvMsg::Credit { id, seq }] {
        assert_eq!(note.from(), RndvRole::Receiver, "{note:?}");
    }
    for from in [RndvRole::Sender, RndvRole::Receiver] {
        assert_eq!(end(from, Ok(())).from(), from);
    }
    assert_eq!(Sender::new(ID, 1).id(), ID);
}

/// What is written can be read, and nothing is written that does not fit.
#[test]
fn every_note_survives_the_wire() {
    let (id, seq) = (ID, 9);
    let mut notes = vec![
        RndvMsg::Offer { id, len: 1 << 40 },
        RndvMsg::Ready { id, target: staged() },
        RndvMsg::Ready { id, target: RecvTarget::direct(area(5)) },
        RndvMsg::Filled { id, seq },
        RndvMsg::Credit { id, seq },
        end(RndvRole::Sender, Ok(())),
    ];
    let whys = [
        AbortReason::Cancelled,
        AbortReason::DeadlineExceeded,
        AbortReason::TooLong { capacity: 4 },
        AbortReason::Failed,
        AbortReason::Closing,
        AbortReason::Unknown { code: 77, detail: 3 },
    ];
    notes.extend(whys.map(|why| end(RndvRole::Receiver, Err(why))));
    for note in notes {
        let len = rndv_len(&note);
        let mut bytes = [0; 64];
        for capacity in 0..len {
            let mut out = Writer::new(bytes.get_mut(..capacity).unwrap());
            let e = emit_rndv(&note, &mut out).expect_err("it does not fit");
            assert!(matches!(e.kind, WireErrorKind::NoSpace { .. }), "{note:?} in {capacity}: {e}");
        }
        let mut out = Writer::new(&mut bytes);
        emit_rndv(&note, &mut out).unwrap();
        assert_eq!(out.written() as usize, len, "{note:?}");
        assert_eq!(parse_rndv(&mut Reader::new(bytes.get(..len).unwrap(), 0)), Ok(note));
    }
}

/// A place of another length than the message is refused before the peer is notified.
#[test]
fn a_direct_place_fits_or_is_refused() {
    let mut r = Receiver::new(ID, 8);
    r.answer(9, RecvTarget::direct(area(9)));
    assert_eq!(sent_notes(&mut r), [end(RndvRole::Receiver, Err(AbortReason::Failed))]);
}

#[test]
fn a_copy_that_fails_ends_the_message_and_an_unrequested_one_is_nothing() {
    let mut r = Receiver::new(ID, 8);
    r.answer(8, staged());
    assert!(matches!(r.poll(), Some(ReceiverOutput::Send(RndvMsg::Ready { .. }))));
    let before = r;
    r.copied(Ok(()));
    assert_eq!(r, before, "no copy runs");
    r.receive(&RndvMsg::Filled { id: ID, seq: 0 }).unwrap();
    assert!(matches!(r.poll(), Some(ReceiverOutput::Copy(_))));
    r.copied(Err(Failure::Unsupported));
    assert!(r.is_failed());
    assert_eq!(sent_notes(&mut r), [end(RndvRole::Receiver, Err(AbortReason::Failed))]);
}

#[test]
fn a_refusal_is_reported_to_both() {
    let mut r = Receiver::new(ID, 8);
    r.refuse(RndvError::Here(AbortReason::Closing));
    assert!(r.is_failed() && !r.is_open());
    assert_eq!(
        r.poll(),
        Some(ReceiverOutput::Send(end(RndvRole::Receiver, Err(AbortReason::Closing))))
    );
    assert_eq!(r.poll(), Some(ReceiverOutput::Ended(Err(RndvError::Here(AbortReason::Closing)))));
    assert_eq!(r.poll(), Some(ReceiverOutput::Free));
    assert_eq!(r.poll(), None);
}

/// A message that fills its halves exactly has no empty piece after them.
#[test]
fn pieces_of_whole_halves() {
    let mut r = Receiver::new(ID, 8);
    r.answer(8, staged());
    assert_eq!(sent_notes(&mut r), [RndvMsg::Ready { id: ID, target: staged() }]);
    for seq in 0..2 {
        r.receive(&RndvMsg::Filled { id: ID, seq }).unwrap();
        assert_eq!(sent_notes(&mut r), [RndvMsg::Credit { id: ID, seq }]);
    }
    let mut more = r;
    let third = more.receive(&RndvMsg::Filled { id: ID, seq: 2 });
    assert_eq!(third, Err(Violation::Sequence { want: 2, got: 2 }));
    r.receive(&end(RndvRole::Sender, Ok(()))).unwrap();
    assert_eq!(sent_notes(&mut r), [end(RndvRole::Receiver, Ok(()))]);
    assert!(r.is_finished());
    assert_eq!(sent(8), [(4, 64, 4), (4, 68, 4)]);
    assert_eq!(sent(7), [(4, 64, 4), (3, 68, 3)]);
    assert_eq!(sent(9), [(4, 64, 4), (4, 68, 4), (1, 64, 1)]);
}

/// The puts of a message of that length: bytes of the source, and offset and length of the target.
fn sent(len: u64) -> Vec<(u64, u64, u64)> {
    let mut s = Sender::new(ID, len);
    assert_eq!(s.poll(), Some(SenderOutput::Send(RndvMsg::Offer { id: ID, len })));
    s.receive(&RndvMsg::Ready { id: ID, target: staged() }).unwrap();
    let mut sent = Vec::new();
    while let Some(output) = s.poll() {
        if let SenderOutput::Put(put) = output {
            let target = put.target.span;
            sent.push((put.source.len(), target.offset(), target.len()));
            s.put_done(put.seq, Ok(()));
        } else if let SenderOutput::Send(RndvMsg::Filled { seq, .. }) = output {
            s.receive(&RndvMsg::Credit { id: ID, seq }).unwrap();
        }
    }
    sent
}

/// No bytes need no put, in whichever way they would travel.
#[test]
fn a_message_of_no_bytes_has_no_piece() {
    for place in [staged(), RecvTarget::direct(area(0))] {
        let mut s = Sender::new(ID, 0);
        assert_eq!(s.poll(), Some(SenderOutput::Send(RndvMsg::Offer { id: ID, len: 0 })));
        s.receive(&RndvMsg::Ready { id: ID, target: place }).unwrap();
        assert_eq!(s.poll(), Some(SenderOutput::Send(end(RndvRole::Sender, Ok(())))));
        assert_eq!(s.poll(), None);
        s.receive(&end(RndvRole::Receiver, Ok(()))).unwrap();
        assert_eq!(s.poll(), Some(SenderOutput::Ended(Ok(0))));
    }
}

/// What ended well stays so, whatever comes while its memory waits for the fence.
#[test]
fn an_end_after_the_last_word_changes_nothing() {
    let mut r = Receiver::new(ID, 8);
    r.answer(8, RecvTarget::direct(area(8)));
    assert!(matches!(r.poll(), Some(ReceiverOutput::Send(RndvMsg::Ready { .. }))));
    r.receive(&end(RndvRole::Sender, Ok(()))).unwrap();
    assert_eq!(r.poll(), Some(ReceiverOutput::Send(end(RndvRole::Receiver, Ok(())))));
    assert_eq!(r.poll(), Some(ReceiverOutput::Revoke));
    for why in [RndvError::PeerDead, RndvError::Here(AbortReason::Cancelled)] {
        let before = r;
        r.end(why);
        assert_eq!(r, before);
    }
    assert_eq!(r.poll(), Some(ReceiverOutput::Ended(Ok(8))));
    assert_eq!(r.poll(), None, "not fenced yet");
    r.fenced();
    assert_eq!(r.poll(), Some(ReceiverOutput::Free));
}

#[test]
fn offers_are_numbered_and_counted() {
    let mut i = OfferCounter::new();
    let number = |want, got| Err(Violation::Number { want: RndvId(want), got: RndvId(got) });
    assert_eq!(i.offer(RndvId(1)), number(0, 1));
    for n in 0..MAX_RNDV {
        assert_eq!(i.offer(RndvId(n)), Ok(()));
    }
    assert_eq!(i.offer(RndvId(MAX_RNDV - 1)), number(MAX_RNDV, MAX_RNDV - 1));
    let many = Err(Violation::TooMany { limit: MAX_RNDV });
    assert_eq!(i.offer(RndvId(MAX_RNDV)), many);
    i.offer_finished();
    assert_eq!(i.offer(RndvId(MAX_RNDV)), Ok(()));
}
