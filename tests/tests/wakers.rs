//! Wakers are code of the application: one that panics, blocks, ends the session or calls it stops and delays nothing else.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::future::Future as _;
use std::pin::pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use hmc_std::future::OpFuture;
use hmc_std::{ConnType, ErrorKind, Peer, Progress, Session};
use hmc_tests::scene::until;

const LIMIT: Duration = Duration::from_secs(30);

/// Runs `0` once when it is woken.
struct Code<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send + 'static> Wake for Code<F> {
    fn wake(self: Arc<Self>) {
        let code = self.0.lock().unwrap().take();
        if let Some(code) = code {
            code();
        }
    }
}

fn waker(code: impl FnOnce() + Send + 'static) -> Waker {
    Waker::from(Arc::new(Code(Mutex::new(Some(code)))))
}

fn rings(bell: &Sender<&'static str>, what: &'static str) -> Waker {
    let bell = bell.clone();
    waker(move || {
        let _ = bell.send(what);
    })
}

/// A session that lands puts only when it is told to, and one with a future towards it.
fn target(rank: u32) -> Session {
    let target = Session::builder(rank).tcp("127.0.0.1:0").buffer(1 << 16);
    target.progress(Progress::Manual).start().unwrap()
}

fn connect(source: &Session, target: &Session, rank: u32) -> Peer {
    let address = hmc_std::Address::Tcp(target.tcp_addr().unwrap());
    source.connect_with(rank, &address, ConnType::Tcp, LIMIT).unwrap()
}

/// A put that cannot end before the target is told to make progress; `waker` waits for it.
fn waiting(peer: &Peer, waker: &Waker) -> OpFuture {
    let mut future = peer.put_async(0, 0, 64).unwrap();
    assert!(pin!(&mut future).poll(&mut Context::from_waker(waker)).is_pending());
    future
}

fn result(mut future: OpFuture) -> Poll<Result<u64, ErrorKind>> {
    let polled = pin!(&mut future).poll(&mut Context::from_waker(Waker::noop()));
    polled.map_err(|e| e.kind())
}

/// Lets puts land until `look` finds something.
fn land<R>(target: &Session, what: &str, mut look: impl FnMut() -> Option<R>) -> R {
    until(what, LIMIT, || {
        target.progress();
        look()
    })
}

#[test]
fn a_panic_of_a_waker_is_caught_and_counted() {
    let (source, target) = (Session::builder(0).buffer(1 << 16).start().unwrap(), target(1));
    let peer = connect(&source, &target, 1);
    let (bell, rung) = channel();
    let first = waiting(&peer, &waker(|| panic!("a waker of the test panics")));
    let second = waiting(&peer, &rings(&bell, "second"));
    land(&target, "the second future wakes", || rung.try_recv().ok());
    assert_eq!(result(first), Poll::Ready(Ok(64)));
    assert_eq!(result(second), Poll::Ready(Ok(64)));
    until("the panic is counted", LIMIT, || (source.stats().panics_caught == 1).then_some(()));
    // The thread is there: the peer's messages come in while nobody calls.
    let third = waiting(&peer, &rings(&bell, "third"));
    land(&target, "a later future wakes", || rung.try_recv().ok());
    assert_eq!(result(third), Poll::Ready(Ok(64)));
}

/// What is thrown may be dropped by nobody who minds: it throws again.
#[test]
fn a_panic_that_panics_when_it_is_dropped_is_caught_and_counted() {
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            panic!("what a waker of the test threw panics");
        }
    }
    let (source, target) = (Session::builder(0).buffer(1 << 16).start().unwrap(), target(1));
    let peer = connect(&source, &target, 1);
    let (bell, rung) = channel();
    let first = waiting(&peer, &waker(|| std::panic::panic_any(Again)));
    until("the panic is counted", LIMIT, || {
        target.progress();
        (source.stats().panics_caught == 1).then_some(())
    });
    assert_eq!(result(first), Poll::Ready(Ok(64)));
    let second = waiting(&peer, &rings(&bell, "second"));
    land(&target, "a later future wakes", || rung.try_recv().ok());
    assert_eq!(result(second), Poll::Ready(Ok(64)));
}

