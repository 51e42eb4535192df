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
use hmc_core::work::Failure;
use hmc_hw::verbs::domain::VerbsDomain;
use hmc_hw::verbs::event::EventType;
use hmc_tests::fake_ibv::{FakeIbv, VerbsFate};
use hmc_tests::verbs_planes::{End, domain, meet};

const CQ_ERR: u32 = 0;
const QP_FATAL: u32 = 1;
const QP_REQ_ERR: u32 = 2;
const QP_ACCESS_ERR: u32 = 3;

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
