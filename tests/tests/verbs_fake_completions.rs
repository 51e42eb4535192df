//! Completions of RDMA verbs, whatever becomes of them: each request that was accepted completes once, those before a failed one
//! succeed, and memory is registered as long as a request may touch it.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;

use hmc_core::region::WindowDesc;
use hmc_core::transport::{
    CancelOutcome, DataCloseReason, DataPlane as _, Notes as _, PeerWindows as _, PostErrorKind,
    Progress as _, Registration as _, Transport as _,
};
use hmc_core::window::WindowFault;
use hmc_core::work::{CompleteWhen, Failure, Opcode};
use hmc_tests::fake_ibv::{self, FakeIbv, VerbsFate};
use hmc_tests::verbs_planes::{End, LEN, meet, pair};

const REM_ACCESS_ERR: u8 = 10;
const RETRY_EXC_ERR: u8 = 12;
const RNR_RETRY_EXC_ERR: u8 = 13;
const WR_FLUSH_ERR: u8 = 5;

/// Two ends of two queue pairs each. Those of the first end are the first and the second.
fn wide_pair() -> (End, End, WindowDesc) {
    let end = || End::with_host(&Arc::default(), 2, true);
    meet(end(), end())
}

fn end(fake: &FakeIbv, ends: (End, End)) {
    drop(ends);
    fake.assert_clean();
}

/// Posts `count` requests of 64 bytes, named from 0 on.
fn post_many(near: &mut End, window: &WindowDesc, opcode: Opcode, when: CompleteWhen, count: u16) {
    for index in 0..count {
        let at = u64::from(index) * 64 % LEN;
        let work = near.work(index, opcode, window, (at, 64));
        near.post(&hmc_core::work::WorkRequest { when, ..work });
    }
}

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
}

/// Late, in another order than they were posted, and many at once.
#[test]
fn each_request_completes_once_in_any_order_of_the_device() {
    let fake = FakeIbv::take();
    for seed in 1..=24_u64 {
        fake.set("seed", seed);
        let numbers = [("delay", seed % 3), ("ack_delay", seed % 4), ("jitter", seed % 9)];
        let more = [("order", seed % 3), ("batch", seed % 5), ("staged", 1), ("landing", 40)];
        numbers.into_iter().chain(more).for_each(|(name, value)| fake.set(name, value));
        let (mut near, far, window) = if seed % 2 == 0 { wide_pair() } else { pair() };
        let (mut chance, mut posted, mut done) = (seed, 0_u16, BTreeMap::new());
        let mut next = || {
            chance = chance.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            chance >> 33
        };
        while done.len() < 600 {
            if posted < 600 && next() % 4 != 0 {
                let len = 1 + next() % 300;
                let opcode = if next() % 3 == 0 { Opcode::Get } else { Opcode::Put };
                let work = near.work(posted, opcode, &window, (next() % (LEN - len), len));
                let when =
                    if next() % 2 == 0 { CompleteWhen::Local } else { CompleteWhen::Visible };
                match near.plane.post(&hmc_core::work::WorkRequest { when, ..work }) {
                    Ok(()) => posted += 1,
                    Err(PostErrorKind::Busy) => {}
                    Err(e) => panic!("{e:?}"),
                }
                continue;
            }
            for (index, result) in near.poll() {
                assert!(result.is_ok(), "seed {seed}: {index} {result:?}");
                assert_eq!(done.insert(index, result), None, "seed {seed}: {index} twice");
            }
        }
        assert!(near.plane.are_requests_fenced() && near.poll_for(20).is_empty());
        drop((near, far));
        fake.assert_clean();
    }
}

fn failure_of(status: u8) -> Failure {
    match status {
        REM_ACCESS_ERR => Failure::Window(WindowFault::Revoked),
        RETRY_EXC_ERR | RNR_RETRY_EXC_ERR | WR_FLUSH_ERR => Failure::PeerDead,
        other => Failure::Transport(i32::from(other)),
    }
}

/// A failure at the beginning, in the middle and at the end of a chain, in the second chain, and in a request of its own.
#[test]
fn those_before_a_failed_one_succeed_and_those_behind_it_fail() {
    let fake = FakeIbv::take();
    let kinds = [("write", Opcode::Put), ("read", Opcode::Get)];
    for status in (1..24).chain([200]).filter(|status| *status != WR_FLUSH_ERR) {
        for (operation, opcode) in kinds {
            for (nth, count) in [(1, 7), (4, 7), (7, 7), (150, 200), (1, 1)] {
                let (mut near, far, window) = pair();
                fake.rule(operation, u64::from(nth), VerbsFate::Failed(status, 9));
                post_many(&mut near, &window, opcode, CompleteWhen::Local, count);
                let mut done = near.complete(usize::from(count));
                done.sort_unstable_by_key(|(index, _)| *index);
                for (index, result) in done {
                    let wanted = match (index + 1).cmp(&nth) {
                        std::cmp::Ordering::Less => Ok(64),
                        std::cmp::Ordering::Equal => Err(failure_of(status)),
                        std::cmp::Ordering::Greater => Err(Failure::PeerDead),
                    };
                    assert_eq!(result, wanted, "status {status} of {operation} {nth}: {index}");
                }
                let why = DataCloseReason::Failed(i32::from(status));
                assert_eq!(near.plane.close_reason(), Some(why));
                let mut text = String::new();
                near.plane.describe_close(why, &mut text).unwrap();
                assert!(text.starts_with("the NIC fake_0:1 gave it up: "), "{text}");
                assert!(text.contains("(vendor code 9)"), "{text}");
                let put = near.put(0, &window, 8);
                assert_eq!(near.plane.post(&put), Err(PostErrorKind::Disconnected));
                assert!(near.plane.are_requests_fenced() && near.poll_for(20).is_empty());
                near.plane.close(why);
                fake.clear_rules();
                end(&fake, (near, far));
            }
        }
    }
}

