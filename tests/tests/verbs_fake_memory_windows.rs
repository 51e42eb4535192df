//! Windows that the device enforces by memory windows of type 2B: bound to one queue pair, with keys that may come late, over regions
//! that links share.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::Arc;

use hmc_core::range::Extent;
use hmc_core::region::WindowDesc;
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::{
    DataCloseReason, DataPlane as _, Notes as _, PeerWindows as _, PostErrorKind, Progress as _,
    Target as _, Transport as _,
};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::work::{Failure, Opcode};
use hmc_hw::verbs::fault::VerbsFault;
use hmc_tests::fake_ibv::{FakeIbv, VerbsFate};
use hmc_tests::verbs_planes::{End, LEN, OwnedNote, RecordingHost, domain, meet, pair};

const BEGIN: Instant = Instant::from_nanos(5_000_000_000);
const GRACE: Duration = Duration::from_millis(1000);
/// Where the note of a window has the number of its keys.
const COUNT: usize = 29;

fn receive_all(end: &mut End, notes: &[OwnedNote]) {
    notes.iter().for_each(|(kind, bytes)| end.receive((*kind, bytes)));
}

/// Exposes a window whose binds are held. Returns it with the note, which has no keys.
fn expose_held(fake: &FakeIbv, far: &mut End, part: (u64, u64)) -> (WindowDesc, OwnedNote) {
    fake.rule("bind", 0, VerbsFate::Held);
    let (window, note) = far.try_expose(part, Access::all()).unwrap();
    fake.clear_rules();
    let note = note.unwrap();
    assert_eq!(note.1[COUNT..], [0, 0]);
    (window, note)
}

fn let_go(fake: &FakeIbv, end: &mut End, binds: u64) {
    assert_eq!(fake.release(), binds);
    for _ in 0..20 {
        end.serve();
    }
}

/// All links share a protection domain: it is the queue pair that a key is for.
#[test]
fn a_key_lets_in_the_queue_pair_of_its_link_only() {
    let fake = FakeIbv::take();
    for opcode in [Opcode::Put, Opcode::Get] {
        let [ours, theirs] = [(); 2].map(|()| domain(&Arc::default(), 1, true));
        let end = |domain, serial| End::numbered(domain, serial).unwrap();
        let (mut near, mut far, window) = meet(end(&ours, 1), end(&theirs, 1));
        let (mut thief, other, _) = meet(end(&ours, 2), end(&theirs, 2));
        far.fill(1);
        thief.fill(2);
        let (stolen, note) = far.try_expose((0, 512), Access::all()).unwrap();
        let (kind, bytes) = note.unwrap();
        thief.receive((kind, &bytes));
        near.receive((kind, &bytes));
        thief.post(&thief.work(1, opcode, &stolen, (0, 64)));
        let refused = Err(Failure::Window(WindowFault::Revoked));
        assert_eq!(thief.complete(1), [(1, refused)], "{opcode:?}");
        assert_eq!((far.count_from(0, 1), thief.count_from(0, 2)), (4096, 4096));
        for window in [&stolen, &window] {
            near.post(&near.work(2, opcode, window, (0, 64)));
            assert_eq!(near.complete(1), [(2, Ok(64))]);
        }
        drop((near, far, thief, other, ours, theirs));
        assert_eq!((fake.count("live"), fake.count("findings")), (0, 0));
    }
}

/// The region reaches further than the window, and has no remote rights.
#[test]
fn what_lies_outside_a_window_is_refused_though_its_region_is_larger() {
    let fake = FakeIbv::take();
    for (at, len) in [(1087, 2), (1023, 2), (1088, 1), (0, 1), (4095, 1)] {
        let (mut near, mut far, _) = pair();
        far.fill(1);
        let (window, note) = far.try_expose((1024, 64), Access::all()).unwrap();
        let (kind, mut bytes) = note.unwrap();
        // A peer that takes no notice of the range: the window begins at the region, and is as long.
        let base = u64::from_le_bytes(bytes[21..29].try_into().unwrap()) - 1024;
        bytes[21..29].copy_from_slice(&base.to_le_bytes());
        bytes[13..21].copy_from_slice(&LEN.to_le_bytes());
        near.receive((kind, &bytes));
        let all = WindowDesc { extent: Extent::new(LEN), ..window };
        near.post(&near.work(1, Opcode::Put, &all, (1024, 64)));
        assert_eq!(near.complete(1), [(1, Ok(64))], "inside");
        far.fill(1);
        near.fill(2);
        near.post(&near.work(1, Opcode::Put, &all, (at, len)));
        let refused = Err(Failure::Window(WindowFault::Revoked));
        assert_eq!(near.complete(1), [(1, refused)], "{at}");
        assert_eq!(far.count_from(0, 1), 4096, "{at}");
        drop((near, far));
        assert_eq!((fake.count("live"), fake.count("findings")), (0, 0));
    }
}

