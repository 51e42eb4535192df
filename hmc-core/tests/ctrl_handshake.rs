//! The first words of a control connection: who is accepted, who is refused and what it learns.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

mod common;

use common::link::{acceptor, acceptor_words, at, dialer_words, hand, outputs};
use common::{HELLO_OF_VERSION_1, TOKEN, encode, unhex};
use hmc_core::ctrl::conn::{ControlConn, CxxPolicy};
use hmc_core::ctrl::io::{CloseReason, CommandError, ControlEvent, Violation};
use hmc_core::ctrl::state::ControlState;
use hmc_core::limits::HELLO_DEADLINE_NS;
use hmc_core::time::Instant;
use hmc_core::types::Rank;
use hmc_core::wire::advert::EndpointBlob;
use hmc_core::wire::cursor::WireErrorKind;
use hmc_core::wire::cxx::Protocol;
use hmc_core::wire::hello::{EndpointList, Hello, MAX_ENDPOINT_LIST_BYTES};
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::reject::RejectReason;

#[test]
fn pending_connections_have_two_seconds() {
    let mut l = acceptor(CxxPolicy::Refused, 100);
    assert_eq!(outputs(&mut l).wake, Some(at(100 + HELLO_DEADLINE_NS)));
    // Trickling bytes does not help.
    l.on_received(Some(at(100)), at(HELLO_DEADLINE_NS));
    l.tick(at(99 + HELLO_DEADLINE_NS));
    assert_eq!(outputs(&mut l).close, None);
    l.tick(at(100 + HELLO_DEADLINE_NS));
    assert_eq!(outputs(&mut l).close, Some(CloseReason::HelloDeadline));
    let mut d = ControlConn::dial(&dialer_words(), at(0)).unwrap();
    outputs(&mut d);
    d.tick(at(HELLO_DEADLINE_NS));
    assert_eq!(outputs(&mut d).close, Some(CloseReason::HelloDeadline));
}

#[test]
fn a_refusal_reaches_the_dialer_with_its_reason() {
    for why in [
        RejectReason::Duplicate,
        RejectReason::Busy,
        RejectReason::Stale { seen: hmc_core::types::Incarnation(7) },
    ] {
        let mut d = ControlConn::dial(&dialer_words(), at(0)).unwrap();
        let mut l = acceptor(CxxPolicy::Refused, 0);
        let first = outputs(&mut d).frames.remove(0);
        hand(&mut l, &first, 0).unwrap();
        l.reject(why).unwrap();
        let o = outputs(&mut l);
        assert_eq!(o.close, Some(CloseReason::Rejected(why)));
        assert_eq!(hand(&mut d, &o.frames[0], 1), Ok(Some(ControlEvent::Refused(why))));
        assert_eq!(outputs(&mut d).close, Some(CloseReason::Refused(why)));
    }
}

/// What an acceptor answers to a HELLO: the violation, and the reason that the dialer learns.
fn answer(first: &[u8]) -> (Violation, Option<RejectReason>) {
    let mut l = acceptor(CxxPolicy::Refused, 0);
    let v = hand(&mut l, first, 0).unwrap_err();
    let o = outputs(&mut l);
    assert_eq!(o.close, Some(CloseReason::Violation(v)));
    let why = o.frames.first().map(|f| {
        let mut d = ControlConn::dial(&dialer_words(), at(0)).unwrap();
        match hand(&mut d, f, 0) {
            Ok(Some(ControlEvent::Refused(why))) => why,
            other => panic!("{other:?}"),
        }
    });
    (v, why)
}

