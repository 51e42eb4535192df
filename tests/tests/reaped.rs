//! A peer that was killed and waited for: no put that begins after that reports success, over mapped memory too, where
//! nobody but the kernel can say that the pages have lost their owner.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hmc_std::{ConnType, ErrorKind, Session};
use hmc_tests::actor::Actor;
use hmc_tests::scene::{TempDir, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const THREADS: usize = 4;

/// How many peers are killed: `HMC_TEST_KILLS`, or a few.
fn kills() -> u32 {
    std::env::var("HMC_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(12)
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
        // Puts learn of the end before the session does, which would give the old life of the rank to who connects again.
        until("the session knows", LONG, || (!session.check_conn(1)).then_some(()));
    }
    assert_eq!(late, 0, "successes after the end, in {dirty} of {} kills", kills());
}
