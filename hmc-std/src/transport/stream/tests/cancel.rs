//! Operations that are taken back: what is let go at once, and what is waited for.

use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, DataPlane as _, Progress as _, Transport as _};
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::work::{Failure, Opcode};

use super::{Bench, bytes};

const CANCELLED: Result<u64, Failure> = Err(Failure::Cancelled);

fn cancel(bench: &mut Bench, index: u16) -> CancelOutcome {
    bench.plane.cancel(SlotId { index, generation: 1 })
}

/// The whole answer to a get of 64 bytes.
fn answer(bench: &Bench, seq: u32) {
    let mut frame = DataFrame::new(DataKind::ReadData, seq);
    (frame.len, frame.total, frame.flags) = (64, 64, DataFlags::LAST);
    bench.send(&frame, &[1; 64]);
}

#[test]
fn what_the_peer_was_not_told_is_never_sent() {
    let mut bench = Bench::local();
    let region = bench.region(64);
    for (index, opcode) in [(0, Opcode::Put), (1, Opcode::Get), (2, Opcode::Put)] {
        bench.submit(index, opcode, &region, false);
    }
    assert_eq!(cancel(&mut bench, 0), CancelOutcome::Withdrawn);
    assert_eq!(cancel(&mut bench, 1), CancelOutcome::Withdrawn);
    assert_eq!(bench.kinds(), [(DataKind::Write, 2)]);
    assert_eq!(bench.poll(), []);
    assert_eq!(cancel(&mut bench, 9), CancelOutcome::Withdrawn, "nothing of it is here");
}

/// Each of these was sent; the peer answers afterwards.
#[test]
fn only_a_get_that_is_answered_by_a_frame_is_let_go() {
    for (opcode, by_ref, outcome) in [
        (Opcode::Put, false, CancelOutcome::Running),
        (Opcode::Put, true, CancelOutcome::Running),
        (Opcode::Get, true, CancelOutcome::Running),
        (Opcode::Get, false, CancelOutcome::Withdrawn),
    ] {
        let mut bench = Bench::local();
        let region = bench.region(64);
        bench.submit(0, opcode, &region, by_ref);
        bench.submit(1, Opcode::Put, &region, false);
        assert_eq!(bench.frames().len(), 2);
        assert_eq!(cancel(&mut bench, 0), outcome, "{opcode:?}, by reference {by_ref}");
        assert_eq!(bench.poll(), []);
        if outcome == CancelOutcome::Withdrawn {
            answer(&bench, 0);
            assert_eq!(cancel(&mut bench, 0), CancelOutcome::Withdrawn, "once more");
        } else {
            bench.send(&DataFrame::ack(0, 1), &[]);
        }
        bench.send(&DataFrame::ack(1, 1), &[]);
        bench.plane.poll_peer(true);
        assert_eq!(bench.plane.close_reason(), None);
        assert_eq!(bytes(&region), [0; 64], "the answer went nowhere");
        let all = [(0, Ok(64)), (1, Ok(64))];
        let told = if outcome == CancelOutcome::Running { &all[..] } else { &all[1..] };
        assert_eq!(bench.poll(), told, "{opcode:?}, by reference {by_ref}");
    }
}

#[test]
fn the_rest_of_an_answer_that_is_arriving_goes_nowhere() {
    let mut bench = Bench::local();
    let region = bench.region(64);
    bench.submit(0, Opcode::Get, &region, false);
    bench.submit(1, Opcode::Put, &region, false);
    assert_eq!(bench.frames().len(), 2);
    let mut frame = DataFrame::new(DataKind::ReadData, 0);
    (frame.len, frame.total, frame.flags) = (64, 64, DataFlags::LAST);
    bench.send(&frame, &[1; 16]);
    bench.plane.poll_peer(true);
    assert_eq!(cancel(&mut bench, 1), CancelOutcome::Running, "of another operation");
    assert_eq!(cancel(&mut bench, 0), CancelOutcome::Withdrawn);
    std::io::Write::write_all(&mut (&bench.peer), &[1; 48]).expect("space");
    bench.send(&DataFrame::ack(1, 1), &[]);
    bench.plane.poll_peer(true);
    assert_eq!(bytes(&region), [[1; 16], [0; 16], [0; 16], [0; 16]].concat());
    assert_eq!(bench.poll(), [(1, Ok(64))]);
}

/// If one part of an operation must be waited for, each part is reported.
#[test]
fn parts_of_an_operation_are_all_reported_or_none() {
    let mut bench = Bench::local();
    let region = bench.region(64);
    bench.submit(0, Opcode::Put, &region, false);
    bench.submit(0, Opcode::Get, &region, false);
    assert_eq!(bench.frames().len(), 2);
    bench.submit(0, Opcode::Get, &region, false);
    bench.submit(1, Opcode::Get, &region, false);
    assert_eq!(cancel(&mut bench, 0), CancelOutcome::Running);
    assert_eq!(bench.poll(), [(0, CANCELLED), (0, CANCELLED)]);
    answer(&bench, 1);
    bench.send(&DataFrame::ack(0, 1), &[]);
    bench.plane.poll_peer(true);
    assert_eq!(bench.poll(), [(0, Ok(64))]);
    assert_eq!(bytes(&region), [0; 64]);
    assert_eq!(bench.kinds(), [(DataKind::Read, 3)], "of the other operation");
}

#[test]
fn a_completion_that_nobody_has_polled_follows() {
    let mut bench = Bench::local();
    let region = bench.region(64);
    bench.submit(0, Opcode::Put, &region, false);
    assert_eq!(bench.frames().len(), 1);
    bench.send(&DataFrame::ack(0, 1), &[]);
    bench.plane.poll_peer(true);
    assert_eq!(cancel(&mut bench, 1), CancelOutcome::Withdrawn, "of another operation");
    assert_eq!(cancel(&mut bench, 0), CancelOutcome::Running);
    assert_eq!(bench.poll(), [(0, Ok(64))]);
}

/// The peer may have the first frame of it.
#[test]
fn a_put_that_is_being_sent_is_sent_to_its_end() {
    let mut bench = Bench::local();
    let region = bench.region((1 << 20) + 1);
    bench.submit(0, Opcode::Put, &region, false);
    bench.plane.flush();
    assert_eq!(cancel(&mut bench, 0), CancelOutcome::Running);
    assert_eq!(bench.kinds(), [(DataKind::Write, 0), (DataKind::Write, 0)]);
    bench.send(&DataFrame::ack(0, 1), &[]);
    bench.plane.poll_peer(true);
    assert_eq!(bench.poll(), [(0, Ok((1 << 20) + 1))]);
}
