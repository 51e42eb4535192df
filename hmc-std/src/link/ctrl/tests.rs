//! The control half of a link between two ends that no thread touches.

#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

use hmc_core::limits::FRAMER_INITIAL_BYTES;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::time::{Duration, Instant};
use hmc_core::types::ConnType;
use hmc_core::wire::message::ControlMessage;
use rustix::io::Errno;

use super::{CtrlState, Ended};
use crate::clock;
use crate::error::ErrorKind;
use crate::link::ends::{End, INBOX, pair, pair_that_beats};
use crate::link::heard::Heard;
use crate::node::inbox::{Message, Want};
use hmc_core::transport::Readiness;

const NOW: Instant = Instant::ZERO;
/// What a sender that is never read may have waiting.
const UNSENT: usize = 4_194_304;

/// Sends zeros until the system takes no more.
fn fill(end: &End) {
    while end.link.ctrl_socket().send(&[0; 4096]).is_ok() {}
}

fn ended(ctrl: &CtrlState) -> Option<(bool, bool, String)> {
    ctrl.ended().map(|Ended { eof, unread, text }| (eof, unread, text))
}

#[test]
fn what_is_asked_of_the_kernel_follows_from_what_can_be_done() {
    let (near, _far) = pair(ConnType::Tcp);
    let mut ctrl = near.link.ctrl();
    let wanted = |read, write, end| Readiness { read, write, end };
    assert_eq!((ctrl.wants(), ctrl.interest()), (wanted(true, false, false), ctrl.wants()));
    ctrl.full = true;
    assert_eq!(ctrl.wants(), wanted(true, true, false), "somebody waits for room");
    ctrl.full = false;
    (ctrl.unsent, ctrl.sent) = (vec![0; 8], 7);
    assert_eq!(ctrl.wants(), wanted(true, true, false), "a byte waits");
    ctrl.sent = 8;
    assert_eq!(ctrl.wants(), wanted(true, false, false));
    ctrl.attend(true);
    assert_eq!(ctrl.interest(), wanted(false, false, false), "its waiter reads");
    ctrl.full = true;
    assert_eq!(ctrl.interest(), wanted(false, true, false));
    (ctrl.full, ctrl.paused) = (false, true);
    assert_eq!(ctrl.wants(), wanted(false, false, true), "nothing is read: its end is not seen so");
    assert_eq!(ctrl.interest(), wanted(false, false, false));
    ctrl.attend(false);
    assert_eq!(ctrl.interest(), wanted(false, false, true));
    ctrl.hung_up = true;
    assert_eq!(ctrl.interest(), wanted(false, false, false), "it was seen");
    ctrl.paused = false;
    ctrl.end(true, "over");
    assert_eq!(ctrl.interest(), Readiness::default());
}

#[test]
fn the_end_of_a_connection_says_whether_bytes_of_the_peer_are_left() {
    let state = || pair(ConnType::Tcp).0;
    let near = state();
    assert!(ended(&near.link.ctrl()).is_none());
    near.link.ctrl().hung_up = true;
    let text = "the peer ended the connection".to_owned();
    assert_eq!(ended(&near.link.ctrl()), Some((true, true, text)));
    for (errno, eof) in [(Errno::PIPE, true), (Errno::CONNRESET, true), (Errno::IO, false)] {
        let near = state();
        near.link.ctrl().cut = Some(errno);
        let (is_eof, unread, text) = ended(&near.link.ctrl()).expect("nothing can be sent");
        assert_eq!((is_eof, unread), (eof, true), "{errno}");
        assert!(text.starts_with("its control connection failed: "), "{text}");
    }
    // What was found first stays.
    near.link.ctrl().close();
    near.link.ctrl().end(true, "later");
    assert_eq!(ended(&near.link.ctrl()), Some((false, false, "closed here".to_owned())));
}

#[test]
fn a_closing_connection_has_until_its_earliest_time_and_waits_for_room_in_the_inbox() {
    let (near, _far) = pair(ConnType::Tcp);
    let mut ctrl = near.link.ctrl();
    let at = Instant::from_nanos;
    assert!(!ctrl.is_close_due(Instant::NEVER), "it is not closing");
    ctrl.close_at(at(7));
    ctrl.close_at(at(9));
    assert!(!ctrl.is_close_due(at(6)) && ctrl.is_close_due(at(7)));
    ctrl.close_at(at(5));
    assert!(!ctrl.is_close_due(at(4)) && ctrl.is_close_due(at(5)) && ctrl.is_close_due(at(6)));
    ctrl.paused = true;
    assert!(!ctrl.is_close_due(at(6)));
}