#[test]
fn requests_wait_for_keys_that_come_late() {
    let fake = FakeIbv::take();
    let (mut near, mut far, first) = pair();
    let told = far.notifications.count();
    let (window, note) = expose_held(&fake, &mut far, (0, LEN));
    assert!(far.plane.take_posted() && far.notifications.count() > told, "somebody looks at it");
    near.receive((note.0, &note.1));
    let put = near.put(1, &window, 64);
    assert_eq!(near.plane.post(&put), Err(PostErrorKind::Busy));
    assert!(!far.plane.interest().work && far.notes().is_empty());
    let_go(&fake, &mut far, 1);
    assert!(far.plane.interest().work, "there is something to send");
    let keys = far.notes();
    assert_eq!((keys.len(), far.plane.interest().work), (1, false));
    receive_all(&mut near, &keys);
    near.post(&put);
    // The thread that has exposed the window may send its note later.
    near.receive((note.0, &note.1));
    near.post(&near.put(2, &window, 64));
    near.post(&near.put(3, &first, 64));
    assert_eq!(near.complete(3), [(1, Ok(64)), (2, Ok(64)), (3, Ok(64))]);
    assert!(far.notes().is_empty(), "once");
    drop((near, far));
    fake.assert_clean();
}

#[test]
fn keys_of_a_window_that_is_revoked_are_not_sent_and_undo_nothing() {
    let fake = FakeIbv::take();
    let (mut near, mut far, _) = pair();
    let (window, note) = expose_held(&fake, &mut far, (0, LEN));
    near.receive((note.0, &note.1));
    far.plane.revoke(window.window, window.epoch).unwrap();
    assert!(near.plane.remove_window(window.window, window.epoch), "it is unused");
    far.plane.receive_release(window.window, window.epoch);
    assert!(!far.plane.is_released(window.window, window.epoch), "its bind is under way");
    let_go(&fake, &mut far, 1);
    assert!(far.plane.is_released(window.window, window.epoch) && far.notes().is_empty());
    let keys = [&note.1[..COUNT], &[1, 0, 1, 2, 3, 4]].concat();
    near.receive((note.0, &keys));
    near.post(&near.put(1, &window, 64));
    assert_eq!(near.complete(1), [(1, Err(Failure::Window(WindowFault::Revoked)))]);
    drop((near, far));
    fake.assert_clean();
}

/// Nothing that this end has under way completes: the end of the queue pair is the fence.
#[test]
fn a_window_whose_bind_does_not_complete_ends_the_link_after_the_peers_time() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    host.set_time(BEGIN);
    let (near, mut far, _) = meet(End::new(), End::with_host(&host, 1, true));
    let (window, _) = expose_held(&fake, &mut far, (0, LEN));
    far.plane.revoke(window.window, window.epoch).unwrap();
    far.serve();
    host.set_time(BEGIN.after(Duration::from_nanos(GRACE.as_nanos() - 1)));
    far.serve();
    assert_eq!(far.plane.close_reason(), None);
    assert!(!far.plane.is_released(window.window, window.epoch));
    host.set_time(BEGIN.after(GRACE));
    assert!(far.serve());
    assert_eq!(far.plane.close_reason(), Some(DataCloseReason::System(libc::ETIMEDOUT)));
    assert!(far.plane.is_released(window.window, window.epoch));
    assert_eq!(fake.release(), 0);
    drop((near, far));
    fake.assert_clean();
}

