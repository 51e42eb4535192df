//! Messages whose sender ends right after it sent them: each one whose call returned is received, in order, before the
//! end of the link is reported.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hmc_std::{Address, ConnType, ErrorKind, Message, Peer, Session, Want};
use hmc_tests::actor::Actor;
use hmc_tests::scene::{TempDir, number, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
/// Messages of one batch.
const BATCH: u64 = 30;

/// What connects the two ends.
#[derive(Clone, Copy, Debug)]
enum Path {
    /// Control connection over a local socket, data plane in shared memory.
    Shm,
    /// Both over TCP.
    Tcp,
    /// Control connection over a local socket, data plane over TCP.
    Uds,
}

const PATHS: [Path; 3] = [Path::Shm, Path::Tcp, Path::Uds];
const ENDS: [&str; 3] = ["exit", "kill", "close"];

impl Path {
    fn conn(self) -> ConnType {
        match self {
            Self::Shm => ConnType::Shm,
            Self::Tcp | Self::Uds => ConnType::Tcp,
        }
    }

    /// Where `session` is for a peer on this path.
    fn address(self, session: &Session, dir: &TempDir) -> Address {
        match self {
            Self::Tcp => Address::Tcp(session.tcp_addr().expect("it listens")),
            Self::Shm | Self::Uds => dir.address(),
        }
    }
}

/// How many batches of each kind: `HMC_TEST_BATCHES`, or `default`.
fn batches(default: u32) -> u32 {
    number("HMC_TEST_BATCHES", default)
}

/// A session to receive with.
fn receiver(dir: &TempDir) -> Session {
    Session::builder(0)
        .uds(dir.path())
        .tcp("127.0.0.1:0")
        .buffer(4096)
        .redial(false)
        .start()
        .expect("a session")
}

/// Receives tags until the end of the link.
fn tags_of(peer: &Peer) -> Vec<u64> {
    let mut tags = Vec::new();
    loop {
        match peer.recv(Want::Any, LONG) {
            Ok(Message::Tag(tag)) => tags.push(tag),
            Ok(other) => panic!("nobody sent {other:?}"),
            Err(e) => {
                assert!(matches!(e.kind(), ErrorKind::PeerDead | ErrorKind::Closed), "{e}");
                return tags;
            }
        }
    }
}

/// One batch: the sender sends `BATCH` tags and ends in the way of `end`, while both ends receive and this one sends.
fn batch(session: &Session, address: &Address, path: Path, end: &str) -> Vec<u64> {
    let mut actor = Actor::session(ACTOR, "rank=1 buffer=4096 redial=0");
    actor.ask(&format!("connect 0 {} {} 20000", address, path.conn().name()));
    actor.ask("listen 0");
    let peer = session.wait_peer(1, LONG).expect("it came");
    assert_eq!(peer.conn(), Some(path.conn()));
    let over = AtomicBool::new(false);
    // The other end has seldom read everything when it goes: over TCP its kernel resets the connection then.
    let tags = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) && peer.send_tag(7).is_ok() {
                std::thread::yield_now();
            }
        });
        actor.tell(&format!("tags 0 0 {BATCH} {end}"));
        let tags = tags_of(&peer);
        over.store(true, Ordering::Relaxed);
        tags
    });
    drop(actor);
    // The next one takes the same rank.
    until("the link is over", LONG, || (!session.check_conn(1)).then_some(()));
    tags
}

fn nothing_is_lost(batches: u32) {
    let mut report = Vec::new();
    for path in PATHS {
        for end in ENDS {
            let dir = TempDir::new();
            let session = receiver(&dir);
            let address = path.address(&session, &dir);
            let (mut short, mut lost) = (0, 0);
            for _ in 0..batches {
                let tags = batch(&session, &address, path, end);
                assert!(tags.iter().copied().eq(0..tags.len() as u64), "out of order: {tags:?}");
                short += u32::from(tags.len() as u64 != BATCH);
                lost += BATCH - tags.len() as u64;
            }
            println!("{path:?} {end}: {lost} tags lost in {short} of {batches} batches");
            if lost > 0 {
                report.push((path, end, lost));
            }
        }
    }
    assert!(report.is_empty(), "tags were lost: {report:?}");
}

#[test]
fn tags_of_a_sender_that_ends_at_once_are_all_received() {
    nothing_is_lost(batches(10));
}

/// The receiver's inbox is full when the sender ends: the rest waits where the system has it, and is received too.
#[test]
fn what_waits_for_a_full_inbox_is_received_after_the_sender_has_ended() {
    for path in PATHS {
        for end in ENDS {
            let dir = TempDir::new();
            let session = Session::builder(0)
                .uds(dir.path())
                .tcp("127.0.0.1:0")
                .buffer(4096)
                .inbox(8, 1 << 20)
                .redial(false)
                .start()
                .expect("a session");
            let mut actor = Actor::session(ACTOR, "rank=1 buffer=4096 redial=0");
            let to = path.address(&session, &dir);
            actor.ask(&format!("connect 0 {} {} 20000", to, path.conn().name()));
            let peer = session.wait_peer(1, LONG).expect("it came");
            actor.tell(&format!("tags 0 0 {BATCH} {end}"));
            // It has ended before anything is received.
            if end == "close" {
                let _ = actor.answer();
                drop(actor);
            } else {
                until("it ends", LONG, || actor.has_ended().then_some(()));
            }
            let tags = tags_of(&peer);
            assert!(tags.iter().copied().eq(0..BATCH), "{path:?} {end}: {tags:?}");
        }
    }
}

/// Who receives of anybody receives what the dead have sent, too.
#[test]
fn tags_of_the_dead_are_received_from_any() {
    let dir = TempDir::new();
    let session = receiver(&dir);
    let mut actor = Actor::session(ACTOR, "rank=1 buffer=4096 redial=0");
    actor.ask(&format!("connect 0 {} shm 20000", dir.address()));
    session.wait_peer(1, LONG).expect("it came");
    actor.tell("tags 0 0 3 exit");
    until("the link is over", LONG, || (session.stats().peers_lost == 1).then_some(()));
    for tag in 0..3 {
        let (from, message) = session.control().recv_any(Want::Tag, LONG).expect("it was sent");
        assert_eq!((from.0, message), (1, Message::Tag(tag)));
    }
}

#[test]
#[ignore = "9,000 processes: HMC_TEST_BATCHES=1000 cargo test -p hmc-tests --test tags -- --ignored"]
fn tags_of_a_thousand_senders_of_each_kind_are_all_received() {
    nothing_is_lost(batches(1000));
}
