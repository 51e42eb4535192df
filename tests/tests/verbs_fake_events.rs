//! Asynchronous events of RDMA devices, over the fake libibverbs: each is acknowledged, those of a failed object end its link, and no
//! other ends anything.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::Arc;

use hmc_core::transport::{DataCloseReason, DataPlane as _, PostErrorKind, Transport as _};
use hmc_core::work::{CompleteWhen, Failure, WorkRequest};
use hmc_hw::verbs::domain::VerbsDomain;
use hmc_hw::verbs::event::EventType;
use hmc_hw::verbs::fault::VerbsFault;
use hmc_tests::fake_ibv::{FakeIbv, VerbsFate};
use hmc_tests::ucx_planes::HostCall;
use hmc_tests::verbs_planes::{End, RecordingHost, domain, meet, pair};

const CQ_ERR: u32 = 0;
const QP_FATAL: u32 = 1;
const QP_REQ_ERR: u32 = 2;
const QP_ACCESS_ERR: u32 = 3;
const DEVICE_FATAL: u32 = 8;
const QP_LAST_WQE_REACHED: u32 = 16;

/// A domain of which only callers look at events, and a link of that number in it. Its peer is of another one.
fn link_of(domain: &Arc<VerbsDomain>, serial: u32) -> (End, End, hmc_core::region::WindowDesc) {
    meet(End::numbered(domain, serial).unwrap(), End::new())
}

/// Why the link has ended, in words.
fn text_of(end: &End) -> String {
    let mut text = String::new();
    let why = end.plane.close_reason().expect("it has ended");
    end.plane.describe_close(why, &mut text).unwrap();
    text
}

/// The first link of a domain has ended by that event, each of its `count` requests once.
fn assert_ended(near: &mut End, kind: u32, count: usize) {
    let done = near.complete(count);
    assert!(done.iter().all(|(_, result)| *result == Err(Failure::PeerDead)), "{done:?}");
    let mut named: Vec<_> = done.iter().map(|(index, _)| *index).collect();
    named.sort_unstable();
    assert_eq!(named, (0..u16::try_from(count).unwrap()).collect::<Vec<_>>());
    assert!(near.poll_for(20).is_empty() && near.plane.are_requests_fenced());
    assert_eq!(near.plane.close_reason(), Some(DataCloseReason::Failed(kind.cast_signed())));
    let (text, name) = (text_of(near), EventType(kind).name().unwrap());
    assert!(text.starts_with("the device ended it: ") && text.contains(name), "{text}");
}

#[test]
fn an_event_of_a_failed_object_ends_its_link_alone() {
    let fake = FakeIbv::take();
    for kind in [CQ_ERR, QP_FATAL, QP_REQ_ERR, QP_ACCESS_ERR] {
        let domain = domain(&Arc::default(), 1, true);
        let (mut near, far, window) = link_of(&domain, 1);
        let (mut other, apart, elsewhere) = link_of(&domain, 2);
        fake.rule("write", 0, VerbsFate::Held);
        for index in 0..5 {
            near.post(&near.put(index, &window, 64));
        }
        assert!(near.poll_for(5).is_empty());
        fake.clear_rules();
        let (told, calls) = (near.notifications.count(), fake.calls("ibv_ack_async_event"));
        fake.event(0, kind, 1);
        assert!(domain.take_events() && !domain.take_events());
        assert_eq!(fake.calls("ibv_ack_async_event"), calls + 1);
        assert_eq!(near.notifications.count(), told + 1, "who waits looks at it");
        assert_eq!(other.notifications.count(), 0);
        assert_ended(&mut near, kind, 5);
        assert_eq!(near.plane.post(&near.put(0, &window, 8)), Err(PostErrorKind::Disconnected));
        other.post(&other.put(1, &elsewhere, 64));
        assert_eq!((other.complete(1), other.plane.close_reason()), (vec![(1, Ok(64))], None));
        drop((near, far, other, apart, domain));
        fake.assert_clean();
    }
}

