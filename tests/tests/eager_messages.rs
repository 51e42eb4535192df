//! Messages that go with their offer (WIRE.md, 3.6), against a peer that is written by hand: what is on the wire, what may not be, and
//! a peer that does not know them. Also those of collectives.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests may panic")]

use std::io::Write as _;
use std::time::Duration;

use hmc_core::limits::MAX_EAGER_BYTES;
use hmc_core::rndv::{AbortReason, RecvTarget, RndvId, RndvMsg, RndvRole};
use hmc_core::types::Access;
use hmc_core::wire::hello::Features;
use hmc_core::wire::message::ControlMessage;
use hmc_std::ErrorKind;
use hmc_testkit::buffers::BufferMessages as _;
use hmc_tests::env::{Via, until};
use hmc_tests::group_fixture::GroupFixture;
use hmc_tests::raw_frames::{frame, read_frame};
use hmc_tests::rogue::wide_window;
use hmc_tests::wrong::BOTH;
use hmc_tests::wrong::rig::Rig;
use hmc_tests::wrong::target::Target;

const LONG: Duration = Duration::from_secs(30);
const ID: RndvId = RndvId(0);
const NOT_NOW: &str = "a note of a message came that may not come now";

fn eager_rig(target: &mut Target) -> Rig<'_> {
    Rig::with(target, Access::all(), Features::BATCHED_ACKS | Features::EAGER)
}

fn send_frames(rig: &mut Rig<'_>, words: &[ControlMessage<'_>]) {
    let bytes: Vec<u8> = words.iter().flat_map(frame).collect();
    rig.rogue.control.write_all(&bytes).unwrap();
}

/// The next word of a message; the bytes of an eager one.
fn receive_note(rig: &mut Rig<'_>) -> Result<Vec<u8>, RndvMsg> {
    loop {
        let (header, payload) = read_frame(&mut rig.rogue.control).expect("a note");
        match ControlMessage::parse(header, &payload) {
            Ok(ControlMessage::Rndv(note)) => return Err(note),
            Ok(ControlMessage::Eager { id: ID, bytes }) => return Ok(bytes.to_vec()),
            _ => {}
        }
    }
}

const fn end(from: RndvRole, how: Result<(), AbortReason>) -> RndvMsg {
    RndvMsg::End { id: ID, from, how }
}

#[test]
fn a_session_sends_up_to_a_page_with_the_offer_and_is_answered_by_one_word() {
    for via in BOTH {
        let mut target = Target::new(*via);
        for len in [0, 8, MAX_EAGER_BYTES] {
            let mut rig = eager_rig(&mut target);
            let message = vec![7; len];
            let peer = rig.peer.clone();
            std::thread::scope(|scope| {
                let sent = scope.spawn(|| peer.send_data(&message).within(LONG).wait());
                assert_eq!(receive_note(&mut rig), Ok(message.clone()));
                send_frames(&mut rig, &[ControlMessage::Rndv(end(RndvRole::Receiver, Ok(())))]);
                sent.join().unwrap().unwrap();
            });
        }
        // One byte more is offered first, and so is all to a peer that does not know of it.
        for (len, features) in [(MAX_EAGER_BYTES + 1, Features::EAGER), (8, Features::empty())] {
            let mut rig = Rig::with(&mut target, Access::all(), features);
            let peer = rig.peer.clone();
            std::thread::scope(|scope| {
                let sent = scope.spawn(|| peer.send_data(&vec![7; len]).within(LONG).wait());
                let len = u64::try_from(len).unwrap();
                assert_eq!(receive_note(&mut rig), Err(RndvMsg::Offer { id: ID, len }));
                let why = Err(AbortReason::Cancelled);
                send_frames(&mut rig, &[ControlMessage::Rndv(end(RndvRole::Receiver, why))]);
                assert_eq!(sent.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
            });
        }
    }
}

#[test]
fn a_session_takes_the_bytes_of_an_offer_and_answers_with_one_word() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let mut rig = eager_rig(&mut target);
        send_frames(&mut rig, &[ControlMessage::Eager { id: ID, bytes: b"short" }]);
        let mut got = [0; 16];
        assert_eq!(rig.peer.recv_data(&mut got).wait().map(|d| d.bytes).unwrap(), 5);
        assert_eq!(&got[..6], b"short\0");
        assert_eq!(receive_note(&mut rig), Err(end(RndvRole::Receiver, Ok(()))));
        // A withdrawal that crossed with that changes nothing; the link lives.
        let withdrawn = end(RndvRole::Sender, Err(AbortReason::Cancelled));
        let next = ControlMessage::Eager { id: RndvId(1), bytes: b"" };
        send_frames(&mut rig, &[ControlMessage::Rndv(withdrawn), next]);
        assert_eq!(rig.peer.recv_data(&mut got).wait().map(|d| d.bytes).unwrap(), 0);
    }
}

