//! Whole sessions over the fake libucp: bytes move over `ConnType::Ucx`, faults of UCX are errors that say what to
//! do, a session outlives them, and everything is given back in the end.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::time::{Duration, Instant};

use hmc_std::{
    Access, ConnType, Error, ErrorKind, Message, Peer, Session, SessionBuilder, want::Wanted,
};
use hmc_testkit::buffers::{BufferTransfers as _, Copy, Direction, Ends, wait};
use hmc_tests::env::{TempDir, bound, until};
use hmc_tests::fake_ucp::{
    CONNECTION_RESET, CallResult, FakeUcp, IO_ERROR, NO_MEMORY, UNSUPPORTED,
};
use hmc_tests::pair::pattern;
use hmc_tests::small_transfers;

const LONG: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

/// Two sessions of this process, connected over UCX. The dialer's buffer is UCX's when it takes part from its start.
struct Two {
    target: Session,
    source: Session,
    peer: Peer,
    dir: TempDir,
}

impl Two {
    fn new(from_start: bool) -> Self {
        Self::with(from_start, |builder| builder)
    }

    /// The same of sessions that are set up by `more`.
    fn with(from_start: bool, more: impl Fn(SessionBuilder) -> SessionBuilder) -> Self {
        let dir = TempDir::new();
        let target = Session::builder(1).uds(dir.path()).buffer(4 * MIB).ucx();
        let target = more(target).start().unwrap();
        let source = more(Session::builder(0).buffer(4 * MIB));
        let source = if from_start { source.ucx() } else { source };
        let source = source.start().unwrap();
        let peer =
            source.connect(&dir.address()).rank(1).over(ConnType::Ucx).within(LONG).wait().unwrap();
        Self { target, source, peer, dir }
    }

    fn put_and_compare(&self, salt: u64) {
        let bytes = pattern(MIB, salt);
        self.source.buffer().write_at(0, &bytes).unwrap();
        self.peer.put_at(0, MIB, MIB).unwrap();
        let mut got = vec![0; bytes.len()];
        self.target.buffer().read_at(MIB, &mut got).unwrap();
        assert!(got == bytes, "the bytes differ");
    }

    /// Ends both; then nothing is left in the library.
    fn end(self, fake_ucp: &FakeUcp) {
        let Self { target, source, peer, dir } = self;
        drop((peer, source, target, dir));
        fake_ucp.await_clean();
    }
}

#[test]
fn sessions_move_bytes_over_ucx() {
    let fake_ucp = FakeUcp::take();
    for (name, delay) in [("at once", 0), ("later", 5)] {
        for knob in ["put_delay", "get_delay", "flush_delay"] {
            fake_ucp.set(knob, delay);
        }
        let two = Two::new(true);
        assert!(two.peer.explain().to_string().contains("ucx"), "{}", two.peer.explain());
        two.put_and_compare(1);
        two.peer.get_at(MIB, 2 * MIB, MIB).unwrap();
        two.peer.put_notify_at(0, 0, 4096, 77).unwrap();
        let from = two.target.peer(0).unwrap();
        assert_eq!(
            from.recv(Wanted::Any).within(LONG).wait().unwrap(),
            Message::Notify(77),
            "{name}"
        );
        let ops: Vec<_> =
            (0..100).map(|n| two.peer.start_put_at(n * 64, n * 64, 64).unwrap()).collect();
        for op in ops {
            assert_eq!(wait(op).unwrap(), 64);
        }
        let text = pattern(3 * MIB, 5);
        std::thread::scope(|s| {
            let sent = s.spawn(|| two.peer.send_data(&text).wait());
            let mut got = vec![0; text.len()];
            assert_eq!(from.recv_data(&mut got).wait().map(|d| d.bytes).unwrap(), 3 * MIB);
            assert!(got == text);
            sent.join().unwrap().unwrap();
        });
        assert!(fake_ucp.count("flushes_max") <= 4);
        two.source.shutdown().within(LONG).wait().unwrap();
        drop((two.peer, from, two.source, two.target));
        fake_ucp.await_clean();
        fake_ucp.restart();
    }
}

#[test]
fn a_buffer_is_registered_once() {
    let fake_ucp = FakeUcp::take();
    let two = Two::new(false);
    two.put_and_compare(2);
    // By now the other end too has read its key.
    two.target.accept(0).within(LONG).wait().unwrap().put_at(0, 0, 8).unwrap();
    let (mapped, unpacked) = (fake_ucp.calls("ucp_mem_map"), fake_ucp.calls("ucp_ep_rkey_unpack"));
    for n in 0..10_000 {
        two.peer.put_at(n % 4096, n % 8192, 8).unwrap();
    }
    assert_eq!(fake_ucp.calls("ucp_mem_map"), mapped);
    assert_eq!(fake_ucp.calls("ucp_ep_rkey_unpack"), unpacked);
    two.end(&fake_ucp);
}

