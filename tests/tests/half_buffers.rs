//! The half-buffers through which a lender's message goes: none is filled again before its put has ended, however long the
//! receiver lets the bytes wait in a full socket.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use hmc_std::want;
use std::io::Write as _;
use std::time::Duration;

use hmc_core::limits::RNDV_HALF_BYTES;
use hmc_core::rndv::{RecvTarget, RndvMsg, RndvRole};
use hmc_core::wire::message::ControlMessage;
use hmc_tests::env::until;
use hmc_tests::pair::pattern;
use hmc_tests::raw_frames::frame;
use hmc_tests::receiver::{Receiver, Sender, area, receive_note, send_note, take};
use rustix::net::sockopt;

const LONG: Duration = Duration::from_secs(30);
/// More than the sockets of both ends hold: 4 MiB at most for the sender's (tcp_wmem), 4 KiB for the receiver's.
const LEN: u64 = 24 << 20;
/// Tags between the first puts and the first byte that is read.
const TAGS: u64 = 64;

fn puts(sender: &Sender) -> u64 {
    sender.session.stats().peers[0].puts
}

/// Has the sender put to `place` while nothing is read, then takes all bytes. What came, and how many puts were begun before
/// any of them had ended.
fn received(place: RecvTarget) -> (Vec<u8>, u64) {
    let mut sender = Sender::new();
    let Receiver { mut rogue, peer } = sender.receiver();
    let bytes = pattern(LEN, 3);
    let half = place.area().span.len() / 2;
    std::thread::scope(|s| {
        let sent = s.spawn(|| peer.send_data(&bytes).wait());
        let RndvMsg::Offer { id, len } = receive_note(&mut rogue.control) else {
            panic!("no offer")
        };
        assert_eq!(len, LEN);
        send_note(&mut rogue.control, RndvMsg::Ready { id, target: place });
        until("both half-buffers are put", LONG, || (puts(&sender) >= 2).then_some(()));
        // One by one: each of them wakes the sender.
        for tag in 0..TAGS {
            rogue.control.write_all(&frame(&ControlMessage::Tag(tag))).unwrap();
            assert_eq!(peer.recv(want::Tag).wait().unwrap(), tag);
        }
        let begun = puts(&sender);
        // From here on it reads, with buffers of usual size.
        sockopt::set_socket_recv_buffer_size(&rogue.data, 4 << 20).unwrap();
        let mut got = vec![0; usize::try_from(LEN).unwrap()];
        let data = &mut rogue.data;
        let reader = s.spawn(move || {
            // In halves: how often each was filled, and how far.
            let mut filled = [0; 2];
            take(data, LEN, true, |frame, payload| {
                let at = if place.mode() == hmc_core::rndv::RndvMode::Direct {
                    frame.offset
                } else {
                    let second = u64::from(frame.offset >= half);
                    let before = &mut filled[usize::try_from(second).unwrap()];
                    let round = *before / half;
                    *before += u64::from(frame.len);
                    (2 * round + second) * half + (frame.offset - second * half)
                };
                let at = usize::try_from(at).unwrap();
                got[at..at + payload.len()].copy_from_slice(payload);
            });
            got
        });
        loop {
            match receive_note(&mut rogue.control) {
                RndvMsg::Filled { id, seq } => {
                    send_note(&mut rogue.control, RndvMsg::Credit { id, seq })
                }
                RndvMsg::End { id, from: RndvRole::Sender, how } => {
                    assert_eq!(how, Ok(()));
                    let end = RndvMsg::End { id, from: RndvRole::Receiver, how: Ok(()) };
                    send_note(&mut rogue.control, end);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        sent.join().unwrap().unwrap();
        (reader.join().unwrap(), begun)
    })
}

fn assert_right(what: &str, place: RecvTarget) {
    let (got, begun) = received(place);
    let wrong = got.iter().zip(pattern(LEN, 3)).position(|(a, b)| *a != b);
    assert_eq!(wrong, None, "{what}: the first byte that is wrong");
    assert_eq!(begun, 2, "{what}: puts before the first had ended");
}

#[test]
fn a_half_buffer_is_not_filled_while_its_put_waits_in_a_full_socket() {
    assert_right("straight into the place", RecvTarget::direct(area(0, LEN)));
    // Each of the receiver's halves takes several of the sender's.
    let halves = RecvTarget::staged(area(0, 8 * RNDV_HALF_BYTES)).expect("two halves");
    assert_right("through halves of the receiver", halves);
}