#[test]
fn a_waker_that_drops_the_last_handle_ends_the_session() {
    let (source, target) = (Session::builder(0).buffer(1 << 16).start().unwrap(), target(1));
    let peer = connect(&source, &target, 1);
    let (bell, rung) = channel();
    let (mut place, done) = (Some(source), bell.clone());
    let source = Arc::new(Mutex::new(place.take()));
    let held = Arc::clone(&source);
    let future = waiting(
        &peer,
        &waker(move || {
            let session = held.lock().unwrap().take();
            drop(session);
            let _ = done.send("dropped");
        }),
    );
    land(&target, "the session has ended within the waker", || rung.try_recv().ok());
    until("the peer sees the end", LIMIT, || (!target.check_conn(0)).then_some(()));
    assert_eq!(result(future), Poll::Ready(Ok(64)));
    assert!(!peer.is_connected());
}

#[test]
fn a_waker_that_blocks_delays_no_other_peer() {
    const BLOCKED: Duration = Duration::from_secs(3);
    let beat = Some(Duration::from_millis(250));
    let source = Session::builder(0).buffer(1 << 16).heartbeat(beat).start().unwrap();
    let stuck = target(1);
    let other = Session::builder(2).tcp("127.0.0.1:0").buffer(1 << 16).heartbeat(beat).start();
    let other = other.unwrap();
    let (peer, third) = (connect(&source, &stuck, 1), connect(&source, &other, 2));
    let back = other.wait_peer(0, LIMIT).unwrap();
    let (bell, rung) = channel();
    let (release, released) = channel::<()>();
    let blocked = bell.clone();
    let future = waiting(
        &peer,
        &waker(move || {
            let _ = blocked.send("blocked");
            let _ = released.recv_timeout(LIMIT);
        }),
    );
    assert_eq!(land(&stuck, "the waker blocks", || rung.try_recv().ok()), "blocked");
    // Five missed heartbeats, 1.25 s, are a death at either end.
    let begun = Instant::now();
    while begun.elapsed() < BLOCKED {
        back.send_tag(7).unwrap();
        assert_eq!(source.ctrl_recv(2).unwrap(), 7);
        // Nothing comes here: the other wakers of the session wait for that one.
        assert!(rung.recv_timeout(Duration::from_millis(300)).is_err());
        assert!(third.is_connected() && back.is_connected() && peer.is_connected());
    }
    assert_eq!(source.stats().peers_lost + other.stats().peers_lost, 0);
    release.send(()).unwrap();
    assert_eq!(result(future), Poll::Ready(Ok(64)));
}

#[test]
fn a_waker_may_call_the_session() {
    let source = Arc::new(Session::builder(0).buffer(1 << 16).start().unwrap());
    let target = target(1);
    let peer = connect(&source, &target, 1);
    let (bell, rung) = channel();
    let (again, session) = (peer.clone(), Arc::clone(&source));
    let future = waiting(
        &peer,
        &waker(move || {
            let inner = waiting(&again, &rings(&bell, "inner"));
            again.send_tag(5).unwrap();
            let own = session.loopback().unwrap();
            own.put(0, 64, 64).unwrap();
            assert_eq!((session.stats().peers.len(), session.peers().len()), (2, 2));
            // It runs on.
            let _ = inner.into_id();
            let last = again.put_nb(0, 0, 64).unwrap();
            let _ = session.wait_within(last, LIMIT);
            let _ = bell.send("outer");
        }),
    );
    let mut heard = Vec::new();
    land(&target, "both wake", || {
        heard.extend(rung.try_iter());
        (heard.contains(&"outer") && heard.contains(&"inner")).then_some(())
    });
    assert_eq!(target.ctrl_recv(0).unwrap(), 5);
    assert_eq!(result(future), Poll::Ready(Ok(64)));
    assert_eq!(source.stats().panics_caught, 0);
}
