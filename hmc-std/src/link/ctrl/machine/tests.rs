//! Two ends of a control connection as bytes that go from one machine to the other: no socket, no thread, no clock.

#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]
#![allow(clippy::indexing_slicing, reason = "tests may panic")]

use hmc_core::ctrl::framer::Framer;
use hmc_core::ctrl::io::ControlEvent;
use hmc_core::limits::{FRAMER_INITIAL_BYTES, PEER_DEAD_NS};
use hmc_core::region::{Epoch, WindowId};
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::Readiness;
use hmc_core::wire::message::{ControlMessage, tag_frame};
use rustix::io::Errno;

use super::{ControlMachine, Ended, more_storage};
use crate::base::error::ErrorKind;
use crate::link::ends::met;

const NOW: Instant = Instant::from_nanos(1_000_000);
const BEAT: Duration = Duration::from_millis(100);
/// What a sender that is never read may have waiting.
const UNSENT: usize = 4_194_304;

/// Both ends of a connection on which HELLO was sent.
fn two() -> (ControlMachine, ControlMachine) {
    let (near, far) = met(BEAT, NOW);
    let machine = |c| ControlMachine::new(c, Framer::new(vec![0; FRAMER_INITIAL_BYTES]));
    (machine(near), machine(far))
}

fn one() -> ControlMachine {
    two().0
}

fn ended(m: &ControlMachine) -> Option<(bool, bool, String)> {
    m.ended().map(|Ended { eof, unread, text }| (eof, unread, text))
}

/// What a system takes that has space for so many bytes.
fn take(m: &mut ControlMachine, mut space: usize) -> Vec<u8> {
    let mut taken = Vec::new();
    loop {
        let bytes = m.transmit();
        let n = bytes.len().min(space);
        taken.extend(&bytes[..n]);
        space -= n;
        if !m.transmitted(if n == 0 { Err(Errno::AGAIN) } else { Ok(n) }, NOW) {
            return taken;
        }
    }
}

/// As [`take`], of messages and answers, without limit.
fn take_all(m: &mut ControlMachine) -> Vec<u8> {
    let mut taken = take(m, usize::MAX);
    while m.answer(NOW) {
        taken.extend(take(m, usize::MAX));
    }
    taken
}

/// What whole frames among these bytes mean, received as they fit, at that time.
fn receive_at(m: &mut ControlMachine, mut bytes: &[u8], now: Instant) -> Vec<String> {
    let mut received = Vec::new();
    m.begin_poll();
    loop {
        while m.reads() && m.next(now, |event| note(&event, &mut received)) {}
        if bytes.is_empty() || !m.reads() {
            return received;
        }
        let space = m.space();
        let n = space.len().min(bytes.len());
        space[..n].copy_from_slice(&bytes[..n]);
        m.received(n, now);
        bytes = &bytes[n..];
    }
}

fn receive(m: &mut ControlMachine, bytes: &[u8]) -> Vec<String> {
    receive_at(m, bytes, NOW)
}

/// Notes an event; a window that is taken back has been left.
fn note(event: &ControlEvent<'_>, received: &mut Vec<String>) -> Option<(WindowId, Epoch)> {
    match event {
        ControlEvent::Deliver(ControlMessage::Struct(b)) => {
            received.push(format!("{} bytes", b.len()));
        }
        ControlEvent::Deliver(ControlMessage::Revoke { window, epoch }) => {
            received.push("revoke".into());
            return Some((*window, *epoch));
        }
        ControlEvent::Deliver(m) => received.push(format!("{m:?}")),
        other => received.push(format!("{other:?}")),
    }
    None
}

#[test]
fn messages_come_whole_and_in_order_however_their_bytes_are_cut() {
    for piece in [1, 3, 8, 511, 5000] {
        let (mut near, mut far) = two();
        for m in
            [ControlMessage::Tag(1), ControlMessage::Struct(&[7; 2000]), ControlMessage::Tag(2)]
        {
            near.queue(&m).expect("space");
        }
        let mut received = Vec::new();
        loop {
            let bytes = take(&mut near, piece);
            if bytes.is_empty() {
                break;
            }
            received.extend(receive(&mut far, &bytes));
        }
        assert_eq!(received, ["Tag(1)", "2000 bytes", "Tag(2)"], "pieces of {piece}");
        assert!(near.is_idle() && far.held() == 0 && ended(&far).is_none());
    }
}

