//! Frames in: what is taken in one turn, what stops the reading, and what breaks the protocol.

use std::fs::File;
use std::io::Write as _;

use hmc_core::region::WindowId;
use hmc_core::transport::{DataCloseReason, DataPlane as _, Progress as _};
use hmc_core::window::WindowFault;
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::work::{Failure, Opcode};
use hmc_mem::os::fd_passing::send_fd;

use super::{Bench, asked, bytes};
use crate::node::inbox::{Message, Wanted};

/// Who is told once that bytes have come is not told again.
#[test]
fn all_that_has_come_is_taken_in_one_turn() {
    for local in [true, false] {
        let mut bench = Bench::new(local, true, 16);
        let region = bench.region(40_000);
        let window = bench.window(&region);
        let mut all = Vec::new();
        for seq in 0..400 {
            let len: u16 = if seq < 3 { 40_000 } else { 4 };
            all.extend(asked(DataKind::Write, seq, &window, len.into()).emit());
            all.resize(all.len() + usize::from(len), 1);
        }
        (&bench.peer).write_all(&all).expect("space");
        assert!(bench.plane.poll_peer(true));
        assert_eq!(bench.plane.bytes_in, 3 * 40_000 + 397 * 4, "local {local}");
        let sent = bench.frames();
        assert_eq!(sent, [DataFrame::ack(399, 400)], "local {local}");
        assert_eq!(bytes(&region), [1; 40_000]);
    }
}

#[test]
fn the_last_bytes_before_the_end_are_executed() {
    let mut bench = Bench::new(false, false, 16);
    let region = bench.region(64);
    let window = bench.window(&region);
    bench.send(&asked(DataKind::Write, 0, &window, 64), &[1; 64]);
    bench.peer.shutdown(std::net::Shutdown::Write).expect("connected");
    while bench.plane.close_reason().is_none() {
        bench.plane.poll_peer(true);
    }
    assert_eq!(bench.plane.close_reason(), Some(DataCloseReason::Eof));
    assert_eq!(bytes(&region), [1; 64]);
}

/// Only the last frame of a put with a tag needs a place in the inbox.
#[test]
fn a_full_inbox_stops_the_reading_at_the_frame_that_brings_a_tag() {
    let mut bench = Bench::new(true, true, 1);
    let region = bench.region(64);
    let window = bench.window(&region);
    bench.inbox.lock().expect("nobody panics").push(Message::Tag(1));
    bench.send(&asked(DataKind::Write, 0, &window, 64), &[1; 64]);
    let mut first = asked(DataKind::Write, 1, &window, 64);
    (first.len, first.flags) = (32, DataFlags::empty());
    bench.send(&first, &[2; 32]);
    let mut second = first;
    (second.offset, second.flags, second.tag) = (32, DataFlags::LAST | DataFlags::NOTIFY, 6);
    bench.send(&second, &[3; 32]);
    bench.plane.poll_peer(true);
    assert_eq!(bench.kinds(), [(DataKind::Ack, 0)]);
    assert_eq!(bytes(&region), [[2; 32], [1; 32]].concat());
    assert!(bench.plane.is_paused());
    let interest = bench.plane.interest();
    assert!(!interest.connection.read && interest.connection.end && !interest.work, "{interest:?}");
    assert!(!bench.plane.take_delivered());
    let take = |bench: &Bench| bench.inbox.lock().expect("nobody panics").take(Wanted::Any);
    assert_eq!(take(&bench), Some(Message::Tag(1)));
    let interest = bench.plane.interest();
    assert!(interest.connection.read && !interest.connection.end && interest.work, "{interest:?}");
    bench.plane.poll_peer(true);
    assert!(!bench.plane.is_paused());
    assert_eq!(bench.kinds(), [(DataKind::Ack, 1)]);
    assert_eq!(take(&bench), Some(Message::Notify(6)));
    assert!(bench.plane.take_delivered());
    assert!(!bench.plane.take_delivered());
}

