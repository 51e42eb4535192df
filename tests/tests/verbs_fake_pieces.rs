//! Long transfers over RDMA verbs: pieces that share the queue pair in turn, of which a window that is revoked, or a cancellation, leaves
//! the rest unposted.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hmc_core::region::WindowDesc;
use hmc_core::transport::{
    CancelOutcome, DataPlane as _, Fence, Notes as _, PeerWindows as _, PostErrorKind,
    Progress as _, Target as _, Transport as _,
};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::work::{CompleteWhen, Failure, Opcode, WorkRequest};
use hmc_mem::registered::Registered as _;
use hmc_std::{ConnType, ErrorKind, Peer, Session};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::env::{TempDir, until};
use hmc_tests::fake_ibv::{self, FakeIbv, run_ignored};
use hmc_tests::pair::pattern;
use hmc_tests::verbs_planes::{End, TURNS, domain, meet};

/// The longest piece.
const PIECE: u64 = 256 << 10;
/// Pieces that are under way at a time.
const AT_A_TIME: u64 = 8;
const MIB: u64 = 1 << 20;
const REVOKED: Failure = Failure::Window(WindowFault::Revoked);
const LONG: Duration = Duration::from_secs(20);

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
}

#[test]
fn sessions_with_long_transfers_over_the_fake_library() {
    run_ignored();
}

/// Two ends of `lanes` queue pairs with that much memory, and a window of all of the second one's. Each tick carries out one piece.
fn long_pair(fake: &FakeIbv, lanes: usize, len: u64) -> (End, End, WindowDesc) {
    let end = || End::with_memory(&domain(&Arc::default(), lanes, true), len).unwrap();
    let (mut near, mut far, _) = meet(end(), end());
    let window = far.expose_to(&mut near, (0, len), Access::all());
    fake.set("batch", 1);
    (near, far, window)
}

fn fill(end: &End, (at, len): (u64, u64), byte: u8) {
    let span = end.memory.local().slice(at, len).unwrap().span;
    end.memory.shared().fill(span, byte).unwrap();
}

/// How many pieces in a row from `at` on begin with that byte.
fn pieces_at(end: &End, at: u64, byte: u8) -> u64 {
    let begins = |n: u64| {
        let mut got = [0];
        let span = end.memory.local().slice(at + n * PIECE, 1).ok()?.span;
        end.memory.shared().read_at(span, &mut got).ok()?;
        (got[0] == byte).then_some(())
    };
    (0..).take_while(|n| begins(*n).is_some()).count().try_into().unwrap()
}

fn operation_of(opcode: Opcode) -> &'static str {
    if opcode == Opcode::Get { "read" } else { "write" }
}

/// Polls until so many pieces were posted.
fn poll_until_posted(fake: &FakeIbv, near: &mut End, operation: &str, pieces: u64) {
    for _ in 0..TURNS {
        if fake.calls(operation) >= pieces {
            return;
        }
        assert_eq!(near.poll(), [], "after {} pieces", fake.calls(operation));
    }
    panic!("{} of {pieces} pieces were posted", fake.calls(operation));
}

/// The link serves the next put, and the next get.
fn assert_it_lives(near: &mut End, far: &End, window: &WindowDesc) {
    assert_eq!((near.plane.close_reason(), far.plane.close_reason()), (None, None));
    for opcode in [Opcode::Put, Opcode::Get] {
        near.post(&near.work(99, opcode, window, (0, MIB)));
        assert_eq!(near.complete(1), [(99, Ok(MIB))], "{opcode:?}");
    }
    assert!(near.plane.are_requests_fenced());
}

