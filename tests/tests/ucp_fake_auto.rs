//! The rule by which `ConnType::Auto` takes UCX: where there is no shared memory, and both ends have lanes of RDMA hardware.
//! The fake libucp has whatever devices a test gives it.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{Address, Choice, ConnType, ErrorKind, Peer, Session};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::env::TempDir;
use hmc_tests::fake_ucp::{CallResult, FakeUcp, NO_MEMORY};
use hmc_tests::listening::Listening as _;
use hmc_tests::pair::pattern;

const LONG: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

const NIC: &str = "rc_mlx5/mlx5_0:1";
const NO_NIC: &str = "tcp/eth0";

/// A session that takes part in UCX with those devices, or in none.
fn session(fake_ucp: &FakeUcp, rank: u32, devices: Option<&str>) -> Session {
    let builder = Session::builder(rank).buffer(2 * MIB);
    let builder = if rank == 1 { builder.tcp("127.0.0.1:0") } else { builder };
    match devices {
        Some(devices) => {
            fake_ucp.lane(devices);
            builder.ucx().start().unwrap()
        }
        None => builder.start().unwrap(),
    }
}

fn at(target: &Session) -> Address {
    Address::Tcp(target.tcp_addr().unwrap())
}

/// What is said of that kind.
fn choice(peer: &Peer, conn: ConnType) -> Choice {
    let choices = peer.explain().choices;
    let mut of_kind = choices.iter().filter(|c| c.conn == conn);
    let found = of_kind.next().unwrap_or_else(|| panic!("nothing of {conn:?}: {choices:?}"));
    assert_eq!(of_kind.next(), None, "{choices:?}");
    let mut found = found.clone();
    // What is told of UCX's lanes beside it is not the rule's.
    if let Some(at) = found.why.find("; lanes: ") {
        found.why.truncate(at);
    }
    found
}

fn assert_moves(peer: &Peer, source: &Session, target: &Session) {
    let bytes = pattern(MIB, 4);
    source.buffer().write_at(0, &bytes).unwrap();
    peer.put_at(0, MIB, MIB).unwrap();
    let mut got = vec![0; bytes.len()];
    target.buffer().read_at(MIB, &mut got).unwrap();
    assert!(got == bytes, "the bytes differ");
}

/// What Auto takes between a target and a source with those devices.
fn taken(fake_ucp: &FakeUcp, target: Option<&str>, source: Option<&str>) -> (ConnType, Choice) {
    let target = session(fake_ucp, 1, target);
    let source = session(fake_ucp, 0, source);
    let peer = source.connect(&at(&target)).rank(1).within(LONG).wait().unwrap();
    assert_moves(&peer, &source, &target);
    let conn = peer.explain().conn.unwrap();
    let (ucx, chosen) = (choice(&peer, ConnType::Ucx), choice(&peer, conn));
    assert!(chosen.chosen, "{chosen:?}");
    assert_eq!(ucx.chosen, conn == ConnType::Ucx, "{ucx:?}");
    assert!(!choice(&peer, ConnType::Shm).chosen, "no local socket");
    if conn == ConnType::Tcp {
        assert_eq!(chosen.why, "what is left");
    }
    drop((peer, source, target));
    fake_ucp.await_clean();
    fake_ucp.restart();
    (conn, ucx)
}

#[test]
fn auto_takes_ucx_where_both_ends_have_rdma_hardware() {
    let fake_ucp = FakeUcp::take();
    for nic in [NIC, "rc_verbs/mlx5_0:1", "dc_mlx5/mlx5_1:1", "ugni/ugni0", "gga_mlx5/mlx5_0:1"] {
        // Beside others, first or last.
        for devices in
            [nic.to_owned(), format!("{nic}+tcp/lo"), format!("tcp/lo+self/memory+{nic}")]
        {
            let (conn, ucx) = taken(&fake_ucp, Some(&devices), Some(&devices));
            assert_eq!(conn, ConnType::Ucx, "{devices}: {}", ucx.why);
            assert_eq!(ucx.why, "RDMA hardware at both ends");
        }
    }
}

