//! Tags of puts over RDMA verbs, which the NIC carries behind their bytes, by the fake libibverbs.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::Arc;

use hmc_core::range::Extent;
use hmc_core::region::WindowDesc;
use hmc_core::transport::{DataCloseReason, DataPlane as _, NeedsStream as _, Progress as _};
use hmc_core::work::{CompleteWhen, Failure, Opcode, WorkRequest};
use hmc_hw::host::SharedWorker as _;
use hmc_tests::fake_ibv::{self, FakeIbv, VerbsFate};
use hmc_tests::verbs_planes::{End, FIRST_WORKER, RecordingHost, domain, meet, pair};

/// The worker of the link of number 1.
const NUMBER: u32 = FIRST_WORKER + 1;

/// Tags that a target receives before it has taken some (docs/WIRE.md).
const RECEIVES: usize = 64;
/// Where a greeting has that number.
const RECEIVES_AT: usize = 3;

/// Tags of one immediate and of two messages.
const TAGS: [u64; 6] = [0, 1, 0xffff_ffff, 1 << 32, 0x0102_0304_0506_0708, u64::MAX];

fn number(index: usize) -> u64 {
    u64::try_from(index).unwrap()
}

fn post(end: &mut End, window: &WindowDesc, index: usize, tag: u64) {
    let at = 8 * number(index % 256);
    let index = u16::try_from(index).unwrap();
    end.post(&end.work(index, Opcode::PutNotify { tag }, window, (at, 8)));
}

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
}

#[test]
fn a_tag_comes_behind_its_bytes() {
    let fake = FakeIbv::take();
    let (mut near, mut far, window) = pair();
    for (index, tag) in TAGS.into_iter().enumerate() {
        near.fill(u8::try_from(index + 1).unwrap());
        fake.rule("write_imm", 1, VerbsFate::Held);
        post(&mut near, &window, index, tag);
        assert!(near.poll_for(20).is_empty());
        let _ = far.serve();
        assert!(far.tags.take_all().is_empty(), "its bytes are not there");
        assert_eq!(fake.release(), 1);
        assert_eq!(near.complete(1), [(u16::try_from(index).unwrap(), Ok(8))]);
        assert!(far.serve() && far.plane.take_delivered() && !far.plane.take_delivered());
        assert_eq!(far.tags.take_all(), [tag]);
        assert_eq!(far.count_from(8 * index, u8::try_from(index + 1).unwrap()), 8);
        fake.clear_rules();
    }
    assert_eq!(near.plane.take_notify(), None, "nothing is left to the stream");
    drop((near, far));
    fake.assert_clean();
}

/// The write of a put carries its tag: nothing is posted for it.
#[test]
fn a_short_tag_costs_no_work_request() {
    let fake = FakeIbv::take();
    let (mut near, mut far, window) = pair();
    let posted = |near: &mut End, opcode| {
        let before = fake.count("signalled") + fake.count("unsignalled");
        near.post(&near.work(1, opcode, &window, (0, 8)));
        assert_eq!(near.complete(1), [(1, Ok(8))]);
        fake.count("signalled") + fake.count("unsignalled") - before
    };
    let without = posted(&mut near, Opcode::Put);
    assert_eq!(posted(&mut near, Opcode::PutNotify { tag: 5 }), without);
    assert_eq!(posted(&mut near, Opcode::PutNotify { tag: 5 << 32 }), without + 1);
    let _ = far.serve();
    assert_eq!(far.tags.take_all(), [5, 5 << 32]);
    drop((near, far));
    fake.assert_clean();
}

/// The parts of a long put go by all queue pairs; its tag waits for the last of them.
#[test]
fn the_tag_of_a_long_put_comes_behind_all_of_it() {
    const LEN: u64 = 1 << 20;
    let fake = FakeIbv::take();
    for lanes in [1, 4] {
        let host = Arc::<RecordingHost>::default();
        let end = || End::with_memory(&domain(&host, lanes, true), LEN).unwrap();
        let (mut near, mut far, _) = meet(end(), end());
        let window = far.expose_to(&mut near, (0, LEN), hmc_core::types::Access::all());
        for nth in 1..=4 {
            for tag in [7, 7 << 40] {
                fake.rule("write", nth, VerbsFate::Held);
                near.post(&near.work(3, Opcode::PutNotify { tag }, &window, (0, LEN)));
                assert!(near.poll_for(100).is_empty());
                let _ = far.serve();
                assert!(far.tags.take_all().is_empty(), "a part is not there");
                assert_eq!(fake.release(), 1);
                assert_eq!(near.complete(1), [(3, Ok(LEN))]);
                let _ = far.serve();
                assert_eq!(far.tags.take_all(), [tag]);
                fake.clear_rules();
            }
        }
        drop((near, far));
        fake.assert_clean();
    }
}