#[test]
fn a_long_transfer_is_whole_and_few_pieces_of_it_are_under_way() {
    for lanes in [1, 2_u8] {
        for (opcode, when) in [
            (Opcode::Put, CompleteWhen::Visible),
            (Opcode::Put, CompleteWhen::Local),
            (Opcode::Get, CompleteWhen::Visible),
        ] {
            let (lanes_u64, what) = (u64::from(lanes), format!("{opcode:?} {when:?} over {lanes}"));
            let fake = FakeIbv::take();
            let (mut near, far, window) = long_pair(&fake, lanes.into(), 6 * MIB);
            let len = 5 * MIB + 3;
            let bytes = pattern(len, 1);
            let (source, sink) = if opcode == Opcode::Get { (&far, &near) } else { (&near, &far) };
            let span = source.memory.local().slice(0, len).unwrap().span;
            source.memory.shared().write_at(span, &bytes).unwrap();
            let sink = sink.memory.clone();
            near.post(&WorkRequest { when, ..near.work(1, opcode, &window, (0, len)) });
            let (mut least, mut most, mut done) = (u64::MAX, 0, Vec::new());
            for _ in 0..TURNS {
                done = near.poll();
                let under_way = fake.count("posted");
                most = most.max(under_way);
                if fake.calls(operation_of(opcode)) < 20 {
                    least = least.min(under_way);
                }
                if !done.is_empty() {
                    break;
                }
                assert!(!near.plane.interest().work, "{what}: all that has space was posted");
            }
            assert_eq!(done, [(1, Ok(len))], "{what}");
            let flushes = if when == CompleteWhen::Visible { lanes_u64 } else { 0 };
            let (writes, reads) = if opcode == Opcode::Get { (0, 21) } else { (21, flushes) };
            assert_eq!((fake.calls("write"), fake.calls("read")), (writes, reads), "{what}");
            // The last three bytes and the flush come on top.
            assert!(most <= (AT_A_TIME + 2) * lanes_u64, "{what}: {most} at a time");
            assert!(least >= AT_A_TIME - 1, "{what}: {least} at a time leave the NIC without work");
            // A put that is done locally may be on its way.
            fake.progress(100);
            let mut got = vec![0; bytes.len()];
            sink.shared().read_at(span, &mut got).unwrap();
            assert!(got == bytes, "{what}: the bytes differ");
            drop((near, far));
            fake.assert_clean();
        }
    }
}

/// What was posted ends, the rest never is, and the owner need not wait until it ends the registration, and with it the link.
#[test]
fn a_transfer_whose_window_is_revoked_ends_and_its_link_lives() {
    for opcode in [Opcode::Put, Opcode::Get] {
        let fake = FakeIbv::take();
        let operation = operation_of(opcode);
        let (mut near, mut far, window) = long_pair(&fake, 1, 17 * MIB);
        let other = far.expose_to(&mut near, (0, MIB), Access::all());
        fill(if opcode == Opcode::Get { &far } else { &near }, (MIB, 16 * MIB), 7);
        near.post(&near.work(1, opcode, &window, (MIB, 16 * MIB)));
        poll_until_posted(&fake, &mut near, operation, 20);
        let fence = far.plane.revoke(window.window, window.epoch);
        assert_eq!(fence, Ok(Fence::PeerAck));
        // One of which nothing was posted, and one of another window.
        near.post(&near.work(2, opcode, &window, (MIB, 2 * MIB)));
        near.post(&near.work(3, opcode, &other, (0, MIB)));
        assert!(!near.plane.remove_window(window.window, window.epoch), "it is in use");
        assert_eq!(near.plane.next_release(), None);
        let posted = fake.calls(operation);
        let mut done = near.complete(3);
        done.sort_unstable_by_key(|(index, _)| *index);
        assert_eq!(done, [(1, Err(REVOKED)), (2, Err(REVOKED)), (3, Ok(MIB))]);
        assert_eq!(fake.calls(operation), posted + MIB / PIECE, "of the other alone");
        let sink = if opcode == Opcode::Get { &near } else { &far };
        assert_eq!(pieces_at(sink, MIB, 7), posted);
        assert_eq!(near.plane.next_release(), Some((window.window, window.epoch)));
        far.plane.receive_release(window.window, window.epoch);
        assert!(far.plane.is_released(window.window, window.epoch));
        assert_it_lives(&mut near, &far, &other);
        drop((near, far));
        fake.assert_clean();
    }
}

