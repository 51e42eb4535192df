//! Links over several NICs, over the fake libibverbs: bytes go over all of them, and the end of one is the end of the link.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::Arc;

use hmc_core::range::Extent;
use hmc_core::region::WindowDesc;
use hmc_core::transport::{
    DataCloseReason, DataPlane as _, Notes as _, PeerWindows as _, Progress as _, Target as _,
};
use hmc_core::types::Access;
use hmc_core::work::{Failure, Opcode};
use hmc_tests::fake_ibv::{self, FakeIbv, VerbsFate, port};
use hmc_tests::pair::pattern;
use hmc_tests::ucx_planes::HostCall;
use hmc_tests::verbs_planes::{End, RecordingHost, meet, try_domain_over};

/// Long enough for pieces on each of four queue pairs.
const LONG: u64 = 2 << 20;

fn end(devices: &[u32], lanes: usize) -> End {
    end_of(&Arc::default(), devices, lanes)
}

/// An end of that host, over these devices.
fn end_of(host: &Arc<RecordingHost>, devices: &[u32], lanes: usize) -> End {
    let ports = devices.iter().map(|device| port(*device)).collect();
    let domain = try_domain_over(ports, host, lanes, true).expect("a domain");
    End::with_memory(&domain, LONG).expect("a data plane")
}

/// Bytes of requests, of each device.
fn posted(fake: &FakeIbv) -> [u64; 4] {
    ["bytes_0", "bytes_1", "bytes_2", "bytes_3"].map(|name| fake.count(name))
}

/// Two ends over these devices, and a window of all the second one's memory.
fn pair(ours: (&[u32], usize), theirs: (&[u32], usize)) -> (End, End, WindowDesc) {
    let (mut near, mut far, _) = meet(end(ours.0, ours.1), end(theirs.0, theirs.1));
    let window = far.expose_to(&mut near, (0, LONG), Access::all());
    (near, far, window)
}

/// Fills an end's memory with bytes that differ from piece to piece.
fn paint(end: &End, salt: u64) -> Vec<u8> {
    let bytes = pattern(LONG, salt);
    end.memory.shared().write_at(Extent::new(LONG).whole(), &bytes).unwrap();
    bytes
}

fn bytes_of(end: &End) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(LONG).unwrap()];
    end.memory.shared().read_at(Extent::new(LONG).whole(), &mut bytes).unwrap();
    bytes
}

/// The reason why the link is over.
fn reason(end: &End) -> String {
    let (mut text, why) = (String::new(), end.plane.close_reason().expect("it is over"));
    end.plane.describe_close(why, &mut text).unwrap();
    text
}

fn take() -> FakeIbv {
    let fake = FakeIbv::take();
    fake.set("devices", 4);
    fake
}

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
}

#[test]
fn a_long_transfer_goes_over_all_nics() {
    let fake = take();
    let two: (&[u32], &[u32]) = (&[0, 1], &[2, 3]);
    for (ours, theirs) in [two, (&[0, 1, 2, 3], &[3, 2, 1, 0])] {
        let (mut near, far, window) = pair((ours, 4), (theirs, 4));
        let before = posted(&fake);
        let painted = paint(&near, 1);
        near.post(&near.put(1, &window, LONG));
        assert_eq!(near.complete(1), [(1, Ok(LONG))]);
        assert!(bytes_of(&far) == painted, "{ours:?}: the bytes differ");
        let painted = paint(&far, 2);
        near.post(&near.work(2, Opcode::Get, &window, (0, LONG)));
        assert_eq!(near.complete(1), [(2, Ok(LONG))]);
        assert!(bytes_of(&near) == painted, "{ours:?}: the bytes differ");
        let (after, share) = (posted(&fake), 2 * LONG / u64::try_from(ours.len()).unwrap());
        for device in ours {
            let at = usize::try_from(*device).unwrap();
            // Flushes read a byte each.
            let bytes = after[at] - before[at];
            assert!((share..share + 64).contains(&bytes), "{ours:?} {device}: {bytes}");
        }
        drop((near, far));
        fake.assert_clean();
    }
}