#[test]
fn a_session_that_cannot_begin_reports_why() {
    let fake_ucp = FakeUcp::take();
    let calls = [
        ("ucp_init_version", 1),
        // The session's buffer.
        ("ucp_mem_map", 1),
    ];
    for (function, nth) in calls {
        fake_ucp.rule(function, nth, CallResult::Refused(NO_MEMORY));
        let e = Session::builder(0).buffer(MIB).ucx().start().expect_err("scripted");
        assert_eq!(e.kind(), ErrorKind::NoSpace, "{function}: {e}");
        assert!(e.to_string().contains("ulimit -l"), "{function}: {e}");
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}

/// A link has a worker of its own, which has memory of its own. Where either end cannot have them the dialer's call says why,
/// the next one works, and nobody else is harmed.
#[test]
fn a_link_that_cannot_begin_reports_why() {
    let fake_ucp = FakeUcp::take();
    // Each link has a worker of its own.
    fake_ucp.lane("posix/memory");
    let two = Two::new(true);
    for function in ["ucp_worker_create", "ucp_mem_map"] {
        let third = Session::builder(2).buffer(MIB).ucx().start().unwrap();
        let connect =
            || third.connect(&two.dir.address()).rank(1).over(ConnType::Ucx).within(LONG).wait();
        // The end that is asked comes first.
        fake_ucp.rule(function, 2, CallResult::Refused(NO_MEMORY));
        let e = connect().expect_err("scripted");
        assert_eq!(e.kind(), ErrorKind::NoSpace, "{function}: {e}");
        assert!(e.to_string().contains("ulimit -l"), "{function}: {e}");
        two.put_and_compare(6);
        fake_ucp.rule(function, 1, CallResult::Refused(NO_MEMORY));
        let e = connect().expect_err("scripted");
        assert_eq!(e.kind(), ErrorKind::Refused, "{function}: {e}");
        assert!(e.to_string().contains("cannot take another peer now"), "{function}: {e}");
        connect().expect("the next one").put_at(0, 0, MIB).unwrap();
    }
    two.end(&fake_ucp);
}

/// Many small transfers, over memory that is mapped, memory that lanes reach, and messages.
#[test]
fn many_at_once() {
    let fake_ucp = FakeUcp::take();
    let reaching = "rc_mlx5/mlx5_0:1";
    for (lane, maps) in [("posix/memory", 1), (reaching, 0), ("posix/memory", 0), ("tcp/lo", 0)] {
        for test in [
            small_transfers::lists_are_run_whole,
            small_transfers::lists_of_another_life_are_refused,
            small_transfers::operations_are_waited_for_in_any_order,
        ] {
            fake_ucp.lane(lane);
            fake_ucp.set("maps", maps);
            test(ConnType::Ucx);
            fake_ucp.await_clean();
            fake_ucp.restart();
        }
    }
}

/// Peers of one system share no worker where they share memory: one that is killed can stop a worker's queues. Over other
/// lanes they do. A worker goes with its link.
#[test]
fn peers_that_could_stop_each_other_share_no_worker() {
    let fake_ucp = FakeUcp::take();
    for (lane, workers) in [("posix/memory", 6), ("tcp/lo", 4)] {
        fake_ucp.lane(lane);
        let two = Two::new(true);
        let others = [2, 3].map(|rank| Session::builder(rank).buffer(MIB).ucx().start().unwrap());
        let peers = others.each_ref().map(|other| {
            other
                .connect(&two.dir.address())
                .rank(1)
                .over(ConnType::Ucx)
                .within(LONG)
                .wait()
                .unwrap()
        });
        assert_eq!(fake_ucp.count("workers"), workers, "{lane}");
        drop((peers, others));
        let left = || (fake_ucp.count("workers") == 2).then_some(());
        until("their workers are gone", LONG, left);
        two.put_and_compare(7);
        two.end(&fake_ucp);
        fake_ucp.restart();
    }
}

/// Memory that cannot be registered fails what wanted it, with what to do, and comes back; the link goes on.
#[test]
fn memory_that_cannot_be_registered_fails_its_operation_only() {
    let fake_ucp = FakeUcp::take();
    let two = Two::new(true);
    let from = two.target.peer(0).unwrap();
    let theirs =
        two.target.memory().register(hmc_std::memory::HeapBytes::from(vec![0; 8192])).unwrap();
    fake_ucp.rule("ucp_mem_map", 1, CallResult::Refused(NO_MEMORY));
    let span = theirs.take_all().unwrap();
    let (e, span) = from.expose(span, Access::all(), 1).expect_err("scripted");
    is_shortage(&e);
    let window = from.expose(span, Access::all(), 2).map_err(|(e, _)| e).unwrap();
    let remote = two.peer.window(2).within(LONG).wait().unwrap();

    let ours =
        two.source.memory().register(hmc_std::memory::HeapBytes::from(pattern(8192, 9))).unwrap();
    fake_ucp.rule("ucp_mem_map", 1, CallResult::Refused(NO_MEMORY));
    let failed = remote.put(0, ours.take_all().unwrap()).start().expect_err("scripted");
    is_shortage(failed.error());
    let span = failed.reclaim().wait().unwrap();
    fake_ucp.rule("ucp_mem_map", 1, CallResult::Refused(IO_ERROR));
    let failed = remote.get(0, span).start().expect_err("scripted");
    assert_eq!(failed.kind(), ErrorKind::Io, "{failed}");
    assert!(failed.error().to_string().contains("UCX status -3"), "{failed}");
    let span = failed.reclaim().wait().unwrap();
    two.put_and_compare(3);

    let span = remote.put(0, span).within(LONG).wait().unwrap();
    let back = window.revoke().within(LONG).wait().unwrap();
    let mut got = vec![0; 8192];
    back.read_at(0, &mut got).unwrap();
    assert!(got == pattern(8192, 9));
    drop((span, back, ours, theirs, from, remote));
    two.end(&fake_ucp);
}

/// Too little memory, how much was wanted, and what to do about it.
fn is_shortage(e: &Error) {
    assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
    let text = e.to_string();
    for part in ["registering memory", "8192 bytes", "Out of memory", "ulimit -l"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn an_endpoint_that_fails_ends_the_link_and_the_next_one_works() {
    let fake_ucp = FakeUcp::take();
    for purge in [true, false] {
        let two = Two::new(true);
        fake_ucp.set("put_delay", 1);
        fake_ucp.rule("ucp_put_nbx", 0, CallResult::Held);
        let ops: Vec<_> = (0..10).map(|n| two.peer.start_put_at(0, n * 64, 64).unwrap()).collect();
        assert!(fake_ucp.kill(0, CONNECTION_RESET, purge) >= 1);
        for op in ops {
            let e = wait(op).expect_err("the endpoint has failed");
            assert_eq!(e.kind(), ErrorKind::PeerDead, "{e}");
        }
        let e = two.peer.put_at(0, 0, 8).expect_err("the link is over");
        assert_eq!(e.kind(), ErrorKind::PeerDead, "{e}");
        fake_ucp.clear_rules();
        let Two { target, source, peer, dir } = two;
        drop(peer);
        let peer = until("it can be connected again", LONG, || {
            source.connect(&dir.address()).rank(1).over(ConnType::Ucx).within(LONG).wait().ok()
        });
        let two = Two { target, source, peer, dir };
        two.put_and_compare(4);
        two.end(&fake_ucp);
        fake_ucp.restart();
    }
}

/// A put that never ends meets its deadline. Its memory is held until the link is given up, and comes back then.
#[test]
fn a_put_that_never_ends_meets_its_deadline() {
    let fake_ucp = FakeUcp::take();
    let two = Two::new(true);
    // Before the peer's greeting has come, puts are messages.
    until("the lanes are known", LONG, || (!two.peer.explain().target_checks).then_some(()));
    fake_ucp.rule("ucp_put_nbx", 1, CallResult::Held);
    let copy = Copy { local_offset: 0, remote_offset: 0, len: 64 };
    let e = two.peer.transfer_within(Direction::Put, copy, Duration::from_millis(100));
    assert_eq!(e.expect_err("it never ends").kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(fake_ucp.count("held"), 1);
    two.end(&fake_ucp);
}

/// What a session had exposed is in the peer's reach until UCX has given back what the peer began, and not only until the link
/// is over.
#[test]
fn windows_of_a_session_that_has_ended_come_back_after_the_last_request() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane("rc_mlx5/mlx5_0:1+cma/memory");
    let Two { target, source, peer, dir } = Two::new(true);
    let region = target.memory().register(hmc_std::memory::HeapBytes::from(vec![0; 4096])).unwrap();
    let from = target.accept(0).within(LONG).wait().unwrap();
    let window = from.expose(region.take_all().unwrap(), Access::all(), 1);
    let window = window.map_err(|(e, _)| e).unwrap();
    let remote = peer.window(1).within(LONG).wait().unwrap();
    fake_ucp.rule("ucp_put_nbx", 1, CallResult::Held);
    let span = source
        .memory()
        .register(hmc_std::memory::HeapBytes::from(vec![7; 4096]))
        .unwrap()
        .take_all()
        .unwrap();
    let op = remote.put(0, span).start().unwrap();
    until("it is under way", LONG, || (fake_ucp.count("held") == 1).then_some(()));
    // The target's is the first. Of calls of progress with nothing else to do ten are a second; an end makes up to 32 at once.
    fake_ucp.rule("ucp_ep_close_nbx", 2, CallResult::Late(64));
    drop((window, from));
    let _ = target.shutdown().within(Duration::from_millis(1)).wait();
    assert_ne!(fake_ucp.count("requests"), 0, "the put is under way when the session has ended");
    assert!(region.take_all().is_err(), "the memory is in the peer's reach");
    let span = until("the memory comes back", LONG, || region.take_all().ok());
    assert_eq!(fake_ucp.count("requests"), 0, "requests for memory that came back");
    drop((span, op, remote, peer, source, target, dir, region));
    fake_ucp.await_clean();
}

/// A session that was prepared without UCX takes part in it from its start, if it is there, and does without if not.
#[test]
fn a_prepared_buffer_takes_part_in_ucx_later() {
    let fake_ucp = FakeUcp::take();
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).buffer(4 * MIB).ucx().start().unwrap();
    let mut prepared = Session::builder(0).buffer(4 * MIB).prepare().unwrap();
    let bytes = pattern(MIB, 3);
    prepared.buffer().write_at(0, &bytes).unwrap();
    prepared.use_ucx(true);
    fake_ucp.rule("ucp_init_version", 1, CallResult::Refused(UNSUPPORTED));
    let e = prepared.start().expect_err("scripted");
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    prepared.use_ucx(false);
    let without = prepared.start().unwrap();
    let peer = without.connect(&dir.address()).rank(1).wait().unwrap();
    assert_eq!(peer.explain().conn, Some(ConnType::Shm));
    without.shutdown().within(LONG).wait().unwrap();
    drop(peer);
    // One after the other, with the same part in UCX.
    prepared.use_ucx(true);
    for rank in [2, 3] {
        prepared.set_rank(rank);
        let source = prepared.start().unwrap();
        let peer =
            source.connect(&dir.address()).rank(1).over(ConnType::Ucx).within(LONG).wait().unwrap();
        peer.put_at(0, MIB, MIB).unwrap();
        let mut got = vec![0; bytes.len()];
        target.buffer().read_at(MIB, &mut got).unwrap();
        assert!(got == bytes, "the bytes differ");
        target.buffer().fill(0, 4096, 9).unwrap();
        target.accept(rank).within(LONG).wait().unwrap().put_at(0, 2 * MIB, 4096).unwrap();
        let crc = |b: &hmc_std::ConnBuffer, at| b.crc32c(at, 4096).unwrap();
        assert_eq!(crc(prepared.buffer(), 2 * MIB), crc(target.buffer(), 0));
        source.shutdown().within(LONG).wait().unwrap();
    }
    assert_eq!(fake_ucp.count("contexts"), 2, "the target's and one of the prepared buffer");
    drop((prepared, target));
    fake_ucp.await_clean();
}

/// Buffers beside the sessions' own, over UCX: adopted memory, and pages of ours.
#[test]
fn routes_move_bytes_over_ucx() {
    let fake_ucp = FakeUcp::take();
    for delay in [0, 5] {
        fake_ucp.set("put_delay", delay);
        fake_ucp.set("flush_delay", delay);
        let two = Two::new(true);
        let bytes = pattern(2 * MIB, 9);
        for adopted in [true, false] {
            let share = |s: &Session| {
                let region = if adopted {
                    s.memory().register(hmc_std::memory::HeapBytes::from(vec![0; 2 << 20])).unwrap()
                } else {
                    s.memory().allocate(2 * MIB).unwrap()
                };
                region.share().unwrap()
            };
            let (near, far) = (share(&two.source), share(&two.target));
            let back = two.target.peer(0).unwrap();
            let window = back.expose(far.range(4096, MIB).unwrap(), Access::all(), 3).unwrap();
            let remote = two.peer.window(3).within(LONG).wait().unwrap();
            let route = Ends { local: near.clone(), remote };
            near.write_at(0, &bytes).unwrap();
            for len in [1, 8, 4096, MIB] {
                route.put_at(17, 0, len).unwrap();
                assert_eq!(far.crc32c(4096, len).unwrap(), near.crc32c(17, len).unwrap());
                let op = route.start_get_at(0, 0, len).unwrap();
                assert_eq!(wait(op).unwrap(), len);
                assert_eq!(far.crc32c(4096, len).unwrap(), near.crc32c(0, len).unwrap());
                near.write_at(0, &bytes).unwrap();
            }
            window.revoke().within(LONG).wait().unwrap();
            let e = route.put_at(0, 0, 8).unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::Revoked | ErrorKind::NotFound), "{e}");
            drop(route);
        }
        two.put_and_compare(4);
        two.end(&fake_ucp);
    }
}

