//! Operations, messages and sessions that several threads share: waits that leave them as they are, and ends for all of them.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use hmc_std::{
    ConnType, ErrorKind, Message, Session, Waited, wait_any,
    want::{self, Wanted},
};
use hmc_testkit::buffers::{BufferMessages as _, BufferTransfers as _, wait};
use hmc_tests::env::{TempDir, bound, until};
use hmc_tests::pair::{ALL, Pair};

const SHORT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Rung(AtomicU32);

impl Wake for Rung {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[test]
fn a_wait_that_is_over_leaves_the_message_alone() {
    for conn in ALL {
        let p = Pair::new(conn, 1 << 20);
        let receive = p.b.start_recv_at(0, 100).unwrap();
        assert!(receive.wait_for(SHORT).ended().is_none(), "{conn:?}: nobody sends");
        let rung = Arc::new(Rung::default());
        let waker = Waker::from(Arc::clone(&rung));
        let mut cx = Context::from_waker(&waker);
        assert!(receive.poll_ended(&mut cx).is_pending(), "{conn:?}");
        p.a.send_data(b"after all").wait().unwrap();
        until("it is told", LONG, || (rung.0.load(Ordering::Acquire) > 0).then_some(()));
        let len = receive.wait_for(LONG).ended().expect("ended").unwrap();
        assert_eq!(len, 9, "{conn:?}");
    }
}

/// The result stays until it is waited for: all who share the message are given it, however they ask.
#[test]
fn all_who_share_a_message_learn_how_it_ended() {
    for conn in ALL {
        let p = Pair::new(conn, 1 << 20);
        let receive = p.b.start_recv_at(0, 100).unwrap();
        let begun = Instant::now();
        std::thread::scope(|s| {
            let waiters: Vec<_> = (0..3).map(|_| s.spawn(|| receive.wait_for(LONG))).collect();
            p.a.send_data(b"one result").wait().unwrap();
            for waiter in waiters {
                let result = waiter.join().unwrap().ended().expect("ended");
                assert_eq!(result.unwrap(), 10, "{conn:?}");
            }
        });
        match receive.poll_ended(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => assert_eq!(result.unwrap(), 10, "{conn:?}"),
            Poll::Pending => panic!("{conn:?}: nobody would ever wake it"),
        }
        let any = wait_any(&[&receive], LONG).unwrap();
        assert_eq!(any, Waited::Ended(0), "{conn:?}");
        assert_eq!(receive.wait().unwrap().bytes, 10, "{conn:?}");
        assert!(begun.elapsed() < bound(Duration::from_secs(5)), "{:?}", begun.elapsed());
    }
}

/// Messages and transfers are waited for together.
#[test]
fn whichever_of_messages_and_transfers_ends_first_is_named() {
    for conn in ALL {
        let p = Pair::new(conn, 1 << 20);
        let receives = [0, 100, 200].map(|at| p.b.start_recv_at(at, 100).unwrap());
        let [first, second, third] = &receives;
        let ops = [first, second, third];
        assert_eq!(wait_any(&ops, SHORT).unwrap(), Waited::Limit, "{conn:?}: nobody sends");
        std::thread::scope(|s| {
            let waiter = s.spawn(|| wait_any(&ops, LONG).unwrap());
            p.a.send_data(b"the first").wait().unwrap();
            assert_eq!(waiter.join().unwrap(), Waited::Ended(0), "{conn:?}");
        });
        let put = p.b.start_put_at(0, 200, 64).unwrap();
        assert_eq!(wait_any(&[second, third, &put], LONG).unwrap(), Waited::Ended(2), "{conn:?}");
        second.cancel();
        assert_eq!(wait_any(&[second, third], LONG).unwrap(), Waited::Ended(0), "{conn:?}");
    }
}

#[test]
fn a_message_is_cancelled_while_another_thread_waits_for_it() {
    for conn in ALL {
        let p = Pair::new(conn, 1 << 20);
        let receive = p.b.start_recv_at(0, 100).unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| receive.wait_for(LONG).ended().expect("ended"));
            receive.cancel();
            let e = waiter.join().unwrap().unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Cancelled, "{conn:?}");
        });
    }
}

#[test]
fn an_operation_is_polled_and_then_waited_for() {
    for conn in ALL {
        let p = Pair::new(conn, 3 << 20);
        let mut cx = Context::from_waker(Waker::noop());
        for len in [1 << 20, 3 << 20] {
            let mut op = p.a.start_put_at(0, 0, len).unwrap();
            match Pin::new(&mut op).poll(&mut cx) {
                Poll::Ready(r) => {
                    assert_eq!(r.unwrap().bytes, len);
                    let again = op.wait_for(LONG).ended().expect("it has ended");
                    assert_eq!(again.unwrap_err().kind(), ErrorKind::Stale, "it was given");
                    assert_eq!(wait(op).unwrap_err().kind(), ErrorKind::Stale);
                }
                Poll::Pending => {
                    let result = op.wait_for(LONG).ended().expect("it ends");
                    assert_eq!(result.unwrap(), len, "{conn:?}");
                    assert_eq!(wait(op).unwrap(), len, "{conn:?}: its result stays");
                }
            }
        }
        let other = p.a.start_put_at(0, 0, 1).unwrap();
        let _ = other.poll_ended(&mut cx);
        assert_eq!(wait(other).unwrap(), 1, "not abandoned");
    }
}