/// Short ones go to the queue pairs in turn, each with its NIC's keys; completions of queue pairs with the same number count for the
/// right one.
#[test]
fn short_accesses_go_to_the_nics_in_turn() {
    let fake = take();
    let (mut near, far, window) = pair((&[0, 1], 2), (&[0, 1], 2));
    near.fill(5);
    let before = posted(&fake);
    for index in 0..64 {
        near.post(&near.work(index, Opcode::Put, &window, (u64::from(index) * 64, 64)));
    }
    let done = near.complete(64);
    assert!(done.iter().all(|(_, result)| *result == Ok(64)), "{done:?}");
    assert_eq!(far.count_from(0, 5), 4096);
    let after = posted(&fake);
    assert!((0..2).all(|at| after[at] - before[at] >= 2048), "{before:?} {after:?}");
    // What one of them holds back is not done by what the other one does.
    fake.rule("write", 1, VerbsFate::Held);
    near.post(&near.put(100, &window, 64));
    near.post(&near.put(101, &window, 64));
    assert_eq!(near.poll_for(100), [(101, Ok(64))]);
    assert_eq!(fake.release(), 1);
    assert_eq!(near.complete(1), [(100, Ok(64))]);
    drop((near, far));
    fake.assert_clean();
}

/// Each end has its own number of NICs and of queue pairs on them: those that have no partner are given up, with what was made for
/// them.
#[test]
fn both_ends_use_the_nics_that_both_have() {
    let fake = take();
    let all: [u32; 4] = [0, 1, 2, 3];
    // NICs and queue pairs of either end, and those that both use.
    for (ours, theirs, used) in [
        ((1, 1), (2, 2), (1, 1)),
        ((2, 4), (1, 4), (1, 2)),
        ((2, 2), (4, 16), (2, 2)),
        ((4, 16), (2, 4), (2, 4)),
        ((3, 5), (4, 7), (3, 5)),
        ((4, 1), (4, 1), (4, 4)),
    ] {
        let (mut near, mut far) = (end(&all[..ours.0], ours.1), end(&all[..theirs.0], theirs.1));
        // Windows of before they know each other, of both.
        let (early, note) = far.try_expose((0, LONG), Access::all()).unwrap();
        let (greeting, answer) = (near.greeting(), far.greeting());
        let (kind, bytes) = note.unwrap();
        near.receive((answer.0, &answer.1));
        near.receive((kind, &bytes));
        far.receive((greeting.0, &greeting.1));
        let (word, answer) = (near.word(), far.word());
        near.receive((answer.0, &answer.1));
        far.receive((word.0, &word.1));
        far.notes().iter().for_each(|(kind, bytes)| near.receive((*kind, bytes)));
        assert!(near.plane.is_ready() && far.plane.is_ready(), "{ours:?} {theirs:?}");
        assert_eq!(fake.count("qps"), 2 * used.1, "{ours:?} {theirs:?}");
        let late = far.expose_to(&mut near, (0, LONG), Access::all());
        for (salt, window) in [(1, early), (2, late)] {
            let before = posted(&fake);
            let painted = paint(&near, salt);
            near.post(&near.put(1, &window, LONG));
            assert_eq!(near.complete(1), [(1, Ok(LONG))], "{ours:?} {theirs:?}");
            assert!(bytes_of(&far) == painted, "{ours:?} {theirs:?}: the bytes differ");
            let after = posted(&fake);
            let busy = (0..4).filter(|at| after[*at] - before[*at] > 64).count();
            assert_eq!(busy, used.0, "{ours:?} {theirs:?}");
        }
        drop((near, far));
        fake.assert_clean();
    }
}

