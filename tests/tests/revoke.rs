//! Windows taken back in the middle of transfers: not one byte comes late into pages that their
//! owner uses again at once.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hmc_core::types::Access;
use hmc_sim::rng::Rng;
use hmc_std::{ErrorKind, Op, Peer, Region, Remote, Session};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, Via, bound, seed, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const LEN: u64 = 6 << 20;
/// What takes less than the second after which a NIC refuses it, also where the NIC is a kernel on an emulated processor.
const SHORT: u64 = 64 << 10;
const ROUNDS: u64 = 120;
/// What the owner writes into its pages when it has them back.
const OWN: u8 = 0x0F;
/// What the initiator puts.
const FOREIGN: u8 = 0xF0;

/// Bytes of a transfer that is under way when its window is taken back.
fn len(via: Via) -> u64 {
    if via == Via::Rdma { SHORT } else { LEN }
}

struct Ends {
    target: Session,
    source: Session,
    /// The source, as the target sees it.
    to_source: Peer,
    to_target: Peer,
    _dir: TempDir,
}

fn ends(via: Via) -> Ends {
    let dir = TempDir::new();
    let target =
        Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(4096).start().unwrap();
    let source = Session::builder(0).buffer(4096).start().unwrap();
    let to_target =
        source.connect(&dir.address()).rank(1).over(via.conn()).within(LONG).wait().unwrap();
    let to_source = target.accept(0).within(LONG).wait().unwrap();
    Ends { target, source, to_source, to_target, _dir: dir }
}

/// Keeps putting into the window of `label` until it is gone. How its last put ended.
fn hammer(peer: &Peer, region: &Region, label: u64, started: &AtomicU64) -> ErrorKind {
    let window = match peer.window(label).within(LONG).wait() {
        Ok(w) => w,
        Err(e) => return e.kind(),
    };
    let mut span = region.take_all().expect("ours");
    span.fill(FOREIGN);
    started.store(label, Ordering::Release);
    loop {
        let op = match window.put(0, span).start() {
            Ok(op) => op,
            Err(failed) => return failed.kind(),
        };
        let ended = op.wait_for(LONG).ended();
        assert!(ended.is_some(), "a put into a revoked window never ended");
        match op.wait() {
            Ok(done) => {
                assert_eq!(done.bytes, done.memory.len());
                span = done.memory;
            }
            Err(failed) => {
                let kind = failed.kind();
                let back = failed.reclaim().within(Duration::ZERO).wait();
                back.expect("a refused put gives its span back");
                return kind;
            }
        }
    }
}

fn is_gone(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Revoked | ErrorKind::StaleEpoch | ErrorKind::NotFound)
}

fn no_late_byte(via: Via, adopted: bool) {
    let mut rng = Rng::new(seed(21));
    let (e, len) = (ends(via), len(via));
    let region = if adopted {
        e.target
            .memory()
            .register(hmc_std::memory::HeapBytes::from(vec![0; usize::try_from(len).unwrap()]))
            .unwrap()
    } else {
        e.target.memory().allocate(len).unwrap()
    };
    let source_region = e.source.memory().allocate(len).unwrap();
    let started = AtomicU64::new(0);
    let mut slowest = Duration::ZERO;
    let mut cut = 0;
    std::thread::scope(|scope| {
        for round in 1..=ROUNDS {
            let mut span = region.take_all().expect("it came back");
            span.fill(0);
            let window = e.to_source.expose(span, Access::all(), round).map_err(|(e, _)| e);
            let window = window.expect("exposed");
            let (peer, from, told) = (&e.to_target, &source_region, &started);
            let worker = scope.spawn(move || hammer(peer, from, round, told));
            until("the put begins", LONG, || {
                (started.load(Ordering::Acquire) == round).then_some(())
            });
            let mut first = [0];
            until("the first byte comes", LONG, || {
                window.read_at(0, &mut first).unwrap();
                (first[0] == FOREIGN).then_some(())
            });
            let spin = Duration::from_micros(rng.below(1500));
            let begun = Instant::now();
            while begun.elapsed() < spin {
                std::hint::spin_loop();
            }
            let asked = Instant::now();
            let mut span = window.revoke().within(LONG).wait().expect("a live peer gets out");
            slowest = slowest.max(asked.elapsed());
            // Recycled at once.
            let bytes = span.as_mut_slice();
            cut += u64::from(bytes.contains(&FOREIGN) && bytes.contains(&0));
            bytes.fill(OWN);
            let end = worker.join().expect("the initiator");
            assert!(is_gone(end), "{via:?} round {round}: a put ended as {end:?}");
            if let Some(at) = span.as_slice().iter().position(|b| *b != OWN) {
                panic!("{via:?} round {round}: a late byte at {at}");
            }
        }
    });
    // A window that nobody takes back gets all of a put.
    let window = e.to_source.expose(region.take_all().unwrap(), Access::all(), ROUNDS + 1);
    let window = window.map_err(|(e, _)| e).unwrap();
    let remote = e.to_target.window(ROUNDS + 1).within(LONG).wait().unwrap();
    let mut span = source_region.take_all().unwrap();
    span.fill(FOREIGN);
    assert_eq!(remote.put(0, span).start().and_then(Op::wait).unwrap().bytes, len);
    let span = window.revoke().within(LONG).wait().unwrap();
    assert!(span.as_slice().iter().all(|b| *b == FOREIGN), "{via:?}: bytes are missing");
    println!("revoke_slowest_{via:?}_adopted_{adopted} {} us", slowest.as_micros());
    println!("revoke_in_the_middle_{via:?}_adopted_{adopted} {cut} of {ROUNDS}");
    // A NIC ends what it has begun.
    let is_whole = adopted || via == Via::Rdma;
    assert!(cut > 0 || is_whole, "no revocation ever met a transfer half-way");
    // Pieces of a copy wait for a processor where others have it; a peer that does not get out takes ten times as long.
    assert!(slowest < bound(Duration::from_secs(2)), "a revocation took {slowest:?}");
}

