//! Windows over RDMA verbs: the end of a registration is the fence, with and without the peer's word, and what comes later lands nowhere.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::Arc;

use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalRegion, WindowDesc, WindowId, WindowSlice};
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::{
    DataCloseReason, DataPlane as _, Fence, NeedsStream as _, Notes as _, PeerWindows as _,
    PostErrorKind, Target as _, Transport as _,
};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::work::{Failure, Opcode, WorkRequest};
use hmc_mem::registered::Registered as _;
use hmc_tests::fake_ibv::{self, FakeIbv, VerbsFate, has_windows};
use hmc_tests::verbs_planes::{End, LEN, RecordingHost, meet, pair};

const REM_ACCESS_ERR: i32 = 10;
const BEGIN: Instant = Instant::from_nanos(5_000_000_000);
const GRACE: Duration = Duration::from_millis(1000);

/// Two ends, the second one's host, and its window of all its memory.
fn pair_with_clock() -> (End, End, Arc<RecordingHost>, WindowDesc) {
    let host = Arc::<RecordingHost>::default();
    host.set_time(BEGIN);
    let (near, far, window) = meet(End::new(), End::with_host(&host, 1, true));
    (near, far, host, window)
}

fn revoke(owner: &mut End, window: &WindowDesc) {
    let fence = owner.plane.revoke(window.window, window.epoch).unwrap();
    assert_eq!(fence, Fence::PeerAck);
    assert!(!owner.plane.is_released(window.window, window.epoch));
}

fn is_released(owner: &End, window: &WindowDesc) -> bool {
    owner.plane.is_released(window.window, window.epoch)
}

fn refused(why: WindowFault) -> Result<u64, Failure> {
    Err(Failure::Window(why))
}

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
}

#[test]
fn a_window_that_the_peer_does_not_use_is_closed_by_its_word() {
    let fake = FakeIbv::take();
    let (mut near, mut far, _host, window) = pair_with_clock();
    let regions = fake.count("mrs");
    // A word that nobody asked for.
    far.plane.receive_release(window.window, window.epoch);
    far.serve();
    assert_eq!(fake.count("mrs"), regions, "it is not revoked");
    revoke(&mut far, &window);
    far.plane.receive_release(window.window, Epoch(window.epoch.0 + 1));
    far.plane.receive_release(WindowId(window.window.0 + (1 << 16)), window.epoch);
    far.plane.receive_release(WindowId(u64::MAX), window.epoch);
    assert!(!is_released(&far, &window), "other windows");
    assert!(near.plane.remove_window(window.window, window.epoch), "it is unused");
    assert_eq!(near.plane.next_release(), None);
    near.post(&near.put(1, &window, 8));
    assert_eq!(near.complete(1), [(1, refused(WindowFault::Revoked))]);
    far.plane.receive_release(window.window, window.epoch);
    assert!(is_released(&far, &window));
    assert_eq!(fake.count("mrs"), regions - 1);
    far.plane.free_window(window.window, window.epoch);
    assert_eq!((near.plane.close_reason(), far.plane.close_reason()), (None, None));
    assert_eq!(far.take_released(), 1);
    drop((near, far));
    fake.assert_clean();
}

/// Before its memory is registered, by the handle; afterwards, by the registration.
#[test]
fn bytes_behind_the_end_of_memory_are_refused() {
    let fake = FakeIbv::take();
    let (mut near, far, _host, window) = pair_with_clock();
    let longer = LocalRegion { extent: Extent::new(2 * LEN), ..near.memory.local() };
    let local = longer.slice(LEN - 4, 8).unwrap();
    for index in [1, 2] {
        let good = near.put(index, &window, 8);
        let refused = near.plane.post(&WorkRequest { local, ..good });
        assert_eq!(refused, Err(PostErrorKind::UnknownRegion));
        near.post(&good);
        assert_eq!(near.complete(1), [(index, Ok(8))]);
    }
    drop((near, far));
    fake.assert_clean();
}

#[test]
fn a_window_in_use_is_closed_when_the_peers_requests_have_ended() {
    let fake = FakeIbv::take();
    for opcode in [Opcode::Put, Opcode::Get] {
        let (mut near, mut far, _host, window) = pair_with_clock();
        let operation = if opcode == Opcode::Get { "read" } else { "write" };
        fake.rule(operation, 1, VerbsFate::Held);
        near.post(&near.work(1, opcode, &window, (0, 64)));
        assert!(near.poll_for(5).is_empty());
        revoke(&mut far, &window);
        assert!(!near.plane.remove_window(window.window, window.epoch), "it is in use");
        assert!(near.plane.has_releases() && near.plane.next_release().is_none());
        near.serve();
        assert_eq!(near.plane.next_release(), None);
        assert_eq!(fake.release(), 1);
        for _ in 0..20 {
            near.serve();
        }
        // The word goes before the completion is taken.
        assert_eq!(near.plane.next_release(), Some((window.window, window.epoch)));
        assert!(!near.plane.has_releases());
        assert_eq!(near.complete(1), [(1, Ok(64))]);
        far.plane.receive_release(window.window, window.epoch);
        assert!(is_released(&far, &window));
        fake.clear_rules();
        drop((near, far));
        fake.assert_clean();
    }
}