#[test]
fn a_cancelled_transfer_stops_and_its_link_lives() {
    for opcode in [Opcode::Put, Opcode::Get] {
        let fake = FakeIbv::take();
        let operation = operation_of(opcode);
        let (mut near, far, window) = long_pair(&fake, 1, 16 * MIB);
        let work = |near: &End, index| near.work(index, opcode, &window, (0, 16 * MIB));
        fill(if opcode == Opcode::Get { &far } else { &near }, (0, 16 * MIB), 7);
        let long = work(&near, 1);
        near.post(&long);
        // Nothing of these is posted before a piece of the first has completed.
        let unbegun = work(&near, 2);
        (0..3).for_each(|_| near.post(&unbegun));
        assert_eq!(near.plane.cancel(unbegun.op), CancelOutcome::Withdrawn);
        assert!(!near.plane.uses_memory_of(unbegun.op));
        poll_until_posted(&fake, &mut near, operation, 20);
        assert_eq!(near.plane.cancel(long.op), CancelOutcome::Running);
        let posted = fake.calls(operation);
        assert!(near.plane.uses_memory_of(long.op));
        assert_eq!(near.complete(1), [(1, Err(Failure::Cancelled))]);
        let sink = if opcode == Opcode::Get { &near } else { &far };
        assert_eq!((fake.calls(operation), pieces_at(sink, 0, 7)), (posted, posted));
        assert!(!near.plane.uses_memory_of(long.op) && near.plane.are_requests_fenced());
        assert_eq!(near.plane.cancel(long.op), CancelOutcome::Withdrawn);
        assert!(near.poll_for(20).is_empty(), "each once");
        // An operation of which one request has begun gets a completion for each.
        let begun = work(&near, 3);
        (0..3).for_each(|_| near.post(&begun));
        assert_eq!(near.plane.cancel(begun.op), CancelOutcome::Running);
        assert_eq!(near.complete(3), [(3, Err(Failure::Cancelled)); 3]);
        assert_eq!(fake.calls(operation), posted + AT_A_TIME);
        assert_it_lives(&mut near, &far, &window);
        drop((near, far));
        fake.assert_clean();
    }
}

#[test]
fn long_transfers_share_in_turn() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = long_pair(&fake, 1, 12 * MIB);
    fill(&near, (0, 12 * MIB), 7);
    for index in 0..3 {
        let part = (u64::from(index) * 4 * MIB, 4 * MIB);
        near.post(&near.work(index, Opcode::Put, &window, part));
    }
    // The first had the queue pair alone when it was posted.
    assert_eq!(near.complete(1), [(0, Ok(4 * MIB))]);
    let of = |index: u64| pieces_at(&far, index * 4 * MIB, 7).min(16);
    let (second, third) = (of(1), of(2));
    assert!((7..12).contains(&second) && (7..12).contains(&third), "{second} and {third}");
    assert_eq!(near.complete(2), [(1, Ok(4 * MIB)), (2, Ok(4 * MIB))]);
    let calls = (fake.calls("write"), fake.calls("read"));
    assert_eq!(
        calls,
        (48, 2),
        "one flush for the first, and one for the last pieces of the others"
    );
    drop((near, far));
    fake.assert_clean();
}