#[test]
fn auto_takes_tcp_where_an_end_has_no_rdma_hardware() {
    let fake_ucp = FakeUcp::take();
    let none = "no RDMA hardware at both ends; ask for it by name";
    for (target, source) in [(NIC, NO_NIC), (NO_NIC, NIC), (NO_NIC, NO_NIC)] {
        let (conn, ucx) = taken(&fake_ucp, Some(target), Some(source));
        assert_eq!((conn, ucx.why.as_str()), (ConnType::Tcp, none), "{target} and {source}");
    }
    // Lanes that are no hardware, or hardware whose puts no key guards.
    for devices in
        ["tcp/lo+self/memory+cma/memory", "posix/memory+sysv/memory", "ud_verbs/mlx5_0:1"]
    {
        let (conn, ucx) = taken(&fake_ucp, Some(devices), Some(devices));
        assert_eq!((conn, ucx.why.as_str()), (ConnType::Tcp, none), "{devices}");
    }
}

#[test]
fn auto_takes_tcp_where_an_end_takes_no_part_in_ucx() {
    let fake_ucp = FakeUcp::take();
    let ours = "this session takes no part in it";
    let theirs = "the peer takes no part in it";
    for (target, source, why) in
        [(Some(NIC), None, ours), (None, Some(NIC), theirs), (None, None, ours)]
    {
        let (conn, ucx) = taken(&fake_ucp, target, source);
        assert_eq!((conn, ucx.why.as_str()), (ConnType::Tcp, why), "{target:?} {source:?}");
    }
}

/// Without hardware it is still there for who asks for it by name.
#[test]
fn ucx_that_is_requested_by_name_needs_no_hardware() {
    let fake_ucp = FakeUcp::take();
    let target = session(&fake_ucp, 1, Some(NO_NIC));
    let source = session(&fake_ucp, 0, Some(NO_NIC));
    let peer =
        source.connect(&at(&target)).rank(1).over(ConnType::Ucx).within(LONG).wait().unwrap();
    assert_moves(&peer, &source, &target);
    let ucx = choice(&peer, ConnType::Ucx);
    assert_eq!((peer.explain().conn, ucx.chosen), (Some(ConnType::Ucx), true));
    assert_eq!(ucx.why, "asked for by name");
    drop((peer, source, target));
    fake_ucp.await_clean();
}

/// A peer that takes no part in UCX refuses nothing else: the rank can be dialed again, by either end.
#[test]
fn a_dial_by_name_that_ended_leaves_the_rank_free() {
    let fake_ucp = FakeUcp::take();
    let target = session(&fake_ucp, 1, None);
    let source = session(&fake_ucp, 0, Some(NIC));
    let e =
        source.connect(&at(&target)).rank(1).over(ConnType::Ucx).within(LONG).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.to_string().contains("start its session with `ucx()`"), "{e}");
    let peer = source.connect(&at(&target)).rank(1).within(LONG).wait().unwrap();
    assert_moves(&peer, &source, &target);
    drop((peer, source, target));
    fake_ucp.await_clean();
}

/// Between processes of one host shared memory comes first, whatever hardware there is.
#[test]
fn auto_takes_shared_memory_before_hardware() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane(NIC);
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).buffer(2 * MIB).ucx().start().unwrap();
    let source = Session::builder(0).buffer(2 * MIB).ucx().start().unwrap();
    let peer = source.connect(&dir.address()).rank(1).within(LONG).wait().unwrap();
    assert_moves(&peer, &source, &target);
    assert_eq!(peer.explain().conn, Some(ConnType::Shm), "{}", peer.explain());
    drop((peer, source, target));
    fake_ucp.await_clean();
}

/// Hardware at both ends, but no worker for the link at the other: Auto goes on to TCP, and says why.
#[test]
fn auto_goes_on_to_tcp_where_ucx_cannot_begin() {
    let fake_ucp = FakeUcp::take();
    let target = session(&fake_ucp, 1, Some(NIC));
    let source = session(&fake_ucp, 0, Some(NIC));
    fake_ucp.rule("ucp_worker_create", 0, CallResult::Refused(NO_MEMORY));
    let peer = source.connect(&at(&target)).rank(1).within(LONG).wait().unwrap();
    assert_moves(&peer, &source, &target);
    assert_eq!(peer.explain().conn, Some(ConnType::Tcp), "{}", peer.explain());
    let ucx = choice(&peer, ConnType::Ucx);
    assert!(!ucx.chosen && ucx.why.contains("cannot take another peer now"), "{ucx:?}");
    drop((peer, source, target));
    fake_ucp.await_clean();
}