/// The peer says nothing: 1 s later the registration ends, and an access that comes then ends the connection.
#[test]
fn a_window_is_closed_without_the_peers_word_and_late_accesses_land_nowhere() {
    let fake = FakeIbv::take();
    for opcode in [Opcode::Put, Opcode::Get] {
        for is_under_way in [false, true] {
            let (mut near, mut far, host, window) = pair_with_clock();
            let back = near.expose_to(&mut far, (0, LEN), Access::all());
            let refusals = fake.count("refused");
            far.fill(1);
            near.fill(2);
            let operation = if opcode == Opcode::Get { "read" } else { "write" };
            let work = near.work(1, opcode, &window, (0, 64));
            if is_under_way {
                fake.rule(operation, 1, VerbsFate::Held);
                near.post(&work);
                assert!(near.poll_for(5).is_empty());
            }
            revoke(&mut far, &window);
            for (after, is_over) in [(0, false), (999_999_999, false), (1_000_000_000, true)] {
                host.set_time(BEGIN.after(Duration::from_nanos(after)));
                // A second call begins nothing anew.
                let _ = far.plane.close_window(window.window, window.epoch);
                assert_eq!(far.serve(), is_over, "{after} ns");
                assert_eq!(is_released(&far, &window), is_over, "{after} ns");
            }
            assert_eq!(far.plane.close_window(window.window, window.epoch), Fence::Passed);
            if is_under_way {
                assert_eq!(fake.release(), 1);
            } else {
                near.post(&work);
            }
            assert_eq!(near.complete(1), [(1, refused(WindowFault::Revoked))]);
            assert_eq!((far.count_from(0, 1), near.count_from(0, 2)), (4096, 4096));
            let why = DataCloseReason::Failed(REM_ACCESS_ERR);
            assert_eq!(near.plane.close_reason(), Some(why));
            let mut text = String::new();
            near.plane.describe_close(why, &mut text).unwrap();
            assert!(text.contains("REM_ACCESS_ERR"), "{text}");
            // The other direction is over as well.
            far.post(&far.put(2, &back, 8));
            assert_eq!(far.complete(1), [(2, Err(Failure::PeerDead))]);
            assert_eq!(fake.count("refused"), refusals + 1);
            fake.clear_rules();
            drop((near, far));
            assert_eq!((fake.count("live"), fake.count("findings")), (0, 0));
        }
    }
}

/// Bytes that were acknowledged and are not visible yet arrive before the fence or never.
#[test]
fn what_was_acknowledged_arrives_before_the_fence() {
    let fake = FakeIbv::take();
    let (mut near, mut far, host, window) = pair_with_clock();
    fake.set("staged", 1);
    fake.set("landing", 1_000_000);
    fake.rule("read", 0, VerbsFate::Held);
    near.fill(2);
    near.post(&near.put(1, &window, 64));
    assert!(near.poll_for(9).is_empty());
    assert_eq!((fake.count("staged"), far.count_from(0, 2)), (1, 0));
    revoke(&mut far, &window);
    host.set_time(BEGIN.after(GRACE));
    far.serve();
    assert!(is_released(&far, &window));
    assert_eq!((fake.count("staged"), far.count_from(0, 2)), (0, 64));
    far.fill(3);
    fake.clear_rules();
    assert_eq!(fake.release(), 1);
    assert_eq!(near.complete(1), [(1, Ok(64))], "its flush reads another word");
    assert_eq!(far.count_from(0, 3), 4096);
    drop((near, far));
    fake.assert_clean();
}

#[test]
fn an_index_is_used_again_with_another_key() {
    let fake = FakeIbv::take();
    let (mut near, mut far, host, mut old) = pair_with_clock();
    for round in 1..=20_u64 {
        revoke(&mut far, &old);
        assert!(near.plane.remove_window(old.window, old.epoch));
        if round % 2 == 0 {
            far.plane.receive_release(old.window, old.epoch);
        } else {
            host.set_time(BEGIN.after(Duration::from_nanos(round * GRACE.as_nanos())));
            far.serve();
        }
        far.plane.free_window(old.window, old.epoch);
        let window = far.expose_to(&mut near, (0, LEN - round * 64), Access::all());
        assert_eq!(window.window.index(), old.window.index());
        assert_ne!((window.window, window.epoch), (old.window, old.epoch));
        near.post(&near.put(1, &old, 8));
        let [(1, Err(Failure::Window(why)))] = near.complete(1)[..] else { panic!("it was done") };
        assert!(matches!(why, WindowFault::StaleEpoch | WindowFault::Unknown), "{why:?}");
        near.post(&near.put(2, &window, 128));
        assert_eq!(near.complete(1), [(2, Ok(128))]);
        // What comes of the old one changes nothing.
        far.plane.receive_release(old.window, old.epoch);
        far.plane.forget_window(old.window, old.epoch);
        assert!(!is_released(&far, &window));
        near.post(&near.work(3, Opcode::Get, &window, (0, 128)));
        assert_eq!(near.complete(1), [(3, Ok(128))]);
        old = window;
    }
    drop((near, far));
    fake.assert_clean();
}

