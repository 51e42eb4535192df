//! Processes that end by exit(3) with sessions that live, under puts of both ends: UCX is taken down then, and none of their
//! threads may be in it.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hmc_std::{ConnType, Session};
use hmc_tests::actor::Actor;
use hmc_tests::scene::{TempDir, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const LANES: [&str; 2] = ["posix,cma,self", "tcp"];
/// Longer than what is copied without UCX.
const LEN: u64 = 256 << 10;

/// As many over each set of lanes as `HMC_TEST_ROUNDS` says.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn processes_that_end_under_puts_end_in_order() {
    let rounds = std::env::var("HMC_TEST_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    for lanes in LANES {
        let dir = TempDir::new();
        let hub = Session::builder(1).uds(dir.path()).ucx().ucx_key("TLS", lanes).redial(false);
        let hub = hub.tcp("127.0.0.1:0").buffer(LEN).start().unwrap();
        let address = format!("uds://{}", dir.path().display());
        for round in 0..rounds {
            let settings = format!("rank=0 redial=0 ucx tls={lanes} buffer={LEN}");
            let mut actor = Actor::session(ACTOR, &settings);
            actor.ask(&format!("connect 1 {address} ucx 20000"));
            let peer = hub.wait_peer(0, LONG).unwrap();
            assert_eq!(peer.conn(), Some(ConnType::Ucx));
            actor.ask(&format!("put_on 1 {LEN}"));
            let puts = AtomicU32::new(0);
            let status = std::thread::scope(|s| {
                s.spawn(|| {
                    while peer.put(0, 0, LEN).is_ok() {
                        puts.fetch_add(1, Ordering::Relaxed);
                    }
                });
                until("puts are under way", LONG, || {
                    (puts.load(Ordering::Relaxed) > 3).then_some(())
                });
                actor.tell("leave");
                actor.dismiss()
            });
            assert!(status.success(), "{status} over {lanes}, round {round}");
            until("its link is over", LONG, || (!peer.is_connected()).then_some(()));
        }
    }
}
