//! Owners of registered memory are code of the application, which runs when the memory comes back: on whatever thread lets go of
//! it last, without a lock, and what it panics with ends nothing.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hmc_core::limits::PEER_DEAD_NS;
use hmc_std::memory::HeapBytes;
use hmc_std::{Access, ConnType, Message, Peer, Session, want};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::env::{TempDir, until};
use hmc_tests::pooled::Pooled;

const LIMIT: Duration = Duration::from_secs(20);

/// Registers such memory, puts it once, and lets go of it: the link knows it until it looks what nobody uses any more.
fn used_once(source: &Session, peer: &Peer, then: impl Fn() + Send + Sync + 'static) {
    let memory = Pooled(HeapBytes::from(vec![7; 4096]), then);
    let shared = source.memory().register(memory).unwrap().share().unwrap();
    let window = peer.window(1).within(LIMIT).wait().unwrap();
    window.put(0, &shared).wait().unwrap();
}

/// Two sessions over TCP, the first one's handle of the other, and a window of the other's. They are never dropped:
/// a session whose thread is stuck would not end.
fn pair(dir: &TempDir) -> (&'static Session, &'static Session, Peer) {
    let target =
        Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(4096).start().unwrap();
    let target: &'static Session = Box::leak(Box::new(target));
    let source = Box::leak(Box::new(Session::builder(0).buffer(4096).start().unwrap()));
    let peer =
        source.connect(&dir.address()).rank(1).over(ConnType::Tcp).within(LIMIT).wait().unwrap();
    let back = target.accept(0).within(LIMIT).wait().unwrap();
    let region = target.memory().allocate(4096).unwrap();
    let window = back.expose(region.take_all().unwrap(), Access::all(), 1);
    std::mem::forget(window.unwrap());
    (source, target, peer)
}

#[test]
fn an_owner_may_use_the_session_when_its_memory_comes_back() {
    let dir = TempDir::new();
    let (source, _, peer) = pair(&dir);
    let (tell, told) = channel();
    let (tell, again) = (Mutex::new(tell), peer.clone());
    used_once(source, &peer, move || {
        let put = again.put_at(0, 0, 64).map_err(|e| e.kind());
        let _ = tell.lock().unwrap().send((put, source.stats().peers.len()));
    });
    assert_eq!(told.recv_timeout(LIMIT), Ok((Ok(()), 1)));
}

#[test]
fn an_owner_that_panics_is_caught_and_counted() {
    let dir = TempDir::new();
    let (source, target, peer) = pair(&dir);
    used_once(source, &peer, || panic!("an owner of the test panics"));
    until("the panic is counted", LIMIT, || (source.stats().panics_caught == 1).then_some(()));
    // The thread is there: the peer's messages come in while nobody calls.
    peer.put_at(0, 0, 64).unwrap();
    target.accept(0).within(LIMIT).wait().unwrap().send(Message::Tag(3)).wait().unwrap();
    until("a message", LIMIT, || {
        (source.recv(1, want::Tag).wait().map(|m| m.1).ok()? == 3).then_some(())
    });
    // So it is when the link ends, which lets go of several.
    let gone = Arc::new(Mutex::new(0));
    for _ in 0..3 {
        let gone = Arc::clone(&gone);
        used_once(source, &peer, move || {
            *gone.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1;
            panic!("an owner of the test panics")
        });
    }
    target.shutdown().within(LIMIT).wait().unwrap();
    until("all came back", LIMIT, || (source.stats().panics_caught == 4).then_some(()));
    assert!(source.memory().allocate(64).is_ok());
}

/// Longer than a peer is believed without a sign of life.
const DETECTION: Duration = Duration::from_millis(PEER_DEAD_NS / 1_000_000 + 1_500);

/// Its owner waits for somebody else, as that of a pool may do.
#[test]
fn an_owner_that_blocks_delays_no_peer() {
    let dir = TempDir::new();
    let (source, target, peer) = pair(&dir);
    let (tell, told) = channel();
    let (release, wait) = channel::<()>();
    let (tell, wait) = (Mutex::new(tell), Mutex::new(wait));
    used_once(source, &peer, move || {
        let _ = tell.lock().unwrap().send("begins");
        let _ = wait.lock().unwrap().recv();
        let _ = tell.lock().unwrap().send("ends");
    });
    assert_eq!(told.recv_timeout(LIMIT), Ok("begins"));
    let start = Instant::now();
    let lost = until("peers that are silent are lost", LIMIT, || {
        let lost = source.stats().peers_lost + target.stats().peers_lost;
        (lost != 0 || start.elapsed() > DETECTION).then_some(lost)
    });
    assert_eq!(lost, 0, "after {:?}", start.elapsed());
    peer.put_at(0, 0, 64).unwrap();
    // The thread is there: the peer's messages come in while nobody calls.
    target.accept(0).within(LIMIT).wait().unwrap().send(Message::Tag(3)).wait().unwrap();
    until("a message", LIMIT, || {
        (source.recv(1, want::Tag).wait().map(|m| m.1).ok()? == 3).then_some(())
    });
    assert!(told.try_recv().is_err(), "it blocks to the end");
    drop(release);
    assert_eq!(told.recv_timeout(LIMIT), Ok("ends"));
}

/// What a session's links let go of has come back when the session is over, unless its owner blocks: that one is not waited for
/// beyond the deadline.
#[test]
fn the_end_of_a_session_waits_for_owners_within_its_deadline() {
    let dir = TempDir::new();
    let (source, _, peer) = pair(&dir);
    let gone = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let gone = Arc::clone(&gone);
        used_once(source, &peer, move || {
            gone.fetch_add(1, Ordering::SeqCst);
        });
    }
    source.shutdown().within(LIMIT).wait().unwrap();
    assert_eq!(gone.load(Ordering::SeqCst), 3);

    let (source, _, peer) = pair(&TempDir::new());
    let (release, wait) = channel::<()>();
    let (tell, told) = channel();
    let (tell, wait) = (Mutex::new(tell), Mutex::new(wait));
    used_once(source, &peer, move || {
        let _ = wait.lock().unwrap().recv();
        let _ = tell.lock().unwrap().send(());
    });
    let start = Instant::now();
    source.shutdown().within(Duration::from_secs(1)).wait().unwrap();
    assert!(start.elapsed() < LIMIT && told.try_recv().is_err());
    drop(release);
    assert_eq!(told.recv_timeout(LIMIT), Ok(()), "it comes back although the session is over");
}