/// A visible put has no flush behind it that has completed: it fails, though its bytes may be there.
#[test]
fn a_flush_that_fails_fails_the_puts_that_it_covers() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    fake.rule("read", 2, VerbsFate::Failed(RETRY_EXC_ERR, 0));
    post_many(&mut near, &window, Opcode::Put, CompleteWhen::Visible, 3);
    assert_eq!(near.complete(3), [(0, Ok(64)), (1, Ok(64)), (2, Ok(64))]);
    post_many(&mut near, &window, Opcode::Put, CompleteWhen::Visible, 2);
    let done = near.complete(2);
    assert!(done.iter().all(|(_, result)| *result == Err(Failure::PeerDead)), "{done:?}");
    let why = DataCloseReason::Failed(i32::from(RETRY_EXC_ERR));
    assert_eq!(near.plane.close_reason(), Some(why));
    end(&fake, (near, far));
}

#[test]
fn a_queue_pair_that_is_in_its_error_state_fails_what_it_has() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    fake.rule("write", 0, VerbsFate::Held);
    post_many(&mut near, &window, Opcode::Put, CompleteWhen::Visible, 5);
    assert!(near.poll_for(5).is_empty());
    assert_eq!(fake.kill(1), 1);
    let done = near.complete(5);
    assert!(done.iter().all(|(_, result)| *result == Err(Failure::PeerDead)), "{done:?}");
    assert_eq!(near.plane.close_reason(), Some(DataCloseReason::Failed(WR_FLUSH_ERR.into())));
    end(&fake, (near, far));
}

/// A device that is gone refuses posts, and polls.
#[test]
fn calls_that_fail_end_the_link() {
    let fake = FakeIbv::take();
    for (function, errno) in [("ibv_post_send", libc::EIO), ("ibv_poll_cq", libc::EINVAL)] {
        let (mut near, far, window) = pair();
        fake.rule(function, 1, VerbsFate::Refused(errno));
        post_many(&mut near, &window, Opcode::Put, CompleteWhen::Visible, 3);
        assert_eq!(near.complete(3).len(), 3);
        let why = DataCloseReason::System(errno);
        assert_eq!(near.plane.close_reason(), Some(why), "{function}");
        let mut text = String::new();
        near.plane.describe_close(why, &mut text).unwrap();
        let step = if function == "ibv_poll_cq" { "polling" } else { "posting" };
        assert!(text.starts_with(step), "{text}");
        assert!(near.poll_for(9).is_empty() && near.plane.are_requests_fenced());
        fake.clear_rules();
        end(&fake, (near, far));
    }
    // A chain of which a part was posted.
    let (mut near, far, window) = pair();
    fake.rule("write", 3, VerbsFate::Refused(libc::ENOMEM));
    post_many(&mut near, &window, Opcode::Put, CompleteWhen::Local, 5);
    let done = near.complete(5);
    assert!(done.iter().all(|(_, result)| *result == Err(Failure::PeerDead)), "{done:?}");
    assert!(near.poll_for(9).is_empty());
    end(&fake, (near, far));
}

/// One queue pair of two fails: what completed on the other is done.
#[test]
fn the_completions_of_another_queue_pair_are_taken_before_the_end() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = wide_pair();
    fake.set("poll_progress", 0);
    fake.rule("write@1", 1, VerbsFate::Failed(RETRY_EXC_ERR, 0));
    // One of each pair goes to the second queue pair. Each is a chain of its own.
    for index in 0..40 {
        let work = near.put(index, &window, 64);
        near.post(&hmc_core::work::WorkRequest { when: CompleteWhen::Local, ..work });
        assert!(near.poll().is_empty());
    }
    fake.progress(9);
    let mut done = near.complete(40);
    done.sort_unstable_by_key(|(index, _)| *index);
    for (index, result) in done {
        let wanted = if index % 2 == 0 { Err(Failure::PeerDead) } else { Ok(64) };
        assert_eq!(result, wanted, "{index}");
    }
    end(&fake, (near, far));
}