/// It was exposed, could not be announced, and its bind is under way.
#[test]
fn a_window_that_is_forgotten_ends_when_its_bind_has_completed() {
    let fake = FakeIbv::take();
    let (near, mut far, _) = pair();
    let windows = fake.count("mws");
    let (window, _) = expose_held(&fake, &mut far, (0, LEN));
    let _ = far.plane.revoke(window.window, window.epoch);
    far.plane.free_window(window.window, window.epoch);
    assert_eq!(fake.count("mws"), windows + 1);
    let_go(&fake, &mut far, 1);
    assert_eq!(fake.count("mws"), windows);
    assert_eq!(far.plane.close_reason(), None);
    drop((near, far));
    fake.assert_clean();
}

/// Its memory is not given back before, and the peer's time for it is that of a revoked one.
#[test]
fn a_window_that_is_forgotten_and_whose_bind_does_not_complete_ends_the_link() {
    let fake = FakeIbv::take();
    let host = Arc::<RecordingHost>::default();
    host.set_time(BEGIN);
    let (near, mut far, _) = meet(End::new(), End::with_host(&host, 1, true));
    let (window, _) = expose_held(&fake, &mut far, (0, LEN));
    let _ = far.plane.revoke(window.window, window.epoch);
    far.plane.free_window(window.window, window.epoch);
    for (time, is_over) in [(0, false), (GRACE.as_nanos() - 1, false), (GRACE.as_nanos(), true)] {
        host.set_time(BEGIN.after(Duration::from_nanos(time)));
        far.serve();
        assert_eq!(far.plane.is_released(window.window, window.epoch), is_over, "{time}");
        assert_eq!(far.plane.close_reason().is_some(), is_over, "{time}");
    }
    assert_eq!(fake.release(), 0);
    drop((near, far));
    fake.assert_clean();
}

#[test]
fn keys_of_a_window_that_is_revoked_before_they_are_sent_are_owed_no_more() {
    let fake = FakeIbv::take();
    for is_forgotten in [false, true] {
        let (near, mut far, _) = pair();
        let (window, _) = expose_held(&fake, &mut far, (0, LEN));
        let_go(&fake, &mut far, 1);
        assert!(far.plane.interest().work, "there is something to send");
        far.plane.revoke(window.window, window.epoch).unwrap();
        if is_forgotten {
            far.plane.free_window(window.window, window.epoch);
        }
        assert!(!far.plane.interest().work && far.notes().is_empty());
        drop((near, far));
        fake.assert_clean();
    }
}

/// The thread that sends them may be behind the one that has exposed the next window of that index.
#[test]
fn late_keys_do_not_replace_those_of_the_next_window() {
    let fake = FakeIbv::take();
    let (mut near, mut far, _) = pair();
    let (first, note) = expose_held(&fake, &mut far, (0, 64));
    near.receive((note.0, &note.1));
    let_go(&fake, &mut far, 1);
    let late = far.notes();
    far.plane.revoke(first.window, first.epoch).unwrap();
    assert!(near.plane.remove_window(first.window, first.epoch));
    far.plane.receive_release(first.window, first.epoch);
    far.plane.free_window(first.window, first.epoch);
    let next = far.expose_to(&mut near, (0, LEN), Access::all());
    assert_eq!(first.window.index(), next.window.index());
    receive_all(&mut near, &late);
    near.post(&near.put(1, &next, 64));
    assert_eq!(near.complete(1), [(1, Ok(64))]);
    drop((near, far));
    fake.assert_clean();
}

/// They were on their way when a queue pair of this end failed: that is what the link ends with.
#[test]
fn keys_that_come_after_the_end_are_no_fault() {
    let fake = FakeIbv::take();
    let end = || End::with_host(&Arc::default(), 2, true);
    let (mut near, mut far, window) = meet(end(), end());
    let (_, note) = far.try_expose((0, 64), Access::all()).unwrap();
    let note = note.unwrap();
    fake.rule("write", 0, VerbsFate::Failed(12, 0));
    near.post(&near.put(1, &window, 64));
    assert_eq!(near.complete(1).len(), 1);
    let why = Some(DataCloseReason::Failed(12));
    assert_eq!((near.try_receive((note.0, &note.1)), near.plane.close_reason()), (Ok(()), why));
    fake.clear_rules();
    drop((near, far));
    fake.assert_clean();
}

