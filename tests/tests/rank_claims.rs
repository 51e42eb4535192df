//! Short connections that claim a rank, with the highest incarnation there is: what they lock, for whom, and for how long.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests may panic")]

use std::time::{Duration, Instant};

use hmc_core::wire::hello::HostId;
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::reject::RejectReason;
use hmc_std::{Address, Session};
use hmc_tests::attack::Context;
use hmc_tests::attack::ranks::{self, KEPT, OTHER_HOST, claim, claims};
use hmc_tests::env::{TempDir, until};
use hmc_tests::listening::Listening as _;
use hmc_tests::raw_frames::{PATIENCE, dial, read_frame, read_reject, send_raw};

const LONG: Duration = Duration::from_secs(60);

/// One process of the same user claims ranks by a local socket, in the highest life, under another host's name and under
/// this one's, and is gone. The kernel has proved whose process it is; what it said binds nobody for longer than 10 s.
#[test]
fn a_short_claim_by_a_local_socket_does_not_keep_a_rank() {
    ranks::short_claims(&mut Context::rounds(env!("CARGO_BIN_EXE_actor"), 1)).expect_held();
}

/// On loopback nothing but a proof binds: who claims and goes, or promises a proof and goes, leaves the rank as free as it was.
#[test]
fn a_claim_on_loopback_without_a_proof_keeps_nothing() {
    let dir = TempDir::new();
    let secret = dir.path().join("secret");
    let builder = |rank| Session::builder(rank).secret_file(&secret).buffer(4096);
    let server = builder(1).tcp("127.0.0.1:0").start().unwrap();
    let at = server.tcp_addr().unwrap();
    for host in [OTHER_HOST, HostId([3; 16])] {
        let mut s = dial(at);
        assert!(send_raw(&mut s, &claim(2, u64::MAX, host, false)));
        assert_eq!(read_reject(&mut s), Some(RejectReason::NotAuthorised));
        let mut s = dial(at);
        assert!(send_raw(&mut s, &claim(2, u64::MAX, host, true)));
        let (header, payload) = read_frame(&mut s).expect("a challenge");
        assert!(matches!(
            ControlMessage::parse(header, &payload),
            Ok(ControlMessage::Challenge(_))
        ));
        drop(s);
    }
    let began = Instant::now();
    let honest = builder(2).start().unwrap();
    honest.connect(&Address::Tcp(at)).rank(1).within(LONG).wait().expect("the rank is free");
    // Refusals that say "kept" are waited out: this was none.
    assert!(began.elapsed() < KEPT / 2, "{:?}", began.elapsed());
}

/// Where nobody proves anything, a dead rank is for whoever names the host that its holder named, which every process
/// that may connect can read, and after 10 s for anybody. A live one is not.
#[test]
fn where_nobody_proves_anything_a_dead_rank_is_for_who_names_its_host() {
    let builder = |rank| Session::builder(rank).insecure_loopback().buffer(4096);
    let server = builder(1).tcp("127.0.0.1:0").start().unwrap();
    let at = server.tcp_addr().unwrap();
    let holder = builder(2).start().unwrap();
    holder.connect(&Address::Tcp(at)).rank(1).wait().expect("a free rank");
    let raw = || {
        let s = dial(at);
        s.set_read_timeout(Some(PATIENCE)).unwrap();
        s
    };
    let host = claims(raw(), 7, 1, OTHER_HOST);
    for named in [host, OTHER_HOST] {
        let mut s = raw();
        assert!(send_raw(&mut s, &claim(2, u64::MAX, named, false)));
        assert_eq!(read_reject(&mut s), Some(RejectReason::Duplicate), "its holder lives");
    }
    drop(holder);
    until("its end is known", LONG, || {
        (!server.peer(2).is_ok_and(|p| p.is_connected())).then_some(())
    });
    let mut s = raw();
    assert!(send_raw(&mut s, &claim(2, u64::MAX, OTHER_HOST, false)));
    assert_eq!(read_reject(&mut s), Some(RejectReason::Kept));
    claims(raw(), 2, u64::MAX, host);
}
