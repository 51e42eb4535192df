//! A peer that was killed and waited for: no put that begins after that reports success, over mapped memory too, where
//! nobody but the kernel can say that the pages have lost their owner.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hmc_std::{ConnType, ErrorKind, Session};
use hmc_tests::actor::Actor;
use hmc_tests::scene::{TempDir, number, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const THREADS: usize = 4;

/// How many peers are killed: `HMC_TEST_KILLS`, or a few.
fn kills() -> u32 {
    number("HMC_TEST_KILLS", 12)
}

/// What the threads of one kill counted.
#[derive(Default)]
struct Seen {
    /// Puts of the living peer.
    before: AtomicU64,
    /// Puts that began after the peer was waited for, and reported success.
    late: AtomicU64,
    reaped: AtomicBool,
}

#[test]
fn nothing_that_begins_after_a_peer_was_waited_for_reports_success() {
    let dir = TempDir::new();
    let session = Session::builder(0).buffer(4096).redial(false).start().unwrap();
    let settings = format!("rank=1 uds={} buffer=4096", dir.path().display());
    let (mut late, mut dirty) = (0, 0);
    for round in 0..kills() {
        let mut actor = Actor::session(ACTOR, &settings);
        let peer = session.connect_with(1, &dir.address(), ConnType::Shm, LONG).unwrap();
        let seen = Seen::default();
        std::thread::scope(|s| {
            for _ in 0..THREADS {
                s.spawn(|| {
                    loop {
                        let reaped = seen.reaped.load(Ordering::SeqCst);
                        match peer.put(0, 0, 8) {
                            Ok(()) if reaped => seen.late.fetch_add(1, Ordering::Relaxed),
                            Ok(()) => seen.before.fetch_add(1, Ordering::Relaxed),
                            Err(e) => {
                                assert_eq!(e.kind(), ErrorKind::PeerDead, "round {round}: {e}");
                                break;
                            }
                        };
                    }
                });
            }
            until("the puts are under way", LONG, || {
                (seen.before.load(Ordering::Relaxed) >= 1000).then_some(())
            });
            let _ = actor.kill();
            while !actor.has_ended() {
                std::thread::yield_now();
            }
            // It was waited for.
            seen.reaped.store(true, Ordering::SeqCst);
        });
        let n = seen.late.load(Ordering::Relaxed);
        late += n;
        dirty += u32::from(n > 0);
        assert!(
            !session.check_conn(1),
            "round {round}: a put found the end, and the session does not know it"
        );
    }
    assert_eq!(late, 0, "successes after the end, in {dirty} of {} kills", kills());
}

/// What a program does whose peer is started again: put, learn of the end, connect, put. No `PeerDead` comes from a link that
/// was given out after the end had been told.
#[test]
fn connecting_after_peer_dead_never_gives_the_dead_link() {
    let dir = TempDir::new();
    let session = Session::builder(0).buffer(4096).redial(false).start().unwrap();
    let settings = format!("rank=1 uds={} buffer=4096", dir.path().display());
    let mut actor = Actor::session(ACTOR, &settings);
    let mut peer = session.connect_with(1, &dir.address(), ConnType::Shm, LONG).unwrap();
    let (mut dead, mut tries) = (0, 0);
    for round in 0..kills() {
        let _ = actor.kill();
        (peer, actor) = std::thread::scope(|s| {
            let next = s.spawn(|| {
                // Its listener is taken over once it has ended.
                until("the old process ends", LONG, || actor.has_ended().then_some(()));
                Actor::session(ACTOR, &settings)
            });
            let found = until("a put finds the end", LONG, || peer.put(0, 0, 8).err());
            assert_eq!(found.kind(), ErrorKind::PeerDead, "round {round}: {found}");
            assert!(!peer.is_connected(), "round {round}: the dead link passes for a living one");
            let peer = until("a put succeeds again", LONG, || {
                tries += 1;
                let peer = session.connect_with(1, &dir.address(), ConnType::Shm, LONG).ok()?;
                match peer.put(0, 0, 8) {
                    Ok(()) => Some(peer),
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::PeerDead, "round {round}: {e}");
                        dead += 1;
                        None
                    }
                }
            });
            (peer, next.join().unwrap())
        });
    }
    assert_eq!(dead, 0, "links to the dead, in {tries} calls after {} kills", kills());
}
