//! A forked child drops what its parent made of RDMA verbs: it makes no call, and the parent goes on. Alone in its file: a fork copies
//! whatever other threads hold.

use std::sync::Arc;

use hmc_core::transport::{DataCloseReason, DataPlane as _, Progress as _};
use hmc_core::types::Access;
use hmc_core::work::Opcode;
use hmc_tests::child::in_child;
use hmc_tests::fake_ibv::{self, FakeIbv};
use hmc_tests::ucx_planes::HostCall;
use hmc_tests::verbs_planes::{End, RecordingHost, meet};

const CALLS: [&str; 14] = [
    "ibv_destroy_qp",
    "ibv_modify_qp",
    "ibv_dereg_mr",
    "ibv_dealloc_mw",
    "ibv_dealloc_pd",
    "ibv_destroy_cq",
    "ibv_destroy_comp_channel",
    "ibv_close_device",
    "ibv_poll_cq",
    "ibv_post_recv",
    "ibv_req_notify_cq",
    "ibv_get_cq_event",
    "ibv_get_async_event",
    "ibv_ack_async_event",
];

const PORT_ACTIVE: u32 = 9;

#[test]
fn a_child_drops_without_a_call() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    let (mut near, mut far, window) = meet(End::with_host(&host, 1, false), End::new());
    near.post(&near.put(1, &window, 64));
    assert!(near.poll_for(1).len() <= 1);
    let mut worker = near.plane.link_worker();
    // A tag that the inbox has no space for.
    let back = near.expose_to(&mut far, (0, 64), Access::WRITE);
    for (kind, bytes) in near.notes() {
        far.receive((kind, &bytes));
    }
    let tags = near.tags.clone();
    tags.set_limit(0);
    far.post(&far.work(1, Opcode::PutNotify { tag: 5 }, &back, (0, 8)));
    assert_eq!(far.complete(1), [(1, Ok(8))]);
    assert!(!near.poll_for(20).is_empty() || near.serve());
    assert!(near.plane.is_paused());
    drop(host.take());
    fake.event(0, PORT_ACTIVE, 1);
    let before = CALLS.map(|call| fake.calls(call));
    for closes in [false, true] {
        let mut all = Some((near, far, worker));
        let said = in_child(|| {
            if closes && let Some((near, ..)) = &mut all {
                near.plane.close(DataCloseReason::Silent);
                assert!(!near.domain.take_events(), "it is the parent's");
            }
            drop(all.take());
            let after = CALLS.map(|call| fake.calls(call));
            // The descriptors of what the parent watches are shared.
            let unwatched = host.take().contains(&HostCall::Unwatch);
            // The lock of the inbox may be held, by a thread that the child has not.
            let tags = tags.take_all().len();
            format!("calls {} unwatched {unwatched} tags {tags}", after != before)
        });
        assert_eq!(said.as_deref(), Ok("calls false unwatched false tags 0"), "closes {closes}");
        (near, far, worker) = all.expect("the parent's are there");
    }
    while !near.plane.are_requests_fenced() {
        drop(near.poll());
    }
    tags.set_limit(1);
    assert!(near.serve() || near.plane.take_delivered());
    assert_eq!(tags.take_all(), [5]);
    near.post(&near.put(2, &window, 64));
    assert!(near.complete(1).iter().all(|(_, result)| *result == Ok(64)));
    drop((near, far, worker));
    drop(host.take());
    fake.assert_clean();
    fake_ibv::run_without_windows(&[]);
}
