//! UCX's data plane by itself, without a session and without the stream beside it, over the fake libucp.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;

use hmc_core::limits::MAX_ENDPOINT_BYTES;
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::{
    DataCloseReason, DataPlane as _, Fence, NeedsStream as _, Note, Notes as _, PeerAccess,
    PeerWindows as _, Progress as _, Target as _, Transport as _,
};
use hmc_core::types::{Access, ConnType, MemoryKind};
use hmc_core::window::WindowFault;
use hmc_core::wire::advert::{ENDPOINT_UCX_KEY, UcxKey};
use hmc_core::wire::held;
use hmc_core::wire::message::ControlKind;
use hmc_core::work::{Failure, Opcode};
use hmc_hw::ucx::fault::UcxFault;
use hmc_tests::fake_ucp::{CONNECTION_RESET, CallResult, FakeUcp};
use hmc_tests::ucx_planes::{
    End, FIRST_WORKER, MESSAGES, NIC, RecordingHost, SHARED_MEMORY, TURNS, pair,
};

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

/// The owner sends the tag once the bytes are there, and completes the operation itself.
#[test]
fn a_put_with_a_tag_is_handed_out_when_its_bytes_are_there() {
    let fake_ucp = FakeUcp::take();
    for (lane, maps) in [(NIC, 0), (MESSAGES, 0), (SHARED_MEMORY, 1)] {
        fake_ucp.lane(lane);
        fake_ucp.set("maps", maps);
        let (mut near, mut far, window) = pair(&fake_ucp, false);
        near.fill(7);
        let put = near.work(0, Opcode::PutNotify { tag: 5 }, &window, 64);
        near.plane.post(&put).unwrap();
        let told = (0..TURNS).find_map(|_| {
            assert_eq!(near.poll(), []);
            far.plane.poll_peer(true);
            near.plane.take_notify()
        });
        assert_eq!((told, far.count(7)), (Some(put), 64), "{lane}");
        assert_eq!((near.poll(), near.plane.take_notify()), (vec![], None), "{lane}");
        drop((near, far));
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
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
    fake_ucp.clear_rules();
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

/// An end that never has a request of its own goes on with its answers.
#[test]
fn answers_that_are_under_way_are_gone_on_with_by_polls() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane(MESSAGES);
    let (mut near, mut far, window) = pair(&fake_ucp, false);
    far.fill(7);
    for index in 0..12 {
        near.plane.post(&near.work(index, Opcode::Get, &window, 64)).unwrap();
    }
    assert_eq!(near.poll(), []);
    fake_ucp.rule("ucp_am_send_nbx", 0, CallResult::Held);
    while far.plane.poll_peer(true) {}
    fake_ucp.clear_rules();
    assert_eq!(fake_ucp.release(), 8, "all messages are in flight");
    let mut done = 0;
    for _ in 0..TURNS {
        assert_eq!(far.poll(), []);
        done += near.poll().len();
    }
    assert_eq!(done, 12);
    drop((near, far));
    fake_ucp.assert_clean();
}

/// A peer whose lanes reach memory may never send a message. One that only sends them cannot be fenced before it has.
#[test]
fn an_end_of_messages_waits_a_second_for_the_first_one_of_its_peer() {
    let fake_ucp = FakeUcp::take();
    let host: Arc<RecordingHost> = Arc::default();
    let at = |millis| host.set_time(Instant::ZERO.after(Duration::from_millis(millis)));
    let mut near = End::with_host(&fake_ucp, false, &host, true);
    let mut far = End::new(&fake_ucp, false);
    let (ours, theirs) = (near.greeting(), far.greeting());
    fake_ucp.lane(MESSAGES);
    near.receive((theirs.0, &theirs.1));
    fake_ucp.lane(NIC);
    near.plane.poll_peer(true);
    at(5000);
    far.receive((ours.0, &ours.1));
    for _ in 0..100 {
        for end in [&mut near, &mut far] {
            assert_eq!(end.poll(), []);
            end.plane.poll_peer(true);
        }
    }
    assert!(far.plane.is_ready(), "it needs no answer");
    for (millis, ready) in [(5000, false), (5999, false), (6000, true)] {
        at(millis);
        near.plane.poll_peer(true);
        assert_eq!(near.plane.is_ready(), ready, "at {millis} ms");
    }
    // Each end would have to use messages alone.
    assert!(!near.plane.checks_accesses() && !far.plane.checks_accesses());
    drop((near, far));
    fake_ucp.assert_clean();
}

#[test]
fn lanes_of_either_make_a_peer_one_that_copies_by_itself() {
    let fake_ucp = FakeUcp::take();
    let process = PeerAccess::Process(Some(std::process::id()));
    for (of_session, of_endpoint, access) in [
        (NIC, NIC, PeerAccess::Remote),
        (SHARED_MEMORY, SHARED_MEMORY, process),
        (NIC, SHARED_MEMORY, process),
        (SHARED_MEMORY, NIC, process),
        (SHARED_MEMORY, MESSAGES, PeerAccess::Remote),
        (MESSAGES, MESSAGES, PeerAccess::Remote),
    ] {
        fake_ucp.lane(of_session);
        let (mut near, mut far) = (End::new(&fake_ucp, true), End::new(&fake_ucp, true));
        assert_eq!(near.plane.peer_access(), PeerAccess::Unknown);
        fake_ucp.lane(of_endpoint);
        let theirs = far.greeting();
        near.receive((theirs.0, &theirs.1));
        assert_eq!(near.plane.peer_access(), access, "{of_session} and {of_endpoint}");
        let mut lanes = Vec::new();
        near.plane.lanes(&mut |lane| lanes.push(lane.to_owned()));
        assert_eq!(lanes, [of_endpoint.split('/').next().unwrap()]);
        drop((near, far));
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}

#[test]
fn a_data_plane_has_one_endpoint_and_none_once_it_is_closed() {
    let fake_ucp = FakeUcp::take();
    let (mut near, mut far, _window) = pair(&fake_ucp, false);
    let theirs = far.greeting();
    let made = fake_ucp.calls("ucp_ep_create");
    near.receive((theirs.0, &theirs.1));
    let mut late = End::new(&fake_ucp, false);
    late.plane.close(DataCloseReason::Silent);
    late.receive((theirs.0, &theirs.1));
    assert_eq!(fake_ucp.calls("ucp_ep_create"), made);
    assert_eq!(late.plane.peer_access(), PeerAccess::Unknown);
    drop((near, far, late));
    fake_ucp.assert_clean();
}

/// Keys may come before the connection info; a peer has one for each window that it can have.
#[test]
fn keys_are_kept_for_as_many_windows_as_a_peer_has() {
    let fake_ucp = FakeUcp::take();
    let limit = held::of_message(ControlKind::Endpoint).count();
    let mut buf = [0; MAX_ENDPOINT_BYTES];
    let mut receive = |end: &mut End, index: usize| {
        let window = WindowDesc {
            window: WindowId::new(u16::try_from(index).unwrap(), 1 << 16),
            epoch: Epoch(1),
            extent: Extent::new(8),
            access: Access::all(),
            kind: MemoryKind::Cpu,
        };
        let key = UcxKey::compose(&window, 8, b"key", &mut buf).unwrap();
        let note = Note { kind: ENDPOINT_UCX_KEY, bytes: key.content() };
        end.plane.receive_note(note)
    };
    let refused = |index| Err(UcxFault::UnknownWindow { index, limit });
    let mut end = End::new(&fake_ucp, false);
    assert_eq!(receive(&mut end, limit), refused(limit));
    for index in 0..limit {
        assert_eq!(receive(&mut end, index), Ok(()));
    }
    assert_eq!(receive(&mut end, 0), refused(0), "there is one too many");
    let (mut near, far, _window) = pair(&fake_ucp, false);
    assert_eq!(receive(&mut near, limit), refused(limit));
    let unknown = receive(&mut near, limit - 1);
    assert!(matches!(unknown, Err(UcxFault::Ucx(_))), "UCX has made no such key: {unknown:?}");
    drop((end, near, far));
    fake_ucp.assert_clean();
}

#[test]
fn only_puts_that_wait_are_work_and_only_messages_wait() {
    let fake_ucp = FakeUcp::take();
    for (lane, waits) in [(MESSAGES, true), (NIC, false)] {
        fake_ucp.lane(lane);
        let (mut near, mut far, window) = pair(&fake_ucp, false);
        while far.plane.poll_peer(true) | near.plane.poll_peer(true) {}
        assert_eq!((near.plane.can_coalesce(), near.plane.take_posted()), (waits, true), "{lane}");
        assert!(!near.plane.take_posted() && !near.plane.interest().work);
        near.plane.post(&near.put(0, &window, 8)).unwrap();
        assert_eq!(near.plane.interest().work, !waits, "{lane}: its message was sent");
        assert_eq!(near.plane.take_posted(), waits);
        near.plane.post(&near.put(1, &window, 8)).unwrap();
        assert!(near.plane.interest().work);
        assert_eq!((near.plane.can_coalesce(), near.plane.take_posted()), (waits, false));
        let mut done = 0;
        while done < 2 {
            far.plane.poll_peer(true);
            near.plane.poll_peer(true);
            done += near.poll().len();
        }
        assert!(!near.plane.interest().work);
        near.plane.post(&near.put(2, &window, 8)).unwrap();
        near.plane.post(&near.put(3, &window, 8)).unwrap();
        near.plane.close(DataCloseReason::Silent);
        assert!(!near.plane.interest().work, "{lane}: it is closed");
        drop((near, far));
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}

/// Small puts wait for company, but not once something has ended: who waits for it is told first.
#[test]
fn puts_do_not_wait_for_company_once_one_has_ended() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane(MESSAGES);
    let (mut near, mut far, window) = pair(&fake_ucp, false);
    near.plane.post(&near.put(0, &window, 8)).unwrap();
    assert!(near.plane.can_coalesce());
    while far.plane.poll_peer(true) {}
    // Another thread's progress takes the answer.
    assert!(near.domain.progress_all(&mut Vec::new()));
    assert!(!near.plane.can_coalesce(), "an answer is there");
    near.plane.are_requests_fenced();
    assert!(!near.plane.can_coalesce(), "a put has ended");
    assert_eq!(near.poll().len(), 1);
    assert!(near.plane.can_coalesce());
    drop((near, far));
    fake_ucp.assert_clean();
}

#[test]
fn a_window_that_is_used_is_released_once_its_operations_have_ended() {
    let fake_ucp = FakeUcp::take();
    let (mut near, mut far, window) = pair(&fake_ucp, false);
    let (other, kind, key) = far.expose();
    near.receive((kind, &key));
    fake_ucp.rule("ucp_get_nbx", 0, CallResult::Held);
    let get = near.work(0, Opcode::Get, &window, 8);
    near.plane.post(&get).unwrap();
    assert_eq!(near.poll(), []);
    assert!(near.plane.uses_memory_of(get.op) && !near.plane.are_requests_fenced());
    assert!(near.plane.remove_window(other.window, other.epoch));
    assert!(!near.plane.has_releases());
    assert!(!near.plane.remove_window(window.window, window.epoch));
    assert!(near.plane.has_releases());
    assert_eq!(near.plane.next_release(), None);
    assert_eq!(fake_ucp.release(), 1);
    let done = (0..TURNS).find_map(|_| near.poll().pop());
    assert_eq!(done.map(|c| c.result), Some(Ok(8)));
    assert!(!near.plane.uses_memory_of(get.op) && near.plane.are_requests_fenced());
    assert_eq!(near.plane.next_release(), Some((window.window, window.epoch)));
    assert!(!near.plane.has_releases() && near.plane.next_release().is_none());
    // The end of the link lets go of all.
    near.plane.post(&near.work(1, Opcode::Get, &other, 8)).unwrap();
    let revoked = (0..TURNS).find_map(|_| near.poll().pop()).unwrap();
    assert_eq!(revoked.result, Err(Failure::Window(WindowFault::Revoked)));
    let (third, kind, key) = far.expose();
    near.receive((kind, &key));
    near.plane.post(&near.work(2, Opcode::Get, &third, 8)).unwrap();
    assert_eq!(near.poll(), []);
    assert!(!near.plane.remove_window(third.window, third.epoch) && near.plane.has_releases());
    near.plane.close(DataCloseReason::Silent);
    assert!(!near.plane.has_releases());
    drop((near, far));
    fake_ucp.assert_clean();
}

#[test]
fn the_first_reason_of_the_end_stays_and_is_reported() {
    let fake_ucp = FakeUcp::take();
    let (mut near, mut far, _window) = pair(&fake_ucp, false);
    assert_eq!((near.plane.kind(), near.plane.close_reason()), (Some(ConnType::Ucx), None));
    let debug = format!("{near:?}");
    for part in ["UcxDataPlane { ucx: Some(UcxTransport", "closed: None", "UcxDomain"] {
        assert!(debug.contains(part), "{part}: {debug}");
    }
    let worker = near.plane.shared_worker();
    assert_eq!(format!("{worker:?}"), format!("UcxWorker {{ number: {FIRST_WORKER}, .. }}"));
    drop(worker);
    assert_eq!(fake_ucp.kill(1, CONNECTION_RESET, true), 1);
    let failed = DataCloseReason::Failed(CONNECTION_RESET.into());
    while near.plane.close_reason().is_none() {
        assert_eq!(near.poll(), []);
        near.plane.poll_peer(true);
    }
    assert_eq!(near.plane.close_reason(), Some(failed));
    assert_eq!(near.poll(), []);
    for (end, why) in [(&mut near, failed), (&mut far, DataCloseReason::Silent)] {
        end.plane.close(why);
        end.plane.close(DataCloseReason::Eof);
        assert_eq!(end.plane.close_reason(), Some(why));
    }
    let text = |why| {
        let mut text = String::new();
        near.plane.describe_close(why, &mut text).unwrap();
        text
    };
    assert!(text(failed).starts_with("UCX gave it up: Connection reset by remote peer (UCX"));
    assert_eq!(text(DataCloseReason::Silent), DataCloseReason::Silent.to_string());
    assert!(near.plane.unfenced_reason().contains("has not ended an operation"));
    assert!(
        near.plane.unfenced_window_reason().unwrap().contains("reading or writing this memory")
    );
    drop((near, far));
    fake_ucp.assert_clean();
}

/// Between processes of one host no endpoint has to be closed, but what this end has asked for has to end.
#[test]
fn a_closed_data_plane_answers_once_ucx_is_done_with_it() {
    let fake_ucp = FakeUcp::take();
    for (lane, at_once) in [(NIC, false), (SHARED_MEMORY, true)] {
        fake_ucp.lane(lane);
        let (near, mut far, _window) = pair(&fake_ucp, false);
        fake_ucp.rule("ucp_ep_close_nbx", 1, CallResult::Held);
        far.plane.close(DataCloseReason::Silent);
        for _ in 0..100 {
            assert_eq!((far.plane.peer_has_ended(), far.plane.is_fenced()), (at_once, at_once));
        }
        assert_eq!(fake_ucp.release(), 1);
        assert!((0..TURNS).any(|_| far.plane.peer_has_ended()), "{lane}");
        let looks = fake_ucp.calls("ucp_worker_progress");
        assert!(far.plane.peer_has_ended());
        assert_ne!(
            fake_ucp.calls("ucp_worker_progress"),
            looks,
            "{lane}: what lanes hold lands first"
        );
        drop((near, far));
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
    fake_ucp.lane(SHARED_MEMORY);
    fake_ucp.set("close_delay", 100);
    let (mut near, mut far) = (End::new(&fake_ucp, false), End::new(&fake_ucp, false));
    let theirs = far.greeting();
    near.receive((theirs.0, &theirs.1));
    fake_ucp.rule("ucp_ep_flush_nbx", 1, CallResult::Held);
    assert_eq!(near.poll(), []);
    near.plane.close(DataCloseReason::Silent);
    assert!(!near.plane.peer_has_ended() && !near.plane.are_requests_fenced(), "UCX has a flush");
    assert!((0..TURNS).any(|_| near.plane.peer_has_ended()));
    assert!(near.plane.are_requests_fenced());
    drop((near, far));
    fake_ucp.assert_clean();
}
