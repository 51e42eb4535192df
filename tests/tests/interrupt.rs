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
use hmc_std::{
    Access, Address, ConnType, Error, ErrorKind, Message, Op, Peer, Session, SessionBuilder,
    Status, Waited, Who, wait_any,
    want::{self, Wanted},
};
use hmc_testkit::buffers::{BufferMessages as _, BufferTransfers as _, Copy, Direction, wait};
use hmc_tests::env::{TempDir, bound, until};

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
        let peer = driven(&target, || {
            source.connect(&address).rank(1).over(conn).within(LONG).wait().unwrap()
        });
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
fn blocking_transfers_end_and_what_they_began_keeps_its_slot() {
    let s = Silent::new(ConnType::Tcp, |b| b.slots(4));
    s.source.buffer().fill(0, 1 << 20, 9).unwrap();
    let copy = Copy { local_offset: 0, remote_offset: 0, len: LEN };
    let p = &s.peer;
    assert_interrupted("put", interrupted(|| p.put_at(0, 0, LEN)));
    assert_interrupted("get", interrupted(|| p.get_at(LEN, 0, LEN)));
    assert_interrupted("put_notify", interrupted(|| p.put_notify_at(0, LEN, LEN, 7)));
    assert_interrupted(
        "transfer_within",
        interrupted(|| p.transfer_within(Direction::Put, copy, LONG)),
    );
    let list = p.prepare_at(Direction::Put, &[Copy { remote_offset: 4 * LEN, ..copy }]).unwrap();
    assert_interrupted("a list", interrupted(|| list.run()));
    // All five were cancelled. The get is over, and the transport still has the puts: no slot is free for another one, and no
    // byte has come.
    assert_interrupted("start_blocking", interrupted(|| p.start_put_at(0, 0, LEN)));
    let mut got = [0];
    s.target.buffer().read_at(4 * LEN, &mut got).unwrap();
    assert_eq!(got, [0]);
    // Then the peer wakes up. What had begun is carried out, and gives its slots back.
    s.answer("the last one has come", || {
        s.target.buffer().read_at(4 * LEN, &mut got).unwrap();
        (got == [9]).then_some(())
    });
    let ops: Vec<_> =
        driven(&s.target, || (0..5).map(|_| p.start_put_at(0, 0, LEN).unwrap()).collect());
    driven(&s.target, || ops.into_iter().for_each(|op| assert_eq!(wait(op).unwrap(), LEN)));
    assert_eq!(
        s.target.buffer().crc32c(0, 2 * LEN).unwrap(),
        s.source.buffer().crc32c(0, 2 * LEN).unwrap()
    );
}

#[test]
fn what_was_waited_for_can_be_waited_for_again() {
    let s = Silent::new(ConnType::Tcp, |b| b);
    let ops: Vec<_> = (0..3).map(|i| s.peer.start_put_at(0, i * LEN, LEN).unwrap()).collect();
    let all: Vec<&Op> = ops.iter().collect();
    for op in &ops {
        assert!(matches!(interrupted(|| op.wait_for(LONG)), Waited::Interrupted));
    }
    let any = interrupted(|| wait_any(&all, LONG)).expect("descriptors");
    assert_eq!(any, Waited::Interrupted);
    assert!(matches!(interrupted(|| ops[2].wait_for(LONG)), Waited::Interrupted));
    driven(&s.target, || ops.into_iter().for_each(|op| assert_eq!(wait(op).unwrap(), LEN)));
}

/// The wait that takes the operation ends it: nothing else could.
#[test]
fn an_operation_whose_last_wait_is_interrupted_is_cancelled() {
    let s = Silent::new(ConnType::Tcp, |b| b.slots(2));
    s.source.buffer().fill(0, 1 << 20, 9).unwrap();
    for _ in 0..2 {
        let op = s.peer.start_put_at(0, 0, LEN).unwrap();
        let name = op.name();
        assert!(name.is_some(), "it was posted");
        let ended = interrupted(|| op.wait());
        assert_eq!(ended.as_ref().err().and_then(Error::op), name);
        assert_interrupted("wait", ended);
    }
    let range = s.source.buffer().range(0, LEN).unwrap();
    let remote = s.peer.buffer().unwrap();
    let full = remote.put(0, range).start().expect_err("the transport still has both");
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    // Nobody asks for their results: their slots are free when the transport lets go of them.
    drop(s.answer("a slot is free", || remote.put(0, range).start().ok()));
}

