//! The interrupt hook: every call that waits for a peer that never answers ends soon after the hook has said so, and what
//! it waited for is neither lost nor let go too early.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hmc_std::config::Progress;
use hmc_std::future::WaitError;
use hmc_std::{
    Access, Address, Communicator, ConnType, Copy, Direction, Error, ErrorKind, Peer, Session,
    SessionBuilder, Status, Want,
};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, bound, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(30);
const LEN: u64 = 4096;

/// What the hook of one thread answers, and how often it was asked.
#[derive(Debug, Default)]
struct Ask {
    stop: AtomicBool,
    asked: AtomicU32,
}

thread_local! {
    static ASK: RefCell<Option<Arc<Ask>>> = const { RefCell::new(None) };
}

fn hook() -> bool {
    ASK.with_borrow(|ask| {
        ask.as_ref().is_some_and(|ask| {
            ask.asked.fetch_add(1, Ordering::AcqRel);
            ask.stop.load(Ordering::Acquire)
        })
    })
}

/// Makes `call`, whose hook says stop once it was asked twice: another thread sees to that.
fn interrupted<R>(call: impl FnOnce() -> R) -> R {
    let ask = Arc::new(Ask::default());
    ASK.set(Some(Arc::clone(&ask)));
    let over = AtomicBool::new(false);
    let r = std::thread::scope(|s| {
        let other = s.spawn(|| {
            until("the hook is asked", LONG, || {
                let asked = ask.asked.load(Ordering::Acquire) >= 2;
                (asked || over.load(Ordering::Acquire)).then_some(())
            });
            ask.stop.store(true, Ordering::Release);
            Instant::now()
        });
        let r = call();
        let end = Instant::now();
        over.store(true, Ordering::Release);
        let said = other.join().unwrap();
        assert!(ask.asked.load(Ordering::Acquire) >= 2, "it ended by itself");
        let late = end.saturating_duration_since(said);
        assert!(late < bound(Duration::from_secs(1)), "it ended {late:?} after it was told to");
        r
    });
    ASK.set(None);
    r
}

fn assert_interrupted<T: std::fmt::Debug>(what: &str, r: Result<T, Error>) {
    let e = r.expect_err(what);
    assert_eq!(e.kind(), ErrorKind::Interrupted, "{what}: {e}");
    assert_eq!(e.status(), Status::Error);
    assert!(e.to_string().contains("interrupt"), "{what}: {e}");
}

/// Makes `call` while another thread drives `session`.
fn driven<R>(session: &Session, call: impl FnOnce() -> R) -> R {
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Ordering::Acquire) {
                session.progress();
                std::thread::yield_now();
            }
        });
        // Also when the call panics.
        let _over = Over(&over);
        call()
    })
}

/// An initiator with the hook, and a target whose data plane nobody drives: it never answers.
struct Silent {
    source: Session,
    target: Session,
    peer: Peer,
    _dir: TempDir,
}

impl Silent {
    fn new(conn: ConnType, more: impl Fn(SessionBuilder) -> SessionBuilder) -> Self {
        let dir = TempDir::new();
        let target = Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(1 << 20);
        let target = target.progress(Progress::Manual).inbox(4, 4 << 20).start().unwrap();
        let source = more(Session::builder(0).buffer(1 << 20).interrupt(hook)).start().unwrap();
        let address = dir.address();
        let peer = driven(&target, || source.connect_with(1, &address, conn, LONG).unwrap());
        Self { source, target, peer, _dir: dir }
    }

    /// Drives the target until `look` finds something.
    fn answer<R>(&self, what: &str, mut look: impl FnMut() -> Option<R>) -> R {
        until(what, LONG, || {
            self.target.progress();
            look()
        })
    }
}

