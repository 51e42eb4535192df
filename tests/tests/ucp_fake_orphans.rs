//! What UCX still has of a link that is over, by the fake libucp: memory that it does not use comes back at once, the
//! rest when UCX has given it back, and owners of memory, which are the application's code, are dropped without a lock.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use hmc_std::config::Progress;
use hmc_std::memory::HeapBytes;
use hmc_std::{Access, ConnType, Message, Peer, Session, want};
use hmc_testkit::buffers::{BufferTransfers as _, Ends, wait};
use hmc_tests::env::{TempDir, until};
use hmc_tests::fake_ucp::{CallResult, FakeUcp};
use hmc_tests::pooled::Pooled;

const LONG: Duration = Duration::from_secs(20);
const LEN: u64 = 4096;
/// The lanes that only send messages, and some that reach memory by themselves.
const MESSAGES: &str = "tcp/eth0";
const REACHING: &str = "rc_mlx5/mlx5_0:1";

/// A session that can be dialed, with the folder of its socket.
fn target(rank: u32) -> (Session, TempDir) {
    let dir = TempDir::new();
    let target = Session::builder(rank).uds(dir.path()).buffer(LEN).ucx().start().unwrap();
    (target, dir)
}

fn connect(source: &Session, rank: u32, dir: &TempDir) -> Peer {
    source.connect(&dir.address()).rank(rank).over(ConnType::Ucx).within(LONG).wait().unwrap()
}

/// When the caller lets go of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gone {
    /// While the link lives, whose tick gives back memory that nobody uses.
    Before,
    /// Once the link is over.
    After,
}

/// Puts memory with that owner to the peer, once more after `hold` if it is `busy` when the link ends, and lets go of it. The
/// link ends because its target does.
fn end_under(
    source: &Session,
    target: &Session,
    (hold, busy, gone): (impl FnOnce(), bool, Gone),
    then: impl Fn() + Send + Sync + 'static,
) {
    let peer = source.peer(1).unwrap();
    let from = target.accept(0).within(LONG).wait().unwrap();
    let region = target.memory().allocate(LEN).unwrap();
    let window = from.expose(region.take_all().unwrap(), Access::all(), 1).unwrap();
    let remote = peer.window(1).within(LONG).wait().unwrap();
    let memory = Pooled(HeapBytes::from(vec![7; 4096]), then);
    let shared = source.memory().register(memory).unwrap().share().unwrap();
    let route = Ends { local: shared.clone(), remote };
    route.put_at(0, 0, LEN).unwrap();
    hold();
    let op = busy.then(|| route.start_put_at(0, 0, LEN).unwrap());
    let mut users = Some((route, shared));
    if gone == Gone::Before {
        drop(users.take());
    }
    let _ = target.shutdown().within(Duration::from_millis(1)).wait();
    let _ = op.map(wait);
    until("the link is over", LONG, || (!peer.is_connected()).then_some(()));
    drop(users);
    drop((peer, window, from));
}

/// Something that an owner tells once.
fn report_channel<T: Send + 'static>() -> (impl Fn(T) + Send + Sync + 'static, Receiver<T>) {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    (move |what| tell.lock().unwrap().send(what).unwrap(), told)
}

/// A message that UCX still has is a copy: nothing of the memory that it was made of is in use.
#[test]
fn memory_of_messages_comes_back_before_ucx_has_sent_them() {
    let fake_ucp = FakeUcp::take();
    for panics in [false, true] {
        fake_ucp.lane(MESSAGES);
        let (target, dir) = target(1);
        let source = Session::builder(0).buffer(LEN).ucx().start().unwrap();
        let peer = connect(&source, 1, &dir);
        let (tell, told) = report_channel();
        let hold = || fake_ucp.rule("ucp_am_send_nbx", 1, CallResult::Held);
        end_under(&source, &target, (hold, true, Gone::Before), move || {
            tell(());
            assert!(!panics, "an owner of the test panics");
        });
        drop(peer);
        assert_eq!(told.recv_timeout(LONG), Ok(()), "memory that nothing uses is held");
        assert_eq!(fake_ucp.count("held"), 1, "the message is under way");
        let counted = || (source.stats().panics_caught == u64::from(panics)).then_some(());
        until("a panic is counted", LONG, counted);
        goes_on(&source);
        fake_ucp.clear_rules();
        assert_eq!(fake_ucp.release(), 1);
        drop((source, target, dir));
        fake_ucp.await_clean();
        fake_ucp.restart();
    }
}

