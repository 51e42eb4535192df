//! Two control connections that are up, with the time handed in: heartbeats, deadlines, goodbyes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

mod common;

use common::encode;
use common::link::{acceptor, acceptor_words, at, dialer_words, hand, outputs, pair};
use hmc_core::ctrl::conn::CxxPolicy;
use hmc_core::ctrl::io::{CloseReason, ControlEvent, Violation};
use hmc_core::ctrl::state::ControlState;
use hmc_core::limits::{
    FRAME_DEADLINE_NS, HEARTBEAT_NS, MAX_FRAME_BYTES, MAX_HELLO_BYTES, PEER_DEAD_NS,
};
use hmc_core::time::{Duration, Instant};
use hmc_core::types::Rank;
use hmc_core::wire::cxx::Protocol;
use hmc_core::wire::hello::Hello;
use hmc_core::wire::message::ControlMessage;

#[test]
fn a_peer_is_connected_when_its_hello_was_accepted() {
    let (d, l) = pair(&dialer_words(), &acceptor_words(), 0);
    assert_eq!(d.peer().unwrap().rank, Rank(1));
    assert_eq!(l.peer().unwrap().rank, Rank(2));
    assert_eq!(l.peer().unwrap().protocol, Protocol::Native);
    assert_eq!(d.heartbeat().as_nanos(), HEARTBEAT_NS);
    assert_eq!(d.frame_limit(), MAX_FRAME_BYTES);
    assert_eq!(acceptor(CxxPolicy::Refused, 0).frame_limit(), MAX_HELLO_BYTES);
}

/// The beats of an idle link in 100 periods, both ends together.
fn beats(spread: u64) -> usize {
    let (mut a, mut b) = pair(&dialer_words(), &acceptor_words(), 0);
    a.spread_beats(spread);
    b.spread_beats(spread);
    let mut pings = 0;
    for step in 1..=1000u64 {
        let now = step * HEARTBEAT_NS / 10;
        for (x, y) in [(true, false), (false, true)] {
            let (from, to) = if x && !y { (&mut a, &mut b) } else { (&mut b, &mut a) };
            from.tick(at(now));
            let mut frames = outputs(from).frames;
            while let Some(f) = frames.pop() {
                pings += 1;
                assert_eq!(hand(to, &f, now), Ok(None), "beats are not told to the owner");
                for f in outputs(to).frames {
                    assert_eq!(hand(from, &f, now), Ok(None));
                }
            }
        }
    }
    assert_eq!((a.state(), b.state()), (ControlState::Ready, ControlState::Ready));
    pings
}

#[test]
fn an_idle_link_beats_and_lives() {
    let pings = beats(1);
    assert!((99..=102).contains(&pings), "one beat a period for both ends together: {pings}");
}

#[test]
fn an_end_with_many_peers_on_its_system_beats_less_often() {
    for (spread, least) in [(0, 99), (2, 48), (3, 32), (4, 32), (u64::MAX, 32)] {
        let pings = beats(spread);
        assert!((least..=least + 3).contains(&pings), "{pings} beats with {spread}");
    }
    // A shorter time is told to the driver at once.
    let (mut a, _) = pair(&dialer_words(), &acceptor_words(), 0);
    a.spread_beats(3);
    a.tick(at(1));
    assert_eq!(outputs(&mut a).wake, Some(at(3 * HEARTBEAT_NS)));
    a.spread_beats(1);
    assert_eq!(outputs(&mut a).wake, Some(at(HEARTBEAT_NS)));
}

