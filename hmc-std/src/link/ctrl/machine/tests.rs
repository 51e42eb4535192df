//! The machine of a control connection by itself: no socket, no thread, no clock.

#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

use hmc_core::ctrl::framer::Framer;
use hmc_core::limits::FRAMER_INITIAL_BYTES;
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::Readiness;
use hmc_core::wire::message::ControlMessage;
use rustix::io::Errno;

use super::{ControlMachine, Ended, more_storage};
use crate::error::ErrorKind;
use crate::link::ends::met;

const NOW: Instant = Instant::from_nanos(1_000_000);
const BEAT: Duration = Duration::from_millis(100);
/// What a sender that is never read may have waiting.
const UNSENT: usize = 4_194_304;

/// Both ends of a connection on which HELLO was said.
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

#[test]
fn what_the_connection_is_waited_for_follows_from_what_can_be_done() {
    let mut m = one();
    let wanted = |read, write, end| Readiness { read, write, end };
    assert_eq!(m.wants(), wanted(true, false, false));
    m.await_room();
    assert_eq!(m.wants(), wanted(true, true, false), "somebody waits for room");
    assert!(m.begin_turn() && !m.begin_turn(), "told once");
    (m.unsent, m.sent) = (vec![0; 8], 7);
    assert_eq!(m.wants(), wanted(true, true, false), "a byte waits");
    m.sent = 8;
    assert_eq!(m.wants(), wanted(true, false, false));
    m.pause(true);
    assert_eq!(m.wants(), wanted(false, false, true), "nothing is read: its end is not seen so");
    m.note_hang_up();
    assert_eq!(m.wants(), wanted(false, false, false), "it was seen");
    m.pause(false);
    m.end(true, "over");
    assert_eq!(m.wants(), Readiness::default());
}

#[test]
fn the_end_of_a_connection_says_whether_bytes_of_the_peer_are_left() {
    let mut m = one();
    assert!(ended(&m).is_none());
    m.note_hang_up();
    let text = "the peer ended the connection".to_owned();
    assert_eq!(ended(&m), Some((true, true, text)));
    for (errno, eof) in [(Errno::PIPE, true), (Errno::CONNRESET, true), (Errno::IO, false)] {
        let mut m = one();
        m.queue(&ControlMessage::Tag(1)).expect("room");
        assert!(!m.transmitted(Err(errno), NOW));
        let (is_eof, unread, text) = ended(&m).expect("nothing can be sent");
        assert_eq!((is_eof, unread), (eof, true), "{errno}");
        assert!(text.starts_with("its control connection failed: "), "{text}");
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
fn a_closing_connection_has_until_its_earliest_time_and_waits_for_room_in_the_inbox() {
    let (mut m, at) = (one(), Instant::from_nanos);
    assert!(!m.is_close_due(Instant::NEVER), "it is not closing");
    m.close_at(at(7));
    m.close_at(at(9));
    assert!(!m.is_close_due(at(6)) && m.is_close_due(at(7)));
    m.close_at(at(5));
    assert!(!m.is_close_due(at(4)) && m.is_close_due(at(5)) && m.is_close_due(at(6)));
    m.pause(true);
    assert!(!m.is_close_due(at(6)));
}

#[test]
fn messages_of_the_protocol_wait_up_to_a_limit() {
    let (mut m, int) = (one(), ControlMessage::Int32(1));
    let len = int.emitted_len();
    (m.unsent, m.sent) = (vec![0; UNSENT + 5], 5);
    let e = m.queue(&int).expect_err("too much waits");
    assert_eq!(e.kind(), ErrorKind::Full);
    assert!(e.to_string().starts_with("4194304 bytes of control messages wait"), "{e}");
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
fn storage_grows_by_doubling_at_the_most() {
    for (bytes, capacity, len) in [(10, 8, 10), (16, 8, 16), (17, 8, 16), (1 << 20, 512, 1024)] {
        assert_eq!(more_storage(bytes, capacity), vec![0; len], "{bytes} of {capacity}");
    }
}
