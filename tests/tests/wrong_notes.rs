//! Notes of messages of any size (WIRE.md, 3.6) against the protocol, from a peer that is the message's sender or its
//! receiver: each ends the link for its reason, the call that waits too; an honest peer goes on.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::io::Write as _;

use hmc_core::limits::MAX_FRAME_BYTES;
use hmc_core::region::WindowSlice;
use hmc_core::rndv::{RecvTarget, RndvId, RndvMsg, RndvRole};
use hmc_core::wire::header::Header;
use hmc_core::wire::message::ControlMessage;
use hmc_std::{Error, ErrorKind, Peer};
use hmc_tests::raw_frames::{frame, read_frame};
use hmc_tests::rogue::wide_window;
use hmc_tests::wrong::BOTH;
use hmc_tests::wrong::rig::Rig;
use hmc_tests::wrong::target::Target;

const ID: RndvId = RndvId(0);
/// Bytes of a message of more than one piece.
const LEN: u64 = 3 << 20;
const NOT_NOW: &str = "a note of a message came that may not come now";

fn send_notes(rig: &mut Rig<'_>, notes: &[RndvMsg]) {
    let bytes: Vec<u8> =
        notes.iter().flat_map(|note| frame(&ControlMessage::Rndv(*note))).collect();
    rig.rogue.control.write_all(&bytes).unwrap();
}

fn read_note(rig: &mut Rig<'_>) -> RndvMsg {
    loop {
        let (header, payload) = read_frame(&mut rig.rogue.control).expect("a note");
        if let Ok(ControlMessage::Rndv(note)) = ControlMessage::parse(header, &payload) {
            return note;
        }
    }
}

fn bytes_of(len: u64) -> usize {
    usize::try_from(len).unwrap()
}

const fn offer(id: u32) -> RndvMsg {
    RndvMsg::Offer { id: RndvId(id), len: LEN }
}

const fn filled(seq: u64) -> RndvMsg {
    RndvMsg::Filled { id: ID, seq }
}

const fn credit(seq: u64) -> RndvMsg {
    RndvMsg::Credit { id: ID, seq }
}

const fn well(from: RndvRole) -> RndvMsg {
    RndvMsg::End { id: ID, from, how: Ok(()) }
}

#[test]
fn offers_that_are_not_due_end_the_link() {
    let many: Vec<RndvMsg> = (0..65).map(offer).collect();
    let cases: [(&str, &[RndvMsg], &str); 5] = [
        ("an offer with a later number", &[offer(1)], "message 1 was offered when 0 was next"),
        ("an offer again", &[offer(0), offer(0)], "message 0 was offered when 1 was next"),
        ("more offers than may be under way", &many, "more than 64 messages are under way"),
        ("a piece of no message", &[filled(0)], "there is no message 0"),
        ("a place for no message", &[credit(0)], "there is no message 0"),
    ];
    for via in BOTH {
        let mut target = Target::new(*via);
        for (what, notes, check) in cases {
            let mut rig = Rig::new(&mut target);
            send_notes(&mut rig, notes);
            rig.assert_ended(what, check);
        }
    }
}

/// The session does `call` with a message while the rogue does its part; the call ends with the link.
fn during(
    target: &mut Target,
    call: impl FnOnce(&Peer) -> Result<(), Error> + Send,
    part: impl FnOnce(&mut Rig<'_>),
    (what, check): (&str, &str),
) {
    let mut rig = Rig::new(target);
    let peer = rig.peer.clone();
    let e = std::thread::scope(|scope| {
        let call = scope.spawn(move || call(&peer).unwrap_err());
        part(&mut rig);
        call.join().unwrap()
    });
    assert_eq!(e.kind(), ErrorKind::PeerDead, "{what}: {e}");
    assert!(e.to_string().contains(check), "{what}: {e}");
    rig.assert_ended(what, check);
}

#[test]
fn an_unexpected_sender_note_ends_the_link() {
    let receive =
        |peer: &Peer| peer.recv_data(&mut vec![0; bytes_of(LEN)]).wait().map(|d| d.bytes).map(drop);
    let cases: [(&str, &[RndvMsg], &str); 4] = [
        (
            "the second piece first",
            &[filled(1)],
            "piece 1 of a message came when it was the turn of 0",
        ),
        (
            "a piece twice",
            &[filled(0), filled(0)],
            "piece 0 of a message came when it was the turn of 1",
        ),
        (
            "a third piece without its credit",
            &[filled(0), filled(1), filled(2)],
            "piece 2 of a message came when it was the turn of 2",
        ),
        ("an end before the last piece", &[well(RndvRole::Sender)], NOT_NOW),
    ];
    for via in BOTH {
        let mut target = Target::new(*via);
        for (what, notes, check) in cases {
            let part = |rig: &mut Rig<'_>| {
                send_notes(rig, &[offer(0)]);
                assert!(matches!(read_note(rig), RndvMsg::Ready { id: ID, .. }));
                send_notes(rig, notes);
            };
            during(&mut target, receive, part, (what, check));
        }
    }
}

