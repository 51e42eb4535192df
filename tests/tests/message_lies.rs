//! Receivers of messages that lie about their end: the sender never takes a lie for success. Where the note may not come, the
//! link ends and the message fails as `PeerDead` with the rule that was broken; others are not disturbed.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::Duration;

use hmc_core::rndv::{AbortReason, RecvTarget, RndvId, RndvMode, RndvMsg, RndvRole};
use hmc_std::{Address, Done, ErrorKind, Op, Region, Session, Span};
use hmc_tests::env::until;
use hmc_tests::receiver::{Receiver, Sender, area};

const LONG: Duration = Duration::from_secs(20);
const LEN: u64 = 5000;

/// What a lie is about: the receiver has received the offer of message `id`.
type Lie = fn(&mut Receiver, RndvId);

/// The sender offers a message of [`LEN`] bytes to a new receiver, which does `act`. The region that it sends from, and what
/// becomes of the message.
fn sends(sender: &mut Sender, act: Lie) -> (Receiver, Region, Op<Span>) {
    let mut receiver = sender.receiver();
    let region = sender.session.memory().allocate(LEN).unwrap();
    let send = receiver.peer.send_data(region.take_all().unwrap()).start().unwrap();
    let (id, len) = receiver.offer();
    assert_eq!(len, LEN);
    act(&mut receiver, id);
    (receiver, region, send)
}

/// The sender of a message by hand takes honest peers as before.
fn assert_serves(sender: &Sender) {
    let honest = Session::builder(4000).start().unwrap();
    let address: Address = sender.dir().address();
    let peer = honest.connect(&address).rank(0).wait().unwrap();
    let back = sender.session.accept(4000).within(LONG).wait().unwrap();
    std::thread::scope(|s| {
        let sent = s.spawn(|| back.send_data(b"as before").wait());
        let mut got = [0; 9];
        assert_eq!(peer.recv_data(&mut got).wait().map(|d| d.bytes).unwrap(), 9);
        assert_eq!(&got, b"as before");
        sent.join().unwrap().unwrap();
    });
}

fn halves() -> RecvTarget {
    RecvTarget::staged(area(0, 8192)).expect("two halves")
}

fn well(from: RndvRole, id: RndvId) -> RndvMsg {
    RndvMsg::End { id, from, how: Ok(()) }
}

#[test]
fn an_end_that_may_not_come_is_no_success_and_ends_the_link() {
    let mut sender = Sender::new();
    let too_soon = "a note of a message came that may not come now";
    let lies: [(&str, &str, Lie); 12] = [
        ("before it has a place", too_soon, |r, id| r.end(id, Ok(()))),
        ("before a byte was received", too_soon, |r, id| {
            r.ready(id, LEN);
            r.end(id, Ok(()));
        }),
        ("before the put was acknowledged", too_soon, |r, id| {
            r.ready(id, LEN);
            r.take(LEN, false);
            r.end(id, Ok(()));
        }),
        ("before the last half was put", too_soon, |r, id| {
            r.send(RndvMsg::Ready { id, target: halves() });
            r.take(4096, true);
            assert_eq!(r.receive(), RndvMsg::Filled { id, seq: 0 });
            r.end(id, Ok(()));
        }),
        ("before the halves were copied", too_soon, |r, id| {
            r.send(RndvMsg::Ready { id, target: halves() });
            r.take(LEN, true);
            assert_eq!(r.receive(), RndvMsg::Filled { id, seq: 0 });
            assert_eq!(r.receive(), RndvMsg::Filled { id, seq: 1 });
            assert_eq!(r.receive(), well(RndvRole::Sender, id));
            r.end(id, Ok(()));
        }),
        ("of a half that was not put", "piece 0 of a message came", |r, id| {
            r.send(RndvMsg::Ready { id, target: halves() });
            r.send(RndvMsg::Credit { id, seq: 0 });
        }),
        ("of a message that was never sent", "there is no message 7", |r, _| {
            r.end(RndvId(7), Ok(()));
        }),
        ("in the sender's name", "there is no message 0", |r, id| {
            r.send(well(RndvRole::Sender, id))
        }),
        ("a place for more bytes", "5001 bytes of space for a message of 5000", |r, id| {
            r.ready(id, LEN + 1);
        }),
        ("a place for fewer bytes", "4999 bytes of space for a message of 5000", |r, id| {
            r.ready(id, LEN - 1);
        }),
        ("a second place", too_soon, |r, id| {
            r.ready(id, LEN);
            r.ready(id, LEN);
        }),
        ("a credit where there are no halves", too_soon, |r, id| {
            r.ready(id, LEN);
            r.send(RndvMsg::Credit { id, seq: 0 });
        }),
    ];
    for (what, rule, lie) in lies {
        let lost = sender.session.stats().peers_lost;
        let (receiver, region, send) = sends(&mut sender, lie);
        let failed = send.wait().expect_err(what);
        let error = failed.error();
        assert_eq!(error.kind(), ErrorKind::PeerDead, "{what}: {error}");
        assert_eq!(error.peer(), Some(receiver.rank()), "{what}: {error}");
        let text = error.to_string();
        assert!(text.contains("broke the protocol") && text.contains(rule), "{what}: {text}");
        drop(failed);
        until("its memory is back", LONG, || region.take_all().ok());
        until("its link is over", LONG, || (!receiver.peer.is_connected()).then_some(()));
        until("it has hung up", LONG, || receiver.rogue.is_over().then_some(()));
        let counted = || (sender.session.stats().peers_lost == lost + 1).then_some(());
        until("the loss is counted", LONG, counted);
    }
    assert_serves(&sender);
}