/// It is a whole session: its thread takes new peers, and their messages come in.
fn goes_on(source: &Session) {
    let (other, dir) = target(2);
    let peer = connect(source, 2, &dir);
    peer.put_at(0, 0, 64).unwrap();
    other.accept(0).within(LONG).wait().unwrap().send(Message::Tag(3)).wait().unwrap();
    until("a message", LONG, || {
        (source.recv(2, want::Tag).wait().map(|m| m.1).ok()? == 3).then_some(())
    });
}

/// Lanes that reach memory are done with it when the close of their endpoint is answered. Its owner may use the worker then, and
/// what it panics with ends nothing.
#[test]
fn an_owner_whose_memory_ucx_has_held_may_use_the_worker() {
    let fake_ucp = FakeUcp::take();
    for (panics, busy) in [(false, true), (true, true), (false, false), (true, false)] {
        fake_ucp.lane(REACHING);
        let (target, dir) = target(1);
        let (third, third_dir) = self::target(3);
        let source = Session::builder(0).buffer(LEN).ucx().start().unwrap();
        let (peer, other) = (connect(&source, 1, &dir), connect(&source, 3, &third_dir));
        let (tell, told) = report_channel();
        let hold = || fake_ucp.rule("ucp_ep_close_nbx", 0, CallResult::Held);
        let user = other.clone();
        end_under(&source, &target, (hold, busy, Gone::After), move || {
            // Both peers have one worker.
            let op = user.start_put_at(0, 0, LEN).map_err(|e| e.kind());
            tell(op.and_then(|op| wait(op).map_err(|e| e.kind())));
            assert!(!panics, "an owner of the test panics");
        });
        drop(peer);
        assert!(fake_ucp.count("held") >= 1);
        let early = told.recv_timeout(Duration::from_millis(300));
        assert_eq!(early, Err(RecvTimeoutError::Timeout), "UCX has not closed the endpoint");
        fake_ucp.clear_rules();
        let _ = fake_ucp.release();
        assert_eq!(told.recv_timeout(LONG), Ok(Ok(LEN)));
        let counted = || (source.stats().panics_caught == u64::from(panics)).then_some(());
        until("a panic is counted", LONG, counted);
        goes_on(&source);
        drop((other, source, third, third_dir, target, dir));
        fake_ucp.await_clean();
        fake_ucp.restart();
    }
}

/// A session that its callers drive gives workers of peers that are gone back, too; and it does when the last handle of a peer
/// is dropped long after its link has ended, when nothing wakes the session's thread any more.
#[test]
fn workers_of_peers_that_are_gone_go_whoever_drives_the_session() {
    let fake_ucp = FakeUcp::take();
    for (progress, calls) in [(Progress::Manual, true), (Progress::Thread, false)] {
        fake_ucp.lane("posix/memory");
        let (target, dir) = target(1);
        let source = Session::builder(0).buffer(LEN).ucx().progress(progress).start().unwrap();
        let before = fake_ucp.count("workers");
        fake_ucp.rule("ucp_ep_close_nbx", 0, CallResult::Late(5));
        let mut handle = None;
        for _ in 0..5 {
            let peer = connect(&source, 1, &dir);
            peer.put_at(0, 0, 64).unwrap();
            handle = Some(peer.clone());
            peer.disconnect().within(LONG).wait().unwrap();
        }
        let look = |what: &str, is_so: &dyn Fn() -> bool| {
            until(what, LONG, || {
                if calls {
                    source.progress();
                }
                is_so().then_some(())
            });
        };
        look("only the last worker is left", &|| fake_ucp.count("workers") == before + 1);
        let some = fake_ucp.calls("ucp_worker_progress") + 10;
        look("the session makes its progress", &|| fake_ucp.calls("ucp_worker_progress") > some);
        drop(handle);
        look("the last worker is gone", &|| fake_ucp.count("workers") == before);
        fake_ucp.clear_rules();
        drop((source, target, dir));
        fake_ucp.await_clean();
        fake_ucp.restart();
    }
}