#[test]
fn an_eager_offer_that_is_not_due_ends_the_link() {
    let eager = |id| ControlMessage::Eager { id: RndvId(id), bytes: b"x" };
    let step = ControlMessage::Rndv;
    let many: Vec<_> = (0..65).map(eager).collect();
    let (next, later) =
        ("message 0 was offered when 1 was next", "message 1 was offered when 0 was next");
    let cases: [(&str, &[ControlMessage<'_>], &str); 6] = [
        ("a later number", &[eager(1)], later),
        ("a number again", &[eager(0), eager(0)], next),
        ("more than may be under way", &many, "more than 64 messages are under way"),
        ("a piece of it", &[eager(0), step(RndvMsg::Filled { id: ID, seq: 0 })], NOT_NOW),
        ("its sender's END", &[eager(0), step(end(RndvRole::Sender, Ok(())))], NOT_NOW),
        (
            "a failure of none",
            &[step(end(RndvRole::Sender, Err(AbortReason::Cancelled)))],
            "there is no message 0",
        ),
    ];
    for via in BOTH {
        let mut target = Target::new(*via);
        for (what, words, check) in cases {
            let mut rig = eager_rig(&mut target);
            send_frames(&mut rig, words);
            rig.assert_ended(what, check);
        }
    }
}

#[test]
fn a_place_for_the_bytes_of_an_offer_ends_the_link() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let mut rig = eager_rig(&mut target);
        let sent = rig.peer.start_send_at(0, 8).unwrap();
        receive_note(&mut rig).unwrap();
        let place = RecvTarget::direct(wide_window().slice(0, 8).unwrap());
        send_frames(&mut rig, &[ControlMessage::Rndv(RndvMsg::Ready { id: ID, target: place })]);
        let e = sent.wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::PeerDead, "{e:?}");
        rig.assert_ended("a place", NOT_NOW);
    }
}

#[test]
fn a_send_that_ends_in_vain_withdraws_the_message() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let mut rig = eager_rig(&mut target);
        let short = Duration::from_millis(50);
        let e = rig.peer.send_data(b"nobody wants it").within(short).wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded);
        receive_note(&mut rig).unwrap();
        let withdrawn = end(RndvRole::Sender, Err(AbortReason::DeadlineExceeded));
        assert_eq!(receive_note(&mut rig), Err(withdrawn));
        send_frames(&mut rig, &[ControlMessage::Rndv(end(RndvRole::Receiver, Ok(())))]);
        let peer = &rig.peer;
        until("it is over", LONG, || peer.is_connected().then_some(()));
    }
}

/// A message of up to 4 KiB is sent with its offer, so nothing is put. Over shared memory members put into each other's windows.
#[test]
fn short_messages_of_collectives_are_sent_with_their_offers() {
    for via in Via::all().into_iter().filter(|via| *via != Via::Shm) {
        for (len, is_short) in [(4096, true), (4097, false)] {
            let members = GroupFixture::new(via, 2);
            members
                .each(|group| group.broadcast(0, &mut vec![3; len]).wait().expect("a broadcast"));
            let moved: u64 = members.sessions[0].stats().peers.iter().map(|p| p.bytes_out).sum();
            assert_eq!(moved == 0, is_short, "{via:?}: {moved} of {len} bytes");
        }
    }
}
