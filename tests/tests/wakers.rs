//! Wakers are code of the application: one that panics, blocks, ends the session or calls it stops and delays nothing else.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use hmc_std::{Message, Session, want};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::Poll;
use std::time::Duration;

use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::attack::Context;
use hmc_tests::attack::wakers::{self, connect, land, notifies, result, target, waiting, waker};
use hmc_tests::env::until;

const LIMIT: Duration = Duration::from_secs(30);

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");

#[test]
fn a_panic_of_a_waker_is_caught_and_counted() {
    wakers::panics(&mut Context::rounds(ACTOR, 1)).expect_held();
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
    let (wakes, woken) = channel();
    let first = waiting(&peer, &waker(|| std::panic::panic_any(Again)));
    until("the panic is counted", LIMIT, || {
        target.progress();
        (source.stats().panics_caught == 1).then_some(())
    });
    assert_eq!(result(first), Poll::Ready(Ok(64)));
    let second = waiting(&peer, &notifies(&wakes, "second"));
    land(&target, "a later future wakes", || woken.try_recv().ok());
    assert_eq!(result(second), Poll::Ready(Ok(64)));
}

#[test]
fn a_waker_that_drops_the_last_handle_ends_the_session() {
    wakers::drops(&mut Context::rounds(ACTOR, 1)).expect_held();
}

#[test]
fn a_waker_that_blocks_delays_no_other_peer() {
    wakers::blocks(&mut Context::rounds(ACTOR, 1)).expect_held();
}

#[test]
fn a_waker_may_call_the_session() {
    let source = Arc::new(Session::builder(0).buffer(1 << 16).start().unwrap());
    let target = target(1);
    let peer = connect(&source, &target, 1);
    let (wakes, woken) = channel();
    let (again, session) = (peer.clone(), Arc::clone(&source));
    let future = waiting(
        &peer,
        &waker(move || {
            let inner = waiting(&again, &notifies(&wakes, "inner"));
            again.send(Message::Tag(5)).wait().unwrap();
            let own = session.peer(0).unwrap();
            own.put_at(0, 64, 64).unwrap();
            assert_eq!((session.stats().peers.len(), session.peers().len()), (2, 2));
            // It runs on.
            drop(inner);
            let last = again.start_put_at(0, 0, 64).unwrap();
            let _ = last.wait_for(LIMIT);
            let _ = wakes.send("outer");
        }),
    );
    let mut wakers_run = Vec::new();
    land(&target, "both wake", || {
        wakers_run.extend(woken.try_iter());
        (wakers_run.contains(&"outer") && wakers_run.contains(&"inner")).then_some(())
    });
    assert_eq!(target.recv(0, want::Tag).wait().map(|m| m.1).unwrap(), 5);
    assert_eq!(result(future), Poll::Ready(Ok(64)));
    assert_eq!(source.stats().panics_caught, 0);
}