#[test]
fn a_message_has_left_when_the_system_took_it_and_does_not_hold_it_back() {
    let (near, _far) = pair(ConnType::Tcp);
    {
        let mut ctrl = near.link.ctrl();
        ctrl.taken = 10;
        assert!(ctrl.has_left(9) && ctrl.has_left(10) && !ctrl.has_left(11));
        ctrl.holds_back = true;
        assert!(ctrl.has_left(10) && !ctrl.has_left(11) && !ctrl.full);
    }
    fill(&near);
    let mut ctrl = near.link.ctrl();
    assert!(!ctrl.has_left(11) && !ctrl.full, "it has to be sent first");
    assert!(!ctrl.has_left(10) && ctrl.full, "somebody waits for the system");
    ctrl.holds_back = false;
    assert!(ctrl.has_left(10));
}

#[test]
fn messages_of_the_protocol_wait_up_to_a_limit() {
    let (near, _far) = pair(ConnType::Tcp);
    fill(&near);
    let mut ctrl = near.link.ctrl();
    let len = ControlMessage::Int32(1).emitted_len();
    (ctrl.unsent, ctrl.sent) = (vec![0; UNSENT + 5], 5);
    let e = ctrl.send(&ControlMessage::Int32(1), NOW).expect_err("too much waits");
    assert_eq!(e.kind(), ErrorKind::Full);
    assert!(e.to_string().starts_with("4194304 bytes of control messages wait"), "{e}");
    (ctrl.unsent, ctrl.sent) = (vec![0; UNSENT + 6 - len], 5);
    assert!(ctrl.send(&ControlMessage::Int32(1), NOW).is_err(), "a byte too much");
    (ctrl.unsent, ctrl.sent) = (vec![0; UNSENT + 5 - len], 5);
    ctrl.send(&ControlMessage::Int32(1), NOW).expect("it fits");
    assert_eq!(ctrl.unsent.len(), UNSENT + 5);
}

#[test]
fn what_was_sent_is_dropped_from_the_front_when_that_is_half_of_it_and_much() {
    let (near, _far) = pair(ConnType::Tcp);
    fill(&near);
    // Sent, of all; what stays.
    for (sent, all, left) in [
        (65_535, 65_536, (65_535, 65_536)),
        (65_536, 131_074, (65_536, 131_074)),
        (65_536, 131_073, (0, 65_537)),
        (100_000, 100_001, (0, 1)),
        (100_000, 100_000, (0, 0)),
    ] {
        let mut ctrl = near.link.ctrl();
        (ctrl.unsent, ctrl.sent) = (vec![0; all], sent);
        ctrl.flush(NOW);
        assert_eq!((ctrl.sent, ctrl.unsent.len()), left, "{sent} of {all}");
    }
    let mut ctrl = near.link.ctrl();
    (ctrl.unsent, ctrl.sent) = (vec![0; 200_000], 3);
    ctrl.cut = Some(Errno::PIPE);
    ctrl.flush(NOW);
    assert_eq!((ctrl.sent, ctrl.unsent.len()), (0, 0), "nothing can be sent any more");
    assert!(ctrl.unsent.capacity() <= 65_536, "much storage is not kept");
}

#[test]
fn nothing_of_the_protocol_is_queued_behind_bytes_that_wait() {
    let (near, far) = pair(ConnType::Tcp);
    let window = |n| (WindowId(n), Epoch(1));
    {
        let mut ctrl = near.link.ctrl();
        assert!(ctrl.send_if_idle(&ControlMessage::Int32(1), NOW) && !ctrl.full);
        ctrl.say_left(window(1).0, window(1).1, NOW);
        assert!(ctrl.owed.is_empty(), "said at once");
    }
    far.settle();
    assert_eq!(far.link.inbox().take(Want::Any), Some(Message::Int(1)));
    let whole = {
        let mut ctrl = near.link.ctrl();
        // A frame that the system took half of.
        ctrl.append(&ControlMessage::Struct(&[7; 300_000]));
        let whole = ctrl.unsent.len();
        ctrl.flush(NOW);
        let left = (ctrl.sent, ctrl.unsent.len());
        assert!(left.1 != 0);
        assert!(!ctrl.send_if_idle(&ControlMessage::Int32(2), NOW) && ctrl.full);
        ctrl.say_left(window(2).0, window(2).1, NOW);
        assert!(!ctrl.owed.is_empty() && (ctrl.sent, ctrl.unsent.len()) == left);
        assert!(
            ctrl.send_out(&ControlMessage::Tag(1), NOW).is_err_and(|e| e.kind() == ErrorKind::Full)
        );
        whole
    };
    assert!(whole > 300_000);
    let mut heard = Heard::default();
    while !near.link.ctrl().owed.is_empty() {
        far.link.turn_ctrl(false);
        near.link.ctrl().turn(clock::now(), &near.link, &mut heard);
    }
    assert!(heard.room || !near.link.ctrl().full, "who waited for room looks again");
    far.settle();
    assert_eq!(far.link.inbox().take(Want::Any), Some(Message::Struct(vec![7; 300_000])));
    assert_eq!(far.link.inbox().len(), 0, "what was refused was not sent");
}