/// The time in which this end was not run is not counted as the peer's silence, and no more than that time is excused.
#[test]
fn time_that_an_end_was_not_run_is_not_its_peers_silence() {
    let (mut a, _) = pair(&dialer_words(), &acceptor_words(), 0);
    let late = Duration::from_nanos(PEER_DEAD_NS - 10);
    assert!(a.is_due_to_end(at(PEER_DEAD_NS)));
    a.excuse(late, at(PEER_DEAD_NS));
    assert!(!a.is_due_to_end(at(PEER_DEAD_NS + late.as_nanos() - 1)));
    assert!(a.is_due_to_end(at(PEER_DEAD_NS + late.as_nanos())));
    // Of later than now nothing is excused.
    a.excuse(Duration::from_nanos(u64::MAX), at(PEER_DEAD_NS));
    assert!(!a.is_due_to_end(at(2 * PEER_DEAD_NS - 1)) && a.is_due_to_end(at(2 * PEER_DEAD_NS)));
    // A frame that was begun too.
    a.on_received(Some(at(0)), at(2 * PEER_DEAD_NS));
    a.excuse(Duration::from_nanos(7), at(2 * PEER_DEAD_NS));
    a.on_received(Some(at(0)), at(FRAME_DEADLINE_NS));
    assert!(a.is_due_to_end(at(FRAME_DEADLINE_NS)));
    a.excuse(Duration::from_nanos(7), at(FRAME_DEADLINE_NS));
    let end = FRAME_DEADLINE_NS + 7;
    assert!(!a.is_due_to_end(at(end - 1)) && a.is_due_to_end(at(end)));
}

#[test]
fn traffic_counts_as_beats() {
    let (mut a, _) = pair(&dialer_words(), &acceptor_words(), 0);
    for step in 1..=100u64 {
        let now = step * HEARTBEAT_NS / 2;
        a.on_sent(at(now));
        a.on_received(None, at(now));
        a.tick(at(now));
        assert!(outputs(&mut a).frames.is_empty());
    }
}

#[test]
fn a_silent_peer_is_dead_after_two_and_a_half_seconds_and_not_before() {
    let (mut a, _) = pair(&dialer_words(), &acceptor_words(), 0);
    assert_eq!(a.ends_at(), at(PEER_DEAD_NS));
    a.tick(at(PEER_DEAD_NS - 1));
    let o = outputs(&mut a);
    assert_eq!((a.state(), o.close), (ControlState::Ready, None));
    a.tick(at(PEER_DEAD_NS));
    assert_eq!(outputs(&mut a).close, Some(CloseReason::Silent));
    a.tick(at(PEER_DEAD_NS + 1));
    let o = outputs(&mut a);
    assert!(o.close.is_none() && o.wake.is_none() && o.frames.is_empty(), "told once");
    assert_eq!(a.ends_at(), Instant::NEVER);
    assert_eq!(a.close_reason(), Some(CloseReason::Silent));
}

#[test]
fn heartbeats_stop_only_when_both_ends_agree() {
    let off = |h: Hello<'static>| Hello { heartbeat: Duration::ZERO, ..h };
    let (a, b) = pair(&off(dialer_words()), &off(acceptor_words()), 0);
    assert_eq!((a.next_deadline(), b.next_deadline()), (Instant::NEVER, Instant::NEVER));
    let (a, b) = pair(&off(dialer_words()), &acceptor_words(), 0);
    assert_eq!(
        (a.heartbeat(), b.heartbeat()),
        (Duration::from_millis(500), Duration::from_millis(500))
    );
}

#[test]
fn the_wake_up_is_reported_again_only_when_it_moves_forward_in_time() {
    let (mut a, _) = pair(&dialer_words(), &acceptor_words(), 0);
    a.tick(at(1));
    assert_eq!(outputs(&mut a).wake, Some(at(HEARTBEAT_NS)));
    a.on_sent(at(1000));
    assert_eq!(outputs(&mut a).wake, None, "a timer that fires early does no harm");
    a.tick(at(HEARTBEAT_NS));
    assert_eq!(outputs(&mut a).wake, Some(at(HEARTBEAT_NS + 1000)));
}

#[test]
fn a_frame_that_was_begun_has_five_seconds() {
    let (mut a, _) = pair(&dialer_words(), &acceptor_words(), 0);
    // One byte a second keeps the peer alive, but not its frame.
    let began = 1_000;
    for s in 0..=5u64 {
        let now = began + s * 1_000_000_000;
        a.tick(at(now));
        assert_eq!(a.state(), if s < 5 { ControlState::Ready } else { ControlState::Closed });
        a.on_received(Some(at(began)), at(now));
        outputs(&mut a);
    }
    assert_eq!(a.close_reason(), Some(CloseReason::FrameDeadline));
    let (mut a, _) = pair(&dialer_words(), &acceptor_words(), 0);
    a.on_received(Some(at(began)), at(began));
    a.on_received(None, at(began + FRAME_DEADLINE_NS - 1));
    a.tick(at(began + FRAME_DEADLINE_NS));
    assert_eq!(a.state(), ControlState::Ready, "the frame was finished in time");
}