/// A short one waits for what is under way, and a longer one for a piece of each that was there before it too.
#[test]
fn a_short_put_does_not_wait_for_long_ones() {
    const GIB: u64 = 1 << 30;
    const COUNT: u16 = 20;
    let fake = FakeIbv::take();
    let (mut near, far, window) = long_pair(&fake, 1, GIB);
    let long = |near: &End, index| near.work(index, Opcode::Put, &window, (0, GIB));
    (0..COUNT).for_each(|index| near.post(&long(&near, index)));
    let mut pieces = BTreeMap::new();
    for (index, len) in [(90, 64), (91, 4096), (92, 4097), (93, 100_000), (94, PIECE)] {
        let before = fake.calls("write") + 20;
        poll_until_posted(&fake, &mut near, "write", before);
        let before = fake.calls("write");
        near.post(&near.work(index, Opcode::Put, &window, (0, len)));
        assert_eq!(near.complete(1), [(index, Ok(len))]);
        pieces.insert(len, fake.calls("write") - before);
    }
    println!("pieces that were posted until a put of that many bytes was done: {pieces:?}");
    let waits = u64::from(COUNT);
    for (len, count) in pieces {
        let wanted = if len <= 4096 { 1..=AT_A_TIME + 2 } else { waits..=waits + AT_A_TIME + 2 };
        assert!(wanted.contains(&count), "{len} bytes: {count}");
    }
    for index in 0..COUNT {
        let op = long(&near, index).op;
        assert_eq!(near.plane.cancel(op), CancelOutcome::Running);
    }
    let done = near.complete(COUNT.into());
    assert!(done.iter().all(|(_, result)| *result == Err(Failure::Cancelled)), "{done:?}");
    drop((near, far));
    fake.assert_clean();
}

/// A longer one that would fit in front of a piece does not: many of them would keep the piece out.
#[test]
fn a_piece_that_waits_is_overtaken_by_short_ones_only() {
    let fake = FakeIbv::take();
    let (mut near, far, window) = long_pair(&fake, 1, 2 * MIB);
    fake.set("poll_progress", 0);
    for index in 0..7 {
        near.post(&near.work(index, Opcode::Put, &window, (0, PIECE)));
    }
    near.post(&near.work(7, Opcode::Put, &window, (0, PIECE / 2)));
    assert!(near.poll().is_empty());
    for (index, len, posted) in [(8, MIB, 8), (9, 8192, 8), (10, 4096, 9)] {
        near.post(&near.work(index, Opcode::Put, &window, (0, len)));
        assert!(near.poll().is_empty());
        assert_eq!(fake.calls("write"), posted, "with one of {len} bytes");
    }
    fake.set("poll_progress", 1);
    assert_eq!(near.complete(11).len(), 11);
    drop((near, far));
    fake.assert_clean();
}

/// As many long ones as there may be, and short ones among them.
#[test]
fn each_of_many_long_requests_completes_once() {
    let fake = FakeIbv::take();
    for lanes in [1, 3] {
        let (mut near, far, window) = long_pair(&fake, lanes, 2 * MIB);
        fake.set("batch", 0);
        let (mut posted, mut done) = (0_u16, BTreeMap::new());
        while done.len() < 600 {
            while posted < 600 {
                let len = if posted % 3 == 0 { 64 } else { u64::from(posted % 8) * PIECE + 9 };
                let opcode = if posted % 2 == 0 { Opcode::Put } else { Opcode::Get };
                match near.plane.post(&near.work(posted, opcode, &window, (0, len))) {
                    Ok(()) => posted += 1,
                    Err(PostErrorKind::Busy) => break,
                    Err(e) => panic!("{e:?}"),
                }
            }
            for (index, result) in near.poll() {
                assert!(result.is_ok(), "{index} {result:?}");
                assert_eq!(done.insert(index, result), None, "{index} twice");
            }
        }
        assert!(near.plane.are_requests_fenced() && near.poll_for(20).is_empty());
        drop((near, far));
        fake.assert_clean();
    }
}

/// A NIC that is slow enough for a session to be in the middle: a piece takes a millisecond.
fn slow_down(fake: &FakeIbv) {
    let numbers = [("poll_progress", 0), ("batch", 1), ("ticker_us", 1000)];
    numbers.into_iter().for_each(|(name, n)| fake.set(name, n));
}

fn speed_up(fake: &FakeIbv) {
    let numbers = [("poll_progress", 1), ("batch", 0), ("ticker_us", 50)];
    numbers.into_iter().for_each(|(name, n)| fake.set(name, n));
}