/// `explain` names the end that checks accesses: by messages it is the target, by lanes that reach memory it is not.
#[test]
fn explanations_report_whether_the_target_checks() {
    let fake_ucp = FakeUcp::take();
    for (lane, checks, words) in
        [(Some("tcp/eth0"), true, "of every message"), (None, false, "check memory keys")]
    {
        if let Some(lane) = lane {
            fake_ucp.lane(lane);
        }
        let two = Two::new(true);
        two.put_and_compare(1);
        let back = two.target.peer(0).unwrap();
        for peer in [&two.peer, &back] {
            // Of an end that opened the way before the other's greeting came.
            let explanation = until("its lanes and who checks are known", LONG, || {
                let explanation = peer.explain();
                let chosen = explanation.choices.iter().find(|c| c.chosen)?;
                let is_known = chosen.why.contains("; lanes: ");
                (is_known && explanation.target_checks == checks).then_some(explanation)
            });
            assert!(explanation.trust.contains(words), "{lane:?}: {}", explanation.trust);
        }
        drop(back);
        two.end(&fake_ucp);
        fake_ucp.restart();
    }
}

/// A caller that waits drives its worker; after that the session's own thread does, so that what comes is served.
#[test]
fn messages_are_served_after_a_wait() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane("tcp/eth0");
    // Nothing but messages and its ticks, four in a second, wakes the thread.
    let two = Two::with(true, |builder| builder.heartbeat(None));
    let back = two.target.peer(0).unwrap();
    two.target.buffer().fill(0, 4096, 5).unwrap();
    let begun = Instant::now();
    for n in 0..40 {
        two.put_and_compare(n);
        let copy = Copy { local_offset: 0, remote_offset: 2 * MIB, len: 4096 };
        back.transfer_within(Direction::Put, copy, LONG).unwrap();
        let crc = |s: &Session, at| s.buffer().crc32c(at, 4096).unwrap();
        assert_eq!(crc(&two.source, 2 * MIB), crc(&two.target, 0));
    }
    assert!(begun.elapsed() < bound(Duration::from_secs(3)), "only ticks woke the thread");
    drop(back);
    two.end(&fake_ucp);
}