#[test]
fn what_the_connection_is_waited_for_follows_from_what_can_be_done() {
    let mut m = one();
    let wanted = |read, write, end| Readiness { read, write, end };
    assert_eq!(m.wants(), wanted(true, false, false));
    m.await_space();
    assert_eq!(m.wants(), wanted(true, true, false), "somebody waits for space");
    assert!(m.begin_poll() && !m.begin_poll(), "reported once");
    (m.unsent, m.sent) = (vec![0; 8], 7);
    assert_eq!(m.wants(), wanted(true, true, false), "a byte waits");
    m.sent = 8;
    assert_eq!(m.wants(), wanted(true, false, false));
    m.pause(true);
    assert_eq!(m.wants(), wanted(false, false, true), "nothing is read: its end is not seen so");
    m.note_hang_up();
    assert_eq!(
        m.wants(),
        wanted(true, false, false),
        "what is left is read, however full the inbox"
    );
    m.pause(true);
    assert!(m.reads() && !m.is_paused());
    m.end(true, "over");
    assert_eq!(m.wants(), Readiness::default());
}

#[test]
fn the_end_of_a_connection_reports_whether_bytes_of_the_peer_are_left() {
    let mut m = one();
    assert!(ended(&m).is_none());
    m.note_hang_up();
    let text = "the peer ended the connection".to_owned();
    assert_eq!(ended(&m), Some((true, true, text)));
    for (errno, eof) in [(Errno::PIPE, true), (Errno::CONNRESET, true), (Errno::IO, false)] {
        let mut m = one();
        m.queue(&ControlMessage::Tag(1)).expect("space");
        assert!(!m.transmitted(Err(errno), NOW));
        let (is_eof, unread, text) = ended(&m).expect("nothing can be sent");
        assert_eq!((is_eof, unread), (eof, true), "{errno}");
        assert!(text.starts_with("its control connection failed: "), "{text}");
        // Of what was received so far all is given out.
        assert_eq!(receive(&mut m, &tag_frame(3)), ["Tag(3)"]);
        let mut m = one();
        m.receive_failed(errno);
        assert_eq!(ended(&m).map(|e| (e.0, e.1)), Some((eof, false)), "nothing is left to read");
    }
    // What was found first stays.
    m.close();
    m.end(true, "later");
    assert_eq!(ended(&m), Some((false, false, "closed here".to_owned())));
}

#[test]
fn an_end_without_goodbye_is_no_orderly_one() {
    let (mut near, mut far) = two();
    far.received(0, NOW);
    assert_eq!(ended(&far).map(|e| (e.0, e.1)), Some((true, false)));
    assert_eq!(receive(&mut far, &tag_frame(1)), [""; 0], "nothing is received behind the end");
    // With it.
    let (mut far, by) = (two().1, NOW.after(BEAT));
    near.bye(by, NOW);
    assert_eq!(receive(&mut far, &take_all(&mut near)), ["PeerBye"]);
    assert!(ended(&far).is_none() && ended(&near).is_none());
    far.bye(by, NOW);
    assert_eq!(receive(&mut near, &take_all(&mut far)), ["Finished"]);
    assert!(!near.answer(NOW), "there is nothing more to say");
    for m in [near, far] {
        assert_eq!(ended(&m), Some((true, false, "both ends said goodbye".to_owned())));
    }
}

#[test]
fn a_closing_connection_has_until_its_earliest_time_and_waits_for_space_in_the_inbox() {
    let (mut m, at) = (one(), Instant::from_nanos);
    assert!(!m.is_close_due(Instant::NEVER), "it is not closing");
    m.close_at(at(7));
    m.close_at(at(9));
    assert!(!m.is_close_due(at(6)) && m.is_close_due(at(7)));
    m.close_at(at(5));
    assert!(!m.is_close_due(at(4)) && m.is_close_due(at(5)) && m.is_close_due(at(6)));
    m.pause(true);
    assert!(!m.is_close_due(at(6)));
    m.note_hang_up();
    assert!(!m.is_close_due(at(6)), "its end is sure to come");
}

