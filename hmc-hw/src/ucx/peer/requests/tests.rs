//! Flushes cover the puts before them, in order; records are bounded and are freed; failed puts send no tag.

use hmc_core::slots::SlotId;
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

use super::{NO_WORK, RequestList, RequestTable};
use crate::ucx::records::{FLUSHES, MAX_REQUESTS};

fn insert(requests: &mut RequestTable, needs_flush: bool) -> u16 {
    assert!(requests.insert(&NO_WORK));
    let (record, request) = requests.next_queued().unwrap();
    (request.request_done, request.needs_flush) = (true, needs_flush);
    if needs_flush {
        requests.queue_for_flush(record);
    }
    record
}

fn all(requests: &RequestTable, mut list: RequestList) -> Vec<u16> {
    std::iter::from_fn(|| requests.pop(&mut list)).collect()
}

fn done(requests: &mut RequestTable) -> Vec<Result<u64, Failure>> {
    let nothing = Completion { op: NO_WORK.op, result: Ok(0) };
    let mut out = [nothing; MAX_REQUESTS + 1];
    let n = requests.take_done(&mut out);
    out[..n].iter().map(|c| c.result).collect()
}

#[test]
fn a_flush_covers_the_puts_before_it_in_order() {
    let mut requests = RequestTable::new();
    let first: Vec<u16> = (0..3).map(|_| insert(&mut requests, true)).collect();
    let get = insert(&mut requests, false);
    let one = requests.begin_flush().unwrap();
    assert!(!requests.needs_flush() && requests.is_flushing());
    let second: Vec<u16> = (0..2).map(|_| insert(&mut requests, true)).collect();
    let two = requests.begin_flush().unwrap();
    let list = requests.end_flush(two);
    assert_eq!(all(&requests, list), second, "flushes may end in any order");
    let list = requests.end_flush(one);
    assert_eq!(all(&requests, list), first);
    assert!(!requests.is_flushing());
    for record in first.into_iter().chain(second).chain([get]) {
        requests.finish(record);
    }
    assert_eq!(requests.len(), 0);
    assert_eq!(done(&mut requests).len(), 6);
}

#[test]
fn queued_requests_keep_their_order_and_can_be_cancelled() {
    let mut requests = RequestTable::new();
    let work = |index| WorkRequest { op: SlotId { index, generation: 0 }, ..NO_WORK };
    for index in [1, 2, 1, 3, 1] {
        assert!(requests.insert(&work(index)));
    }
    assert_eq!((requests.cancel_queued(work(1).op), requests.len()), (3, 2));
    assert!(requests.insert(&work(4)));
    let mut order = Vec::new();
    while let Some((_, request)) = requests.next_queued() {
        order.push(request.work.op.index);
    }
    assert_eq!(order, [2, 3, 4]);
    assert!(!requests.has_queued());
}

#[test]
fn the_record_of_a_cancelled_request_is_given_out_again() {
    let mut requests = RequestTable::new();
    for round in 0..3 {
        (0..MAX_REQUESTS).for_each(|_| assert!(requests.insert(&NO_WORK), "{round}"));
        assert!(!requests.has_free_record());
        assert_eq!(requests.cancel_queued(NO_WORK.op), MAX_REQUESTS);
        assert_eq!((requests.len(), requests.iter().count()), (0, 0));
    }
}

#[test]
fn bytes_are_those_of_requests_without_a_failure() {
    let mut requests = RequestTable::new();
    assert!(requests.insert_done(&NO_WORK, Ok(40)));
    assert!(requests.insert_done(&NO_WORK, Err(Failure::PeerDead)));
    requests.count_bytes(2);
    assert_eq!(requests.bytes(), 42);
}

#[test]
fn a_completed_put_is_finished_by_its_flush() {
    let mut requests = RequestTable::new();
    let back = insert(&mut requests, true);
    let late = insert(&mut requests, true);
    requests.get(late).unwrap().request_done = false;
    let number = requests.begin_flush().unwrap();
    requests.complete_flush(number);
    assert_eq!((requests.len(), requests.has_any_done()), (1, true));
    assert!(requests.get(back).is_none());
    assert!(!requests.get(late).unwrap().needs_flush);
    assert_eq!(done(&mut requests), [Ok(0)]);
    assert!(done(&mut requests).is_empty());
    assert_eq!(insert(&mut requests, false), back, "its record is given out again");
}

#[test]
fn a_tag_is_sent_only_after_its_bytes_have_arrived() {
    let mut requests = RequestTable::new();
    let work = WorkRequest { opcode: Opcode::PutNotify { tag: 7 }, ..NO_WORK };
    assert!(requests.insert_done(&work, Ok(0)));
    assert!(requests.insert_done(&work, Err(Failure::PeerDead)));
    assert!(requests.has_done(work.op));
    assert_eq!(requests.take_notify(), Some(work));
    assert_eq!(requests.take_notify(), None);
    assert_eq!(done(&mut requests), [Err(Failure::PeerDead)]);
    assert!(!requests.has_done(work.op) && !requests.has_any_done());
}

#[test]
fn puts_of_a_failed_flush_need_another_one() {
    let mut requests = RequestTable::new();
    let a = insert(&mut requests, true);
    let b = insert(&mut requests, true);
    let failed = requests.begin_flush().unwrap();
    let c = insert(&mut requests, true);
    requests.fail_flush(failed);
    let list = requests.take_unflushed();
    assert_eq!(all(&requests, list), [c, a, b]);
}

#[test]
fn records_and_flushes_are_bounded_and_freed() {
    let mut requests = RequestTable::new();
    for round in 0..3 {
        let mut records: Vec<u16> =
            (0..MAX_REQUESTS).map(|_| insert(&mut requests, true)).collect();
        assert!(!requests.insert(&NO_WORK), "{round}");
        assert_eq!(requests.len(), MAX_REQUESTS);
        records.sort_unstable();
        records.dedup();
        assert_eq!(records.len(), MAX_REQUESTS);
        let begun: Vec<u16> = std::iter::from_fn(|| requests.begin_flush()).collect();
        assert_eq!((begun.len(), requests.may_flush()), (FLUSHES, false));
        begun.into_iter().for_each(|number| requests.complete_flush(number));
        assert!(!requests.has_free_record(), "what has ended keeps its record until it is taken");
        assert_eq!(done(&mut requests).len(), MAX_REQUESTS);
        assert!(requests.has_free_record());
        assert_eq!((requests.len(), requests.is_flushing()), (0, false));
    }
}