#[test]
fn blocking_transfers_end_and_their_operations_run_on() {
    let s = Silent::new(ConnType::Tcp, |b| b.slots(5));
    s.source.buffer().fill(0, 1 << 20, 9).unwrap();
    let copy = Copy { local_offset: 0, remote_offset: 0, len: LEN };
    let p = &s.peer;
    assert_interrupted("put", interrupted(|| p.put(0, 0, LEN)));
    assert_interrupted("get", interrupted(|| p.get(LEN, 0, LEN)));
    assert_interrupted("put_notify", interrupted(|| p.put_notify(0, LEN, LEN, 7)));
    assert_interrupted(
        "transfer_within",
        interrupted(|| p.transfer_within(Direction::Put, copy, LONG)),
    );
    let batch = p.prepare(Direction::Put, &[Copy { remote_offset: 4 * LEN, ..copy }]).unwrap();
    assert_interrupted("run_batch", interrupted(|| p.run_batch(&batch)));
    // All five are still in flight: no slot is free for a sixth, and no byte has come.
    assert_interrupted("put_nb", interrupted(|| p.put_nb(0, 0, LEN)));
    let mut got = [0];
    s.target.buffer().read_at(4 * LEN, &mut got).unwrap();
    assert_eq!(got, [0]);
    // Then the peer wakes up. They end by themselves, and give their places back.
    s.answer("the last one has come", || {
        s.target.buffer().read_at(4 * LEN, &mut got).unwrap();
        (got == [9]).then_some(())
    });
    let ops: Vec<_> = driven(&s.target, || (0..5).map(|_| p.put_nb(0, 0, LEN).unwrap()).collect());
    driven(&s.target, || s.source.wait_all(&ops)).unwrap();
    assert_eq!(
        s.target.buffer().crc32c(0, 2 * LEN).unwrap(),
        s.source.buffer().crc32c(0, 2 * LEN).unwrap()
    );
}

#[test]
fn pipelines_end() {
    let s = Silent::new(ConnType::Tcp, |b| b);
    let copy = Copy { local_offset: 0, remote_offset: 0, len: 64 * LEN };
    assert_interrupted("a pipeline", interrupted(|| s.peer.put_pipeline(copy, LEN, 8)));
    assert_interrupted("a pipeline", interrupted(|| s.peer.get_pipeline(copy, LEN, 8)));
    driven(&s.target, || s.peer.put(0, 0, LEN).unwrap());
}

#[test]
fn what_was_waited_for_can_be_waited_for_again() {
    let s = Silent::new(ConnType::Tcp, |b| b);
    let ops: Vec<_> = (0..3).map(|i| s.peer.put_nb(0, i * LEN, LEN).unwrap()).collect();
    assert_interrupted("wait", interrupted(|| s.source.wait(ops[0])));
    assert_interrupted("wait_within", interrupted(|| s.peer.wait_within(ops[1], LONG)));
    assert_interrupted("wait_all", interrupted(|| s.source.wait_all(&ops)));
    assert_interrupted("wait_any", interrupted(|| s.source.wait_any(&ops, LONG)));
    let e = interrupted(|| s.source.wait(ops[2])).unwrap_err();
    assert_eq!(e.op(), Some(ops[2]), "{e}");
    assert_eq!(driven(&s.target, || s.source.wait_all(&ops)).unwrap(), 3 * LEN);
}

#[test]
fn a_span_stays_with_its_operation() {
    let s = Silent::new(ConnType::Tcp, |b| b);
    let there = s.target.allocate(LEN).unwrap();
    let back = s.target.peer(0).unwrap();
    let window = back.expose(there.take_all().unwrap(), Access::all(), 5).map_err(|(e, _)| e);
    let _window = window.unwrap();
    let remote = s.peer.remote_window(5, LONG).unwrap();
    let region = s.source.allocate(LEN).unwrap();
    let op = s.peer.put_span(region.take_all().unwrap(), &remote, 0).unwrap();
    let Err(WaitError::Interrupted(op)) = interrupted(|| op.wait(LONG)) else {
        panic!("the wait was not interrupted")
    };
    assert_eq!(region.take(0, 1).unwrap_err().kind(), ErrorKind::Busy);
    let (n, span) = driven(&s.target, || op.wait(LONG).unwrap());
    assert_eq!((n, span.len()), (LEN, LEN));
}