#[test]
fn a_session_is_shut_down_under_the_waits_of_other_threads() {
    let dir = TempDir::new();
    let one = Session::builder(1).uds(dir.path()).buffer(4096).start().unwrap();
    let other = Session::builder(0).buffer(4096).start().unwrap();
    other.connect(&dir.address()).rank(1).over(ConnType::Shm).within(LONG).wait().unwrap();
    let begun = Instant::now();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| other.recv(1, want::Tag).wait().map(|m| m.1));
        // The other end has to be notified, whatever waits here.
        other.shutdown().within(LONG).wait().unwrap();
        let e = waiter.join().unwrap().unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Closed | ErrorKind::PeerDead), "{e}");
    });
    assert!(begun.elapsed() < bound(Duration::from_secs(5)), "{:?}", begun.elapsed());
    until("the other end knows", LONG, || one.peers().is_empty().then_some(()));
    other.shutdown().within(LONG).wait().unwrap();
}

/// After messages without puts between them, a waiter for the next one watches the control connection alone.
#[test]
fn puts_and_messages_arrive_beside_a_long_wait_for_a_tag() {
    const LEN: u64 = 8 << 20;
    for conn in [ConnType::Shm, ConnType::Tcp] {
        let p = Pair::new(conn, LEN);
        let round = |there, back| {
            p.a.send(Message::Tag(there)).wait().unwrap();
            assert_eq!(p.b.recv(want::Tag).wait().unwrap(), there, "{conn:?}");
            p.b.send(Message::Tag(back)).wait().unwrap();
            assert_eq!(p.a.recv(want::Tag).wait().unwrap(), back, "{conn:?}");
        };
        (0..20).for_each(|n| round(n, n + 100));
        std::thread::scope(|s| {
            let waiter = s.spawn(|| p.b.recv(Wanted::Tag).within(LONG).wait());
            // What comes to the waiter's session, and what that begins itself.
            p.a.put_at(0, 0, LEN).unwrap();
            let own = p.b.start_put_at(0, 0, LEN).unwrap();
            let result = own.wait_for(LONG).ended().expect("it ends");
            assert_eq!(result.unwrap(), LEN, "{conn:?}");
            let receive = p.b.start_recv_at(0, 100).unwrap();
            p.a.send_data(b"beside it").wait().unwrap();
            let len = receive.wait_for(LONG).ended().expect("ended").unwrap();
            assert_eq!(len, 9, "{conn:?}");
            assert!(!waiter.is_finished(), "{conn:?}: nobody sent a tag");
            p.a.send(Message::Tag(3)).wait().unwrap();
            assert_eq!(waiter.join().unwrap().unwrap(), Message::Tag(3), "{conn:?}");
        });
        round(5, 6);
    }
}

/// The tag of a put comes beside its bytes, also to a waiter that follows many without any.
#[test]
fn a_put_wakes_who_waits_for_its_tag_after_messages_without_puts() {
    for conn in [ConnType::Shm, ConnType::Tcp] {
        let p = Pair::new(conn, 4096);
        for n in 0..10 {
            for tag in 0..10 {
                p.a.send(Message::Tag(tag)).wait().unwrap();
                assert_eq!(p.b.recv(want::Tag).wait().unwrap(), tag);
            }
            let (tell, told) = std::sync::mpsc::channel();
            std::thread::scope(|s| {
                let waiter = s.spawn(|| {
                    tell.send(rustix::thread::gettid()).unwrap();
                    p.b.recv(Wanted::Notify).within(LONG).wait()
                });
                let stat =
                    format!("/proc/self/task/{}/stat", told.recv().unwrap().as_raw_nonzero());
                until("it sleeps", LONG, || {
                    std::fs::read_to_string(&stat).unwrap().contains(") S ").then_some(())
                });
                p.a.put_notify_at(0, 0, 64, n).unwrap();
                assert_eq!(waiter.join().unwrap().unwrap(), Message::Notify(n), "{conn:?}");
            });
        }
        let late: u64 = p.sessions.iter().flat_map(|s| s.stats().peers).map(|s| s.overslept).sum();
        assert_eq!(late, 0, "{conn:?}: waits ended by their time alone");
    }
}

#[test]
fn a_receive_begun_after_the_end_of_its_session_ends_at_once() {
    let dir = TempDir::new();
    let one = Session::builder(1).uds(dir.path()).buffer(4096).start().unwrap();
    let other = Session::builder(0).buffer(4096).start().unwrap();
    other.connect(&dir.address()).rank(1).over(ConnType::Shm).within(LONG).wait().unwrap();
    other.shutdown().within(LONG).wait().unwrap();
    let begun = Instant::now();
    let e = other.recv(1, want::Tag).wait().map(|m| m.1).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Closed | ErrorKind::PeerDead), "{e}");
    assert!(begun.elapsed() < bound(Duration::from_secs(5)), "{:?}", begun.elapsed());
    drop(one);
}