/// There is no failover: a queue pair, a completion queue, or a device that fails ends the link, whose error names the NIC. Links that
/// do not use the object go on, but for those of a session whose device has failed.
#[test]
fn each_failure_of_a_nic_ends_the_link_and_names_the_nic() {
    let fake = take();
    let name = |device: u32| format!("the NIC fake_{device}:1 ended it: ");
    for (device, event) in [(0, 1), (1, 1), (0, 0), (1, 0), (0, 8), (1, 8)] {
        let host = Arc::<RecordingHost>::default();
        let (mut near, mut far, _) = meet(end_of(&host, &[0, 1], 2), end(&[2, 3], 2));
        let window = far.expose_to(&mut near, (0, LONG), Access::all());
        near.post(&near.put(1, &window, 64));
        assert_eq!(near.complete(1), [(1, Ok(64))]);
        fake.event(device, event, 1);
        near.domain.take_events();
        near.post(&near.put(2, &window, LONG));
        assert_eq!(near.complete(1).len(), 1, "{device} {event}");
        let text = reason(&near);
        assert!(text.starts_with(&name(device)), "{text}");
        assert!(near.plane.are_requests_fenced(), "{device} {event}");
        if event == 8 {
            let fault = End::in_domain(&near.domain).expect_err("a device has failed").to_string();
            assert!(fault.contains(&format!("fake_{device}")), "{fault}");
            let reports = host.take();
            let [HostCall::DeviceFailed(text)] = &reports[..] else { panic!("{reports:?}") };
            assert!(text.starts_with(&format!("fake_{device}: ")), "{text}");
        }
        // The peer's requests have nobody who serves them.
        far.plane.close(DataCloseReason::Silent);
        drop((near, far));
        assert_eq!((fake.count("live"), fake.count("findings")), (0, 0), "{device} {event}");
        fake.restart();
        fake.set("devices", 4);
    }
}

#[test]
fn a_request_that_fails_on_a_nic_names_the_nic() {
    let fake = take();
    for nth in [1, 2] {
        let (mut near, far, window) = pair((&[0, 1], 2), (&[2, 3], 2));
        // Of the two pieces the one on the first or the second NIC.
        fake.rule("write", nth, VerbsFate::Failed(12, 0x81));
        near.post(&near.put(1, &window, 4 << 10));
        near.post(&near.put(2, &window, 4 << 10));
        let done = near.complete(2);
        assert!(done.iter().any(|(_, result)| *result == Err(Failure::PeerDead)), "{done:?}");
        let (text, device) = (reason(&near), nth - 1);
        assert!(text.starts_with(&format!("the NIC fake_{device}:1 gave it up: ")), "{text}");
        drop((near, far));
        assert_eq!(fake.count("live"), 0);
        fake.clear_rules();
    }
}

/// The fence is the end of what lets the peer in on all NICs: after it a key of either reaches nothing.
#[test]
fn a_revoked_window_is_closed_on_all_nics() {
    let fake = take();
    let (mut near, mut far, window) = pair((&[0, 1], 2), (&[2, 3], 2));
    let open = |fake: &FakeIbv| fake.count("mrs") + fake.count("mws");
    let second = far.expose_to(&mut near, (0, 64), Access::all());
    let before = open(&fake);
    far.plane.revoke(window.window, window.epoch).unwrap();
    assert!(!far.plane.is_released(window.window, window.epoch));
    assert!(near.plane.remove_window(window.window, window.epoch));
    far.plane.receive_release(window.window, window.epoch);
    assert!(far.plane.is_released(window.window, window.epoch));
    assert_eq!(open(&fake), before - 2, "one on each");
    for index in 0..2 {
        near.post(&near.put(index, &second, 64));
    }
    assert_eq!(near.complete(2), [(0, Ok(64)), (1, Ok(64))]);
    drop((near, far));
    fake.assert_clean();
    // A peer that goes on all the same is refused by each.
    for nic in 0..2 {
        let (mut near, mut far, window) = pair((&[0, 1], 2), (&[2, 3], 2));
        for index in 0..nic {
            near.post(&near.put(index, &window, 64));
        }
        let _ = near.complete(usize::from(nic));
        far.fill(1);
        far.plane.revoke(window.window, window.epoch).unwrap();
        far.plane.receive_release(window.window, window.epoch);
        near.fill(9);
        near.post(&near.put(7, &window, 64));
        let [(7, Err(Failure::Window(_)))] = near.complete(1)[..] else { panic!("NIC {nic}") };
        assert_eq!(far.count_from(0, 1), 4096, "NIC {nic}");
        let text = reason(&near);
        assert!(text.starts_with(&format!("the NIC fake_{nic}:1 gave it up: ")), "{text}");
        drop((near, far));
        assert_eq!((fake.count("live"), fake.count("findings")), (0, 0));
    }
}
