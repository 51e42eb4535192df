//! A session whose thread is lost all the same ends every operation, with an error that says so. Alone in its file: what
//! panics is the process's subscriber of `tracing`.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hmc_std::{ConnType, ErrorKind, Progress, Session};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::actor::Actor;
use hmc_tests::events::Events;
use hmc_tests::listening::Listening as _;
use tracing::{Event, Level};

static ARMED: AtomicBool = AtomicBool::new(false);

/// Panics on the thread of rank 0, once it is armed.
fn panic_if_armed(_: &Event<'_>) {
    let here = std::thread::current().name() == Some("hmc-0");
    assert!(!(here && ARMED.load(Ordering::Relaxed)), "the subscriber of the test panics");
}

#[test]
fn operations_end_with_an_error_that_names_the_lost_thread() {
    let events = Events::new(Level::TRACE, panic_if_armed);
    tracing::subscriber::set_global_default(events).unwrap();
    let limit = Duration::from_secs(30);
    let source = Session::builder(0).buffer(1 << 16).start().unwrap();
    let target = Session::builder(1).tcp("127.0.0.1:0").buffer(1 << 16);
    let target = target.progress(Progress::Manual).start().unwrap();
    let address = hmc_std::Address::Tcp(target.tcp_addr().unwrap());
    let peer = source.connect(&address).rank(1).over(ConnType::Tcp).within(limit).wait().unwrap();
    let program = env!("CARGO_BIN_EXE_actor");
    let killed = Actor::session(program, "rank=2 tcp=127.0.0.1:0 buffer=65536");
    source.connect(&killed.address()).rank(2).over(ConnType::Tcp).within(limit).wait().unwrap();
    let op = peer.start_put_at(0, 0, 64).unwrap();
    ARMED.store(true, Ordering::Relaxed);
    // The thread says then that a peer is lost.
    let _ = killed.kill();
    let begun = Instant::now();
    let e = op.wait_for(limit).ended().expect("in time").unwrap_err();
    assert!(e.to_string().contains("this session's thread ended by a panic"), "{e}");
    assert!(begun.elapsed() < limit, "it ended by its deadline");
    let e = peer.put_at(0, 0, 64).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::PeerDead);
    assert!(e.to_string().contains("the subscriber of the test panics"), "{e}");
    let e = source.peer(1).and_then(|p| p.put_at(0, 0, 64)).unwrap_err();
    assert!(e.to_string().contains("this session's thread ended by a panic"), "{e}");
    assert!(!source.peer(1).is_ok_and(|p| p.is_connected()));
    drop(source);
}
