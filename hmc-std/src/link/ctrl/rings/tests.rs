//! Control frames of two ends that share memory, and which no thread touches.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::types::{Access, ConnType};
use hmc_core::wire::advert::{ENDPOINT_CTRL_RING, EndpointBlob};
use hmc_core::wire::message::{ControlMessage, tag_frame};
use hmc_mem::os::memfd::Mapping;
use hmc_mem::os::ring::{RING_BYTES, RING_PAGES_BYTES, RingReader, RingWriter};
use rustix::io::Errno;

use crate::base::clock;
use crate::base::error::ErrorKind;
use crate::link::ends::{End, pair};
use crate::link::{LinkState, WaitScope};
use crate::node::inbox::{Message, Wanted};
use crate::transport::ctrl_rings::PeerRing;

const SWITCH: ControlMessage<'static> =
    ControlMessage::Endpoint(EndpointBlob { kind: ENDPOINT_CTRL_RING, bytes: &[] });

/// Bytes that lie in the socket of the control connection.
fn on_socket(end: &End) -> usize {
    match end.link.ctrl_socket().peek(&mut [0; 64]) {
        Err(Errno::AGAIN) => 0,
        n => n.expect("it is open"),
    }
}

fn next(end: &End) -> Option<Message<'static>> {
    end.link.inbox().take(Wanted::Any)
}

/// Sends a frame as a call does that is about to wait.
fn answer(end: &End) {
    let mut ctrl = end.link.ctrl();
    let sent = ctrl.send_all_if_idle([ControlMessage::Tag(9)].into_iter(), clock::now());
    end.link.update_ctrl_interest(&mut ctrl);
    assert_eq!(sent, 1);
}

#[test]
fn frames_come_through_the_ring_and_one_byte_wakes_who_sleeps() {
    let (near, far) = pair(ConnType::Shm);
    for (from, to) in [(&near, &far), (&far, &near)] {
        for tag in 0..3 {
            from.link.send(&ControlMessage::Tag(tag)).expect("sent");
            assert_eq!(on_socket(to), 1, "the first finds it asleep");
        }
        assert!(to.link.poll_ctrl(false));
        assert_eq!([next(to), next(to), next(to)], [0, 1, 2].map(|t| Some(Message::Tag(t))));
        assert_eq!(on_socket(to), 0);
        // A leader looks by itself, until it sleeps.
        to.link.set_claimed(WaitScope::Both, true);
        from.link.send(&ControlMessage::Tag(3)).expect("sent");
        assert_eq!(on_socket(to), 0);
        assert!(to.link.park_ctrl().is_none(), "there is a frame");
        assert!(to.link.poll_ctrl(true));
        assert_eq!(next(to), Some(Message::Tag(3)));
        assert!(to.link.park_ctrl().is_some_and(|wanted| wanted.read));
        from.link.send(&ControlMessage::Tag(4)).expect("sent");
        assert_eq!(on_socket(to), 1);
        assert!(to.link.poll_ctrl(true) && !to.link.poll_ctrl(true));
        assert_eq!((next(to), on_socket(to)), (Some(Message::Tag(4)), 0));
        from.link.send(&ControlMessage::Tag(5)).expect("sent");
        assert_eq!(on_socket(to), 0, "it has not slept since");
        to.link.set_claimed(WaitScope::Both, false);
        assert_eq!(next(to), Some(Message::Tag(5)), "nobody else would have looked");
    }
}

#[test]
fn a_leader_looks_at_the_socket_if_it_was_woken_or_is_told() {
    let (near, far) = pair(ConnType::Shm);
    let lead = |on| far.link.set_claimed(WaitScope::Both, on);
    lead(true);
    far.link.poll_ctrl(true);
    lead(false);
    // What no frame is behind: the background thread finds it.
    near.link.ctrl_socket().send(&[0]).expect("space");
    lead(true);
    far.link.poll_ctrl(true);
    assert_eq!(on_socket(&far), 1, "nobody told it");
    far.link.poll_ctrl(false);
    far.link.poll_ctrl(true);
    assert_eq!(on_socket(&far), 0);
    lead(false);
    near.link.send(&ControlMessage::Tag(1)).expect("sent");
    assert_eq!(on_socket(&far), 1);
    lead(true);
    far.link.poll_ctrl(true);
    assert_eq!((next(&far), on_socket(&far)), (Some(Message::Tag(1)), 0));
}