#[test]
fn messages_of_the_protocol_wait_up_to_a_limit() {
    let (mut m, int) = (one(), ControlMessage::Int32(1));
    let len = int.emitted_len();
    (m.unsent, m.sent) = (vec![0; UNSENT + 5], 5);
    let e = m.queue(&int).expect_err("too much waits");
    assert_eq!(e.kind(), ErrorKind::Full);
    let needs = e.limit().map(|l| (l.need, l.have));
    assert_eq!(needs, Some((4_194_304 + u64::try_from(len).expect("a few bytes"), 4_194_304)));
    (m.unsent, m.sent) = (vec![0; UNSENT + 6 - len], 5);
    assert!(m.queue(&int).is_err(), "a byte too much");
    (m.unsent, m.sent) = (vec![0; UNSENT + 5 - len], 5);
    m.queue(&int).expect("it fits");
    assert_eq!(m.unsent.len(), UNSENT + 5);
}

#[test]
fn what_was_sent_is_dropped_from_the_front_when_that_is_half_of_it_and_much() {
    // Sent, of all; what stays.
    for (sent, all, left) in [
        (65_535, 65_536, (65_535, 65_536)),
        (65_536, 131_074, (65_536, 131_074)),
        (65_536, 131_073, (0, 65_537)),
        (100_000, 100_001, (0, 1)),
        (100_000, 100_000, (0, 0)),
    ] {
        let mut m = one();
        (m.unsent, m.sent) = (vec![0; all], sent);
        assert!(!m.transmitted(Err(Errno::AGAIN), NOW));
        assert_eq!((m.sent, m.unsent.len()), left, "{sent} of {all}");
    }
    let mut m = one();
    (m.unsent, m.sent) = (vec![0; 200_000], 3);
    assert!(!m.transmitted(Err(Errno::PIPE), NOW));
    assert_eq!((m.sent, m.unsent.len()), (0, 0), "nothing can be sent any more");
    assert!(m.unsent.capacity() <= 65_536, "much storage is not kept");
    m.queue(&ControlMessage::Tag(1)).expect("it is not counted");
    assert!(m.is_idle(), "nothing is queued for nobody");
}

#[test]
fn nothing_of_the_protocol_is_queued_behind_bytes_that_wait() {
    let (mut near, mut far) = two();
    let revoke = |n| ControlMessage::Revoke { window: WindowId(n), epoch: Epoch(1) };
    far.queue(&revoke(1)).expect("space");
    assert_eq!(receive(&mut near, &take_all(&mut far)), ["revoke"]);
    assert!(near.answer(NOW), "the release ack is sent at once");
    let sent = take_all(&mut near);
    assert_eq!(receive(&mut far, &sent).len(), 1);
    // The system has no space.
    near.queue(&ControlMessage::Struct(&[7; 1000])).expect("space");
    let mut first = take(&mut near, 10);
    let waiting = near.transmit().len();
    far.queue(&revoke(2)).expect("space");
    receive(&mut near, &take_all(&mut far));
    assert!(!near.answer(NOW) && !near.offer(&ControlMessage::Tag(1)));
    assert_eq!(near.transmit().len(), waiting);
    assert!(near.begin_poll(), "who offered tries again");
    first.extend(take_all(&mut near));
    let received = receive(&mut far, &first);
    assert!(received.len() == 2 && received[0] == "1000 bytes", "{received:?}");
    assert!(received[1].starts_with("Revoked"), "{received:?}");
}