/// The receive of a tag orders the writes of its own queue pair only, so the parts have flushes though the put is a local one.
#[test]
fn the_tag_of_a_long_local_put_comes_behind_visible_bytes() {
    const LEN: u64 = 1 << 20;
    let fake = FakeIbv::take();
    fake.set("staged", 1);
    fake.set("landing", 1_000_000);
    let host = Arc::<RecordingHost>::default();
    let end = || End::with_memory(&domain(&host, 4, true), LEN).unwrap();
    let (mut near, mut far, _) = meet(end(), end());
    let window = far.expose_to(&mut near, (0, LEN), hmc_core::types::Access::all());
    let whole = Extent::new(LEN).whole();
    for (tag, byte) in [(7, 1), (7 << 40, 2)] {
        near.memory.shared().fill(whole, byte).unwrap();
        let put = near.work(3, Opcode::PutNotify { tag }, &window, (0, LEN));
        near.post(&WorkRequest { when: CompleteWhen::Local, ..put });
        assert_eq!(near.complete(1), [(3, Ok(LEN))]);
        let _ = far.serve();
        assert_eq!(far.tags.take_all(), [tag]);
        let mut bytes = vec![0; usize::try_from(LEN).unwrap()];
        far.memory.shared().read_at(whole, &mut bytes).unwrap();
        assert!(bytes.iter().all(|b| *b == byte), "all of them are there");
    }
    drop((near, far));
    fake.assert_clean();
}

/// A target whose inbox is full takes no more than it has announced. The bytes of the others are there, and their tags follow.
#[test]
fn a_full_inbox_stops_tags_and_loses_none() {
    const COUNT: usize = 200;
    let fake = FakeIbv::take();
    for of in [number, |index| TAGS[index % 6], |index| u64::MAX - number(index)] {
        let (mut near, mut far, window) = pair();
        far.tags.set_limit(0);
        (0..COUNT).for_each(|index| post(&mut near, &window, index, of(index)));
        let mut done = near.poll_for(500);
        assert!(done.len() <= RECEIVES && done.len() >= RECEIVES / 2, "{}", done.len());
        for _ in 0..3 {
            let _ = far.serve();
            assert!(far.plane.is_paused() && far.tags.take_all().is_empty());
            done.append(&mut near.poll_for(50));
        }
        assert!(done.len() <= RECEIVES, "{}", done.len());
        assert!(!near.plane.interest().work, "it waits for its peer, not for itself");
        far.tags.set_limit(7);
        let mut tags = Vec::new();
        for turn in 0.. {
            let before = tags.len();
            if before == COUNT {
                break;
            }
            assert!(turn < 10_000, "{before} tags came");
            // Its own requests make progress for it, or nothing but what comes.
            let _ = if before % 2 == 0 { far.serve() } else { far.poll().is_empty() };
            done.append(&mut near.poll_for(5));
            let _ = near.serve();
            tags.extend(far.tags.take_all());
            assert!(tags.len() <= before + 7, "it takes what there is space for");
        }
        done.append(&mut near.complete(COUNT - done.len()));
        assert!(done.iter().all(|(_, result)| *result == Ok(8)), "{done:?}");
        assert!(tags.iter().copied().eq((0..COUNT).map(of)), "{tags:?}");
        let _ = far.serve();
        assert!(!far.plane.is_paused());
        drop((near, far));
        fake.assert_clean();
    }
}

/// Both ends send at once, far more than there are receives for.
#[test]
fn tags_of_both_ends_pass_each_other() {
    const ROUNDS: usize = 40;
    const EACH: usize = 20;
    let fake = FakeIbv::take();
    let (mut near, mut far, there) = pair();
    let here = near.expose_to(&mut far, (0, 4096), hmc_core::types::Access::all());
    let (mut sent, mut got) = (0_u64, [Vec::new(), Vec::new()]);
    for _ in 0..ROUNDS {
        for index in 0..EACH {
            post(&mut near, &there, index, sent);
            post(&mut far, &here, index, sent << 32);
            sent += 1;
        }
        let mut done = [0; 2];
        for turn in 0.. {
            if done == [EACH; 2] {
                break;
            }
            assert!(turn < 10_000, "{done:?}");
            done[0] += near.poll().len();
            done[1] += far.poll().len();
            let _ = (near.serve(), far.serve());
        }
        got[0].extend(near.tags.take_all());
        got[1].extend(far.tags.take_all());
    }
    let _ = (near.serve(), far.serve());
    got[0].extend(near.tags.take_all());
    got[1].extend(far.tags.take_all());
    assert!(got[1].iter().copied().eq(0..sent), "{:?}", got[1]);
    assert!(got[0].iter().copied().eq((0..sent).map(|tag| tag << 32)), "{:?}", got[0]);
    drop((near, far));
    fake.assert_clean();
}

/// Tags that have come are delivered at the end of the link, though the inbox has no space.
#[test]
fn the_end_of_a_link_loses_no_tag_that_has_come() {
    let fake = FakeIbv::take();
    let (mut near, mut far, window) = pair();
    far.tags.set_limit(3);
    (0..RECEIVES).for_each(|index| post(&mut near, &window, index, number(index)));
    assert_eq!(near.complete(RECEIVES).len(), RECEIVES);
    let _ = far.serve();
    near.plane.close(DataCloseReason::Silent);
    far.plane.close(DataCloseReason::Eof);
    assert!(far.plane.take_delivered());
    assert!(far.tags.take_all().into_iter().eq((0..RECEIVES).map(number)));
    drop((near, far));
    fake.assert_clean();
}