/// What has completed before the end of a link is done, however much it is.
#[test]
fn what_has_completed_is_done_when_the_link_is_closed() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    fake.set("poll_progress", 0);
    for index in 0..100 {
        let work = near.put(index, &window, 64);
        near.post(&hmc_core::work::WorkRequest { when: CompleteWhen::Local, ..work });
        assert!(near.poll().is_empty());
    }
    fake.progress(9);
    let completions = fake.count("unpolled");
    assert_eq!(completions, 100);
    near.plane.close(DataCloseReason::Silent);
    let done = (0..100).map(|index| (index, Ok(64)));
    assert_eq!(near.complete(100), done.collect::<Vec<_>>());
    let moved = [&near, &far].map(|end| (end.plane.bytes_moved(), end.plane.bytes_offloaded()));
    assert_eq!(moved, [((6400, 0), 6400), ((0, 0), 0)], "the NIC alone sees what the peer moves");
    end(&fake, (near, far));
}

/// A completion that is lost ends nothing. Memory stays registered, until the end of the queue pair is the fence.
#[test]
fn a_lost_completion_holds_its_memory_until_the_link_ends() {
    let fake = FakeIbv::take();
    // The first put of a link registers its memory; those behind it are kept with their work requests.
    for (operation, is_first) in
        [("write", true), ("read", true), ("write", false), ("read", false)]
    {
        let (mut near, far, window) = pair();
        if !is_first {
            near.post(&near.put(0, &window, 64));
            assert_eq!(near.complete(1), [(0, Ok(64))]);
        }
        let lost = fake.count("overruns");
        fake.rule(operation, 1, VerbsFate::Dropped);
        let mut put = near.put(1, &window, 64);
        put.when = if operation == "write" { CompleteWhen::Local } else { CompleteWhen::Visible };
        near.post(&put);
        assert!(near.poll_for(100).is_empty(), "its completion is lost");
        assert_eq!(fake.count("overruns"), lost + 1);
        assert!(!near.plane.are_requests_fenced() && near.plane.uses_memory_of(put.op));
        assert_eq!(near.plane.cancel(put.op), CancelOutcome::Running);
        assert!(!near.plane.remove_window(window.window, window.epoch), "it is in use");
        assert_eq!(near.plane.next_release(), None);
        let regions = fake.count("mrs");
        near.plane.release_memory(true);
        assert_eq!(fake.count("mrs"), regions, "the device may touch it");
        near.plane.close(DataCloseReason::Silent);
        assert_eq!(near.complete(1), [(1, Err(Failure::Window(WindowFault::Revoked)))]);
        assert!(near.plane.are_requests_fenced() && !near.plane.uses_memory_of(put.op));
        assert_eq!(near.plane.cancel(put.op), CancelOutcome::Withdrawn);
        near.plane.release_memory(true);
        assert_eq!(fake.count("mrs"), regions - 1);
        assert!(near.take_released() >= 1);
        fake.clear_rules();
        drop((near, far));
        assert_eq!((fake.count("live"), fake.count("findings")), (0, 0));
    }
}

/// The next completion of the same queue pair says that those before it are done.
#[test]
fn a_later_completion_covers_a_lost_one() {
    let fake = FakeIbv::take();
    for (operation, when) in [("write", CompleteWhen::Local), ("read", CompleteWhen::Visible)] {
        let (mut near, far, window) = pair();
        fake.rule(operation, 1, VerbsFate::Dropped);
        for index in [1, 2] {
            let work = near.put(index, &window, 64);
            near.post(&hmc_core::work::WorkRequest { when, ..work });
            if index == 1 {
                assert!(near.poll_for(9).is_empty());
            }
        }
        assert_eq!(near.complete(2), [(1, Ok(64)), (2, Ok(64))], "{operation}");
        assert!(near.plane.are_requests_fenced());
        fake.clear_rules();
        end(&fake, (near, far));
    }
}

#[test]
fn the_end_of_a_link_fences_what_is_under_way() {
    let fake = FakeIbv::take();
    for by_drop in [false, true] {
        let (mut near, far, window) = pair();
        fake.rule("write", 0, VerbsFate::Held);
        near.fill(9);
        post_many(&mut near, &window, Opcode::Put, CompleteWhen::Visible, 60);
        assert!(near.poll_for(9).is_empty());
        if !by_drop {
            let moved = fake.calls("ibv_modify_qp");
            near.plane.close(DataCloseReason::Silent);
            // Or it would go on while what has completed is taken, and be reported as failed.
            assert_eq!(fake.calls("ibv_modify_qp"), moved + 1, "moves to the error state");
            assert!(near.plane.is_fenced() && !near.plane.interest().work);
            assert_eq!(near.complete(60).len(), 60);
            near.plane.release_memory(true);
            assert_ne!(near.take_released(), 0);
        }
        drop(near);
        assert_eq!(fake.release(), 0, "nothing is under way");
        fake.progress(20);
        assert_eq!(far.count_from(0, 9), 0, "a write has come after the end");
        fake.clear_rules();
        drop(far);
        fake.assert_clean();
    }
}