/// The target of messages fences a window at once, and may expose another at its index while messages to the first are under way.
#[test]
fn a_window_is_exposed_again_under_messages_to_the_old_one() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane("tcp/eth0");
    let two = Two::new(true);
    let region =
        two.target.memory().register(hmc_std::memory::HeapBytes::from(vec![0; 4096])).unwrap();
    let from = two.target.accept(0).within(LONG).wait().unwrap();
    let expose = |span, label| from.expose(span, Access::all(), label).map_err(|(e, _)| e).unwrap();
    let window = expose(region.take_all().unwrap(), 1);
    let old = two.peer.window(1).within(LONG).wait().unwrap();
    let source =
        two.source.memory().register(hmc_std::memory::HeapBytes::from(vec![7; 4096])).unwrap();
    fake_ucp.rule("ucp_am_send_nbx", 1, CallResult::Held);
    let op = old.put(0, source.take_all().unwrap()).start().unwrap();
    until("it is under way", LONG, || (fake_ucp.count("held") == 1).then_some(()));
    let span = window.revoke().within(LONG).wait().unwrap();
    let window = expose(span, 2);
    let new = two.peer.window(2).within(LONG).wait().unwrap();
    assert_eq!(fake_ucp.release(), 1);
    let failed = op.wait().expect_err("a put into a revoked window");
    assert_eq!(failed.kind(), ErrorKind::NotFound, "{failed}");
    let op = new.put(0, failed.reclaim().wait().unwrap()).start().unwrap();
    assert_eq!(op.wait().unwrap().bytes, 4096);
    assert!(two.peer.is_connected());
    let span = window.revoke().within(LONG).wait().unwrap();
    drop((span, from, region, source, old, new));
    two.end(&fake_ucp);
}