/// What the rogue lets the session put into its window.
fn place(len: u64, direct: bool) -> RndvMsg {
    let region = wide_window();
    let span = region.extent.whole().split_at_most(len).0;
    let area = WindowSlice { window: region.window, epoch: region.epoch, span, expected: None };
    let place = if direct { Some(RecvTarget::direct(area)) } else { RecvTarget::staged(area) };
    RndvMsg::Ready { id: ID, target: place.unwrap() }
}

#[test]
fn an_unexpected_receiver_note_ends_the_link() {
    let bytes = vec![5; bytes_of(LEN)];
    let send = |peer: &Peer| peer.send_data(&bytes).wait().map(drop);
    let staged = place(2, false);
    let turn = "piece 1 of a message came when it was the turn of 0";
    let other = RndvMsg::Credit { id: RndvId(5), seq: 0 };
    let length = "64 bytes of space for a message of 3145728 bytes";
    let cases: [(&str, &[RndvMsg], &str); 6] = [
        ("an end before the sender's", &[well(RndvRole::Receiver)], NOT_NOW),
        ("credit before there is a place", &[credit(0)], NOT_NOW),
        ("credit for what was not filled", &[staged, credit(1)], turn),
        ("two places", &[staged, staged], NOT_NOW),
        ("a place of another length", &[place(64, true)], length),
        ("credit for another message", &[other], "there is no message 5"),
    ];
    for via in BOTH {
        let mut target = Target::new(*via);
        for (what, notes, check) in cases {
            let part = |rig: &mut Rig<'_>| {
                assert!(matches!(read_note(rig), RndvMsg::Offer { id: ID, .. }));
                send_notes(rig, notes);
            };
            during(&mut target, send, part, (what, check));
        }
    }
}

/// The link ends while the rogue may be copying pieces by itself: their memory comes back with the rogue's end.
#[test]
fn memory_of_a_message_comes_back_with_its_peer() {
    let bytes = vec![5; bytes_of(LEN)];
    for via in BOTH {
        let mut target = Target::new(*via);
        let part = |rig: &mut Rig<'_>| {
            assert!(matches!(read_note(rig), RndvMsg::Offer { id: ID, .. }));
            send_notes(rig, &[place(1 << 20, false)]);
            let _ = rig.rogue.read_head();
            send_notes(rig, &[credit(1)]);
        };
        let send = |peer: &Peer| peer.send_data(&bytes).wait().map(drop);
        let turn = "piece 1 of a message came when it was the turn of 0";
        during(&mut target, send, part, ("credit while pieces are put", turn));
    }
}

/// Halves of different lengths, of none, and longer than 2 GiB together.
#[test]
fn an_area_without_two_halves_ends_the_link() {
    let bytes = vec![5; bytes_of(LEN)];
    let lengths = [0, 1, 3, (2 << 30) + 2, u64::MAX - 1];
    for via in BOTH {
        let mut target = Target::new(*via);
        for len in lengths {
            let mut ready = frame(&ControlMessage::Rndv(place(2, false)));
            // Its last field.
            let at = ready.len() - 8;
            ready[at..].copy_from_slice(&len.to_le_bytes());
            let (head, payload) = ready.split_first_chunk::<8>().unwrap();
            let header = Header::parse(head, MAX_FRAME_BYTES).unwrap();
            let check = ControlMessage::parse(header, payload).unwrap_err().to_string();
            assert!(check.contains("halves"), "{check}");
            let part = |rig: &mut Rig<'_>| {
                assert!(matches!(read_note(rig), RndvMsg::Offer { id: ID, .. }));
                rig.rogue.control.write_all(&ready).unwrap();
            };
            let send = |peer: &Peer| peer.send_data(&bytes).wait().map(drop);
            let what = format!("an area of {len} bytes");
            during(&mut target, send, part, (&what, &check));
        }
    }
}
