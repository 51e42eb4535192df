//! A peer that was killed and waited for: no put that begins after that reports success, over mapped memory too, where
//! nobody but the kernel can say that the pages have lost their owner.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{ConnType, ErrorKind, Session};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::actor::Actor;
use hmc_tests::attack::{Context, reaped};
use hmc_tests::env::{TempDir, number, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
/// How many peers are killed: `HMC_TEST_KILLS`, or 100.
fn kills() -> u32 {
    number("HMC_TEST_KILLS", 100)
}

#[test]
fn nothing_that_begins_after_a_peer_was_waited_for_reports_success() {
    reaped::successes_after_the_end(&mut Context::rounds(ACTOR, kills().into())).expect_held();
}

/// What a program does whose peer is started again: put, learn of the end, connect, put. No `PeerDead` comes from a link that
/// was given out after the end had been told.
#[test]
fn connecting_after_peer_dead_never_gives_the_dead_link() {
    let dir = TempDir::new();
    let session = Session::builder(0).buffer(4096).redial(false).start().unwrap();
    let settings = format!("rank=1 uds={} buffer=4096", dir.path().display());
    let mut actor = Actor::session(ACTOR, &settings);
    let mut peer =
        session.connect(&dir.address()).rank(1).over(ConnType::Shm).within(LONG).wait().unwrap();
    let (mut dead, mut tries) = (0, 0);
    for round in 0..kills() {
        let _ = actor.kill();
        (peer, actor) = std::thread::scope(|s| {
            let next = s.spawn(|| {
                // Its listener is taken over once it has ended.
                until("the old process ends", LONG, || actor.has_ended().then_some(()));
                Actor::session(ACTOR, &settings)
            });
            let found = until("a put finds the end", LONG, || peer.put_at(0, 0, 8).err());
            assert_eq!(found.kind(), ErrorKind::PeerDead, "round {round}: {found}");
            assert!(!peer.is_connected(), "round {round}: the dead link passes for a living one");
            let peer = until("a put succeeds again", LONG, || {
                tries += 1;
                let peer = session
                    .connect(&dir.address())
                    .rank(1)
                    .over(ConnType::Shm)
                    .within(LONG)
                    .wait()
                    .ok()?;
                match peer.put_at(0, 0, 8) {
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