#[test]
fn a_span_stays_with_its_operation() {
    let s = Silent::new(ConnType::Tcp, |b| b);
    let there = s.target.memory().allocate(LEN).unwrap();
    let back = s.target.peer(0).unwrap();
    let window = back.expose(there.take_all().unwrap(), Access::all(), 5).map_err(|(e, _)| e);
    let _window = window.unwrap();
    let remote = s.peer.window(5).within(LONG).wait().unwrap();
    let region = s.source.memory().allocate(LEN).unwrap();
    let op = remote.put(0, region.take_all().unwrap()).start().unwrap();
    assert!(matches!(interrupted(|| op.wait_for(LONG)), Waited::Interrupted));
    assert_eq!(region.take(0, 1).unwrap_err().kind(), ErrorKind::Busy);
    let done = driven(&s.target, || op.wait().unwrap());
    assert_eq!((done.bytes, done.memory.len()), (LEN, LEN));
    // One that was cancelled by an interrupt has it until the transport lets go of it.
    let op = remote.put(0, done.memory).start().unwrap();
    let failed = interrupted(|| op.wait()).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Interrupted, "{failed}");
    assert_eq!(region.take(0, 1).unwrap_err().kind(), ErrorKind::Busy);
    let failed = interrupted(|| failed.reclaim().within(LONG).wait()).expect_err("no answer");
    assert_eq!(failed.kind(), ErrorKind::Interrupted, "{failed}");
    assert_eq!(region.take(0, 1).unwrap_err().kind(), ErrorKind::Busy);
    let span = driven(&s.target, || failed.reclaim().within(LONG).wait()).expect("an answer");
    assert_eq!(span.len(), LEN);
}

#[test]
fn receives_end_and_messages_are_not_lost() {
    for conn in [ConnType::Tcp, ConnType::Shm] {
        let s = Silent::new(conn, |b| b);
        assert_interrupted("recv", interrupted(|| s.peer.recv(Wanted::Any).within(LONG).wait()));
        assert_interrupted("recv_tag", interrupted(|| s.peer.recv(want::Tag).wait()));
        let me = s.source.peer(0).unwrap();
        assert_interrupted(
            "recv of oneself",
            interrupted(|| me.recv(Wanted::Any).within(LONG).wait()),
        );
        assert_interrupted(
            "recv_any",
            interrupted(|| s.source.recv(Who::Any, Wanted::Any).within(LONG).wait()),
        );
        assert_interrupted(
            "recv of nobody",
            interrupted(|| s.source.recv(9, Wanted::Any).within(LONG).wait().map(|m| m.1)),
        );
        assert_interrupted("window", interrupted(|| s.peer.window(77).within(LONG).wait()));
        assert_interrupted("wait_peer", interrupted(|| s.source.accept(9).within(LONG).wait()));
        assert_interrupted("accept", interrupted(|| s.source.accept(Who::Any).within(LONG).wait()));
        s.target.peer(0).unwrap().send(Message::Tag(42)).wait().unwrap();
        assert_eq!(s.peer.recv(want::Tag).wait().unwrap(), 42);
    }
}

#[test]
fn a_send_that_waits_for_a_slot_ends() {
    let s = Silent::new(ConnType::Tcp, |b| b);
    let bytes = vec![1; 1 << 20];
    let sent = interrupted(|| {
        for n in 0u32.. {
            if let Err(e) = s.peer.send(Message::bytes(&bytes)).wait() {
                return (n, e);
            }
        }
        panic!("for ever")
    });
    assert_interrupted("send_struct", Err::<(), _>(sent.1));
    // All that were sent before come in order.
    let back = s.target.peer(0).unwrap();
    for _ in 0..sent.0 {
        assert_eq!(back.recv(want::Bytes).wait().unwrap().len(), 1 << 20);
    }
    s.peer.send(Message::Tag(3)).wait().unwrap();
    assert_eq!(back.recv(want::Tag).wait().unwrap(), 3);
}