/// Two sessions of this process that are connected over RDMA, with buffers of that length.
fn sessions(fake: &FakeIbv, buffer: u64) -> (Session, Session, Peer, TempDir) {
    speed_up(fake);
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).buffer(buffer).start().unwrap();
    let source = Session::builder(0).buffer(buffer).start().unwrap();
    let peer =
        source.connect(&dir.address()).rank(1).over(ConnType::Rdma).within(LONG).wait().unwrap();
    (target, source, peer, dir)
}

/// The peer's patience of 1 s is enough for what is under way, however long the transfer is.
#[test]
#[ignore = "`sessions_with_long_transfers_over_the_fake_library` runs it as a process"]
fn a_window_comes_back_from_a_long_transfer_and_the_link_lives() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    let len = usize::try_from(64 * MIB).unwrap();
    for opcode in [Opcode::Put, Opcode::Get] {
        let (target, source, peer, dir) = sessions(&fake, MIB);
        let back = target.accept(0).within(LONG).wait().unwrap();
        let region =
            target.memory().register(hmc_std::memory::HeapBytes::from(vec![1; len])).unwrap();
        let window = back.expose(region.take_all().unwrap(), Access::all(), 3);
        let window = window.map_err(|(e, _)| e).unwrap();
        let remote = peer.window(3).within(LONG).wait().unwrap();
        let span = source
            .memory()
            .register(hmc_std::memory::HeapBytes::from(vec![9; len]))
            .unwrap()
            .take_all()
            .unwrap();
        slow_down(&fake);
        let operation = operation_of(opcode);
        let before = fake.calls(operation);
        let op = match opcode {
            Opcode::Get => remote.get(0, span).start().unwrap(),
            _ => remote.put(0, span).start().unwrap(),
        };
        until("it is in the middle", LONG, || (fake.calls(operation) >= before + 20).then_some(()));
        let begun = Instant::now();
        window.revoke().within(LONG).wait().unwrap();
        let elapsed = begun.elapsed();
        let failed = op.wait().expect_err("its window is gone");
        let pieces = fake.calls(operation) - before;
        println!("{opcode:?}: {elapsed:?}, {pieces} of 256 pieces");
        assert_eq!(failed.kind(), ErrorKind::Revoked, "{failed}");
        assert!(pieces < 256);
        speed_up(&fake);
        peer.put_at(0, 0, MIB).expect("the link lives");
        peer.get_at(0, 0, MIB).expect("the link lives");
        drop((failed, remote, region, peer, source, back, target, dir));
        fake.await_clean();
    }
}

#[test]
#[ignore = "`sessions_with_long_transfers_over_the_fake_library` runs it as a process"]
fn a_cancelled_operation_of_a_session_stops() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    let buffer = 64 * MIB;
    let (target, source, peer, dir) = sessions(&fake, buffer);
    for opcode in [Opcode::Put, Opcode::Get] {
        slow_down(&fake);
        let operation = operation_of(opcode);
        let before = fake.calls(operation);
        let op = match opcode {
            Opcode::Get => peer.start_get_at(0, 0, buffer).unwrap(),
            _ => peer.start_put_at(0, 0, buffer).unwrap(),
        };
        until("it is in the middle", LONG, || (fake.calls(operation) >= before + 20).then_some(()));
        op.cancel();
        let e = op.wait().expect_err("it was cancelled");
        assert_eq!(e.kind(), ErrorKind::Cancelled, "{e}");
        until("nothing is under way", LONG, || (fake.count("posted") == 0).then_some(()));
        let pieces = fake.calls(operation) - before;
        println!("{opcode:?}: {pieces} of 256 pieces");
        assert!(pieces < 256);
        speed_up(&fake);
        peer.put_at(0, 0, MIB).expect("the link lives");
        peer.get_at(0, 0, MIB).expect("the link lives");
    }
    drop((peer, source, target, dir));
    fake.await_clean();
}