#[test]
fn a_call_that_waits_wakes_the_peer_late_and_other_calls_at_once() {
    let (near, far) = pair(ConnType::Shm);
    near.link.defer_wakes();
    answer(&near);
    assert_eq!(on_socket(&far), 0);
    near.link.send(&ControlMessage::Tag(1)).expect("sent");
    assert_eq!(on_socket(&far), 1, "it does not wait");
    assert!(far.link.poll_ctrl(false));
    answer(&near);
    assert_eq!(on_socket(&far), 0);
    while on_socket(&far) == 0 {
        near.link.poll_ctrl(true);
    }
    assert!(far.link.poll_ctrl(false));
    answer(&near);
    assert_eq!(on_socket(&far), 0);
    near.link.resume_wakes();
    assert_eq!(on_socket(&far), 1);
}

#[test]
fn what_was_written_before_the_connection_ended_is_received() {
    let (near, far) = pair(ConnType::Shm);
    far.link.set_claimed(WaitScope::Both, true);
    near.link.send(&ControlMessage::Tag(1)).expect("sent");
    near.link.ctrl_socket().shutdown();
    // The background thread is told, and leaves it to the leader.
    assert!(!far.link.poll_ctrl(false));
    far.link.poll_ctrl(true);
    assert_eq!(next(&far), Some(Message::Tag(1)));
    far.link.poll_ctrl(true);
    assert_eq!(far.link.state(), LinkState::Dead);
}

/// It has ended its socket, and writes to the ring as fast as that is read.
#[test]
fn a_peer_that_writes_on_after_its_end_is_read_for_one_ring_more() {
    let (near, far) = pair(ConnType::Shm);
    near.link.ctrl_socket().shutdown();
    let (mut ctrl, mut received) = (far.link.ctrl(), 0);
    let socket = Arc::clone(ctrl.socket());
    while received <= RING_BYTES {
        while near.link.send_out(&ControlMessage::Struct(&[7; 1000])).is_ok() {}
        match ctrl.rings.recv(&socket, &mut [0; 1000]).expect("its end is no error") {
            0 => break,
            n => received += u64::try_from(n).expect("small"),
        }
    }
    assert_eq!(received, RING_BYTES);
}

#[test]
fn a_full_ring_stops_the_sender_until_the_peer_reads() {
    let (near, far) = pair(ConnType::Shm);
    let bytes = [7; 1000];
    let sent = fill(&near, &bytes);
    let e = near.link.send_out(&ControlMessage::Tag(1)).expect_err("it is full");
    assert_eq!(e.kind(), ErrorKind::Full);
    assert!(sent * 1008 <= RING_BYTES && (sent + 1) * 1008 > RING_BYTES, "{sent}");
    assert!(!near.link.ctrl().interest().write, "the socket takes bytes at any time");
    assert_eq!(on_socket(&near), 0);
    // Its inbox takes a few at a time.
    for _ in 0..=sent {
        far.link.poll_ctrl(false);
        assert_eq!(next(&far), Some(Message::bytes(bytes.to_vec())));
        near.link.poll_ctrl(false);
    }
    far.link.poll_ctrl(false);
    assert_eq!(next(&far), None);
    near.link.send_out(&ControlMessage::Tag(2)).expect("there is space");
    far.link.poll_ctrl(false);
    assert_eq!(next(&far), Some(Message::Tag(2)));
}

/// Fills the ring to the peer. Returns how many messages of these bytes it holds as a whole.
fn fill(near: &End, bytes: &[u8]) -> u64 {
    for sent in 0.. {
        match near.link.send_out(&ControlMessage::Struct(bytes)) {
            Ok(None) => {}
            Ok(Some(_)) => return sent,
            Err(e) => panic!("a part of one is taken first: {e}"),
        }
    }
    0
}

/// Its own frames still travel on the socket, where a wake byte would lie between them.
#[test]
fn a_peer_that_has_not_switched_tells_of_space_by_a_frame() {
    let (near, far) = pair(ConnType::Tcp);
    let (ring, fd) = RingReader::new().expect("pages");
    let out = PeerRing::new(RingWriter::map(fd).expect("mapped"), None);
    near.link.ctrl().send_by(out, &ControlMessage::Tag(1), clock::now());
    far.link.poll_ctrl(false);
    assert_eq!(next(&far), Some(Message::Tag(1)));
    assert!(far.link.ctrl().receive_by(ring));
    let bytes = [7; 1000];
    for _ in 0..=fill(&near, &bytes) {
        far.link.poll_ctrl(false);
        assert_eq!(next(&far), Some(Message::bytes(bytes.to_vec())));
        near.link.poll_ctrl(false);
    }
    far.link.send(&ControlMessage::Tag(2)).expect("sent");
    near.link.poll_ctrl(false);
    assert_eq!(next(&near), Some(Message::Tag(2)), "{}", near.link.reason());
}