/// "Well" with a number beside it is a reason that nobody knows, and no success: the message fails, the link goes on.
#[test]
fn an_end_that_claims_another_length_is_a_failure() {
    let mut sender = Sender::new();
    for length in [LEN - 1, LEN + 1, u64::MAX] {
        let mut receiver = sender.receiver();
        let region = sender.session.memory().allocate(LEN).unwrap();
        for _ in 0..2 {
            let send = receiver.peer.send_data(region.take_all().unwrap()).start().unwrap();
            let (id, _) = receiver.offer();
            receiver.ready(id, LEN);
            receiver.take(LEN, true);
            assert_eq!(receiver.receive(), well(RndvRole::Sender, id));
            receiver.end(id, Err(AbortReason::Unknown { code: 0, detail: length }));
            let failed = send.wait().expect_err("a lie");
            let error = failed.error();
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert_eq!(error.peer(), Some(receiver.rank()), "{error}");
            assert!(error.to_string().contains("ended by the peer: reason 0"), "{error}");
            drop(failed.reclaim().within(Duration::ZERO).wait().expect("all puts have ended"));
        }
        assert!(receiver.peer.is_connected());
    }
    assert_serves(&sender);
}

/// What went well stays so, and counts once.
#[test]
fn an_end_that_comes_twice_ends_the_link_after_the_message() {
    for mode in [RndvMode::Direct, RndvMode::Staged] {
        let mut sender = Sender::new();
        let (mut receiver, region, send) = sends(&mut sender, |_, _| ());
        let id = RndvId(0);
        if mode == RndvMode::Direct {
            receiver.ready(id, LEN);
            receiver.take(LEN, true);
        } else {
            receiver.send(RndvMsg::Ready { id, target: halves() });
            receiver.take(LEN, true);
            for seq in 0..2 {
                assert_eq!(receiver.receive(), RndvMsg::Filled { id, seq });
                receiver.send(RndvMsg::Credit { id, seq });
            }
        }
        assert_eq!(receiver.receive(), well(RndvRole::Sender, id));
        receiver.end(id, Ok(()));
        let Done { bytes, memory: span } = send.wait().expect("it went well");
        assert_eq!((bytes, span.len()), (LEN, LEN), "{mode:?}");
        drop(span);
        // The next message is under way when the lie comes.
        let next = receiver.peer.send_data(region.take_all().unwrap()).start().unwrap();
        assert_eq!(receiver.offer(), (RndvId(1), LEN));
        receiver.end(id, Ok(()));
        let failed = next.wait().expect_err("its link is over");
        let error = failed.error();
        assert_eq!(error.kind(), ErrorKind::PeerDead, "{error}");
        assert!(error.to_string().contains("there is no message 0"), "{error}");
        drop(failed);
        until("its memory is back", LONG, || region.take_all().ok());
        assert_serves(&sender);
    }
}
