//! The control half of a link between two ends that no thread touches.

#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

use hmc_core::limits::FRAMER_INITIAL_BYTES;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::time::{Duration, Instant};
use hmc_core::types::ConnType;
use hmc_core::wire::message::ControlMessage;
use rustix::io::Errno;

use super::CtrlState;
use super::machine::Ended;
use crate::base::clock;
use crate::base::error::ErrorKind;
use crate::link::ends::{End, INBOX, pair, pair_that_beats};
use crate::link::received::Received;
use crate::node::inbox::{Message, Wanted};
use hmc_core::transport::Readiness;

const NOW: Instant = Instant::ZERO;

/// Sends zeros until the system takes no more.
fn fill(end: &End) {
    while end.link.ctrl_socket().send(&[0; 4096]).is_ok() {}
}

fn ended(ctrl: &CtrlState) -> Option<(bool, bool, String)> {
    ctrl.machine.ended().map(|Ended { eof, unread, text }| (eof, unread, text))
}

/// Whether it waits for space to send.
fn awaits_space(ctrl: &CtrlState) -> bool {
    ctrl.machine.wants().write
}

#[test]
fn what_the_leader_receives_is_not_registered() {
    let (near, _far) = pair(ConnType::Tcp);
    let mut ctrl = near.link.ctrl();
    let wanted = |read, write, end| Readiness { read, write, end };
    assert_eq!(
        (ctrl.machine.wants(), ctrl.interest()),
        (wanted(true, false, false), ctrl.machine.wants())
    );
    ctrl.set_claimed(true);
    assert_eq!(ctrl.interest(), wanted(false, false, false), "its waiter reads");
    ctrl.machine.await_space();
    assert_eq!(ctrl.interest(), wanted(false, true, false));
    ctrl.machine.begin_poll();
    ctrl.machine.pause(true);
    assert_eq!(ctrl.interest(), wanted(false, false, false));
    ctrl.set_claimed(false);
    assert_eq!(ctrl.interest(), wanted(false, false, true), "its end is not seen so");
}

#[test]
fn a_message_has_left_when_the_system_took_it_and_does_not_hold_it_back() {
    let (near, _far) = pair(ConnType::Tcp);
    {
        let mut ctrl = near.link.ctrl();
        ctrl.machine.transmitted_of(&[0; 10], Ok(10));
        assert!(ctrl.has_left(9) && ctrl.has_left(10));
        ctrl.holds_back = true;
        assert!(ctrl.has_left(10) && !awaits_space(&ctrl));
        assert!(!ctrl.has_left(11) && awaits_space(&ctrl), "it has to be sent first");
        assert!(ctrl.machine.begin_poll() && !awaits_space(&ctrl), "who waits looks again");
    }
    fill(&near);
    let mut ctrl = near.link.ctrl();
    assert!(!ctrl.has_left(10) && awaits_space(&ctrl), "somebody waits for the system");
    ctrl.holds_back = false;
    assert!(ctrl.has_left(10));
}

#[test]
fn nothing_of_the_protocol_is_queued_behind_bytes_that_wait() {
    let (near, far) = pair(ConnType::Tcp);
    let window = |n| (WindowId(n), Epoch(1));
    {
        let mut ctrl = near.link.ctrl();
        assert_eq!(ctrl.send_all_if_idle([1, 2].map(ControlMessage::Int32).into_iter(), NOW), 2);
        ctrl.send_release(window(1).0, window(1).1, NOW);
        assert!(!ctrl.machine.answer(NOW), "sent at once");
        assert!(!awaits_space(&ctrl));
    }
    far.run_until_idle();
    let first = [(); 2].map(|()| far.link.inbox().take(Wanted::Any));
    assert_eq!(first, [1, 2].map(|n| Some(Message::Int(n))));
    let whole = {
        let mut ctrl = near.link.ctrl();
        // A frame that the system took half of.
        ctrl.machine.queue(&ControlMessage::Struct(&[7; 300_000])).expect("space");
        let whole = ctrl.machine.unsent.len();
        ctrl.flush(NOW);
        let left = ctrl.machine.transmit().len();
        assert!(left != 0 && left < whole);
        assert_eq!(ctrl.send_all_if_idle([3, 4].map(ControlMessage::Int32).into_iter(), NOW), 0);
        ctrl.send_release(window(2).0, window(2).1, NOW);
        assert_eq!(ctrl.machine.transmit().len(), left);
        assert!(
            ctrl.send_out(&ControlMessage::Tag(1), NOW).is_err_and(|e| e.kind() == ErrorKind::Full)
        );
        whole
    };
    assert!(whole > 300_000);
    let mut received = Received::default();
    while awaits_space(&near.link.ctrl()) {
        far.link.poll_ctrl(false);
        let before = std::mem::take(&mut received.space);
        near.link.ctrl().poll(clock::now(), &near.link, &mut received);
        received.space |= before;
    }
    assert!(received.space, "who waited for space looks again");
    assert!(!near.link.ctrl().machine.answer(NOW), "the release ack is sent");
    far.run_until_idle();
    assert_eq!(far.link.inbox().take(Wanted::Any), Some(Message::bytes(vec![7; 300_000])));
    assert_eq!(far.link.inbox().len(), 0, "what was refused was not sent");
}