#[test]
fn receives_end_and_messages_are_not_lost() {
    for conn in [ConnType::Tcp, ConnType::Shm] {
        let s = Silent::new(conn, |b| b);
        assert_interrupted("recv", interrupted(|| s.peer.recv(Want::Any, LONG)));
        assert_interrupted("recv_tag", interrupted(|| s.peer.recv_tag()));
        let me = s.source.loopback().unwrap();
        assert_interrupted("recv of oneself", interrupted(|| me.recv(Want::Any, LONG)));
        assert_interrupted(
            "recv_any",
            interrupted(|| s.source.control().recv_any(Want::Any, LONG)),
        );
        assert_interrupted(
            "recv of nobody",
            interrupted(|| s.source.control().recv(9, Want::Any, LONG)),
        );
        assert_interrupted("remote_window", interrupted(|| s.peer.remote_window(77, LONG)));
        assert_interrupted("wait_peer", interrupted(|| s.source.wait_peer(9, LONG)));
        assert_interrupted("wait_any_peer", interrupted(|| s.source.wait_any_peer(&[0, 1], LONG)));
        s.target.peer(0).unwrap().send_tag(42).unwrap();
        assert_eq!(s.peer.recv_tag().unwrap(), 42);
    }
}

#[test]
fn a_send_that_waits_for_a_slot_ends() {
    let s = Silent::new(ConnType::Tcp, |b| b);
    let bytes = vec![1; 1 << 20];
    let sent = interrupted(|| {
        for n in 0u32.. {
            if let Err(e) = s.peer.send_struct(&bytes) {
                return (n, e);
            }
        }
        panic!("for ever")
    });
    assert_interrupted("send_struct", Err::<(), _>(sent.1));
    // All that were sent before come in order.
    let back = s.target.peer(0).unwrap();
    for _ in 0..sent.0 {
        assert_eq!(back.recv_struct().unwrap().len(), 1 << 20);
    }
    s.peer.send_tag(3).unwrap();
    assert_eq!(back.recv_tag().unwrap(), 3);
}

#[test]
fn messages_of_any_size_are_withdrawn() {
    for conn in [ConnType::Tcp, ConnType::Shm, ConnType::Loopback] {
        let s = Silent::new(if conn == ConnType::Loopback { ConnType::Tcp } else { conn }, |b| b);
        let me = s.source.loopback().unwrap();
        let peer = if conn == ConnType::Loopback { &me } else { &s.peer };
        let mut out = vec![0; 5000];
        assert_interrupted("send_data", interrupted(|| peer.send_data(&[7; 5000])));
        assert_interrupted("recv_data", interrupted(|| peer.recv_data(&mut out)));
        assert_interrupted("send_data_at", interrupted(|| peer.send_data_at(0, LEN)));
        assert_interrupted("recv_data_at", interrupted(|| peer.recv_data_at(0, LEN)));
        let region = s.source.allocate(LEN).unwrap();
        let sent = peer.send_data_span(region.take_all().unwrap()).unwrap();
        let e = interrupted(|| sent.wait(LONG)).unwrap_err();
        assert_eq!(e.error.kind(), ErrorKind::Interrupted, "{e}");
        drop(e);
        until("the span is free", LONG, || region.take_all().ok());
        if conn == ConnType::Loopback {
            continue;
        }
        // A receiver that comes later hears of them, as of any that were withdrawn, and gets what is sent then. Of a short message,
        // whose bytes came with its offer, it may hear too late: then it has it.
        let back = s.target.peer(0).unwrap();
        let got = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                loop {
                    match back.recv_data_within(&mut out, LONG) {
                        Err(e) if e.kind() == ErrorKind::Cancelled => {}
                        Ok(LEN) => {}
                        r => return r,
                    }
                }
            });
            driven(&s.target, || peer.send_data(b"later")).unwrap();
            receiver.join().unwrap()
        });
        assert_eq!(got.unwrap(), 5);
        assert_eq!(&out[..5], b"later");
    }
}

#[test]
fn a_dial_is_given_up_in_order() {
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).start().unwrap();
    let source = Session::builder(0).interrupt(hook).start().unwrap();
    // The kernel takes the connection, and nobody ever says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = Address::Tcp(silent.local_addr().unwrap());
    assert_interrupted("connect", interrupted(|| source.connect(1, &nowhere)));
    assert_interrupted(
        "connect_with",
        interrupted(|| source.connect_with(1, &nowhere, ConnType::Tcp, LONG)),
    );
    // One dials, the other waits for what becomes of that.
    std::thread::scope(|s| {
        let dials = s.spawn(|| interrupted(|| source.connect(1, &nowhere)));
        until("the dial has begun", LONG, || {
            silent.set_nonblocking(true).unwrap();
            silent.accept().ok()
        });
        assert_interrupted("connect again", interrupted(|| source.connect(1, &nowhere)));
        assert_interrupted("connect", dials.join().unwrap());
    });
    assert_eq!(source.stats().peers.len(), 0);
    let peer = source.connect(1, &dir.address()).unwrap();
    peer.send_tag(1).unwrap();
    assert_eq!(target.ctrl_recv(0).unwrap(), 1);
}