#[test]
fn a_message_is_on_its_way_when_the_system_took_any_of_it() {
    let (mut m, frame) = (one(), tag_frame(1));
    for (n, left) in [(16, 0), (1, 15)] {
        let before = m.taken();
        m.transmitted_of(&frame, Ok(n));
        let mark = before + 16;
        assert_eq!((m.sent_since(before, NOW), m.transmit().len()), (Some(mark), left));
        take(&mut m, usize::MAX);
        assert_eq!(m.taken(), mark);
    }
    let before = m.taken();
    m.transmitted_of(&frame, Err(Errno::AGAIN));
    assert_eq!(m.sent_since(before, NOW), None);
    assert!(m.is_idle() && m.wants().write, "nothing of it is sent later; its sender waits");
    assert!(m.offer(&ControlMessage::Struct(&[7; 100])));
    assert!(take(&mut m, 0).is_empty());
    assert!(m.sent_since(before, NOW).is_none() && m.is_idle());
    // A peer that is gone takes nothing, and that is no reason to wait.
    m.transmitted_of(&frame, Err(Errno::PIPE));
    assert_eq!(m.sent_since(before, NOW), Some(before));
}

#[test]
fn silence_ends_a_connection_at_its_time_and_a_full_inbox_is_no_silence() {
    let mut m = one();
    let by = m.ends_at();
    assert_eq!(by, NOW.after(Duration::from_nanos(BEAT.as_nanos() * (PEER_DEAD_NS / 500_000_000))));
    let before = Instant::from_nanos(by.as_nanos() - 1);
    assert!(!m.must_look(before) && m.must_look(by));
    assert!(m.tick(before) && m.answer(before) && !m.tick(before), "it beats, once");
    assert!(ended(&m).is_none());
    assert!(m.tick(by) && !m.answer(by));
    assert!(ended(&m).is_some_and(|e| !e.0 && !e.1));
    // What came counts, and what was not read.
    let mut m = one();
    receive_at(&mut m, &tag_frame(1), before);
    assert!(!m.must_look(by) && m.ends_at() > by);
    let mut m = one();
    m.pause(true);
    assert!(!m.must_look(by) && m.tick(by));
    m.answer(by);
    assert!(ended(&m).is_none() && m.ends_at() > by);
}

#[test]
fn a_peer_that_breaks_the_protocol_is_the_end_of_it() {
    let mut m = one();
    assert_eq!(receive(&mut m, &[0xff; 16]), [""; 0]);
    m.answer(NOW);
    let (eof, unread, text) = ended(&m).expect("it is over");
    assert!(!eof && !unread && text.contains("broke the protocol"), "{text}");
    // HELLO is sent once.
    let mut m = one();
    m.queue(&ControlMessage::HelloV1 { rank: hmc_core::types::Rank(1) }).expect("space");
    let bytes = take_all(&mut m);
    assert_eq!(receive(&mut m, &bytes), [""; 0]);
    assert!(ended(&m).is_some_and(|e| e.2.starts_with("it broke the protocol")));
    // A window that no end can have.
    let (mut near, mut far) = two();
    let window = WindowId(u64::from(u16::MAX));
    far.queue(&ControlMessage::Revoke { window, epoch: Epoch(1) }).expect("space");
    receive(&mut near, &take_all(&mut far));
    assert!(ended(&near).is_some_and(|e| e.2.contains("cannot have")));
}

#[test]
fn a_paused_connection_goes_on_with_what_it_holds() {
    let mut m = one();
    let bytes = [tag_frame(1), tag_frame(2)].concat();
    m.space()[..bytes.len()].copy_from_slice(&bytes);
    m.received(bytes.len(), NOW);
    let mut received = Vec::new();
    assert!(m.next(NOW, |e| note(&e, &mut received)));
    m.pause(true);
    assert!(!m.reads() && m.is_paused() && m.held() == 16);
    m.note_hang_up();
    received.extend(receive(&mut m, &[]));
    assert_eq!(received, ["Tag(1)", "Tag(2)"]);
    m.received(0, NOW);
    assert!(ended(&m).is_some_and(|e| e.0 && !e.1), "all of it was received");
}

#[test]
fn storage_grows_by_doubling_at_the_most() {
    for (bytes, capacity, len) in [(10, 8, 10), (16, 8, 16), (17, 8, 16), (1 << 20, 512, 1024)] {
        assert_eq!(more_storage(bytes, capacity), vec![0; len], "{bytes} of {capacity}");
    }
}
