//! Frames out: their order, their marks, and what waits.

use std::fs::File;
use std::io::Read as _;

use hmc_core::region::{Epoch, WindowId};
use hmc_core::transport::Progress as _;
use hmc_core::transport::Target as _;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};
use hmc_core::work::{CompleteWhen, Opcode};

use super::super::tx::{Body, Offer, Owner, Tx};
use super::{Bench, asked, bytes, fill, work};

const LAST: DataFlags = DataFlags::LAST;
const NONE: DataFlags = DataFlags::empty();

/// Neither end of a link starves the other.
#[test]
fn answers_come_first_then_replies_and_requests_in_turn() {
    let (read, reply) = (DataKind::Read, DataKind::ReadData);
    for (replies, requests, then) in [
        (3, 3, vec![(reply, 0), (read, 0), (reply, 1), (read, 1), (reply, 2), (read, 2)]),
        (3, 1, vec![(reply, 0), (read, 0), (reply, 1), (reply, 2)]),
        (1, 3, vec![(reply, 0), (read, 0), (read, 1), (read, 2)]),
    ] {
        let mut bench = Bench::local();
        let region = bench.region(64);
        let window = bench.window(&region);
        for index in 0..requests {
            bench.submit(index, Opcode::Get, &region, false);
        }
        for seq in 0..replies {
            bench.send(&asked(read, seq, &window, 64), &[]);
        }
        bench.send(&asked(DataKind::Write, 9, &window, 4), &[1; 4]);
        bench.plane.poll_peer(true);
        let expected = [vec![(DataKind::Ack, 9)], then].concat();
        assert_eq!(bench.kinds(), expected, "{replies} replies, {requests} requests");
    }
}

/// A reply that is sent from where it lies can be taken back half-way: its last word comes behind it.
#[test]
fn a_reply_is_marked_as_complete_once_its_bytes_cannot_be_taken_back() {
    for (len, frames) in [
        (0, vec![(0, LAST)]),
        (2048, vec![(2048, LAST)]),
        (2049, vec![(2049, NONE), (0, LAST)]),
        ((1 << 20) + 1, vec![(1 << 20, NONE), (1, LAST)]),
    ] {
        let mut bench = Bench::local();
        let region = bench.region(len);
        let window = bench.window(&region);
        bench.send(&asked(DataKind::Read, 0, &window, len), &[]);
        bench.plane.poll_peer(true);
        let sent: Vec<_> = bench.frames().iter().map(|f| (f.len, f.flags)).collect();
        assert_eq!(sent, frames, "{len} bytes");
        assert_eq!((bench.plane.bytes_out, bench.plane.bytes_in), (len, 0));
    }
}

#[test]
fn the_frames_of_a_request_say_what_it_is() {
    let notify = Opcode::PutNotify { tag: 5 };
    let mut bench = Bench::local();
    let region = bench.region((1 << 20) + 1);
    for (opcode, by_ref) in [
        (Opcode::Get, false),
        (Opcode::Get, true),
        (Opcode::Put, true),
        (notify, true),
        (notify, false),
    ] {
        bench.submit(0, opcode, &region, by_ref);
    }
    let addr = u64::try_from(region.bytes().as_ptr().expose_provenance()).expect("an address");
    let sent: Vec<_> = bench
        .frames()
        .iter()
        .map(|f| {
            assert_eq!((f.window, f.epoch, f.total), (WindowId(1), Epoch(1), region.len()));
            (f.kind, f.flags, f.tag, f.offset, f.len, f.addr)
        })
        .collect();
    let both = DataFlags::NOTIFY | LAST;
    assert_eq!(
        sent,
        [
            (DataKind::Read, NONE, 0, 0, 0, 0),
            (DataKind::ReadRef, NONE, 0, 0, 0, addr),
            (DataKind::WriteRef, LAST, 0, 0, 0, addr),
            (DataKind::WriteRef, both, 5, 0, 0, addr),
            (DataKind::Write, NONE, 0, 0, 1 << 20, 0),
            (DataKind::Write, both, 5, 1 << 20, 1, 0),
        ]
    );
}

#[test]
fn a_put_is_complete_when_its_bytes_have_gone_only_if_that_was_asked() {
    for (when, len) in [
        (CompleteWhen::Local, 64),
        (CompleteWhen::Visible, 64),
        (CompleteWhen::Local, 4096),
        (CompleteWhen::Visible, 4096),
    ] {
        let mut bench = Bench::local();
        let region = bench.region(len);
        let put = hmc_core::work::WorkRequest { when, ..work(0, Opcode::Put, &region) };
        bench.plane.submit(&put, false, len).expect("space");
        assert_eq!(bench.frames().len(), 1);
        let early = if when == CompleteWhen::Local { vec![(0, Ok(len))] } else { vec![] };
        assert_eq!(bench.poll(), early, "{when:?}, {len} bytes");
        assert_eq!(
            bench.plane.requests.are_puts_answered(),
            early.is_empty(),
            "{when:?}, {len} bytes"
        );
        bench.send(&DataFrame::ack(0, 1), &[]);
        bench.plane.poll_peer(true);
        assert!(bench.plane.requests.are_puts_answered());
        let late = if when == CompleteWhen::Local { vec![] } else { vec![(0, Ok(len))] };
        assert_eq!(bench.poll(), late, "{when:?}, {len} bytes");
        assert_eq!((bench.plane.bytes_out, bench.plane.bytes_in), (len, 0));
    }
}

