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
use hmc_tests::fake_ibv::{self, FakeIbv, VerbsFate};
use hmc_tests::ucx_planes::HostCall;
use hmc_tests::verbs_planes::{
    EVENTS_WORKER, End, FIRST_WORKER, RecordingHost, domain, meet, pair,
};

const CQ_ERR: u32 = 0;
const QP_FATAL: u32 = 1;
const QP_REQ_ERR: u32 = 2;
const QP_ACCESS_ERR: u32 = 3;
const DEVICE_FATAL: u32 = 8;
const PORT_ACTIVE: u32 = 9;
const PORT_ERR: u32 = 10;
const LID_CHANGE: u32 = 11;
const QP_LAST_WQE_REACHED: u32 = 16;
const GID_CHANGE: u32 = 18;
const SPEED_CHANGE: u32 = 20;

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
    assert!(text.starts_with("the NIC fake_0:1 ended it: ") && text.contains(name), "{text}");
}

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
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
    let (mut near, far, window) = pair();
    fake.set("poll_progress", 0);
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
    let (name, event) = ("fake_0".to_owned(), EventType(DEVICE_FATAL));
    assert_eq!(fault, VerbsFault::Device { name, event });
    assert!(fault.to_string().contains("DEVICE_FATAL"), "{fault}");
    let reports = host.take();
    let [HostCall::DeviceFailed(text)] = &reports[..] else { panic!("{reports:?}") };
    assert!(text.contains("DEVICE_FATAL"), "{text}");
    drop((near, far, opening, domain));
    assert_eq!((fake.count("live"), fake.count("findings")), (0, 0));
}

/// What was under way is sent again, and arrives.
#[test]
fn links_outlast_a_port_that_is_down_and_no_link_begins() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let domain = domain(&host, 1, true);
    let (mut near, far, window) = link_of(&domain, 1);
    for round in 0..2 {
        near.post(&near.put(1, &window, 64));
        fake.event(0, PORT_ERR, 1);
        fake.event(0, PORT_ERR, 1);
        assert!(domain.take_events() && near.poll_for(2).is_empty(), "round {round}");
        for _ in 0..3 {
            let fault = End::numbered(&domain, 2).expect_err("its port is down");
            assert!(matches!(fault, VerbsFault::Port(_)), "{fault:?}");
            assert!(fault.to_string().contains(":1 is down: look at its cable"), "{fault}");
        }
        let reports = host.take();
        let [HostCall::PortDown(text)] = &reports[..] else { panic!("{reports:?}") };
        assert!(text.contains(":1: port error (PORT_ERR, event 10)"), "{text}");
        // Nobody has taken the event when the next link begins.
        fake.event(0, PORT_ACTIVE, 1);
        let (mut next, later, there) = link_of(&domain, 2);
        assert!(matches!(&host.take()[..], [HostCall::PortChanged(_)]));
        assert_eq!(near.complete(1), [(1, Ok(64))]);
        next.post(&next.put(1, &there, 64));
        assert_eq!((next.complete(1), near.plane.close_reason()), (vec![(1, Ok(64))], None));
        drop((next, later));
    }
    drop((near, far, domain));
    fake.assert_clean();
}

/// GID and LID are in the greeting, by which peers reach this end.
#[test]
fn new_links_use_the_new_addresses_of_a_port() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let domain = domain(&host, 1, true);
    let (mut near, far, window) = link_of(&domain, 1);
    let (before, calls) = (near.greeting(), fake.calls("ibv_query_port"));
    drop(End::numbered(&domain, 2).unwrap());
    assert_eq!(fake.calls("ibv_query_port"), calls, "nothing has changed");
    let old = <[u8; 16]>::try_from(&before.1[18..34]).unwrap();
    let mut gid = old;
    gid[15] ^= 0x55;
    let set_all = |gid| (0..8).for_each(|index| fake.set_gid(0, 1, index, Some((2, gid))));
    set_all(gid);
    fake.event(0, GID_CHANGE, 1);
    let after = End::numbered(&domain, 2).unwrap().greeting();
    assert_eq!((&after.1[..18], &after.1[18..34]), (&before.1[..18], &gid[..]));
    assert_eq!(near.greeting(), before, "the link goes on as it began");
    for (kind, value) in [(LID_CHANGE, 0x1234), (SPEED_CHANGE, 0x0077)] {
        fake.set_port(0, 1, "lid", value);
        fake.event(0, kind, 1);
        let after = End::numbered(&domain, 2).unwrap().greeting();
        assert_eq!(u64::from(u16::from_le_bytes([after.1[16], after.1[17]])), value);
    }
    let reports = host.take();
    assert_eq!(reports.len(), 3, "{reports:?}");
    assert!(reports.iter().all(|call| matches!(call, HostCall::PortChanged(_))), "{reports:?}");
    // What the port had is there again.
    set_all(old);
    near.post(&near.put(1, &window, 64));
    assert_eq!((near.complete(1), near.plane.close_reason()), (vec![(1, Ok(64))], None));
    drop((near, far, domain));
    fake.assert_clean();
}

#[test]
fn another_port_of_the_device_is_nobodys() {
    let fake = FakeIbv::take();
    fake.set_device(0, "ports", 2);
    let host = Arc::<RecordingHost>::default();
    let domain = domain(&host, 1, true);
    fake.event(0, PORT_ERR, 2);
    assert!(domain.take_events());
    drop(End::numbered(&domain, 1).unwrap());
    assert_eq!(host.take(), []);
    drop(domain);
    fake.assert_clean();
}

#[test]
fn the_hosts_thread_watches_for_events_unless_only_callers_do() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    for is_manual in [false, true] {
        let domain = domain(&host, 1, is_manual);
        let watched = if is_manual { vec![] } else { vec![HostCall::Watch(EVENTS_WORKER)] };
        assert_eq!(host.take(), watched);
        let mut end = End::numbered(&domain, 1).unwrap();
        fake.event(0, QP_FATAL, 1);
        assert!(domain.service(EVENTS_WORKER) && domain.service(FIRST_WORKER + 1));
        assert_ended(&mut end, QP_FATAL, 0);
        drop(end);
        drop(host.take());
        drop(domain);
        let unwatched = if is_manual { vec![] } else { vec![HostCall::Unwatch] };
        assert_eq!(host.take(), unwatched);
    }
    fake.assert_clean();
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