#[test]
fn no_late_byte_over_tcp() {
    no_late_byte(Via::Tcp, false);
}

#[test]
fn no_late_byte_over_shm() {
    no_late_byte(Via::Shm, false);
}

#[test]
fn no_late_byte_over_shm_into_adopted_memory() {
    no_late_byte(Via::Shm, true);
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn no_late_byte_over_ucx() {
    no_late_byte(Via::Ucx, false);
}

#[test]
#[ignore = "needs an RDMA device: `cargo xtask test-hw --vm`"]
fn no_late_byte_over_rdma() {
    no_late_byte(Via::Rdma, false);
}

/// Gets from a window that is taken back end too, and their memory comes back.
#[test]
fn gets_from_a_revoked_window_end() {
    for via in Via::all() {
        let e = ends(via);
        let region = e.target.memory().allocate(len(via)).unwrap();
        let here = e.source.memory().allocate(len(via)).unwrap();
        let done = AtomicBool::new(false);
        for label in 1..=30 {
            let mut span = region.take_all().unwrap();
            span.fill(7);
            let window = e.to_source.expose(span, Access::READ, label).map_err(|(e, _)| e).unwrap();
            let remote = e.to_target.window(label).within(LONG).wait().unwrap();
            done.store(false, Ordering::Release);
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    loop {
                        let span = here.take_all().expect("it came back");
                        let op = match remote.get(0, span).start() {
                            Ok(op) => op,
                            Err(failed) => return failed.kind(),
                        };
                        assert!(op.wait_for(LONG).ended().is_some(), "a get never ended");
                        match op.wait() {
                            Ok(done) => assert!(done.memory.as_slice().iter().all(|b| *b == 7)),
                            Err(failed) => return failed.kind(),
                        }
                        done.store(true, Ordering::Release);
                    }
                });
                until("a get is done, and the next begins", LONG, || {
                    done.load(Ordering::Acquire).then_some(())
                });
                window.revoke().within(LONG).wait().expect("a live peer gets out").fill(9);
                let end = reader.join().expect("the reader");
                assert!(is_gone(end), "{via:?}: a get ended as {end:?}");
            });
        }
    }
}

/// A write that is not allowed: refused, not a byte changed, and the link lives.
#[test]
fn a_window_for_reading_cannot_be_written() {
    for via in Via::all() {
        let e = ends(via);
        let region = e.target.memory().allocate(4096).unwrap();
        let window =
            e.to_source.expose(region.take_all().unwrap(), Access::READ, 1).map_err(|(e, _)| e);
        let window = window.unwrap();
        let remote = e.to_target.window(1).within(LONG).wait().unwrap();
        let mut span = e.source.memory().allocate(4096).unwrap().take_all().unwrap();
        span.fill(1);
        let put = remote.put(0, span).start().and_then(Op::wait);
        let err = put.expect_err("a window for reading was written");
        assert_eq!(err.kind(), ErrorKind::Access, "{err}");
        // What is allowed goes over the same link.
        let mut into = e.source.memory().allocate(4096).unwrap().take_all().unwrap();
        into.fill(1);
        let done = remote.get(0, into).start().and_then(Op::wait).unwrap();
        assert!(done.bytes == 4096 && done.memory.as_slice().iter().all(|b| *b == 0));
        let span = window.revoke().within(LONG).wait().unwrap();
        assert!(span.as_slice().iter().all(|b| *b == 0));
        assert!(e.to_target.is_connected());
    }
}