/// A link that is about to be over delivers what has come before anybody can find it over, and goes on meanwhile.
#[test]
fn what_has_come_is_delivered_before_the_end() {
    let fake = FakeIbv::take();
    let (mut near, mut far, window) = pair();
    far.tags.set_limit(3);
    (0..RECEIVES).for_each(|index| post(&mut near, &window, index, number(index)));
    assert_eq!(near.complete(RECEIVES).len(), RECEIVES);
    far.plane.deliver_rest();
    assert!(far.plane.take_delivered());
    assert!(far.tags.take_all().into_iter().eq((0..RECEIVES).map(number)));
    let _ = far.serve();
    post(&mut near, &window, 1, 7);
    assert_eq!(near.complete(1), [(1, Ok(8))]);
    let _ = far.serve();
    assert_eq!(far.tags.take_all(), [7]);
    near.plane.close(DataCloseReason::Silent);
    far.plane.close(DataCloseReason::Eof);
    far.plane.deliver_rest();
    drop((near, far));
    fake.assert_clean();
}

/// The end of a link ends a put whose bytes are there and whose tag is not.
#[test]
fn a_tag_that_waits_ends_with_the_link() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = pair();
    far.tags.set_limit(0);
    (0..100).for_each(|index| post(&mut near, &window, index, 1));
    assert_eq!(near.poll_for(500).len(), RECEIVES);
    near.plane.close(DataCloseReason::Silent);
    let rest = near.poll_for(5);
    assert_eq!(rest.len(), 100 - RECEIVES);
    assert!(rest.iter().all(|(_, result)| *result == Err(Failure::PeerDead)), "{rest:?}");
    drop((near, far));
    fake.assert_clean();
}

/// A thread that sleeps on the channel is woken by each tag, and by none of its own requests that request no notification.
#[test]
fn tags_wake_the_host_s_thread() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let far = End::with_host(&host, 1, false);
    let (mut near, mut far, window) = meet(End::new(), far);
    let back = near.expose_to(&mut far, (0, 4096), hmc_core::types::Access::all());
    for round in 0..3_u64 {
        let before = (fake.count("notifications"), far.notifications.count());
        far.post(&far.put(1, &back, 8));
        assert_eq!(far.complete(1), [(1, Ok(8))]);
        assert_eq!(fake.count("notifications"), before.0, "it requests no notification");
        post(&mut near, &window, 2, round);
        assert_eq!(near.complete(1).len(), 1);
        assert_eq!(fake.count("notifications"), before.0 + 1, "an event for the tag");
        // As its thread does once the descriptor is readable.
        assert!(far.domain.service(NUMBER));
        assert!(far.notifications.count() > before.1);
        assert!(far.serve());
        assert_eq!(far.tags.take_all(), [round]);
    }
    drop((near, far));
    fake.assert_clean();
}

/// A caller that sleeps on the channel for something else is woken by a tag.
#[test]
fn tags_wake_a_caller() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let far = End::with_host(&host, 1, false);
    let (mut near, mut far, window) = meet(End::new(), far);
    let worker = far.plane.link_worker();
    for round in 0..3 {
        worker.claim();
        while !worker.can_sleep() {
            let _ = far.serve();
        }
        let before = fake.count("notifications");
        post(&mut near, &window, 2, round);
        assert_eq!(near.complete(1).len(), 1);
        assert_eq!(fake.count("notifications"), before + 1);
        assert!(!worker.can_sleep(), "there is something to take");
        assert!(far.serve());
        worker.release();
        assert_eq!(far.tags.take_all(), [round]);
    }
    drop((near, far, worker));
    fake.assert_clean();
}

/// A peer that has fewer receives than it has announced ends the link: the sender tries for a while.
#[test]
fn a_peer_without_the_receives_that_it_has_announced_ends_the_link() {
    let fake = FakeIbv::take();
    let (mut near, mut far) = (End::new(), End::new());
    let (ours, mut theirs) = (near.greeting(), far.greeting());
    theirs.1[RECEIVES_AT] = 255;
    near.receive((theirs.0, &theirs.1));
    far.receive((ours.0, &ours.1));
    let (ours, theirs) = (near.word(), far.word());
    near.receive((theirs.0, &theirs.1));
    far.receive((ours.0, &ours.1));
    let window = far.expose_to(&mut near, (0, 4096), hmc_core::types::Access::all());
    for note in far.notes() {
        near.receive((note.0, &note.1));
    }
    (0..100).for_each(|index| post(&mut near, &window, index, 1));
    let done = near.complete(100);
    // One flush is behind all of them.
    assert!(done.iter().all(|(_, result)| *result == Err(Failure::PeerDead)), "{done:?}");
    assert!(matches!(near.plane.close_reason(), Some(DataCloseReason::Failed(_))));
    far.plane.close(DataCloseReason::Eof);
    assert_eq!(far.tags.take_all(), [1_u64; RECEIVES + 2]);
    drop((near, far));
    fake.assert_clean();
}
