//! When puts over RDMA verbs are done: their bytes visible with a flush behind them, or their memory free with the write. What that
//! costs in posts and completions.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use hmc_core::slots::SlotId;
use hmc_core::transport::{PostErrorKind, Progress as _, Transport as _};
use hmc_core::work::{CompleteWhen, Completion, Opcode, WorkRequest};
use hmc_tests::fake_ibv::{self, FakeIbv, VerbsFate};
use hmc_tests::verbs_planes::{LEN, pair};

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
}

#[test]
fn a_visible_put_completes_after_its_flush_and_its_bytes_are_there() {
    let fake = FakeIbv::take();
    for staged in [0, 1] {
        let (mut near, far, window) = pair();
        fake.set("staged", staged);
        fake.set("landing", 1_000_000);
        fake.rule("read", 1, VerbsFate::Held);
        near.fill(7);
        near.post(&near.put(1, &window, 64));
        assert!(near.poll_for(50).is_empty(), "the flush has not completed");
        let visible = if staged == 0 { 64 } else { 0 };
        assert_eq!((far.count_from(0, 7), fake.count("staged")), (visible, staged));
        assert_eq!(fake.release(), 1);
        assert_eq!((near.complete(1), far.count_from(0, 7)), (vec![(1, Ok(64))], 64));
        fake.clear_rules();
        drop((near, far));
        fake.assert_clean();
    }
}

#[test]
fn a_flush_whose_completion_is_late_delays_the_put() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    fake.set("staged", 1);
    fake.rule("read", 1, VerbsFate::AckHeld);
    near.fill(7);
    near.post(&near.put(1, &window, 64));
    assert!(near.poll_for(50).is_empty());
    assert_eq!(far.count_from(0, 7), 64, "the flush was executed");
    assert_eq!(fake.release(), 1);
    assert_eq!(near.complete(1), [(1, Ok(64))]);
    drop((near, far));
    fake.assert_clean();
}

#[test]
fn a_local_put_completes_with_its_write() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    fake.set("staged", 1);
    fake.set("landing", 30);
    near.fill(7);
    let put = near.put(1, &window, 300);
    near.post(&WorkRequest { when: CompleteWhen::Local, ..put });
    assert_eq!(near.complete(1), [(1, Ok(300))]);
    assert_eq!((fake.calls("read"), far.count_from(0, 7)), (0, 0), "its memory is free");
    fake.progress(40);
    assert_eq!(far.count_from(0, 7), 300);
    // A get is what it reads.
    far.fill(8);
    near.post(&near.work(2, Opcode::Get, &window, (0, 300)));
    assert_eq!((near.complete(1), near.count_from(0, 8)), (vec![(2, Ok(300))], 300));
    assert_eq!(fake.calls("read"), 1, "and needs no flush");
    drop((near, far));
    fake.assert_clean();
}

#[test]
fn one_flush_covers_many_puts() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    let before = ["doorbells", "signalled"].map(|what| fake.count(what));
    for index in 0..20 {
        near.post(&near.put(index, &window, 64));
    }
    assert_eq!(near.complete(20).len(), 20);
    let after = ["doorbells", "signalled"].map(|what| fake.count(what));
    assert_eq!((fake.calls("read"), after), (1, before.map(|count| count + 1)));
    drop((near, far));
    fake.assert_clean();
}

#[test]
fn at_most_four_flushes_are_under_way() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    fake.rule("read", 0, VerbsFate::Held);
    for index in 0..12 {
        near.post(&near.put(index, &window, 64));
        assert!(near.poll().is_empty());
    }
    assert!(near.poll_for(20).is_empty());
    assert_eq!((fake.calls("write"), fake.calls("read")), (12, 4));
    assert!(!near.plane.interest().work, "there is nothing to do before one has completed");
    fake.clear_rules();
    assert_eq!(fake.release(), 4);
    let done = (0..12).map(|index| (index, Ok(64)));
    assert_eq!(near.complete(12), done.collect::<Vec<_>>());
    assert_eq!(fake.calls("read"), 5, "one for all the others");
    drop((near, far));
    fake.assert_clean();
}

/// The device begins with a list while the rest of it is prepared.
#[test]
fn the_first_part_of_a_list_is_posted_before_the_rest() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    let (before, mut doorbells) = (fake.count("doorbells"), Vec::new());
    for index in 0..60 {
        near.post(&near.put(index, &window, 64));
        doorbells.push(fake.count("doorbells") - before);
    }
    let first = doorbells.iter().position(|count| *count == 1).unwrap();
    assert!((16..48).contains(&first), "after {first} requests");
    assert_eq!(doorbells.last(), Some(&1), "the others go with the poll");
    assert_eq!(near.complete(60).len(), 60);
    drop((near, far));
    fake.assert_clean();
}

/// A long list is posted in few calls, most of it without a completion of its own.
#[test]
fn a_list_of_a_thousand_puts_costs_few_doorbells() {
    const COUNT: u16 = 1024;
    let fake = FakeIbv::take();
    let mut figures = Vec::new();
    let op = SlotId { index: 0, generation: 1 };
    let mut out = [Completion { op, result: Ok(0) }; 256];
    for (opcode, when) in [
        (Opcode::Put, CompleteWhen::Visible),
        (Opcode::Put, CompleteWhen::Local),
        (Opcode::Get, CompleteWhen::Visible),
    ] {
        let (mut near, far, window) = pair();
        let before = ["doorbells", "signalled", "unsignalled"].map(|what| fake.count(what));
        let (mut posted, mut done) = (0, 0);
        while done < COUNT {
            while posted < COUNT {
                let work = near.work(posted, opcode, &window, (0, LEN));
                match near.plane.post(&WorkRequest { when, ..work }) {
                    Ok(()) => posted += 1,
                    Err(PostErrorKind::Busy) => break,
                    Err(e) => panic!("{e:?}"),
                }
            }
            let n = near.plane.poll(&mut out);
            assert!(out.iter().take(n).all(|completion| completion.result.is_ok()));
            done += u16::try_from(n).unwrap();
        }
        let after = ["doorbells", "signalled", "unsignalled"].map(|what| fake.count(what));
        let cost = [0, 1, 2].map(|n| after[n] - before[n]);
        println!("{opcode:?} {when:?}: doorbells, signalled, unsignalled {cost:?}");
        figures.push(cost);
        drop((near, far));
    }
    for [doorbells, signalled, _] in figures {
        assert!(doorbells <= 16, "{doorbells} calls of ibv_post_send");
        assert!(signalled <= 16, "{signalled} completions");
    }
    fake.assert_clean();
}
