//! UCX's data plane by itself, without a session and without the stream beside it, over the fake libucp.

use std::collections::BTreeMap;

use hmc_core::transport::{
    DataCloseReason, DataPlane as _, Fence, PeerWindows as _, Progress as _, Target as _,
    Transport as _,
};
use hmc_core::window::WindowFault;
use hmc_core::work::{Failure, Opcode};
use hmc_tests::fake_ucp::{CallResult, FakeUcp};
use hmc_tests::ucx_planes::{End, MESSAGES, NIC, SHARED_MEMORY, TURNS, pair};

#[test]
fn bytes_are_counted_whether_they_were_posted_or_copied_in_the_call() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.set("maps", 1);
    let (mut near, far, window) = pair(&fake_ucp, true);
    near.fill(7);
    let put = near.put(0, &window, 24);
    assert_eq!((near.domain.registrations(), far.domain.registrations()), (0, 1));
    // The first one registers its memory, and finds out how the window is reached.
    near.plane.post(&put).unwrap();
    assert_eq!(near.domain.registrations(), 1);
    let posted = (0..TURNS).find_map(|_| near.poll().pop()).unwrap();
    assert_eq!((posted.op, posted.result), (put.op, Ok(24)));
    assert_eq!((near.plane.bytes_moved(), near.plane.bytes_offloaded()), ((24, 0), 24));
    let more = near.put(1, &window, 100);
    assert!(near.plane.try_transfer(Opcode::Put, more.local, more.remote));
    assert_eq!((near.plane.bytes_moved(), near.plane.bytes_offloaded()), ((124, 0), 124));
    assert_eq!((far.count(7), far.plane.bytes_moved()), (100, (0, 0)));
    drop((near, far));
    fake_ucp.assert_clean();
}

/// A target without a thread receives messages by its own polls, and each says whether anything happened.
#[test]
fn a_target_makes_the_progress_of_its_messages() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane(MESSAGES);
    let (mut near, mut far, window) = pair(&fake_ucp, false);
    while far.plane.poll_peer(true) {}
    near.fill(7);
    near.plane.post(&near.put(0, &window, 64)).unwrap();
    assert_eq!((near.poll(), far.count(7)), (vec![], 0), "the target makes no progress");
    assert!(!far.plane.poll_peer(false), "another thread has to");
    assert_eq!(far.count(7), 0);
    assert!(far.plane.poll_peer(true));
    assert_eq!(far.count(7), 64);
    let done = (0..TURNS).find_map(|_| {
        far.plane.poll_peer(true);
        near.poll().pop()
    });
    assert_eq!(done.map(|c| c.result), Some(Ok(64)));
    // Or the application lets all workers of the domain do so.
    let mut free = Vec::new();
    while far.domain.progress_all(&mut free) {}
    near.plane.post(&near.put(1, &window, 128)).unwrap();
    assert_eq!((near.poll(), far.count(7)), (vec![], 64));
    assert!(far.domain.progress_all(&mut free));
    assert_eq!((far.count(7), free.len()), (128, 0));
    drop((near, far));
    fake_ucp.assert_clean();
}

/// A peer that copies by itself may go on after the link: only a layer that sees its process knows when it has ended. Of any other the end of
/// the endpoint and of the registrations is enough.
#[test]
fn a_closed_data_plane_answers_for_peers_that_do_not_copy_by_themselves() {
    let fake_ucp = FakeUcp::take();
    for (lane, same_system, ends) in [
        (SHARED_MEMORY, true, false),
        (SHARED_MEMORY, false, true),
        (NIC, true, true),
        (NIC, false, true),
        (MESSAGES, true, true),
        (MESSAGES, false, true),
    ] {
        fake_ucp.lane(lane);
        let (near, mut far, _window) = pair(&fake_ucp, same_system);
        let case = format!("{lane}, same system {same_system}");
        assert!(!far.plane.peer_has_ended() && !far.plane.is_fenced(), "{case}: it is open");
        far.plane.close(DataCloseReason::Silent);
        let ended = (0..TURNS).any(|_| far.plane.peer_has_ended());
        assert_eq!((ended, far.plane.is_fenced()), (ends, ends), "{case}");
        drop((near, far));
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
    // The peer's connection info never came.
    for same_system in [true, false] {
        let mut alone = End::new(&fake_ucp, same_system);
        alone.expose();
        assert!(!alone.plane.peer_has_ended());
        alone.plane.close(DataCloseReason::Silent);
        assert_eq!(alone.plane.peer_has_ended(), !same_system);
    }
    fake_ucp.assert_clean();
}

/// Their replies wait for messages to become free: those of a window that is closed meanwhile are refused, the others sent.
#[test]
fn gets_that_wait_are_refused_once_their_window_is_closed() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane(MESSAGES);
    let (mut near, mut far, kept) = pair(&fake_ucp, false);
    let (closed, kind, key) = far.expose();
    near.receive((kind, &key));
    far.fill(7);
    let busy = 0..8;
    for index in busy.clone() {
        near.plane.post(&near.work(index, Opcode::Get, &kept, 64)).unwrap();
    }
    near.plane.post(&near.work(8, Opcode::Get, &closed, 64)).unwrap();
    near.plane.post(&near.work(9, Opcode::Get, &kept, 64)).unwrap();
    assert_eq!(near.poll(), []);
    fake_ucp.rule("ucp_am_send_nbx", 0, CallResult::Held);
    while far.plane.poll_peer(true) {}
    assert_eq!(fake_ucp.count("held"), 8, "all messages are in flight");
    assert_eq!(far.plane.close_window(closed.window, closed.epoch), Fence::PeerAck);
    fake_ucp.forget_rules();
    assert_eq!(fake_ucp.release(), 8);
    let mut results = BTreeMap::new();
    for _ in 0..TURNS {
        far.plane.poll_peer(true);
        results.extend(near.poll().into_iter().map(|c| (c.op.index, c.result)));
    }
    let revoked = Err(Failure::Window(WindowFault::Revoked));
    let served = busy.chain([9]).map(|index| (index, Ok(64)));
    assert_eq!(results, served.chain([(8, revoked)]).collect());
    drop((near, far));
    fake_ucp.assert_clean();
}

/// A worker that one link uses is dropped once its link is gone; one that links share stays, and is nothing to wait for.
#[test]
fn a_worker_that_one_link_uses_is_left_over_until_it_is_dropped() {
    let fake_ucp = FakeUcp::take();
    for same_system in [true, false] {
        fake_ucp.lane(SHARED_MEMORY);
        let (near, far, _window) = pair(&fake_ucp, same_system);
        for end in [near, far] {
            let End { domain, plane, memory, .. } = end;
            let mut free = Vec::new();
            domain.service_all(&mut free);
            assert_eq!(domain.has_leftovers(), same_system);
            assert!(!domain.must_poll(), "it can be armed");
            drop((plane, memory));
            assert_eq!(domain.has_leftovers(), same_system);
            domain.service_all(&mut free);
            assert!(!domain.has_leftovers());
        }
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}
