//! How soon the end and the silence of a process are known while all processors are busy: the limits of docs/FAULTS.md, with
//! the times of whatever else runs.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hmc_std::{ErrorKind, Peer, Session, want::Wanted};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, Via, bound, number};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(30);
/// A stopped peer is dead by then.
const SILENT_BY: Duration = Duration::from_secs(3);
/// And not before: 2.5 s after its last frame, which may be most of a second before it stopped.
const SILENT_AFTER: Duration = Duration::from_millis(1500);
/// A killed peer is dead by then, and 99 of 100 by `KILLED_MOSTLY_BY`.
const KILLED_BY: Duration = Duration::from_secs(1);
const KILLED_MOSTLY_BY: Duration = Duration::from_millis(100);
/// Peers at a time.
const PEERS: u32 = 10;

/// Where control connections go.
#[derive(Clone, Copy, Debug)]
enum Control {
    Local,
    Tcp,
}

/// A session with peers in processes of their own, each with a caller that waits for a message which never comes.
struct Scene {
    session: Session,
    dir: TempDir,
    via: Via,
    control: Control,
}

impl Scene {
    fn new(via: Via, control: Control) -> Self {
        let dir = TempDir::new();
        let session = Session::builder(0).uds(dir.path()).redial(false).buffer(4096);
        Self { session: session.start().unwrap(), dir, via, control }
    }

    fn join(&self, rank: u32) -> (Actor, Peer) {
        let path = self.dir.path().display();
        let actor =
            Actor::session(ACTOR, &format!("rank={rank} uds={path} tcp=127.0.0.1:0 buffer=4096"));
        let address = match self.control {
            Control::Local => self.dir.address(),
            Control::Tcp => actor.address(),
        };
        let peer = self
            .session
            .connect(&address)
            .rank(rank)
            .over(self.via.conn())
            .within(LONG)
            .wait()
            .unwrap();
        (actor, peer)
    }

    /// How long after each was hit its end was known, shortest first.
    fn times(&self, n: usize, hit: fn(&Actor)) -> Vec<Duration> {
        let mut times = Vec::new();
        while times.len() < n {
            let peers: Vec<_> = (1..=PEERS).map(|rank| self.join(rank)).collect();
            times.extend(busy(|| {
                std::thread::scope(|s| {
                    let one = |(at, (actor, peer)): (u64, &(Actor, Peer))| {
                        let peer = peer.clone();
                        let ended = s.spawn(move || {
                            let e = peer
                                .recv(Wanted::Any)
                                .within(LONG)
                                .wait()
                                .expect_err("nobody sends");
                            assert_eq!(e.kind(), ErrorKind::PeerDead, "{e}");
                            Instant::now()
                        });
                        // At all times between two heartbeats.
                        let (pause, began) = (Duration::from_millis(37 * at), Instant::now());
                        while began.elapsed() < pause {
                            std::thread::park_timeout(pause - began.elapsed());
                        }
                        let began = Instant::now();
                        hit(actor);
                        (began, ended)
                    };
                    let all: Vec<_> = (1..).zip(&peers).map(one).collect();
                    let all = all.into_iter().map(|(began, t)| t.join().unwrap() - began);
                    all.collect::<Vec<_>>()
                })
            }));
        }
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!(
            "{:?}, control over {:?}: n {}, p50 {:?}, p90 {:?}, p99 {:?}, max {:?}, load {}",
            self.via,
            self.control,
            times.len(),
            at(50),
            at(90),
            at(99),
            at(100),
            load.trim(),
        );
        times
    }
}

/// Runs `f` beside as many threads that never rest as there are processors.
fn busy<R>(f: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            s.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let r = f();
        over.store(true, Ordering::Relaxed);
        r
    })
}

fn scenes() -> Vec<Scene> {
    let control = [Control::Local, Control::Tcp];
    Via::all().into_iter().flat_map(|via| control.map(|c| Scene::new(via, c))).collect()
}

#[test]
fn a_stopped_peer_is_dead_within_three_seconds() {
    for s in scenes() {
        let times = s.times(number("HMC_TEST_STOPS", 10), Actor::stop);
        let last = *times.last().unwrap();
        assert!(last <= bound(SILENT_BY), "{:?} over {:?}: {last:?}", s.via, s.control);
        assert!(times[0] >= SILENT_AFTER, "{:?}: {:?}", s.via, times[0]);
    }
}

#[test]
fn a_killed_peer_is_dead_within_a_tenth_of_a_second() {
    for s in scenes() {
        let times = s.times(number("HMC_TEST_KILLS", 20), |a| {
            let _ = a.kill();
        });
        let (mostly, last) = (times[(times.len() * 99).div_ceil(100) - 1], times[times.len() - 1]);
        assert!(last <= bound(KILLED_BY), "{:?} over {:?}: {last:?}", s.via, s.control);
        if times.len() >= 100 {
            assert!(
                mostly <= bound(KILLED_MOSTLY_BY),
                "{:?} over {:?}: {mostly:?}",
                s.via,
                s.control
            );
        }
    }
}
