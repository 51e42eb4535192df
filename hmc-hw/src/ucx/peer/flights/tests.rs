//! Flushes cover what came before them, in order; records are bounded and come back; what failed sends no tag.

use hmc_core::slots::OpId;
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

use super::{Flights, List, NO_WORK};
use crate::ucx::records::{FLUSHES, MAX_REQUESTS};

fn enter(flights: &mut Flights, waits: bool) -> u16 {
    assert!(flights.enter(&NO_WORK));
    let (record, flight) = flights.next_queued().unwrap();
    (flight.returned, flight.waits) = (true, waits);
    if waits {
        flights.want_flush(record);
    }
    record
}

fn all(flights: &Flights, mut list: List) -> Vec<u16> {
    std::iter::from_fn(|| flights.pop(&mut list)).collect()
}

fn done(flights: &mut Flights) -> Vec<Result<u64, Failure>> {
    let nothing = Completion { op: NO_WORK.op, result: Ok(0) };
    let mut out = [nothing; MAX_REQUESTS + 1];
    let n = flights.take_done(&mut out);
    out[..n].iter().map(|c| c.result).collect()
}

#[test]
fn a_flush_covers_what_came_before_it_in_order() {
    let mut flights = Flights::new();
    let first: Vec<u16> = (0..3).map(|_| enter(&mut flights, true)).collect();
    let get = enter(&mut flights, false);
    let one = flights.begin_flush().unwrap();
    assert!(!flights.wants_flush() && flights.is_flushing());
    let second: Vec<u16> = (0..2).map(|_| enter(&mut flights, true)).collect();
    let two = flights.begin_flush().unwrap();
    let list = flights.end_flush(two);
    assert_eq!(all(&flights, list), second, "flushes may end in any order");
    let list = flights.end_flush(one);
    assert_eq!(all(&flights, list), first);
    assert!(!flights.is_flushing());
    for record in first.into_iter().chain(second).chain([get]) {
        flights.end(record);
    }
    assert_eq!(flights.len(), 0);
    assert_eq!(done(&mut flights).len(), 6);
}

#[test]
fn what_waits_for_the_crank_keeps_its_order_and_can_be_withdrawn() {
    let mut flights = Flights::new();
    let work = |index| WorkRequest { op: OpId { index, generation: 0 }, ..NO_WORK };
    for index in [1, 2, 1, 3, 1] {
        assert!(flights.enter(&work(index)));
    }
    assert_eq!((flights.withdraw(work(1).op), flights.len()), (3, 2));
    assert!(flights.enter(&work(4)));
    let mut order = Vec::new();
    while let Some((_, flight)) = flights.next_queued() {
        order.push(flight.work.op.index);
    }
    assert_eq!(order, [2, 3, 4]);
    assert!(!flights.has_queued());
}

#[test]
fn what_has_come_back_is_over_with_its_flush() {
    let mut flights = Flights::new();
    let back = enter(&mut flights, true);
    let late = enter(&mut flights, true);
    flights.get(late).unwrap().returned = false;
    let number = flights.begin_flush().unwrap();
    flights.pass(number);
    assert_eq!((flights.len(), flights.has_ended()), (1, true));
    assert!(flights.get(back).is_none());
    assert!(!flights.get(late).unwrap().waits);
    assert_eq!(done(&mut flights), [Ok(0)]);
    assert!(done(&mut flights).is_empty());
    assert_eq!(enter(&mut flights, false), back, "its record is given out again");
}

#[test]
fn a_tag_is_to_be_sent_only_when_its_bytes_are_there() {
    let mut flights = Flights::new();
    let work = WorkRequest { opcode: Opcode::PutNotify { tag: 7 }, ..NO_WORK };
    assert!(flights.enter_ended(&work, Ok(0)));
    assert!(flights.enter_ended(&work, Err(Failure::PeerDead)));
    assert!(flights.keeps(work.op));
    assert_eq!(flights.take_notice(), Some(work));
    assert_eq!(flights.take_notice(), None);
    assert_eq!(done(&mut flights), [Err(Failure::PeerDead)]);
    assert!(!flights.keeps(work.op) && !flights.has_ended());
}

#[test]
fn what_a_failed_flush_covered_wants_one_anew() {
    let mut flights = Flights::new();
    let a = enter(&mut flights, true);
    let b = enter(&mut flights, true);
    let failed = flights.begin_flush().unwrap();
    let c = enter(&mut flights, true);
    flights.fail_flush(failed);
    let list = flights.take_unflushed();
    assert_eq!(all(&flights, list), [c, a, b]);
}

#[test]
fn records_and_flushes_are_bounded_and_come_back() {
    let mut flights = Flights::new();
    for round in 0..3 {
        let mut records: Vec<u16> = (0..MAX_REQUESTS).map(|_| enter(&mut flights, true)).collect();
        assert!(!flights.enter(&NO_WORK), "{round}");
        assert_eq!(flights.len(), MAX_REQUESTS);
        records.sort_unstable();
        records.dedup();
        assert_eq!(records.len(), MAX_REQUESTS);
        let begun: Vec<u16> = std::iter::from_fn(|| flights.begin_flush()).collect();
        assert_eq!((begun.len(), flights.may_flush()), (FLUSHES, false));
        begun.into_iter().for_each(|number| flights.pass(number));
        assert!(!flights.has_room(), "what has ended keeps its record until it is taken");
        assert_eq!(done(&mut flights).len(), MAX_REQUESTS);
        assert!(flights.has_room());
        assert_eq!((flights.len(), flights.is_flushing()), (0, false));
    }
}