#[test]
fn rejected_dialers_get_the_reason() {
    let say = |h| encode(&ControlMessage::Hello(h));
    let (v, why) = answer(&say(Hello { job: 6, ..dialer_words() }));
    assert_eq!(v, Violation::WrongJob { theirs: 6, ours: 5 });
    assert_eq!(why, Some(RejectReason::WrongJob));
    let (v, why) = answer(&say(Hello { expected: Some(Rank(9)), ..dialer_words() }));
    assert_eq!(v, Violation::WrongRank { wanted: Rank(9), found: Rank(1) });
    assert_eq!(why, Some(RejectReason::WrongRank { ours: Rank(1) }));

    let mut other = say(dialer_words());
    other[13] = 7;
    let (v, why) = answer(&other);
    assert!(matches!(v, Violation::Wire(e) if e.kind == WireErrorKind::Version { theirs: 7 }));
    assert_eq!(why, Some(RejectReason::Version { ours: 2 }));
    // As a process of version 1 said it.
    let (v, why) = answer(&unhex(HELLO_OF_VERSION_1));
    assert!(matches!(v, Violation::Wire(e) if e.kind == WireErrorKind::Version { theirs: 1 }));
    assert_eq!(v.to_string(), "byte 13: the peer speaks version 1, this end version 2");
    assert_eq!(why, Some(RejectReason::Version { ours: 2 }));
    let mut other = say(dialer_words());
    other[15] = 4;
    assert_eq!(answer(&other).1, Some(RejectReason::Mandatory { unknown: 4 }));
    let mut other = say(dialer_words());
    other[23] = 1;
    assert_eq!(answer(&other).1, Some(RejectReason::BadRank { limit: 4096 }));
    // Garbage is not answered.
    let mut other = say(dialer_words());
    other[9] = 0;
    assert_eq!(answer(&other).1, None);
    assert_eq!(answer(&encode(&ControlMessage::Tag(1))).1, None);
    assert_eq!(answer(&[2, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]).1, None);
}

#[test]
fn a_dialer_that_reaches_another_rank_closes() {
    for (words, job) in [
        (Hello { rank: Rank(3), ..acceptor_words() }, false),
        (Hello { job: 8, ..acceptor_words() }, true),
    ] {
        let mut d = ControlConn::dial(&dialer_words(), at(0)).unwrap();
        outputs(&mut d);
        let welcome =
            ControlMessage::Welcome(hmc_core::wire::hello::Welcome { hello: words, token: TOKEN });
        let v = hand(&mut d, &encode(&welcome), 1).unwrap_err();
        match v {
            Violation::WrongJob { theirs: 8, ours: 5 } => assert!(job),
            Violation::WrongRank { wanted: Rank(1), found: Rank(3) } => assert!(!job),
            other => panic!("{other:?}"),
        }
        assert_eq!(d.state(), ControlState::Closed);
    }
}

#[test]
fn upstream_peers_are_refused_unless_allowed_by_name() {
    let first = [0x02, 0, 0, 0x80, 4, 0, 0, 0, 7, 0, 0, 0];
    assert_eq!(answer(&first), (Violation::CxxRefused { rank: Rank(7) }, None));
    let mut l = acceptor(CxxPolicy::Allowed, 0);
    assert_eq!(hand(&mut l, &first, 0), Ok(Some(ControlEvent::CxxHello { rank: Rank(7) })));
    l.accept_cxx().unwrap();
    assert_eq!(l.peer().unwrap().protocol, Protocol::Cxx);
    let o = outputs(&mut l);
    assert!(o.frames.is_empty(), "the C++ HMC expects no answer");
    assert_eq!(l.next_deadline(), Instant::NEVER, "the C++ HMC has no heartbeats");
    let tag = encode(&ControlMessage::Tag(9));
    assert_eq!(
        hand(&mut l, &tag, u64::MAX / 2),
        Ok(Some(ControlEvent::Deliver(ControlMessage::Tag(9))))
    );
    // It may be refused without a word, and has no goodbye.
    l.bye(at(1), at(0)).unwrap();
    let o = outputs(&mut l);
    assert_eq!((o.frames.len(), o.close), (0, Some(CloseReason::Orderly)));
    let mut l = acceptor(CxxPolicy::Allowed, 0);
    hand(&mut l, &first, 0).unwrap();
    l.reject(RejectReason::Duplicate).unwrap();
    assert!(outputs(&mut l).frames.is_empty());
}

#[test]
fn dialing_upstream_sends_its_hello_and_nothing_of_ours() {
    let mut d = ControlConn::dial_cxx(Rank(7), Rank(3), at(0)).unwrap();
    let o = outputs(&mut d);
    assert_eq!(o.frames, [[0x02, 0, 0, 0x80, 4, 0, 0, 0, 7, 0, 0, 0].to_vec()]);
    assert_eq!(d.peer().unwrap().rank, Rank(3));
    d.tick(at(u64::MAX / 2));
    assert!(outputs(&mut d).frames.is_empty());
    assert!(hand(&mut d, &encode(&ControlMessage::Ping(1)), 1).is_err());
}