/// The byte behind its note comes in one call with it.
#[test]
fn a_wake_byte_behind_the_note_of_a_ring_is_no_frame() {
    let (near, far) = pair(ConnType::Tcp);
    let (ring, fd) = RingReader::new().expect("pages");
    near.link.ctrl_socket().send(&[0]).expect("space");
    far.link.poll_ctrl(false);
    assert!(far.link.ctrl().receive_by(ring));
    let mut out = RingWriter::map(fd).expect("mapped");
    let _ = out.write(&tag_frame(3)).expect("a ring");
    far.link.poll_ctrl(false);
    assert_eq!(next(&far), Some(Message::Tag(3)), "{}", far.link.reason());
}

/// What it sends waits for space in the ring, of which a byte on the socket tells.
#[test]
fn an_end_whose_inbox_is_full_learns_of_space() {
    let (near, far) = pair(ConnType::Shm);
    for tag in 0..20 {
        far.link.send(&ControlMessage::Tag(tag)).expect("sent");
    }
    near.link.poll_ctrl(false);
    assert!(near.link.ctrl().machine.is_paused());
    assert!(!near.link.ctrl().interest().read, "it reads nothing now");
    let bytes = [7; 1000];
    let sent = fill(&near, &bytes);
    assert!(near.link.ctrl().interest().read, "a byte tells of space");
    for _ in 0..=sent {
        far.link.poll_ctrl(false);
        assert_eq!(next(&far), Some(Message::bytes(bytes.to_vec())));
        near.link.poll_ctrl(false);
    }
    assert_eq!(on_socket(&near), 0, "nothing keeps the socket readable");
    assert!(near.link.ctrl().machine.is_paused() && near.link.ctrl().machine.is_idle());
    let _ = fill(&near, &bytes);
    far.link.ctrl_socket().shutdown();
    near.link.poll_ctrl(false);
    assert!(!near.link.ctrl().interest().read, "an end is reported once");
}

#[test]
fn a_note_of_a_ring_that_is_not_there_ends_the_link() {
    for conn in [ConnType::Tcp, ConnType::Shm] {
        // Over shared memory it is the second.
        let (near, far) = pair(conn);
        near.link.send(&SWITCH).expect("sent");
        far.link.poll_ctrl(false);
        assert_eq!(far.link.state(), LinkState::Dead, "{conn:?}");
        assert!(
            far.link.reason().contains("a ring that it does not have"),
            "{}",
            far.link.reason()
        );
    }
}

#[test]
fn nothing_may_lie_behind_the_note_of_a_ring() {
    for (bytes, is_fine) in [(&[][..], true), (&[0, 0], true), (&[1, 0], false)] {
        let (near, far) = pair(ConnType::Tcp);
        near.link.ctrl_socket().send(bytes).expect("space");
        far.link.poll_ctrl(false);
        let (ring, _fd) = RingReader::new().expect("pages");
        assert_eq!(far.link.ctrl().receive_by(ring), is_fine, "{bytes:?}");
    }
}

/// A peer that stores what it likes into the words of the ring that it maps, too.
#[test]
fn a_peer_that_breaks_its_ring_ends_the_link() {
    let (near, far) = pair(ConnType::Tcp);
    let (ring, fd) = RingReader::new().expect("pages");
    assert!(near.link.ctrl().receive_by(ring));
    let pages = Mapping::map_peer(fd, RING_PAGES_BYTES, 0, Access::all()).expect("mapped");
    let written = pages.bytes().atomic_u64(0).expect("a word");
    written.store(RING_BYTES + 1, Ordering::Relaxed);
    far.link.ctrl_socket().send(&[0]).expect("space");
    near.link.poll_ctrl(false);
    assert_eq!(near.link.state(), LinkState::Dead);
    assert!(near.link.reason().contains("control connection failed"), "{}", near.link.reason());
}