#[test]
fn bye_is_sent_by_both() {
    let (mut a, mut b) = pair(&dialer_words(), &acceptor_words(), 0);
    a.bye(at(9_000), at(10)).unwrap();
    let bye = outputs(&mut a);
    assert_eq!(bye.frames, [encode(&ControlMessage::Bye)]);
    assert_eq!(a.state(), ControlState::Draining);
    // What b had sent before still comes through.
    let tag = encode(&ControlMessage::Tag(3));
    assert_eq!(hand(&mut a, &tag, 20), Ok(Some(ControlEvent::Deliver(ControlMessage::Tag(3)))));
    assert_eq!(hand(&mut b, &bye.frames[0], 20), Ok(Some(ControlEvent::PeerBye)));
    // b finishes what it posted; a may still take windows back.
    let revoke = encode(&ControlMessage::Revoke {
        window: hmc_core::region::WindowId(1),
        epoch: hmc_core::region::Epoch(1),
    });
    assert!(matches!(hand(&mut b, &revoke, 25), Ok(Some(ControlEvent::Deliver(_)))));
    b.bye(at(9_000), at(30)).unwrap();
    let o = outputs(&mut b);
    assert_eq!(o.frames, [encode(&ControlMessage::Bye)]);
    assert_eq!(o.close, Some(CloseReason::Orderly));
    assert_eq!(hand(&mut a, &o.frames[0], 40), Ok(Some(ControlEvent::Finished)));
    assert_eq!(outputs(&mut a).close, Some(CloseReason::Orderly));
    assert_eq!(a.eof(), CloseReason::Orderly, "the first reason stays");
}

#[test]
fn crossing_goodbyes_end_both() {
    let (mut a, mut b) = pair(&dialer_words(), &acceptor_words(), 0);
    a.bye(at(9_000), at(1)).unwrap();
    b.bye(at(9_000), at(1)).unwrap();
    let (fa, fb) = (outputs(&mut a).frames, outputs(&mut b).frames);
    assert_eq!(hand(&mut b, &fa[0], 2), Ok(Some(ControlEvent::Finished)));
    assert_eq!(hand(&mut a, &fb[0], 2), Ok(Some(ControlEvent::Finished)));
}

#[test]
fn a_goodbye_that_is_not_answered_ends_by_its_deadline() {
    let (mut a, _) = pair(&dialer_words(), &acceptor_words(), 0);
    a.bye(at(1_000_000), at(1)).unwrap();
    a.tick(at(999_999));
    assert_eq!(a.state(), ControlState::Draining);
    a.bye(at(1_500_000), at(2)).unwrap();
    a.tick(at(1_000_000));
    assert_eq!(a.close_reason(), Some(CloseReason::DrainDeadline), "the earlier deadline counts");
}

#[test]
fn tags_after_a_goodbye_are_a_violation() {
    let (_, mut b) = pair(&dialer_words(), &acceptor_words(), 0);
    hand(&mut b, &encode(&ControlMessage::Bye), 1).unwrap();
    let tag = encode(&ControlMessage::Tag(1));
    assert!(
        matches!(hand(&mut b, &tag, 2), Err(Violation::Unexpected(u)) if u.state == ControlState::Leaving)
    );
}

#[test]
fn an_end_of_stream_is_death_unless_both_ends_sent_bye() {
    let (mut a, mut b) = pair(&dialer_words(), &acceptor_words(), 0);
    assert_eq!(a.eof(), CloseReason::Eof);
    assert_eq!(outputs(&mut a).close, Some(CloseReason::Eof));
    hand(&mut b, &encode(&ControlMessage::Bye), 1).unwrap();
    assert_eq!(b.eof(), CloseReason::Orderly);
}

#[test]
fn many_pings_get_one_answer_to_the_last() {
    let (mut a, _) = pair(&dialer_words(), &acceptor_words(), 0);
    for n in 0..100 {
        assert_eq!(hand(&mut a, &encode(&ControlMessage::Ping(n)), 1), Ok(None));
    }
    assert_eq!(outputs(&mut a).frames, [encode(&ControlMessage::Pong(99))]);
}
