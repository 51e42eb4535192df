//! Direct messages of which the receiver counts the bytes that are put (WIRE.md, 3.6), against a peer that is written by hand.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::io::{Read as _, Write as _};
use std::task::{Context, Waker};
use std::time::Duration;

use hmc_core::rndv::{AbortReason, RecvTarget, RndvId, RndvMsg, RndvRole};
use hmc_core::types::Access;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};
use hmc_core::wire::hello::Features;
use hmc_core::wire::message::ControlMessage;
use hmc_std::{ErrorKind, Message, Op, Span};
use hmc_tests::env::{Via, until};
use hmc_tests::raw_frames::{frame, read_frame};
use hmc_tests::rogue::wide_window;
use hmc_tests::wrong::rig::{LIE, Rig};
use hmc_tests::wrong::target::Target;
use rustix::net::{Shutdown, shutdown};

const LONG: Duration = Duration::from_secs(30);
const ID: RndvId = RndvId(0);
const HALF: u32 = 32 << 10;
const LEN: u64 = 64 << 10;

fn rig(target: &mut Target) -> Rig<'_> {
    Rig::with(target, Access::all(), Features::BATCHED_ACKS | Features::COUNTED)
}

fn send_note(rig: &mut Rig<'_>, note: RndvMsg) {
    rig.rogue.control.write_all(&frame(&ControlMessage::Rndv(note))).unwrap();
}

/// The next note of a message, or `Err` with a tag that comes before it.
fn receive_note(rig: &mut Rig<'_>) -> Result<RndvMsg, u64> {
    loop {
        let (header, payload) = read_frame(&mut rig.rogue.control).expect("a frame");
        match ControlMessage::parse(header, &payload) {
            Ok(ControlMessage::Rndv(note)) => return Ok(note),
            Ok(ControlMessage::Tag(tag)) => return Err(tag),
            _ => {}
        }
    }
}

const fn end(from: RndvRole, how: Result<(), AbortReason>) -> RndvMsg {
    RndvMsg::End { id: ID, from, how }
}

/// Offers a message to a receive that waits. Where it is to be put.
fn offer(rig: &mut Rig<'_>) -> RecvTarget {
    send_note(rig, RndvMsg::Offer { id: ID, len: LEN });
    let Ok(RndvMsg::Ready { id: ID, target }) = receive_note(rig) else { panic!("no place") };
    assert_eq!(target, RecvTarget::direct(target.area()));
    target
}

/// One put of half a message.
fn put(rig: &mut Rig<'_>, seq: u32, place: RecvTarget) {
    let area = place.area();
    let mut write = DataFrame::new(DataKind::Write, seq);
    (write.window, write.epoch) = (area.window, area.epoch);
    write.offset =
        area.span.offset().checked_add(u64::from(seq).checked_mul(HALF.into()).unwrap()).unwrap();
    (write.len, write.total, write.flags) = (HALF, HALF.into(), DataFlags::LAST);
    rig.send(&write, &vec![LIE; usize::try_from(HALF).unwrap()]);
}

/// Also into the window that served the message before.
#[test]
fn a_session_answers_with_one_word_when_all_bytes_are_there() {
    let mut target = Target::new(Via::Tcp);
    let mut rig = rig(&mut target);
    let region = rig.target.session.memory().allocate(LEN).unwrap();
    let receive = rig.peer.recv_data(region.take_all().unwrap()).start().unwrap();
    let place = offer(&mut rig);
    put(&mut rig, 0, place);
    rig.peer.send(Message::Tag(5)).wait().unwrap();
    assert_eq!(receive_note(&mut rig), Err(5), "half of it");
    put(&mut rig, 1, place);
    assert_eq!(receive_note(&mut rig), Ok(end(RndvRole::Receiver, Ok(()))));
    let got = receive.wait().unwrap();
    assert!(got.memory.as_slice().iter().all(|byte| *byte == LIE));
    // A withdrawal that crossed with that changes nothing; the link lives.
    send_note(&mut rig, end(RndvRole::Sender, Err(AbortReason::Cancelled)));
    rig.peer.send(Message::Tag(6)).wait().unwrap();
    assert_eq!(receive_note(&mut rig), Err(6));
}

#[test]
fn an_end_of_the_sender_ends_the_link() {
    let mut target = Target::new(Via::Tcp);
    let mut rig = rig(&mut target);
    let region = rig.target.session.memory().allocate(LEN).unwrap();
    let receive = rig.peer.recv_data(region.take_all().unwrap()).start().unwrap();
    offer(&mut rig);
    send_note(&mut rig, end(RndvRole::Sender, Ok(())));
    let _ = receive.wait().unwrap_err();
    rig.assert_ended("its sender's END", "a note of a message came that may not come now");
}

/// A message of the session to the peer, which has all its bytes.
fn sent(rig: &mut Rig<'_>) -> Op<Span> {
    let message = vec![7; usize::try_from(LEN).unwrap()];
    let source = rig.target.session.memory().allocate(LEN).unwrap();
    let mut span = source.take_all().unwrap();
    span.write_at(0, &message).unwrap();
    let send = rig.peer.send_data(span).within(LONG).start().unwrap();
    assert_eq!(receive_note(rig), Ok(RndvMsg::Offer { id: ID, len: LEN }));
    let place = RecvTarget::direct(wide_window().slice(0, LEN).unwrap());
    send_note(rig, RndvMsg::Ready { id: ID, target: place });
    let (mut head, mut got) = ([0; DATA_FRAME_BYTES], vec![0; message.len()]);
    rig.rogue.data.read_exact(&mut head).unwrap();
    rig.rogue.data.read_exact(&mut got).unwrap();
    assert!(got == message);
    send
}

#[test]
fn a_send_ends_with_the_receivers_end_and_the_answer_to_its_put() {
    let mut target = Target::new(Via::Tcp);
    let mut rig = rig(&mut target);
    let send = sent(&mut rig);
    send_note(&mut rig, end(RndvRole::Receiver, Ok(())));
    rig.rogue.control.write_all(&frame(&ControlMessage::Tag(1))).unwrap();
    assert_eq!(rig.peer.recv(hmc_std::want::Tag).wait().unwrap(), 1);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(send.poll_ended(&mut cx).is_pending(), "its put may still read the memory");
    rig.rogue.data.write_all(&DataFrame::ack(0, 1).emit()).unwrap();
    assert_eq!(send.wait().unwrap().bytes, LEN);
    rig.peer.send(Message::Tag(2)).wait().unwrap();
    assert_eq!(receive_note(&mut rig), Err(2), "no word of its own");
}

/// The receiver ends after it said that it has all: the connection of the put can end before that is read.
#[test]
fn a_send_whose_answer_is_lost_ends_as_its_receiver_says() {
    for says_so in [true, false] {
        let mut target = Target::new(Via::Tcp);
        let mut rig = rig(&mut target);
        let send = sent(&mut rig);
        shutdown(&rig.rogue.data, Shutdown::Both).unwrap();
        until("the end is seen", LONG, || (!rig.peer.is_connected()).then_some(()));
        if says_so {
            send_note(&mut rig, end(RndvRole::Receiver, Ok(())));
            assert_eq!(send.wait().expect("it was received").bytes, LEN);
        } else {
            drop(rig.rogue);
            let failed = send.wait().expect_err("nobody knows");
            assert_eq!(failed.error().kind(), ErrorKind::PeerDead);
        }
    }
}