/// A link that has nothing under way ends when its peer's part is looked at.
#[test]
fn an_event_ends_a_link_that_has_nothing_to_do() {
    let fake = FakeIbv::take();
    for kind in [CQ_ERR, QP_ACCESS_ERR] {
        let (mut near, far, _) = pair();
        fake.event(0, kind, 1);
        assert!(near.domain.take_events());
        near.serve();
        assert_ended(&mut near, kind, 0);
        near.plane.close(DataCloseReason::Silent);
        drop((near, far));
        fake.assert_clean();
    }
}

/// What has completed before the event is done.
#[test]
fn completions_before_an_event_count() {
    let fake = FakeIbv::take();
    fake.set("poll_progress", 0);
    let (mut near, far, window) = pair();
    for index in 0..40 {
        if index == 30 {
            fake.rule("write", 0, VerbsFate::Held);
        }
        let work = near.put(index, &window, 64);
        near.post(&WorkRequest { when: CompleteWhen::Local, ..work });
        assert!(near.poll().is_empty());
    }
    fake.progress(9);
    assert_eq!(fake.count("unpolled"), 30);
    fake.event(0, QP_FATAL, 1);
    assert!(near.domain.take_events());
    let mut done = near.complete(40);
    done.sort_unstable_by_key(|(index, _)| *index);
    for (index, result) in done {
        assert_eq!(result.is_ok(), index < 30, "{index}");
    }
    assert!(near.poll_for(20).is_empty());
    fake.clear_rules();
    drop((near, far));
    fake.assert_clean();
}

/// More than are taken at a time, and none of them means anything for a link.
#[test]
fn events_without_a_meaning_end_nothing() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let domain = domain(&host, 1, true);
    let (mut near, far, window) = link_of(&domain, 1);
    let before = fake.calls("ibv_ack_async_event");
    let kinds = [4, 5, 6, 7, QP_LAST_WQE_REACHED, 21, 1000, u32::MAX];
    for _ in 0..20 {
        kinds.iter().for_each(|kind| fake.event(0, *kind, 1));
    }
    let mut looks = 0;
    while domain.take_events() {
        looks += 1;
    }
    assert_eq!((looks, fake.calls("ibv_ack_async_event") - before), (3, 160));
    near.post(&near.put(1, &window, 64));
    assert_eq!((near.complete(1), near.plane.close_reason()), (vec![(1, Ok(64))], None));
    assert_eq!(host.take(), []);
    drop((near, far, domain));
    fake.assert_clean();
}

#[test]
fn a_device_that_fails_ends_its_links_and_begins_none() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let domain = domain(&host, 1, true);
    let (mut near, far, window) = link_of(&domain, 1);
    let mut opening = End::numbered(&domain, 2).unwrap();
    near.post(&near.put(0, &window, 64));
    fake.event(0, DEVICE_FATAL, 0);
    fake.event(0, DEVICE_FATAL, 0);
    assert!(domain.take_events());
    assert_ended(&mut near, DEVICE_FATAL, 1);
    assert_ended(&mut opening, DEVICE_FATAL, 0);
    let fault = End::numbered(&domain, 3).expect_err("the device has failed");
    assert_eq!(fault, VerbsFault::Device(EventType(DEVICE_FATAL)));
    assert!(fault.to_string().contains("DEVICE_FATAL"), "{fault}");
    let reports = host.take();
    let [HostCall::DeviceFailed(text)] = &reports[..] else { panic!("{reports:?}") };
    assert!(text.contains("DEVICE_FATAL"), "{text}");
    drop((near, far, opening, domain));
    assert_eq!((fake.count("live"), fake.count("findings")), (0, 0));
}

/// An event that nobody took does not keep its objects.
#[test]
fn objects_are_destroyed_before_their_events_are_taken() {
    let fake = FakeIbv::take();
    let domain = domain(&Arc::default(), 2, true);
    let end = End::numbered(&domain, 1).unwrap();
    [CQ_ERR, QP_FATAL, QP_ACCESS_ERR].iter().for_each(|kind| fake.event(0, *kind, 1));
    drop(end);
    assert!(!domain.take_events());
    drop(domain);
    fake.assert_clean();
}