#[test]
fn a_bind_that_fails_ends_the_link() {
    let fake = FakeIbv::take();
    for (fate, why) in [
        (VerbsFate::Failed(6, 0), DataCloseReason::Failed(6)),
        (VerbsFate::Refused(libc::EOPNOTSUPP), DataCloseReason::System(libc::EOPNOTSUPP)),
    ] {
        let (near, mut far, first) = pair();
        fake.rule("bind", 1, fate);
        let (window, _) = far.try_expose((0, 64), Access::all()).unwrap();
        assert_eq!(far.plane.close_reason(), Some(why));
        for window in [&window, &first] {
            assert!(far.plane.is_released(window.window, window.epoch));
        }
        assert_eq!(fake.count("mws"), 0, "the fence needs no peer");
        fake.clear_rules();
        drop((near, far));
        fake.assert_clean();
    }
}

/// The queue pair executes requests until it is destroyed, but the bind is not among them: the window ends and nothing is kept.
#[test]
fn a_bind_that_has_completed_when_the_link_ends_keeps_no_window() {
    let fake = FakeIbv::take();
    for has_failed in [true, false] {
        let (mut near, mut far, _) = pair();
        let back = near.expose_to(&mut far, (0, LEN), Access::all());
        let (window, _) = expose_held(&fake, &mut far, (0, 64));
        if has_failed {
            fake.rule("write", 1, VerbsFate::Failed(12, 0));
            far.post(&far.put(1, &back, 8));
            assert!(far.poll().is_empty());
        }
        fake.rule("ibv_modify_qp", 0, VerbsFate::Refused(libc::EIO));
        assert_eq!(fake.release(), 1);
        fake.progress(10);
        assert_eq!(fake.count("mws"), 3, "nobody has looked at the completions");
        if has_failed {
            assert_eq!(far.complete(1), [(1, Err(Failure::PeerDead))]);
            assert_eq!(far.plane.close_reason(), Some(DataCloseReason::Failed(12)));
        } else {
            far.plane.close(DataCloseReason::Silent);
        }
        assert!(far.plane.is_released(window.window, window.epoch));
        assert_eq!(fake.count("mws"), 1, "the other end's, {has_failed}");
        fake.clear_rules();
        drop((near, far));
        fake.assert_clean();
    }
}

/// The end of the queue pair is the fence then. Window, region and domain stay for ever.
#[test]
fn a_window_that_does_not_end_ends_the_link() {
    let fake = FakeIbv::take();
    let (mut near, mut far, window) = pair();
    fake.rule("ibv_dealloc_mw", 1, VerbsFate::Refused(libc::EBUSY));
    let queues = fake.count("qps");
    far.plane.revoke(window.window, window.epoch).unwrap();
    far.plane.receive_release(window.window, window.epoch);
    assert!(far.plane.is_released(window.window, window.epoch));
    assert_eq!(fake.count("qps"), queues - 1, "nobody reaches the memory");
    assert_eq!(far.plane.close_reason(), Some(DataCloseReason::System(libc::EBUSY)));
    let mut text = String::new();
    far.plane.describe_close(DataCloseReason::System(libc::EBUSY), &mut text).unwrap();
    assert!(text.starts_with("ending a window"), "{text}");
    near.post(&near.put(1, &window, 64));
    assert_eq!(near.complete(1).len(), 1, "its queue pair has no other end");
    let memory = far.memory.clone();
    drop((near, far));
    let stay = ["mws", "mrs", "pds", "contexts", "live"].map(|what| fake.count(what));
    assert_eq!((stay, fake.count("findings")), ([1, 1, 1, 1, 4], 0));
    drop(memory);
}