/// Revokes a window of `len` bytes, 12 times, while a peer that copies into it is stopped, as a rule in the middle of
/// the copy. Says how often the pages went into quarantine.
fn revoke_under_a_stopped_peer(len: u64) -> u32 {
    let dir = TempDir::new();
    let session = Session::builder(1).uds(dir.path()).buffer(4096).start().unwrap();
    let mut met = 0;
    for round in 0..12 {
        let mut actor = Actor::session(ACTOR, "rank=0 buffer=4096");
        actor.request(&format!("connect 1 uds://{} shm 20000", dir.path().display()));
        let peer = session.accept(0).within(LONG).wait().unwrap();
        let region = session.memory().allocate(LEN).unwrap();
        let window = peer.expose(region.take(0, len).unwrap(), Access::all(), 3);
        let window = window.map_err(|(e, _)| e).unwrap();
        actor.request("find 1 3 20000");
        actor.send(&format!("put_window 1 3 {len} 240"));
        let mut first = [0];
        until("the copy begins", LONG, || {
            window.read_at(0, &mut first).unwrap();
            (first[0] == 240).then_some(())
        });
        actor.stop();
        match window.revoke().within(Duration::from_millis(20)).wait() {
            Ok(mut span) => {
                // It was stopped between two pieces, or the old pages are left to it.
                assert_eq!(session.stats().quarantined_bytes, 0);
                span.fill(OWN);
                actor.resume();
                let answer = actor.answer();
                assert!(
                    answer.as_ref().is_ok() || answer.as_ref().is_err_and(|e| e.starts_with("Rev")),
                    "round {round}: {answer:?}"
                );
                assert!(span.as_slice().iter().all(|b| *b == OWN), "round {round}: a late byte");
                drop(span);
                used_again(&region, &peer, &mut actor, len);
            }
            Err(e) => {
                met += 1;
                assert_eq!(e.kind(), ErrorKind::Quarantined, "{e}");
                assert_eq!(region.take(0, 1).unwrap_err().kind(), ErrorKind::Busy);
                assert_eq!(session.stats().quarantined_bytes, len);
                let killed = actor.kill();
                until("the dead give it back", LONG, || region.take_all().ok());
                assert!(killed.elapsed() < bound(Duration::from_secs(2)), "{:?}", killed.elapsed());
                assert_eq!(session.stats().quarantined_bytes, 0);
            }
        }
        drop(actor);
        until("it is gone", LONG, || (!peer.is_connected()).then_some(()));
    }
    met
}

/// The region serves new windows, mapped or not.
fn used_again(region: &Region, peer: &Peer, actor: &mut Actor, len: u64) {
    let window = peer.expose(region.take(0, len).unwrap(), Access::all(), 4);
    let window = window.map_err(|(e, _)| e).unwrap();
    actor.request("find 1 4 20000");
    actor.request(&format!("put_window 1 4 {len} 77"));
    let span = window.revoke().within(LONG).wait().unwrap();
    assert!(span.as_slice().iter().all(|b| *b == 77), "the new window has its own bytes");
}

/// A stopped peer in the middle of a copy cannot be fenced: a range that shares a page with others is quarantined,
/// and comes back when the peer is dead. One that is stopped elsewhere is no obstacle.
#[test]
fn pages_that_a_stopped_peer_may_touch_are_quarantined_until_its_death() {
    let met = revoke_under_a_stopped_peer(LEN - 8);
    println!("revoke_met_a_stopped_copy {met} of 12");
}

/// Whole pages come back at once, even from the middle of a copy: fresh ones take their place.
#[test]
fn whole_pages_come_back_from_a_stopped_peer_at_once() {
    assert_eq!(revoke_under_a_stopped_peer(LEN), 0);
}