#[test]
fn a_message_that_the_system_takes_half_of_is_on_its_way() {
    let (near, far) = pair(ConnType::Tcp);
    let mut ctrl = near.link.ctrl();
    let m = ControlMessage::Struct(&[7; 1_000_000]);
    let mark = ctrl.send_out(&m, NOW).expect("some of it").expect("not all of it");
    assert_eq!(mark, u64::try_from(m.emitted_len()).expect("small"), "all that was given");
    let taken = ctrl.machine.taken();
    assert!(taken > 0 && taken < mark);
    assert!(ctrl.send_out(&ControlMessage::Tag(1), NOW).is_err());
    assert!(awaits_space(&ctrl), "its sender waits");
    // A peer that is gone takes nothing, and that is no reason to wait.
    drop(far);
    ctrl.flush(NOW);
    assert!(ended(&ctrl).is_some());
    assert!(ctrl.send_out(&ControlMessage::Tag(1), NOW).is_ok());
}

#[test]
fn a_new_connection_has_storage_for_first_words() {
    assert_eq!(CtrlState::new_framer().capacity(), FRAMER_INITIAL_BYTES);
}

#[test]
fn a_poll_reads_all_that_has_come_however_long() {
    let (near, far) = pair(ConnType::Tcp);
    let bytes = [7; 1300];
    assert!(bytes.len() > FRAMER_INITIAL_BYTES);
    for _ in 0..3 {
        far.link.send(&ControlMessage::Struct(&bytes)).expect("sent");
    }
    assert!(near.link.poll_ctrl(true));
    assert_eq!((near.link.inbox().len(), near.link.ctrl().machine.is_paused()), (3, false));
    assert!(!near.link.poll_ctrl(true));
}

#[test]
fn the_end_of_a_peer_is_seen_behind_messages_that_wait_for_space() {
    let (near, far) = pair(ConnType::Tcp);
    for n in 0..INBOX.0 + 1 {
        far.link.send(&ControlMessage::Tag(u64::try_from(n).expect("small"))).expect("sent");
    }
    near.link.poll_ctrl(true);
    assert!(near.link.ctrl().machine.is_paused() && ended(&near.link.ctrl()).is_none());
    far.link.ctrl_socket().shutdown();
    let mut received = Received::default();
    near.link.ctrl().poll(clock::now(), &near.link, &mut received);
    let (eof, unread, _) = ended(&near.link.ctrl()).expect("it is seen");
    assert!(eof && unread && near.link.inbox().len() == INBOX.0);
    near.link.ctrl().poll(clock::now(), &near.link, &mut received);
    assert_eq!(near.link.inbox().len(), INBOX.0 + 1, "what had come before is delivered");
    let (eof, unread, _) = ended(&near.link.ctrl()).expect("it is over");
    assert!(eof && !unread);
}

#[test]
fn silence_ends_a_connection_unless_bytes_have_come_or_nothing_is_read() {
    let dead = Duration::from_millis(60_000);
    let ms = Duration::from_millis(100);
    for (tag, paused, ends) in [(false, false, true), (true, false, false), (false, true, false)] {
        let (near, far) = pair_that_beats(ms);
        assert_eq!(near.link.ctrl().machine.heartbeat(), ms);
        let by = near.link.ctrl().machine.ends_at();
        assert!(by < clock::now().after(dead), "it has a time");
        if tag {
            far.link.send(&ControlMessage::Tag(1)).expect("sent");
        }
        let mut received = Received::default();
        let mut ctrl = near.link.ctrl();
        ctrl.machine.pause(paused);
        ctrl.tick(Instant::from_nanos(by.as_nanos() - 1), &near.link, &mut received);
        assert!(ended(&ctrl).is_none());
        let by = ctrl.machine.ends_at();
        ctrl.tick(by, &near.link, &mut received);
        assert_eq!(ended(&ctrl).is_some(), ends, "tag {tag}, paused {paused}");
        assert!(ends || ctrl.machine.ends_at() > by);
    }
}

#[test]
fn heartbeats_through_memory_count_as_sent_and_those_of_the_peer_as_received() {
    let ms = Duration::from_millis(100);
    for received in [false, true] {
        let (near, far) = pair_that_beats(ms);
        let by = near.link.ctrl().machine.ends_at();
        let later = clock::now().after(ms);
        near.link.ctrl().machine.note_beat(received, later);
        assert_eq!(near.link.ctrl().machine.ends_at() > by, received);
        // Nothing has to be sent before the next period is over.
        let mut h = Received::default();
        near.link.ctrl().tick(later, &near.link, &mut h);
        assert_eq!(far.link.ctrl_socket().recv(&mut [0; 64]), Err(Errno::AGAIN));
        near.link.ctrl().machine.adapt_deadlines(ms, 1, later);
        assert!(near.link.ctrl().machine.ends_at() > by, "time in which it was not run");
    }
}
