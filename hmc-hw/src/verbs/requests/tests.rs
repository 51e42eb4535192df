//! Requests from the post until their completion is taken: in their order, with tags that follow, and at the end of the link.

use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalRegion, RegionKey, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::types::{Access, MemoryKind};
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};

use super::{Carries, Places, RequestTable};

fn take(table: &mut RequestTable, out: &mut [Completion]) -> usize {
    let mut places = Places::new(out);
    table.take_done(&mut places);
    places.used()
}

fn work(index: u16, opcode: Opcode) -> WorkRequest {
    let (extent, kind) = (Extent::new(64), MemoryKind::Cpu);
    let key = RegionKey { index: 0, generation: 1 };
    let (window, epoch, access) = (WindowId::new(0, 1), Epoch(1), Access::all());
    WorkRequest {
        op: SlotId { index, generation: 1 },
        opcode,
        when: CompleteWhen::Visible,
        local: LocalRegion { key, extent, kind }.slice(0, 8).expect("in range"),
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
        let carries = if opcode == Opcode::Put { Carries::All } else { Carries::Bytes };
        let record = table.insert(&one, carries, 1).expect("space");
        assert_eq!((has(&table), table.uses_memory_of(one.op)), ([true, false], true));
        table.complete_piece(record, &mut Places::default());
        assert_eq!((has(&table), table.uses_memory_of(one.op)), ([true, false], false));
        let mut out = [Completion { op: other.op, result: Ok(0) }; 2];
        if opcode != Opcode::Put {
            assert_eq!(take(&mut table, &mut out), 0);
            assert_eq!(table.next_notify(), Some(&one));
            let record = table.begin_next_tag().expect("space");
            assert_eq!((has(&table), table.uses_memory_of(one.op)), ([true, false], false));
            assert_eq!(table.next_notify(), None);
            table.complete_piece(record, &mut Places::default());
        }
        assert_eq!((take(&mut table, &mut out), table.bytes()), (1, 8));
        assert_eq!(out[0], Completion { op: one.op, result: Ok(8) });
        assert_eq!(has(&table), [false, false]);
    }
}

/// One whose tag goes along is done with its bytes.
#[test]
fn a_tag_that_goes_along_does_not_wait() {
    let mut table = RequestTable::new();
    let one = work(1, Opcode::PutNotify { tag: 1 });
    let record = table.insert(&one, Carries::All, 1).expect("space");
    table.complete_piece(record, &mut Places::default());
    let mut out = [Completion { op: one.op, result: Ok(0) }];
    assert_eq!(table.next_notify(), None);
    assert_eq!(take(&mut table, &mut out), 1);
    assert_eq!(out[0].result, Ok(8));
}

/// The end of a link ends a put whose tag was to be sent.
#[test]
fn tags_that_wait_fail_with_the_rest() {
    let mut table = RequestTable::new();
    let works = [1, 2].map(|index| work(index, Opcode::PutNotify { tag: 1 }));
    for work in &works {
        let record = table.insert(work, Carries::Bytes, 1).expect("space");
        table.complete_piece(record, &mut Places::default());
    }
    assert!(table.begin_next_tag().is_some() && table.next_notify() == Some(&works[1]));
    table.fail_all(|_| Failure::PeerDead);
    let mut out = [Completion { op: works[0].op, result: Ok(0) }; 3];
    assert_eq!(take(&mut table, &mut out), 2);
    assert_eq!(table.next_notify(), None);
    for (got, work) in out.iter().zip(&works) {
        assert_eq!(*got, Completion { op: work.op, result: Err(Failure::PeerDead) });
    }
}