/// The same for a range of a shared buffer: others use its pages, so they are never replaced, and what the peer may still
/// touch is counted until it is dead.
#[test]
fn shared_bytes_that_a_stopped_peer_may_touch_are_quarantined_until_its_death() {
    let dir = TempDir::new();
    let session = Session::builder(1).uds(dir.path()).buffer(4096).start().unwrap();
    let mut met = 0;
    for round in 0..12 {
        let mut actor = Actor::session(ACTOR, "rank=0 buffer=4096");
        actor.request(&format!("connect 1 uds://{} shm 20000", dir.path().display()));
        let peer = session.accept(0).within(LONG).wait().unwrap();
        let buffer = session.memory().allocate(LEN).unwrap().share().unwrap();
        let window = peer.expose(buffer.range(0, LEN).unwrap(), Access::all(), 3).unwrap();
        let other = peer.expose(buffer.range(0, 64).unwrap(), Access::READ, 4).unwrap();
        actor.request("find 1 3 20000");
        actor.send(&format!("put_window 1 3 {LEN} 240"));
        let mut first = [0];
        until("the copy begins", LONG, || {
            buffer.read_at(0, &mut first).unwrap();
            (first[0] == 240).then_some(())
        });
        actor.stop();
        if round % 3 == 2 {
            drop(window);
        } else if let Err(e) = window.revoke().within(Duration::from_millis(20)).wait() {
            assert_eq!(e.kind(), ErrorKind::Quarantined, "{e}");
            assert_eq!(session.stats().quarantined_bytes, LEN);
        }
        let held = session.stats().quarantined_bytes;
        assert!(held == 0 || held == LEN, "round {round}: {held} bytes are held");
        met += u32::from(held != 0);
        // Its place is not used again, and the buffer is used all the same.
        buffer.write_at(LEN - 8, b"still on").unwrap();
        let next = peer.expose(buffer.range(0, LEN).unwrap(), Access::all(), 5).unwrap();
        let killed = actor.kill();
        until("the dead give it back", LONG, || {
            (session.stats().quarantined_bytes == 0).then_some(())
        });
        assert!(killed.elapsed() < bound(Duration::from_secs(2)), "{:?}", killed.elapsed());
        drop((next, other, actor));
        until("it is gone", LONG, || (!peer.is_connected()).then_some(()));
    }
    println!("revoke_met_a_stopped_copy {met} of 12");
}

/// Windows over one memfd share one mapping at the peer: a window of a region that is in use costs no new pages.
#[test]
fn windows_over_one_region_share_a_mapping() {
    /// A length that nothing else in this process has.
    const ODD: u64 = 13 * 4096;
    let ends = ends(Via::Shm);
    let region = ends.target.memory().allocate(2 * ODD).unwrap();
    let expose = |label| {
        let span = region.take(label * ODD, ODD).expect("free");
        let window = ends.to_source.expose(span, Access::all(), label).expect("exposed");
        (window, ends.to_target.window(label).within(LONG).wait().expect("told"))
    };
    let put = |to: &Remote| {
        let span = ends
            .source
            .memory()
            .register(hmc_std::memory::HeapBytes::from(vec![FOREIGN; 64]))
            .unwrap()
            .take_all()
            .unwrap();
        to.put(0, span).start().and_then(Op::wait)
    };
    // The owner's own, and the peer's, which is in this process too.
    assert_eq!(mappings_of(2 * ODD), 1);
    let (first, _) = expose(0);
    assert_eq!(mappings_of(2 * ODD), 2);
    let (second, to_second) = expose(1);
    assert_eq!(mappings_of(2 * ODD), 2, "shared");
    first.revoke().within(LONG).wait().expect("fenced");
    assert_eq!(mappings_of(2 * ODD), 2, "the other window needs it");
    put(&to_second).expect("it is there");
    let mut span = second.revoke().within(LONG).wait().expect("fenced");
    assert_eq!(&span.as_mut_slice()[..64], [FOREIGN; 64]);
    until("the mapping is gone", LONG, || (mappings_of(2 * ODD) == 1).then_some(()));
}

/// Mappings of memfds of that length in this process.
fn mappings_of(len: u64) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("proc is there");
    let has_length = |line: &&str| {
        let (from, to) =
            line.split_once(' ').and_then(|(r, _)| r.split_once('-')).expect("a range");
        let at = |hex| u64::from_str_radix(hex, 16).expect("an address");
        at(to) - at(from) == len
    };
    maps.lines().filter(|l| l.contains("memfd:")).filter(has_length).count()
}