#[test]
fn messages_of_any_size_are_withdrawn() {
    for conn in [ConnType::Tcp, ConnType::Shm, ConnType::Loopback] {
        let s = Silent::new(if conn == ConnType::Loopback { ConnType::Tcp } else { conn }, |b| b);
        let me = s.source.peer(0).unwrap();
        let peer = if conn == ConnType::Loopback { &me } else { &s.peer };
        let mut out = vec![0; 5000];
        assert_interrupted("send_data", interrupted(|| peer.send_data(&[7; 5000]).wait()));
        assert_interrupted(
            "recv_data",
            interrupted(|| peer.recv_data(&mut out).wait().map(|d| d.bytes)),
        );
        assert_interrupted("send_data_at", interrupted(|| peer.send_data_at(0, LEN)));
        assert_interrupted("recv_data_at", interrupted(|| peer.recv_data_at(0, LEN)));
        let region = s.source.memory().allocate(LEN).unwrap();
        let sent = peer.send_data(region.take_all().unwrap()).start().unwrap();
        let e = interrupted(|| sent.wait()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Interrupted, "{e}");
        drop(e);
        until("the span is free", LONG, || region.take_all().ok());
        if conn == ConnType::Loopback {
            continue;
        }
        // A receiver that comes later learns of them, as of any that were withdrawn, and gets what is sent then. Of a short message,
        // whose bytes came with its offer, it may learn that too late: then it has it.
        let back = s.target.peer(0).unwrap();
        let got = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                loop {
                    match back.recv_data(&mut out).within(LONG).wait().map(|d| d.bytes) {
                        Err(e) if e.kind() == ErrorKind::Cancelled => {}
                        Ok(LEN) => {}
                        r => return r,
                    }
                }
            });
            driven(&s.target, || peer.send_data(b"later").wait()).unwrap();
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
    assert_interrupted("connect", interrupted(|| source.connect(&nowhere).rank(1).wait()));
    assert_interrupted(
        "connect_with",
        interrupted(|| source.connect(&nowhere).rank(1).over(ConnType::Tcp).within(LONG).wait()),
    );
    // One dials, the other waits for what becomes of that.
    std::thread::scope(|s| {
        let dials = s.spawn(|| interrupted(|| source.connect(&nowhere).rank(1).wait()));
        until("the dial has begun", LONG, || {
            silent.set_nonblocking(true).unwrap();
            silent.accept().ok()
        });
        assert_interrupted(
            "connect again",
            interrupted(|| source.connect(&nowhere).rank(1).wait()),
        );
        assert_interrupted("connect", dials.join().unwrap());
    });
    assert_eq!(source.stats().peers.len(), 0);
    let peer = source.connect(&dir.address()).rank(1).wait().unwrap();
    peer.send(Message::Tag(1)).wait().unwrap();
    assert_eq!(target.recv(0, want::Tag).wait().map(|m| m.1).unwrap(), 1);
}

#[test]
fn goodbyes_end() {
    for whole in [false, true] {
        let mut s = Silent::new(ConnType::Tcp, |b| b);
        let _op = s.peer.start_put_at(0, 0, LEN).unwrap();
        if whole {
            let Silent { source, target, peer, _dir } = s;
            assert_interrupted("shutdown", interrupted(|| source.shutdown().within(LONG).wait()));
            assert!(!peer.is_connected());
            drop(target);
            continue;
        }
        assert_interrupted("disconnect", interrupted(|| s.peer.disconnect().within(LONG).wait()));
        assert!(!s.peer.is_connected());
        s.peer = s.source.peer(0).unwrap();
        s.peer.put_at(0, LEN, 8).unwrap();
    }
}

/// Threads that wait on one link: one leads, the others park until it notifies them. Each has a hook of its own.
#[test]
fn hooks_of_leader_and_followers_are_called_alike() {
    let s = Silent::new(ConnType::Tcp, |b| b);
    let start = Instant::now();
    let ops: Vec<_> = (0..64).map(|i| s.peer.start_put_at(0, i * LEN, LEN).unwrap()).collect();
    std::thread::scope(|scope| {
        let waiters: Vec<_> =
            ops.iter().map(|op| scope.spawn(|| interrupted(|| op.wait_for(LONG)))).collect();
        for w in waiters {
            let waited = w.join().unwrap();
            assert!(matches!(waited, Waited::Interrupted), "{waited:?}");
        }
    });
    // Were each asked only when it leads, the last would be asked for the second time after 6.4 s.
    assert!(start.elapsed() < bound(Duration::from_secs(2)), "{:?}", start.elapsed());
}

#[test]
fn a_collective_whose_others_never_come_is_interrupted() {
    let s = Silent::new(ConnType::Tcp, |b| b);
    let group = s.source.group(&[0, 1]).wait().unwrap();
    assert_interrupted("barrier", interrupted(|| group.barrier().wait()));
    let e = group.barrier().wait().expect_err("broken");
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
            p.put_at(0, 0, LEN).unwrap();
            p.send(Message::Tag(8)).wait().unwrap();
            true
        })
    }
    let s = Silent::new(ConnType::Tcp, |b| b.interrupt(puts));
    PEER.set(Some(s.peer.clone()));
    let start = Instant::now();
    assert_interrupted("recv", driven(&s.target, || s.peer.recv(Wanted::Any).within(LONG).wait()));
    assert!(start.elapsed() < bound(Duration::from_secs(2)), "{:?}", start.elapsed());
    assert_eq!(s.target.recv(0, want::Tag).wait().map(|m| m.1).unwrap(), 8);
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
    let me = s.source.peer(0).unwrap();
    for _ in 0..1000 {
        me.put_at(0, LEN, 64).unwrap();
        me.send(Message::Tag(1)).wait().unwrap();
        assert_eq!(me.recv(want::Tag).wait().unwrap(), 1);
    }
    assert_eq!(ask.asked.load(Ordering::Acquire), 0);
    ASK.set(None);
}