#[test]
fn a_message_that_the_system_takes_half_of_is_on_its_way() {
    let (near, far) = pair(ConnType::Tcp);
    let mut ctrl = near.link.ctrl();
    let m = ControlMessage::Struct(&[7; 1_000_000]);
    let mark = ctrl.send_out(&m, NOW).expect("some of it").expect("not all of it");
    assert_eq!(mark, u64::try_from(m.emitted_len()).expect("small"), "all that was given");
    assert!(ctrl.taken > 0 && ctrl.taken < mark && !ctrl.full);
    assert!(ctrl.send_out(&ControlMessage::Tag(1), NOW).is_err());
    assert!(ctrl.full, "its sender waits");
    // A peer that is gone takes nothing, and that is no reason to wait.
    drop(far);
    ctrl.flush(NOW);
    assert!(ctrl.cut.is_some());
    assert!(ctrl.send_out(&ControlMessage::Tag(1), NOW).is_ok());
}

#[test]
fn a_new_connection_has_storage_for_first_words() {
    assert_eq!(CtrlState::new_framer().capacity(), FRAMER_INITIAL_BYTES);
}

#[test]
fn a_turn_reads_all_that_has_come_however_long() {
    let (near, far) = pair(ConnType::Tcp);
    let bytes = [7; 1300];
    assert!(bytes.len() > FRAMER_INITIAL_BYTES);
    for _ in 0..3 {
        far.link.send(&ControlMessage::Struct(&bytes)).expect("sent");
    }
    assert!(near.link.turn_ctrl(true));
    assert_eq!((near.link.inbox().len(), near.link.ctrl().is_paused()), (3, false));
    assert!(!near.link.turn_ctrl(true));
}

#[test]
fn the_end_of_a_peer_is_seen_behind_messages_that_wait_for_room() {
    let (near, far) = pair(ConnType::Tcp);
    for n in 0..INBOX.0 + 1 {
        far.link.send(&ControlMessage::Tag(u64::try_from(n).expect("small"))).expect("sent");
    }
    near.link.turn_ctrl(true);
    assert!(near.link.ctrl().is_paused() && ended(&near.link.ctrl()).is_none());
    far.link.ctrl_socket().shutdown();
    let mut heard = Heard::default();
    near.link.ctrl().turn(clock::now(), &near.link, &mut heard);
    let (eof, unread, _) = ended(&near.link.ctrl()).expect("it is seen");
    assert!(eof && unread && near.link.ctrl().is_paused());
    near.link.inbox().drop_all();
    near.link.ctrl().turn(clock::now(), &near.link, &mut heard);
    assert_eq!(near.link.inbox().len(), 1, "what had come before is delivered");
    let (eof, unread, _) = ended(&near.link.ctrl()).expect("it is over");
    assert!(eof && !unread);
}

#[test]
fn silence_ends_a_connection_unless_bytes_have_come_or_nothing_is_read() {
    let dead = Duration::from_millis(60_000);
    let ms = Duration::from_millis(100);
    for (tag, paused, ends) in [(false, false, true), (true, false, false), (false, true, false)] {
        let (near, far) = pair_that_beats(ms);
        assert_eq!(near.link.ctrl().heartbeat(), ms);
        let by = near.link.ctrl().ends_at();
        assert!(by < clock::now().after(dead), "it has a time");
        if tag {
            far.link.send(&ControlMessage::Tag(1)).expect("sent");
        }
        let mut heard = Heard::default();
        let mut ctrl = near.link.ctrl();
        ctrl.paused = paused;
        ctrl.tick(Instant::from_nanos(by.as_nanos() - 1), &near.link, &mut heard);
        assert!(ended(&ctrl).is_none());
        let by = ctrl.ends_at();
        ctrl.tick(by, &near.link, &mut heard);
        assert_eq!(ended(&ctrl).is_some(), ends, "tag {tag}, paused {paused}");
        assert!(ends || ctrl.ends_at() > by);
    }
}

#[test]
fn heartbeats_through_memory_count_as_sent_and_those_of_the_peer_as_heard() {
    let ms = Duration::from_millis(100);
    for heard in [false, true] {
        let (near, far) = pair_that_beats(ms);
        let by = near.link.ctrl().ends_at();
        let later = clock::now().after(ms);
        near.link.ctrl().note_beat(heard, later);
        assert_eq!(near.link.ctrl().ends_at() > by, heard);
        // Nothing has to be said before the next period is over.
        let mut h = Heard::default();
        near.link.ctrl().tick(later, &near.link, &mut h);
        assert_eq!(far.link.ctrl_socket().recv(&mut [0; 64]), Err(Errno::AGAIN));
        near.link.ctrl().suit(ms, 1, later);
        assert!(near.link.ctrl().ends_at() > by, "time in which it was not run");
    }
}
