//! The half-buffers through which a lender's message goes: none is filled again before its put has ended, however long the
//! receiver lets the bytes wait in a full socket.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use hmc_std::want;
use std::future::{Future as _, IntoFuture as _};
use std::io::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use hmc_core::limits::RNDV_HALF_BYTES;
use hmc_core::rndv::{RecvTarget, RndvMsg, RndvRole};
use hmc_core::wire::message::ControlMessage;
use hmc_tests::env::until;
use hmc_tests::executor::block_on;
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

struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Its bytes wait in a full socket: nothing wakes its task until a put has ended, and each of these does.
#[test]
fn an_awaited_collective_sleeps_while_its_puts_wait_in_a_full_socket() {
    let mut sender = Sender::new();
    let Receiver { mut rogue, peer } = sender.receiver();
    let group = sender.session.group(&[0, 1]).wait().unwrap();
    let (send, mut recv) = (pattern(2 * LEN, 3), pattern(LEN, 4));
    let mut scatter = pin!(group.scatter(0, &send, &mut recv).within(LONG).into_future());
    let wakes = Arc::new(Wakes(AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&wakes));
    let mut poll = || {
        let polled = scatter.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending(), "nothing was read: {polled:?}");
    };
    poll();
    let RndvMsg::Offer { id, len } = receive_note(&mut rogue.control) else { panic!("no offer") };
    assert_eq!(len, LEN);
    send_note(&mut rogue.control, RndvMsg::Ready { id, target: RecvTarget::direct(area(0, LEN)) });
    until("both half-buffers are put", LONG, || {
        poll();
        (puts(&sender) >= 2).then_some(())
    });
    // The first ends the wakes of before: one thread gives all of them, in their order.
    let mut before = 0;
    for tag in 0..=TAGS {
        poll();
        let mut tags = peer.recv(want::Tag).into_future();
        let told = Arc::new(Wakes(AtomicU64::new(0)));
        let task = Waker::from(Arc::clone(&told));
        assert!(pin!(&mut tags).poll(&mut Context::from_waker(&task)).is_pending());
        rogue.control.write_all(&frame(&ControlMessage::Tag(tag))).unwrap();
        // The tag may be there before its task is woken.
        until("the tag's task is woken", LONG, || {
            (told.0.load(Ordering::SeqCst) != 0).then_some(())
        });
        assert_eq!(block_on(tags).unwrap(), tag);
        if tag == 0 {
            before = wakes.0.load(Ordering::SeqCst);
        }
    }
    assert_eq!(wakes.0.load(Ordering::SeqCst), before, "wakes of a task that can do nothing");
    std::thread::scope(|s| {
        s.spawn(|| {
            sockopt::set_socket_recv_buffer_size(&rogue.data, 4 << 20).unwrap();
            take(&mut rogue.data, LEN, true, |_, _| ());
        });
        let control = &mut rogue.control;
        s.spawn(move || {
            let end = RndvMsg::End { id, from: RndvRole::Sender, how: Ok(()) };
            assert_eq!(receive_note(control), end);
            send_note(control, RndvMsg::End { id, from: RndvRole::Receiver, how: Ok(()) });
        });
        block_on(scatter.as_mut()).unwrap();
    });
}