#[test]
fn goodbyes_end() {
    for whole in [false, true] {
        let mut s = Silent::new(ConnType::Tcp, |b| b);
        s.peer.put_nb(0, 0, LEN).unwrap();
        if whole {
            let Silent { source, target, peer, _dir } = s;
            assert_interrupted("shutdown", interrupted(|| source.shutdown(LONG)));
            assert!(!peer.is_connected());
            drop(target);
            continue;
        }
        assert_interrupted("disconnect", interrupted(|| s.peer.disconnect(LONG)));
        assert!(!s.peer.is_connected());
        s.peer = s.source.loopback().unwrap();
        s.peer.put(0, LEN, 8).unwrap();
    }
}

/// Threads that wait on one link: one leads, the others park until it notifies them. Each has a hook of its own.
#[test]
fn hooks_of_leader_and_followers_are_called_alike() {
    let s = Silent::new(ConnType::Tcp, |b| b);
    let start = Instant::now();
    let ops: Vec<_> = (0..64).map(|i| s.peer.put_nb(0, i * LEN, LEN).unwrap()).collect();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = ops
            .iter()
            .map(|op| scope.spawn(|| interrupted(|| s.peer.wait_within(*op, LONG))))
            .collect();
        for w in waiters {
            assert_interrupted("wait", w.join().unwrap());
        }
    });
    // Were each asked only when it leads, the last would be asked for the second time after 6.4 s.
    assert!(start.elapsed() < bound(Duration::from_secs(2)), "{:?}", start.elapsed());
}

#[test]
fn a_collective_whose_others_never_come_is_interrupted() {
    let s = Silent::new(ConnType::Tcp, |b| b);
    let group = s.source.group(&[0, 1]).unwrap();
    assert_interrupted("barrier", interrupted(|| group.barrier()));
    let e = group.barrier().expect_err("broken");
    assert_eq!(e.kind(), ErrorKind::Interrupted, "{e}");
}

/// The hook may use the very link whose wait it is asked about, as a handler of a signal does.
#[test]
fn the_hook_may_use_the_session() {
    thread_local! {
        static PEER: RefCell<Option<Peer>> = const { RefCell::new(None) };
    }
    fn puts() -> bool {
        let peer = PEER.take();
        peer.is_some_and(|p| {
            p.put(0, 0, LEN).unwrap();
            p.send_tag(8).unwrap();
            true
        })
    }
    let s = Silent::new(ConnType::Tcp, |b| b.interrupt(puts));
    PEER.set(Some(s.peer.clone()));
    let start = Instant::now();
    assert_interrupted("recv", driven(&s.target, || s.peer.recv(Want::Any, LONG)));
    assert!(start.elapsed() < bound(Duration::from_secs(2)), "{:?}", start.elapsed());
    assert_eq!(s.target.ctrl_recv(0).unwrap(), 8);
}

#[test]
fn a_deadline_that_has_passed_is_no_interruption() {
    let s = Silent::new(ConnType::Tcp, |b| b);
    let ask = Arc::new(Ask::default());
    ASK.set(Some(Arc::clone(&ask)));
    let copy = Copy { local_offset: 0, remote_offset: 0, len: LEN };
    let e = s.peer.transfer_within(Direction::Put, copy, Duration::from_millis(120)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
    assert!(ask.asked.load(Ordering::Acquire) > 0);
    // A call that does not park does not call the hook.
    ask.asked.store(0, Ordering::Release);
    ask.stop.store(true, Ordering::Release);
    let me = s.source.loopback().unwrap();
    for _ in 0..1000 {
        me.put(0, LEN, 64).unwrap();
        me.send_tag(1).unwrap();
        assert_eq!(me.recv_tag().unwrap(), 1);
    }
    assert_eq!(ask.asked.load(Ordering::Acquire), 0);
    ASK.set(None);
}

/// Whether the hook below is to fork: 1. It has: 0, and 2 in the child. And the child's number.
static FORKED: [std::sync::atomic::AtomicI32; 2] =
    [const { std::sync::atomic::AtomicI32::new(0) }; 2];

fn forks() -> bool {
    if FORKED[0].compare_exchange(1, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        // SAFETY: fork(2). The child comes back to its call, which ends, and then ends itself.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            FORKED[0].store(2, Ordering::SeqCst);
            // SAFETY: alarm(2) takes a number.
            unsafe { libc::alarm(60) };
        }
        FORKED[1].store(pid, Ordering::SeqCst);
    }
    false
}