#[test]
fn secondary_connections_are_bound_by_their_token() {
    let mut d = ControlConn::attach(Rank(2), TOKEN, 1, at(0)).unwrap();
    let mut l = acceptor(CxxPolicy::Refused, 0);
    let first = outputs(&mut d).frames.remove(0);
    assert_eq!(
        hand(&mut l, &first, 0),
        Ok(Some(ControlEvent::AttachReceived { rank: Rank(2), token: TOKEN, channel: 1 }))
    );
    l.accept_attach().unwrap();
    let ack = outputs(&mut l).frames.remove(0);
    assert_eq!(hand(&mut d, &ack, 1), Ok(Some(ControlEvent::Attached)));
    assert_eq!((d.state(), l.state()), (ControlState::Attached, ControlState::Attached));
    assert_eq!((d.next_deadline(), l.next_deadline()), (Instant::NEVER, Instant::NEVER));
}

#[test]
fn each_kind_of_hello_has_its_own_command() {
    let mut l = acceptor(CxxPolicy::Refused, 0);
    assert!(matches!(l.accept(&acceptor_words(), TOKEN, at(0)), Err(CommandError::Misuse(_))));
    hand(&mut l, &encode(&ControlMessage::Attach { rank: Rank(2), token: TOKEN, channel: 1 }), 0)
        .unwrap();
    assert!(matches!(l.accept(&acceptor_words(), TOKEN, at(0)), Err(CommandError::Misuse(_))));
    assert!(l.accept_cxx().is_err());
    assert_eq!(l.state(), ControlState::DecidingAttach, "a misuse changes nothing");
    l.accept_attach().unwrap();
    assert!(l.reject(RejectReason::Busy).is_err());
}

#[test]
fn an_abort_sends_nothing_more() {
    let mut d = ControlConn::dial(&dialer_words(), at(0)).unwrap();
    d.abort();
    let o = outputs(&mut d);
    assert_eq!((o.frames.len(), o.close), (0, Some(CloseReason::Aborted)));
}

/// Between its first words and the answer a dialer says nothing: no beat, no goodbye.
#[test]
fn a_dialer_is_silent_until_it_is_answered() {
    let openers = [
        ControlConn::dial(&dialer_words(), at(0)).unwrap(),
        ControlConn::attach(Rank(2), TOKEN, 1, at(0)).unwrap(),
    ];
    for mut d in openers {
        assert_eq!(outputs(&mut d).frames.len(), 1, "its first words");
        for now in [1, HELLO_DEADLINE_NS / 2, HELLO_DEADLINE_NS - 1] {
            d.tick(at(now));
            assert!(d.bye(at(now + 1), at(now)).is_err());
            assert!(outputs(&mut d).frames.is_empty());
        }
        d.tick(at(HELLO_DEADLINE_NS));
        let o = outputs(&mut d);
        assert_eq!((o.frames.len(), o.close), (0, Some(CloseReason::HelloDeadline)));
    }
}

/// The longest words that there can be fit the frames of the protocol's own.
#[test]
fn the_longest_words_fit() {
    let mut list = EndpointList::new();
    let bytes = [7; MAX_ENDPOINT_LIST_BYTES - 3];
    list.push(EndpointBlob { kind: 9, bytes: &bytes }).unwrap();
    let words = Hello { endpoints: list.endpoints(), ..dialer_words() };
    let mut d = ControlConn::dial(&words, at(0)).unwrap();
    let first = outputs(&mut d).frames.remove(0);
    let mut l = acceptor(CxxPolicy::Refused, 0);
    hand(&mut l, &first, 0).unwrap();
    let words = Hello { endpoints: list.endpoints(), ..acceptor_words() };
    l.accept(&words, TOKEN, at(0)).unwrap();
    let welcome = outputs(&mut l).frames.remove(0);
    assert_eq!(welcome.len(), 520, "no byte is left");
    assert!(matches!(hand(&mut d, &welcome, 1), Ok(Some(ControlEvent::Connected(_)))));
}