/// Its second frame is still to be sent from the application's memory.
#[test]
fn a_put_of_two_frames_has_not_gone_with_the_first() {
    let mut bench = Bench::local();
    let region = bench.region(2 << 20);
    let local = CompleteWhen::Local;
    let put = hmc_core::work::WorkRequest { when: local, ..work(0, Opcode::Put, &region) };
    bench.plane.submit(&put, false, 2 << 20).expect("space");
    let mut left = DATA_FRAME_BYTES + (1 << 20);
    while left > 0 {
        bench.plane.flush();
        let mut some = vec![0; left.min(4096)];
        left -= (&bench.peer).read(&mut some).expect("bytes");
    }
    assert_eq!(bench.poll(), []);
    let mut some = vec![0; 1 << 16];
    while (&bench.peer).read(&mut some).is_ok() {
        bench.plane.flush();
    }
    assert_eq!(bench.poll(), [(0, Ok(2 << 20))]);
}

#[test]
fn payload_is_staged_up_to_two_kibibytes_and_while_a_whole_frame_fits() {
    let mut bench = Bench::local();
    let region = bench.region(2049);
    fill(&region, 7);
    for (len, staged) in [(0, true), (2048, true), (2049, false)] {
        let mut tx = Tx::new();
        let range = region.slice(0, len).expect("in range").span;
        assert_eq!(tx.payload(&region, range, Owner::Request(3)), staged, "{len} bytes");
        let stage = bytes(&region).into_iter().take(usize::try_from(len).expect("small"));
        assert_eq!(tx.stage, stage.filter(|_| staged).collect::<Vec<_>>());
        assert_eq!(tx.body_of(3), !staged);
        assert!(!tx.body_of(2));
        assert_eq!(tx.has_space(), staged);
        assert_eq!(tx.is_idle(), len == 0);
    }
    let mut tx = Tx::new();
    tx.stage.resize(16 * 1024 - 2048 - DATA_FRAME_BYTES, 0);
    assert!(tx.has_space());
    tx.stage.push(0);
    assert!(!tx.has_space());
}

#[test]
fn zeros_stand_for_memory_that_was_taken_back_behind_the_head_of_their_frame() {
    let mut bench = Bench::local();
    let region = bench.region(5000);
    let range = region.local().extent.whole();
    let owner = Owner::Reply { window: WindowId(1), epoch: Epoch(1) };
    let mut frame = DataFrame::new(DataKind::ReadData, 4);
    (frame.len, frame.total) = (5000, 5000);
    bench.plane.tx.head(&frame);
    bench.plane.tx.bodies.push_back(Body { region: None, range, owner });
    bench.plane.flush();
    let mut sent = vec![9; DATA_FRAME_BYTES + 5001];
    assert_eq!((&bench.peer).read(&mut sent).expect("bytes"), DATA_FRAME_BYTES + 5000);
    sent.truncate(DATA_FRAME_BYTES + 5000);
    assert_eq!(sent, [&frame.emit()[..], &[0; 5000]].concat());
}

#[test]
fn pages_that_the_kernel_does_not_pass_on_wait_until_they_are_tried_again() {
    let mut bench = Bench::local();
    assert!(!bench.plane.has_output());
    let mut frame = DataFrame::new(DataKind::Region, 0);
    (frame.window, frame.epoch) = (WindowId(3), Epoch(2));
    bench.plane.offer(Offer { frame, fd: File::open("/dev/null").expect("a file").into() });
    for (window, epoch, waits) in [(3, 2, true), (3, 1, false), (4, 2, false)] {
        assert_eq!(
            bench.plane.offers_pages(WindowId(window), Epoch(epoch)),
            waits,
            "{window} {epoch}"
        );
    }
    assert!(bench.plane.has_output());
    bench.plane.tx.held = true;
    assert!(!bench.plane.has_output(), "no space is waited for");
    assert_eq!(bench.kinds(), []);
    let region = bench.region(8);
    bench.submit(0, Opcode::Get, &region, false);
    assert!(bench.plane.has_output());
    assert_eq!(bench.kinds(), [(DataKind::Read, 0)], "all else goes on");
    bench.plane.retry_offers();
    assert!(bench.plane.has_output());
    assert_eq!(bench.kinds(), [(DataKind::Region, 0)]);
    assert!(!bench.plane.has_output() && !bench.plane.offers_pages(WindowId(3), Epoch(2)));
}

#[test]
fn only_the_reply_from_a_window_that_is_taken_back_becomes_zeros() {
    let mut bench = Bench::local();
    let region = bench.region(4096);
    let range = region.local().extent.whole();
    let (window, epoch) = (WindowId(1), Epoch(1));
    for (owner, id, of, hit) in [
        (Owner::Reply { window, epoch }, window, epoch, true),
        (Owner::Reply { window, epoch }, WindowId(2), epoch, false),
        (Owner::Reply { window, epoch }, window, Epoch(2), false),
        (Owner::Request(1), window, epoch, false),
    ] {
        let mut tx = Tx::new();
        assert!(!tx.payload(&region, range, owner));
        tx.divert_window(id, of);
        let body = tx.bodies.pop_front().expect("it goes on");
        assert_eq!(body.region.is_none(), hit, "{owner:?} {id:?} {of:?}");
    }
}
