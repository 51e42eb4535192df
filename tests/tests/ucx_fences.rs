//! Memory that a peer reaches by UCX's lanes of shared memory: it comes back when the peer says that it is out, or ends.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{Access, ConnType, Session};
use hmc_tests::actor::Actor;
use hmc_tests::scene::{TempDir, bound, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const LANES: [&str; 2] = ["posix,cma,self", "sysv,cma,self"];
const LEN: u64 = 64 << 10;

/// A peer that is stopped is dead by its silence, not by the end of a stream. It cannot say that it is out of a window: the
/// end of its process does.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn windows_come_back_at_the_death_of_a_silent_peer() {
    for lanes in LANES {
        let dir = TempDir::new();
        let session = Session::builder(1).uds(dir.path()).ucx().ucx_key("TLS", lanes);
        let session = session.tcp("127.0.0.1:0").buffer(4096).start().unwrap();
        let tcp = format!("tcp://{}", session.tcp_addr().unwrap());
        // By either door: over TCP the kernel does not say whose process it is.
        for address in [format!("uds://{}", dir.path().display()), tcp] {
            let mut actor = Actor::session(ACTOR, &format!("rank=0 ucx tls={lanes} buffer=4096"));
            actor.ask(&format!("connect 1 {address} ucx 20000"));
            let peer = session.wait_peer(0, LONG).unwrap();
            let region = session.register_vec(vec![0; 64 << 10]).unwrap();
            let window = peer.expose(region.take_all().unwrap(), Access::all(), 3);
            let window = window.map_err(|(e, _)| e).unwrap();
            actor.ask("find 1 3 20000");
            assert_eq!(peer.conn(), Some(ConnType::Ucx));
            actor.stop();
            until("its silence is noticed", LONG, || (!peer.is_connected()).then_some(()));
            drop(window);
            assert_eq!(session.stats().quarantined_bytes, LEN, "over {lanes}, {address}");
            let killed = actor.kill();
            until("the dead give it back", LONG, || {
                (session.stats().quarantined_bytes == 0).then_some(())
            });
            assert!(killed.elapsed() < bound(Duration::from_secs(2)), "{:?}", killed.elapsed());
            region.take_all().unwrap();
        }
    }
}
