//! What a stream tells of itself: why it ended, whose memory it uses, what it has received and released.

use std::fs::File;
use std::io::Write as _;

use hmc_core::region::{Epoch, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    DataCloseReason, DataPlane as _, PeerWindows as _, Progress as _, Registration as _,
    Transport as _,
};
use hmc_core::types::{Access, Caps, ConnType};
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};
use hmc_core::work::{Failure, Opcode};
use hmc_mem::os::fd_passing::send_fd;

use super::super::requests::{MAX_REQUESTS, reserve_once};
use super::super::rx::Rx;
use super::{Bench, bytes};

fn op(index: u16) -> SlotId {
    SlotId { index, generation: 1 }
}

#[test]
fn a_stream_is_tcp_that_its_target_checks() {
    let mut bench = Bench::local();
    let all = Caps::all();
    assert_eq!((bench.plane.kind(), bench.plane.caps()), (Some(ConnType::Tcp), all));
    assert!(bench.plane.checks_accesses());
    assert!(bench.plane.trust().contains("the target checks window, range and epoch"));
    assert!(bench.plane.remove_window(WindowId(1), Epoch(1)), "no window of the peer is in use");
}

fn words(bench: &Bench, why: DataCloseReason) -> String {
    let mut words = String::new();
    bench.plane.describe_close(why, &mut words).expect("a string");
    words
}

#[test]
fn the_reason_of_an_end_is_told_in_words() {
    let mut bench = Bench::local();
    for (why, told) in [
        (DataCloseReason::System(13), "Permission denied (os error 13)"),
        (DataCloseReason::Protocol("more gets"), "it broke the protocol: more gets"),
        (DataCloseReason::Eof, "it closed the connection"),
    ] {
        assert_eq!(words(&bench, why), told);
    }
    (&bench.peer).write_all(&[0xFF; DATA_FRAME_BYTES]).expect("space");
    bench.plane.poll_peer(true);
    let why = bench.plane.close_reason().expect("that is no frame");
    let told = words(&bench, why);
    let start = "it broke the protocol: a malformed data frame: ";
    assert!(told.starts_with(start) && told.len() > start.len(), "{told}");
    assert_eq!(words(&bench, DataCloseReason::System(13)), "Permission denied (os error 13)");
}

/// A staged put is copied: its memory is free before the peer has it. Each of these is posted to a socket that takes some of it.
#[test]
fn memory_is_in_use_while_its_bytes_are_read_or_awaited() {
    const MIB: u64 = 1 << 20;
    for (opcode, len, by_ref, uses) in [
        (Opcode::Put, 64, false, false),
        (Opcode::Put, 64, true, true),
        (Opcode::Get, 64, true, true),
        (Opcode::Get, 64, false, true),
        (Opcode::Put, MIB, false, true),
        (Opcode::Put, MIB + 1, false, true),
    ] {
        let case = format!("{opcode:?} of {len} bytes, by reference {by_ref}");
        let mut bench = Bench::local();
        let region = bench.region(len);
        bench.submit(3, opcode, &region, by_ref);
        assert!(!bench.plane.uses_memory_of(op(3)), "{case}: it waits");
        bench.plane.flush();
        assert_eq!(bench.plane.uses_memory_of(op(3)), uses, "{case}");
        assert!(!bench.plane.uses_memory_of(op(4)), "{case}: of another operation");
    }
}

#[test]
fn memory_of_an_operation_that_has_ended_is_not_in_use() {
    let mut bench = Bench::local();
    let region = bench.region(64);
    bench.submit(0, Opcode::Get, &region, false);
    bench.submit(1, Opcode::Put, &region, true);
    assert_eq!(bench.frames().len(), 2);
    bench.send(&DataFrame::ack(1, 1), &[]);
    bench.plane.poll_peer(true);
    assert!(!bench.plane.uses_memory_of(op(1)) && bench.plane.uses_memory_of(op(0)));
    let _ = bench.plane.cancel(op(0));
    assert!(!bench.plane.uses_memory_of(op(0)), "its answer goes nowhere");
}

#[test]
fn pages_arrive_as_their_frame_describes_them() {
    for (tag, access) in [(1, Access::READ), (0x102, Access::WRITE), (3, Access::all())] {
        let mut bench = Bench::local();
        let mut frame = DataFrame::new(DataKind::Region, 0);
        (frame.window, frame.epoch, frame.tag) = (WindowId(5), Epoch(7), tag);
        (frame.offset, frame.addr, frame.total) = (4096, 100, 8192);
        let file = File::open("/dev/null").expect("a file");
        assert!(send_fd(&bench.peer, &file, &frame.emit()).is_ok());
        bench.plane.poll_peer(true);
        let pages = bench.plane.take_arrival().expect("they came");
        assert_eq!((pages.window, pages.epoch, pages.access()), (WindowId(5), Epoch(7), access));
        assert_eq!((pages.offset, pages.len, pages.total), (4096, 100, 8192));
        assert!(pages.fd.is_ok() && bench.plane.take_arrival().is_none());
    }
}

/// Its memory was let go of: nothing was received.
#[test]
fn a_get_whose_memory_is_not_known_any_more_is_cancelled_by_its_answer() {
    let mut bench = Bench::local();
    let region = bench.region(64);
    bench.submit(0, Opcode::Get, &region, false);
    assert_eq!(bench.frames().len(), 1);
    bench.plane.release_memory(true);
    let mut answer = DataFrame::new(DataKind::ReadData, 0);
    (answer.len, answer.total) = (32, 64);
    bench.send(&answer, &[1; 32]);
    bench.plane.poll_peer(true);
    assert_eq!(bench.poll(), [], "the rest follows");
    (answer.offset, answer.flags) = (32, DataFlags::LAST);
    bench.send(&answer, &[1; 32]);
    bench.plane.poll_peer(true);
    assert_eq!(bench.poll(), [(0, Err(Failure::Cancelled))]);
    assert_eq!(bytes(&region), [0; 64]);
}

#[test]
fn what_is_not_used_any_more_is_handed_out_once() {
    let mut bench = Bench::local();
    let region = bench.region(64);
    bench.plane.release_memory(false);
    assert!(format!("{:?}", bench.plane.take_released()).contains("count: 0"), "it is in use");
    drop(region);
    bench.plane.release_memory(false);
    assert!(format!("{:?}", bench.plane.take_released()).contains("count: 1"));
    assert!(format!("{:?}", bench.plane.take_released()).contains("count: 0"));
}

/// An idle peer costs little; one that asks does not make its queues grow.
#[test]
fn queues_have_all_their_space_from_their_first_use() {
    let mut queue = std::collections::VecDeque::from([1]);
    queue.shrink_to_fit();
    reserve_once(&mut queue);
    assert!(queue.capacity() < MAX_REQUESTS, "it is in use");
    let mut queue = std::collections::VecDeque::<u8>::new();
    reserve_once(&mut queue);
    assert!(queue.capacity() >= MAX_REQUESTS);
    // A page for a local peer, whose payload goes through mapped memory.
    assert_eq!([true, false].map(|local| Rx::new(local).buf.len()), [1 << 12, 1 << 14]);
}