/// Has the hook fork in that call, which gives what it ended with. The child's must be `Forked`; it ends here.
fn fork_in<R>(call: impl FnOnce() -> hmc_std::Result<R>) -> hmc_std::Result<R> {
    FORKED[0].store(1, Ordering::SeqCst);
    fork_later_in(call)
}

/// As [`fork_in`], once another thread sets `FORKED`.
fn fork_later_in<R>(call: impl FnOnce() -> hmc_std::Result<R>) -> hmc_std::Result<R> {
    let got = call();
    if FORKED[0].load(Ordering::SeqCst) == 2 {
        let told = got.is_err_and(|e| e.kind() == ErrorKind::Forked);
        // SAFETY: _exit(2) takes a number.
        unsafe { libc::_exit(if told { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waitpid(2) on the child made above; `status` is a valid place for the answer.
    unsafe { libc::waitpid(FORKED[1].load(Ordering::SeqCst), &raw mut status, 0) };
    assert_eq!(status, 7 << 8, "{status:#x}");
    got
}

#[test]
fn a_child_that_the_hook_forks_has_no_part_in_the_call() {
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).buffer(LEN).start().unwrap();
    let source = Session::builder(0).interrupt(forks).heartbeat(None).uds(dir.path());
    let source = source.buffer(LEN).start().unwrap();
    let peer = source.connect(1, &dir.address()).unwrap();
    let back = target.wait_peer(0, LONG).unwrap();
    let goes_on = |n: u64| {
        back.send_tag(n).unwrap();
        assert_eq!(peer.recv_tag().unwrap(), n);
        assert!(source.uds_path().unwrap().exists());
    };
    let short = Duration::from_secs(2);
    for want in [Want::Tag, Want::Any] {
        let got = fork_in(|| peer.recv(want, short));
        assert_eq!(got.map_err(|e| e.kind()), Err(ErrorKind::DeadlineExceeded));
        goes_on(9);
    }
    // The other member of the group does not come.
    let group = source.group(&[0, 1]).unwrap().with_deadline(short);
    let got = fork_in(|| group.barrier());
    assert_eq!(got.map_err(|e| e.kind()), Err(ErrorKind::DeadlineExceeded));
    goes_on(10);
    // A stopped process says no goodbye.
    let settings = format!("rank=2 uds={} buffer={LEN} heartbeat=0", dir.path().display());
    let stopped = Actor::session(ACTOR, &settings);
    source.connect(2, &dir.address()).unwrap();
    stopped.stop();
    // Nor does it answer a member that gives up.
    let (began, deadline) = (Instant::now(), Duration::from_secs(1));
    let group = source.group(&[0, 2]).unwrap().with_deadline(deadline);
    let got = std::thread::scope(|s| {
        s.spawn(|| {
            let by = deadline + Duration::from_millis(100);
            until("it gives up", LONG, || (began.elapsed() > by).then_some(()));
            FORKED[0].store(1, Ordering::SeqCst);
        });
        fork_later_in(|| group.barrier())
    });
    assert_eq!(got.map_err(|e| e.kind()), Err(ErrorKind::DeadlineExceeded));
    let socket = source.uds_path().unwrap();
    let got = fork_in(|| {
        let ended = Communicator::shutdown(&source, short);
        let is_child = FORKED[0].load(Ordering::SeqCst) == 2;
        assert!(!is_child || socket.exists(), "the child removed the socket");
        ended
    });
    stopped.resume();
    assert_eq!(got.map_err(|e| e.kind()), Err(ErrorKind::DeadlineExceeded));
}