#[test]
fn the_end_of_a_peer_is_seen_while_the_reading_is_stopped() {
    let mut bench = Bench::new(true, true, 1);
    let region = bench.region(64);
    let window = bench.window(&region);
    bench.inbox.lock().expect("nobody panics").push(Message::Tag(1));
    let mut put = asked(DataKind::Write, 0, &window, 64);
    put.flags |= DataFlags::NOTIFY;
    bench.send(&put, &[1; 64]);
    bench.plane.poll_peer(true);
    assert!(bench.plane.is_paused());
    assert_eq!(bench.plane.close_reason(), None);
    bench.peer.shutdown(std::net::Shutdown::Write).expect("connected");
    bench.plane.poll_peer(true);
    assert_eq!(bench.plane.close_reason(), Some(DataCloseReason::Eof));
}

/// A region frame that says what comes with it, sent with a file.
fn pages(bench: &Bench, kind: DataKind) {
    let mut frame = DataFrame::new(kind, 0);
    frame.window = WindowId(1);
    if kind == DataKind::Write {
        frame.flags = DataFlags::LAST;
    }
    let file = File::open("/dev/null").expect("a file");
    let sent = send_fd(&bench.peer, &file, &frame.emit());
    assert!(sent.is_ok(), "{sent:?}");
}

#[test]
fn descriptors_are_taken_from_local_peers_alone() {
    let mut bench = Bench::new(true, true, 1);
    pages(&bench, DataKind::Region);
    bench.plane.poll_peer(true);
    assert_eq!(bench.plane.close_reason(), None);
    assert_eq!(bench.plane.take_arrival().map(|a| a.window), Some(WindowId(1)));
    let mut bench = Bench::new(false, true, 1);
    pages(&bench, DataKind::Region);
    bench.plane.poll_peer(true);
    assert_eq!(
        bench.plane.close_reason(),
        Some(DataCloseReason::Protocol("a region frame without a descriptor"))
    );
}

/// Each takes a place of those that this process may have.
#[test]
fn no_more_than_eight_descriptors_wait_for_their_frames() {
    let mut bench = Bench::local();
    for sent in 1..12 {
        pages(&bench, DataKind::Write);
        bench.plane.poll_peer(true);
        assert_eq!(bench.plane.close_reason(), None);
        assert_eq!(bench.plane.rx.descriptors.len(), sent.min(8));
    }
}

#[test]
fn no_more_than_128_pages_wait_to_be_mapped() {
    let mut bench = Bench::local();
    for _ in 0..128 {
        pages(&bench, DataKind::Region);
        bench.plane.poll_peer(true);
        assert_eq!(bench.plane.close_reason(), None);
    }
    pages(&bench, DataKind::Region);
    bench.plane.poll_peer(true);
    assert_eq!(
        bench.plane.close_reason(),
        Some(DataCloseReason::Protocol("too many regions at once"))
    );
}

/// The bytes are sent instead only if the peer cannot reach this process.
#[test]
fn a_copy_that_a_window_refuses_is_not_sent_again() {
    let gone = Failure::Window(WindowFault::Revoked);
    for (opcode, by_ref, why, again) in [
        (Opcode::Put, true, gone, false),
        (Opcode::Put, true, Failure::Unsupported, true),
        (Opcode::Get, true, Failure::Unsupported, true),
        (Opcode::Put, false, Failure::Unsupported, false),
    ] {
        let mut bench = Bench::local();
        let region = bench.region(64);
        bench.submit(0, opcode, &region, by_ref);
        assert_eq!(bench.frames().len(), 1);
        bench.send(&DataFrame::nack(0, why), &[]);
        bench.plane.poll_peer(true);
        assert_eq!(bench.plane.close_reason(), None);
        assert_eq!(bench.plane.may_use_refs(), !again, "{opcode:?} {why:?}");
        let kind = if opcode == Opcode::Get { DataKind::Read } else { DataKind::Write };
        let sent = bench.kinds();
        assert_eq!(sent, if again { vec![(kind, 1)] } else { vec![] }, "{opcode:?} {why:?}");
        assert_eq!(bench.poll(), if again { vec![] } else { vec![(0, Err(why))] });
    }
}

