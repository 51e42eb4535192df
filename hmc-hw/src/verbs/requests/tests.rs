//! Requests from the post until their completion is taken: in their order, with tags that follow, and at the end of the link.

use hmc_core::place::Place;
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalRegion, RegionKey, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::types::{Access, MemoryKind};
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};

use super::{Carries, MAX_REQUESTS, Places, RequestParts, RequestTable};

fn take(table: &mut RequestTable, out: &mut [Completion]) -> usize {
    let mut places = Places::new(out);
    table.take_done(&mut places);
    places.used()
}

/// A request of 8 bytes, of an operation with that index.
pub(in crate::verbs) fn work(index: u16, opcode: Opcode) -> WorkRequest {
    let (extent, kind) = (Extent::new(64), MemoryKind::Cpu);
    let key = RegionKey { index: 0, generation: 1 };
    let (window, epoch, access) = (WindowId::new(0, 1), Epoch(1), Access::all());
    WorkRequest {
        op: SlotId { index, generation: 1 },
        opcode,
        when: CompleteWhen::Visible,
        local: LocalRegion { key, extent, place: Place::HOST }.slice(0, 8).expect("in range"),
        remote: WindowDesc { window, epoch, extent, access, kind }.slice(0, 8).expect("in range"),
    }
}

/// An operation has requests until the last of them was taken: under way, done, or with a tag to send.
#[test]
fn an_operation_has_requests_until_they_are_taken() {
    for opcode in [Opcode::Put, Opcode::PutNotify { tag: 1 }] {
        let mut table = RequestTable::new();
        let [one, other] = [1, 2].map(|index| work(index, opcode));
        let has = |table: &RequestTable| [one, other].map(|work| table.has_op(work.op));
        assert_eq!(has(&table), [false, false]);
        let carries = if opcode == Opcode::Put { Carries::All } else { Carries::Bytes { tag: 1 } };
        let record = table.insert(&one, carries, 1).expect("space");
        assert_eq!((has(&table), table.uses_memory_of(one.op)), ([true, false], true));
        table.complete_piece(record);
        assert_eq!((has(&table), table.uses_memory_of(one.op)), ([true, false], false));
        let mut out = [Completion { op: other.op, result: Ok(0) }; 2];
        if opcode != Opcode::Put {
            assert_eq!(take(&mut table, &mut out), 0);
            assert_eq!(table.next_tag(), Some(1));
            let record = table.begin_next_tag().expect("space");
            assert_eq!((has(&table), table.uses_memory_of(one.op)), ([true, false], false));
            assert_eq!(table.next_tag(), None);
            table.complete_piece(record);
        }
        assert_eq!((take(&mut table, &mut out), table.bytes()), (1, 8));
        assert_eq!(out[0], Completion { op: one.op, result: Ok(8) });
        assert_eq!(has(&table), [false, false]);
    }
}

/// A short one goes to the caller unless others are kept before it; one that fails, or has no place there, is kept.
#[test]
fn short_requests_are_taken_in_their_order() {
    let mut table = RequestTable::new();
    let works = [1, 2, 3, 4].map(|index| work(index, Opcode::Put));
    works.iter().for_each(|_| table.begin_short());
    let mut out = [Completion { op: works[3].op, result: Ok(0) }; 4];
    let mut places = Places::new(&mut out);
    table.complete_short(works[0].op, 8, &mut places);
    let record = table.record_short(&RequestParts::of(&works[1])).expect("one for each");
    assert!(table.has_op(works[1].op) && table.uses_memory_of(works[1].op));
    assert!(table.uses_window(WindowId::new(0, 1)) && table.uses_memory(works[1].local.key));
    table.fail(record, Failure::PeerDead);
    table.complete_piece(record);
    table.complete_short(works[2].op, 8, &mut places);
    assert_eq!((places.used(), table.is_idle(), table.bytes()), (1, false, 16));
    table.complete_short(works[3].op, 8, &mut Places::default());
    assert!(table.is_idle() && !table.is_empty() && table.has_op(works[3].op));
    table.take_done(&mut places);
    assert_eq!((places.used(), table.rest(), table.is_empty()), (4, 0, true));
    let results = [Ok(8), Err(Failure::PeerDead), Ok(8), Ok(8)];
    for ((got, work), result) in out.iter().zip(&works).zip(results) {
        assert_eq!(*got, Completion { op: work.op, result });
    }
}

/// Short requests count like others, so that each of them has a record if they all fail.
#[test]
fn there_is_a_record_for_each_request() {
    let mut table = RequestTable::new();
    let work = work(1, Opcode::Put);
    for at in 0..MAX_REQUESTS {
        assert!(table.has_space());
        if at % 3 == 0 {
            assert!(table.insert(&work, Carries::All, 1).is_some());
        } else {
            table.begin_short();
        }
    }
    assert!(!table.has_space() && table.insert(&work, Carries::All, 1).is_none());
    table.insert_failed(work.op, Failure::PeerDead);
    assert!(!table.has_any_done(), "there is no space for it");
    for _ in (0..MAX_REQUESTS).filter(|at| at % 3 != 0) {
        assert!(table.record_short(&RequestParts::of(&work)).is_some());
    }
    table.fail_all(|_| Failure::PeerDead);
    let mut out = [Completion { op: work.op, result: Ok(0) }; MAX_REQUESTS];
    assert_eq!((take(&mut table, &mut out), table.is_empty()), (MAX_REQUESTS, true));
    assert!(out.iter().all(|done| done.result == Err(Failure::PeerDead)));
}

/// One whose tag goes along is done with its bytes.
#[test]
fn a_tag_that_goes_along_does_not_wait() {
    let mut table = RequestTable::new();
    let one = work(1, Opcode::PutNotify { tag: 1 });
    let record = table.insert(&one, Carries::All, 1).expect("space");
    table.complete_piece(record);
    let mut out = [Completion { op: one.op, result: Ok(0) }];
    assert_eq!(table.next_tag(), None);
    assert_eq!(take(&mut table, &mut out), 1);
    assert_eq!(out[0].result, Ok(8));
}

/// The end of a link ends a put whose tag was to be sent.
#[test]
fn tags_that_wait_fail_with_the_rest() {
    let mut table = RequestTable::new();
    let works = [1, 2].map(|index| work(index, Opcode::PutNotify { tag: index.into() }));
    for (work, tag) in works.iter().zip(1..) {
        let record = table.insert(work, Carries::Bytes { tag }, 1).expect("space");
        table.complete_piece(record);
    }
    assert!(table.begin_next_tag().is_some() && table.next_tag() == Some(2));
    table.fail_all(|_| Failure::PeerDead);
    let mut out = [Completion { op: works[0].op, result: Ok(0) }; 3];
    assert_eq!(take(&mut table, &mut out), 2);
    assert_eq!(table.next_tag(), None);
    for (got, work) in out.iter().zip(&works) {
        assert_eq!(*got, Completion { op: work.op, result: Err(Failure::PeerDead) });
    }
}
