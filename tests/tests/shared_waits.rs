//! Operations, messages and sessions that several threads share: waits that leave them as they are, and ends for all of them.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use hmc_std::{ConnType, ErrorKind, Message, Session, Want};
use hmc_testkit::buffers::{BufferTransfers as _, wait};
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
        let receive = p.b.recv_data_nb(0, 100).unwrap();
        assert!(receive.wait_for(SHORT).unwrap().is_none(), "{conn:?}: nobody sends");
        let rung = Arc::new(Rung::default());
        let waker = Waker::from(Arc::clone(&rung));
        let mut cx = Context::from_waker(&waker);
        assert!(receive.poll_ref(&mut cx).is_pending(), "{conn:?}");
        p.a.send_data(b"after all").unwrap();
        until("it is told", LONG, || (rung.0.load(Ordering::Acquire) > 0).then_some(()));
        let (len, _) = receive.wait_for(LONG).unwrap().expect("ended").unwrap();
        assert_eq!(len, 9, "{conn:?}");
    }
}

/// The result is given once: the others that share the message are told so at once, however they ask.
#[test]
fn those_who_share_a_message_do_not_wait_for_a_result_that_was_given() {
    for conn in ALL {
        let p = Pair::new(conn, 1 << 20);
        let mut receive = p.b.recv_data_nb(0, 100).unwrap();
        let begun = Instant::now();
        std::thread::scope(|s| {
            let waiters: Vec<_> = (0..3).map(|_| s.spawn(|| receive.wait_for(LONG))).collect();
            p.a.send_data(b"one result").unwrap();
            let found = waiters.into_iter().map(|w| w.join().unwrap().unwrap().expect("ended"));
            let (well, stale): (Vec<_>, Vec<_>) = found.partition(Result::is_ok);
            assert_eq!((well.len(), stale.len()), (1, 2), "{conn:?}");
            let kinds: Vec<_> = stale.into_iter().map(|r| r.unwrap_err().error.kind()).collect();
            assert_eq!(kinds, [ErrorKind::Stale; 2], "{conn:?}");
        });
        let stale = |r: hmc_std::delivery::Delivered| {
            assert_eq!(r.unwrap_err().error.kind(), ErrorKind::Stale, "{conn:?}");
        };
        stale(receive.wait_for(LONG).unwrap().expect("it has ended"));
        match receive.poll_ref(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(r) => stale(r),
            Poll::Pending => panic!("{conn:?}: nobody would ever wake it"),
        }
        stale(receive.test().expect("it has ended"));
        stale(receive.test().expect("it has ended"));
        stale(receive.wait(LONG));
        assert!(begun.elapsed() < bound(Duration::from_secs(5)), "{:?}", begun.elapsed());
    }
}

#[test]
fn a_message_is_cancelled_while_another_thread_waits_for_it() {
    for conn in ALL {
        let p = Pair::new(conn, 1 << 20);
        let receive = p.b.recv_data_nb(0, 100).unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| receive.wait_for(LONG).unwrap().expect("ended"));
            receive.cancel();
            let e = waiter.join().unwrap().unwrap_err();
            assert_eq!(e.error.kind(), ErrorKind::Cancelled, "{conn:?}");
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
    other.connect_with(1, &dir.address(), ConnType::Shm, LONG).unwrap();
    let begun = Instant::now();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| other.ctrl_recv(1));
        // The other end has to hear of it, whatever waits here.
        hmc_std::Communicator::shutdown(&other, LONG).unwrap();
        let e = waiter.join().unwrap().unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Closed | ErrorKind::PeerDead), "{e}");
    });
    assert!(begun.elapsed() < bound(Duration::from_secs(5)), "{:?}", begun.elapsed());
    until("the other end knows", LONG, || one.peers().is_empty().then_some(()));
    hmc_std::Communicator::shutdown(&other, LONG).unwrap();
}

/// After messages without puts between them, a waiter for the next one watches the control connection alone.
#[test]
fn puts_and_messages_arrive_beside_a_long_wait_for_a_tag() {
    const LEN: u64 = 8 << 20;
    for conn in [ConnType::Shm, ConnType::Tcp] {
        let p = Pair::new(conn, LEN);
        let round = |there, back| {
            p.a.send_tag(there).unwrap();
            assert_eq!(p.b.recv_tag().unwrap(), there, "{conn:?}");
            p.b.send_tag(back).unwrap();
            assert_eq!(p.a.recv_tag().unwrap(), back, "{conn:?}");
        };
        (0..20).for_each(|n| round(n, n + 100));
        std::thread::scope(|s| {
            let waiter = s.spawn(|| p.b.recv(Want::Tag, LONG));
            // What comes to the waiter's session, and what that begins itself.
            p.a.put_at(0, 0, LEN).unwrap();
            let own = p.b.start_put_at(0, 0, LEN).unwrap();
            let result = own.wait_for(LONG).ended().expect("it ends");
            assert_eq!(result.unwrap(), LEN, "{conn:?}");
            let receive = p.b.recv_data_nb(0, 100).unwrap();
            p.a.send_data(b"beside it").unwrap();
            let (len, _) = receive.wait_for(LONG).unwrap().expect("ended").unwrap();
            assert_eq!(len, 9, "{conn:?}");
            assert!(!waiter.is_finished(), "{conn:?}: nobody sent a tag");
            p.a.send_tag(3).unwrap();
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
                p.a.send_tag(tag).unwrap();
                assert_eq!(p.b.recv_tag().unwrap(), tag);
            }
            let (tell, told) = std::sync::mpsc::channel();
            std::thread::scope(|s| {
                let waiter = s.spawn(|| {
                    tell.send(rustix::thread::gettid()).unwrap();
                    p.b.recv(Want::Notify, LONG)
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
    other.connect_with(1, &dir.address(), ConnType::Shm, LONG).unwrap();
    hmc_std::Communicator::shutdown(&other, LONG).unwrap();
    let begun = Instant::now();
    let e = other.ctrl_recv(1).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Closed | ErrorKind::PeerDead), "{e}");
    assert!(begun.elapsed() < bound(Duration::from_secs(5)), "{:?}", begun.elapsed());
    drop(one);
}