/// What a peer may not answer.
#[test]
fn answers_out_of_turn_break_the_protocol() {
    let mut answer = DataFrame::new(DataKind::ReadData, 0);
    (answer.len, answer.total, answer.flags) = (64, 64, DataFlags::LAST);
    let part = DataFrame { len: 32, ..answer };
    let later = DataFrame { offset: 32, flags: DataFlags::empty(), ..part };
    let cases: [(Opcode, bool, DataFrame, &[u8], &str); 9] = [
        (Opcode::Get, false, DataFrame::ack(0, 1), &[], "an acknowledgement out of turn"),
        (Opcode::Put, false, DataFrame::ack(1, 1), &[], "an acknowledgement of nothing"),
        (Opcode::Put, false, DataFrame::ack(0, 2), &[], "an acknowledgement of nothing"),
        (Opcode::Put, false, DataFrame::nack(1, Failure::PeerDead), &[], "a refusal of nothing"),
        (Opcode::Put, false, answer, &[1; 64], "an answer that does not fit its request"),
        (
            Opcode::Get,
            false,
            DataFrame { seq: 1, ..answer },
            &[1; 64],
            "an answer that nobody asked for",
        ),
        (Opcode::Get, false, part, &[1; 32], "an answer that ends early"),
        (Opcode::Get, false, later, &[1; 32], "an answer out of order"),
        (Opcode::Get, true, DataFrame::nack(7, Failure::Unsupported), &[], "a refusal of nothing"),
    ];
    for (opcode, by_ref, frame, payload, why) in cases {
        let mut bench = Bench::local();
        let region = bench.region(64);
        bench.submit(0, opcode, &region, by_ref);
        assert_eq!(bench.frames().len(), 1);
        bench.send(&frame, payload);
        bench.plane.poll_peer(true);
        assert_eq!(
            bench.plane.close_reason(),
            Some(DataCloseReason::Protocol(why)),
            "{opcode:?} {frame:?}"
        );
    }
    // Before the request was sent, and while it is.
    for (len, frame, why) in [
        (64, DataFrame::ack(0, 1), "an acknowledgement out of turn"),
        (64, DataFrame::nack(0, Failure::PeerDead), "a refusal out of turn"),
        (1 << 20, DataFrame::ack(0, 1), "an acknowledgement of an unsent put"),
        (1 << 20, DataFrame::nack(0, Failure::PeerDead), "a refusal of an unsent put"),
    ] {
        let mut bench = Bench::local();
        let region = bench.region(len);
        bench.submit(0, Opcode::Put, &region, false);
        if len > 64 {
            bench.plane.flush();
        }
        bench.send(&frame, &[]);
        bench.plane.poll_peer(true);
        assert_eq!(bench.plane.close_reason(), Some(DataCloseReason::Protocol(why)), "{frame:?}");
    }
}

/// A copy by the peer is acknowledged whichever way it went.
#[test]
fn copies_that_the_peer_has_made_are_counted() {
    for opcode in [Opcode::Put, Opcode::Get] {
        let mut bench = Bench::local();
        let region = bench.region(64);
        bench.submit(0, opcode, &region, true);
        bench.submit(1, Opcode::Put, &region, true);
        assert_eq!(bench.frames().len(), 2);
        (&bench.peer).write_all(&DataFrame::ack(1, 2).emit()).expect("space");
        bench.plane.poll_peer(true);
        assert_eq!(bench.poll(), [(0, Ok(64)), (1, Ok(64))]);
        assert_eq!((bench.plane.bytes_out, bench.plane.bytes_in), (128, 0));
    }
}