#[test]
fn a_window_without_bytes_has_no_registration() {
    let fake = FakeIbv::take();
    let (near, mut far, _host, _) = pair_with_clock();
    let regions = fake.count("mrs");
    let (window, note) = far.try_expose((64, 0), Access::all()).unwrap();
    assert_eq!((note, fake.count("mrs")), (None, regions));
    assert_eq!(far.plane.revoke(window.window, window.epoch), Ok(Fence::Passed));
    assert!(is_released(&far, &window));
    far.plane.free_window(window.window, window.epoch);
    drop((near, far));
    fake.assert_clean();
}

/// This end refuses what the NIC would refuse, which ends the connection.
#[test]
fn accesses_that_the_nic_would_refuse_do_not_reach_it() {
    type Check = fn(&WindowFault) -> bool;
    let fake = FakeIbv::take();
    let (mut near, mut far, _) = pair();
    let readable = far.expose_to(&mut near, (0, 128), Access::READ);
    let writable = far.expose_to(&mut near, (128, 128), Access::WRITE);
    let beyond = WindowDesc { extent: Extent::new(LEN), ..readable };
    let unknown = WindowDesc { window: WindowId(readable.window.0 ^ (1 << 32)), ..readable };
    let doorbells = fake.count("doorbells");
    let nowhere = WindowDesc { window: WindowId(0xffff), ..readable };
    let stale = WindowDesc { epoch: Epoch(readable.epoch.0 + 1), ..readable };
    let cases: [(&WindowDesc, Opcode, Check); 6] = [
        (&readable, Opcode::Put, |why| *why == WindowFault::Access),
        (&writable, Opcode::Get, |why| *why == WindowFault::Access),
        (&beyond, Opcode::Get, |why| matches!(why, WindowFault::OutOfWindow(_))),
        (&unknown, Opcode::Get, |why| *why == WindowFault::Unknown),
        (&nowhere, Opcode::Get, |why| *why == WindowFault::Unknown),
        (&stale, Opcode::Get, |why| *why == WindowFault::StaleEpoch),
    ];
    for (window, opcode, is_wanted) in cases {
        // A part that is beyond the window's end, or within all.
        let at = if window.extent == beyond.extent { 100 } else { 0 };
        let span = beyond.slice(at, 64).unwrap().span;
        let remote =
            WindowSlice { window: window.window, epoch: window.epoch, span, expected: None };
        near.post(&WorkRequest { remote, ..near.work(1, opcode, &beyond, (0, 64)) });
        let done = near.complete(1);
        let [(1, Err(Failure::Window(why)))] = &done[..] else { panic!("{done:?}") };
        assert!(is_wanted(why), "{opcode:?} {why:?}");
    }
    assert_eq!((fake.count("doorbells"), near.plane.close_reason()), (doorbells, None));
    for (window, opcode) in [(&readable, Opcode::Get), (&writable, Opcode::Put)] {
        near.post(&near.work(2, opcode, window, (0, 128)));
        assert_eq!(near.complete(1), [(2, Ok(128))]);
    }
    drop((near, far));
    fake.assert_clean();
}

#[test]
fn the_end_of_a_link_closes_all_windows() {
    let fake = FakeIbv::take();
    let (mut near, mut far, _host, window) = pair_with_clock();
    let more: Vec<_> =
        (1..5).map(|n| far.expose_to(&mut near, (n * 64, 64), Access::all())).collect();
    revoke(&mut far, &more[0]);
    assert!(far.plane.has_windows() && !far.plane.is_shut());
    far.plane.close(DataCloseReason::Silent);
    assert!(!far.plane.has_windows() && far.plane.is_shut() && far.plane.peer_has_ended());
    assert_eq!(far.take_released(), if has_windows() { 1 } else { 5 }, "one region for all");
    for window in more.iter().chain([&window]) {
        assert!(is_released(&far, window));
    }
    assert_eq!(far.try_expose((0, 64), Access::all()).unwrap().1, None, "nobody can use it");
    near.post(&near.put(1, &window, 64));
    assert_eq!(near.complete(1), [(1, Err(Failure::PeerDead))]);
    assert_eq!(near.plane.post(&near.put(1, &window, 64)), Err(PostErrorKind::Disconnected));
    drop((near, far));
    fake.assert_clean();
}