/// Each queue pair has keys of its own, also of windows that were exposed before the number of queue pairs was known.
#[test]
fn each_queue_pair_of_a_link_has_keys_of_its_own() {
    let fake = FakeIbv::take();
    let len = 1 << 20;
    for (ours, theirs, lanes) in [(4, 4, 4), (2, 4, 2), (4, 2, 2), (1, 4, 1), (16, 16, 16)] {
        let end = |lanes| End::with_memory(&domain(&Arc::default(), lanes, true), len).unwrap();
        let (near, mut far) = (end(ours), end(theirs));
        let (early, note) = far.try_expose((0, len), Access::all()).unwrap();
        let (mut near, mut far, _) = meet(near, far);
        let (kind, bytes) = note.unwrap();
        near.receive((kind, &bytes));
        let keys = far.notes();
        receive_all(&mut near, &keys);
        let late = far.expose_to(&mut near, (0, len), Access::all());
        assert_eq!(fake.count("mws"), 3 * lanes);
        near.fill(3);
        for (opcode, window) in [
            (Opcode::Put, &early),
            (Opcode::Put, &late),
            (Opcode::Get, &early),
            (Opcode::Get, &late),
        ] {
            near.post(&near.work(1, opcode, window, (0, len)));
            assert_eq!(near.complete(1), [(1, Ok(len))], "{opcode:?} {lanes}");
            for index in 0..64 {
                near.post(&near.work(index, opcode, window, (64 * u64::from(index), 64)));
            }
            assert_eq!(near.complete(64).len(), 64);
        }
        assert_eq!(far.count_from(0, 3), 4096);
        let wrong = [&bytes[..COUNT], &[3, 0], &[0; 12]].concat();
        let fault = near.try_receive((kind, &wrong)).expect_err("it has no use for three");
        assert_eq!(fault, VerbsFault::Keys { count: 3, wanted: lanes });
        drop((near, far));
        fake.assert_clean();
    }
}

/// A device binds 2^31 bytes at a time.
#[test]
fn a_window_of_more_than_two_gib_is_several() {
    let fake = FakeIbv::take();
    let (len, step) = ((5 << 30) + 12345, 256 << 10);
    for lanes in [1, 2] {
        let end = |len| End::with_memory(&domain(&Arc::default(), lanes, true), len).unwrap();
        let (mut near, mut far, _) = meet(end(len), end(len));
        let windows = fake.count("mws");
        let window = far.expose_to(&mut near, (0, len), Access::all());
        assert_eq!(fake.count("mws") - windows, 3 * u64::try_from(lanes).unwrap());
        for boundary in [(2 << 30) - step, 2 << 30, (4 << 30) - 2 * step, 4 << 30, len] {
            for at in [boundary - step - 1, boundary - step, boundary - 100, boundary] {
                let bytes = step.min(len - at);
                if bytes != 0 {
                    near.post(&near.work(1, Opcode::Put, &window, (at, bytes)));
                    assert_eq!(near.complete(1), [(1, Ok(bytes))], "{at}");
                }
            }
        }
        near.post(&near.work(2, Opcode::Get, &window, ((2 << 30) - (1 << 20), 2 << 20)));
        assert_eq!(near.complete(1), [(2, Ok(2 << 20))]);
        drop((near, far));
        fake.assert_clean();
    }
}

/// More binds than a queue pair has space for are posted as others complete, and a full queue pair is not overrun.
#[test]
fn binds_wait_for_space_in_the_queue_pair() {
    let fake = FakeIbv::take();
    let (mut near, mut far, window) = pair();
    let back = near.expose_to(&mut far, (0, LEN), Access::all());
    fake.rule("write", 0, VerbsFate::Held);
    let mut posted = 0;
    while far.plane.post(&far.put(posted, &back, 8)).is_ok() {
        assert!(far.poll().is_empty());
        posted += 1;
    }
    assert!(posted > 200, "{posted}");
    let binds = fake.calls("bind");
    let (late, note) = far.try_expose((0, 64), Access::all()).unwrap();
    assert_eq!((note.unwrap().1[COUNT..].to_vec(), fake.calls("bind")), (vec![0, 0], binds));
    fake.clear_rules();
    let _ = fake.release();
    assert_eq!(far.complete(posted.into()).len(), usize::from(posted));
    for _ in 0..20 {
        far.serve();
    }
    assert_eq!(fake.calls("bind"), binds + 1);
    receive_all(&mut near, &far.notes());
    for window in [&window, &late] {
        near.post(&near.put(1, window, 64));
        assert_eq!(near.complete(1), [(1, Ok(64))]);
    }
    assert_eq!((fake.count("overruns"), far.plane.close_reason()), (0, None));
    drop((near, far));
    fake.assert_clean();
}
