//! Processes that end by exit(3) with sessions that live, under puts of both ends: UCX is taken down then, and none of their
//! threads may be in it.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hmc_std::{ConnType, Session};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const LANES: [&str; 2] = ["posix,cma,self", "tcp"];
/// Longer than what is copied without UCX.
const LEN: u64 = 256 << 10;

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn processes_that_end_under_puts_end_in_order() {
    end_under_puts(false);
}

/// The code of UCX is the parent's then, and the threads are the child's.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn forked_children_with_sessions_of_their_own_end_in_order() {
    end_under_puts(true);
}

/// UCX's own threads are not in the child: what it began there would never end.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn a_forked_child_of_a_process_that_uses_ucx_is_refused() {
    let settings = "rank=0 redial=0 ucx tls=posix,cma,self buffer=4096";
    let mut actor = Actor::session(ACTOR, settings);
    actor.request("fork");
    let refusal = actor.try_request(&format!("start {settings}")).expect_err("a child");
    for part in ["Unavailable", "forked", "spawn", "before the fork"] {
        assert!(refusal.contains(part), "{refusal}");
    }
    // Without UCX it is a process like any other.
    actor.request("start rank=0 redial=0 buffer=4096");
    assert!(actor.dismiss().success());
}

/// As many over each set of lanes as `HMC_TEST_ROUNDS` says.
fn end_under_puts(forked: bool) {
    let rounds = std::env::var("HMC_TEST_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    for lanes in LANES {
        let dir = TempDir::new();
        let hub = Session::builder(1).uds(dir.path()).ucx().ucx_key("TLS", lanes).redial(false);
        let hub = hub.tcp("127.0.0.1:0").buffer(LEN).start().unwrap();
        let address = format!("uds://{}", dir.path().display());
        for round in 0..rounds {
            let settings = format!("rank=0 redial=0 ucx tls={lanes} buffer={LEN}");
            let mut actor = Actor::session(ACTOR, &settings);
            if forked {
                actor.request("end 10000");
                actor.request("fork");
                actor.request(&format!("start {settings}"));
            }
            actor.request(&format!("connect 1 {address} ucx 20000"));
            let peer = hub.accept(0).within(LONG).wait().unwrap();
            assert_eq!(peer.explain().conn, Some(ConnType::Ucx));
            actor.request(&format!("put_on 1 {LEN}"));
            let puts = AtomicU32::new(0);
            let status = std::thread::scope(|s| {
                s.spawn(|| {
                    while peer.put_at(0, 0, LEN).is_ok() {
                        puts.fetch_add(1, Ordering::Relaxed);
                    }
                });
                until("puts are under way", LONG, || {
                    (puts.load(Ordering::Relaxed) > 3).then_some(())
                });
                actor.send("leave");
                actor.dismiss()
            });
            assert!(status.success(), "{status} over {lanes}, round {round}");
            until("its link is over", LONG, || (!peer.is_connected()).then_some(()));
        }
    }
}
