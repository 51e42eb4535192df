//! Messages of peers that are gone are kept until they are received, but a process that joins and ends again and again,
//! under one rank after the other, makes the session hold no more than a limit.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::io::Write as _;
use std::time::Duration;

use hmc_core::limits::MAX_LEFT_BYTES;
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::wire::message::ControlMessage;
use hmc_std::{Address, ErrorKind, Message, Session, want::Wanted};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, count_of, until};
use hmc_tests::listening::Listening as _;
use hmc_tests::raw_frames::frame;
use hmc_tests::rogue::{Rogue, pour};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
/// More than one inbox takes: 4 MiB.
const SENT: usize = 5 << 20;
/// What the one peer that lives may cost: its inbox, its buffers of one frame, and a table.
const LIVE: usize = (4 << 20) + (2 << 20) + (1 << 20);

struct Scene {
    actor: Actor,
    dir: TempDir,
}

impl Scene {
    fn new() -> Self {
        let dir = TempDir::new();
        let settings = format!("rank=0 uds={} buffer=65536", dir.path().display());
        Self { actor: Actor::session(ACTOR, &settings), dir }
    }

    fn live(&mut self) -> usize {
        self.actor.request("live").parse().unwrap()
    }

    /// Joins as `rank`, sends as much as the sockets accept, and ends.
    fn visit(&mut self, rank: u32, bytes: &[u8]) {
        let address = self.dir.address();
        let mut rogue = Rogue::join(rank, &address, &address);
        let (mut sent, mut stuck) = (0, 0);
        while sent < bytes.len() && stuck < 20 {
            let before = sent;
            sent = pour(&mut rogue.control, bytes, sent).unwrap();
            stuck = if sent == before { stuck + 1 } else { 0 };
        }
        drop(rogue);
        until("its link is over", LONG, || (self.actor.request("peers") == "0").then_some(()));
    }

    /// How many messages of a peer that is gone are received.
    fn drain(&mut self, rank: u32) -> u32 {
        self.actor.request(&format!("drain {rank}")).parse().unwrap()
    }
}

#[test]
fn what_peers_that_are_gone_have_left_is_limited() {
    let mut scene = Scene::new();
    let tag = frame(&ControlMessage::Tag(7));
    let long = vec![3; 64 << 10];
    let many = frame(&ControlMessage::Struct(&long)).repeat(SENT / long.len());
    // What a first link pays once.
    scene.visit(1, &tag);
    assert_eq!(scene.drain(1), 1);
    let (before, files) = (scene.live(), count_of(scene.actor.pid(), "fd"));

    scene.visit(2, &tag);
    let mut most = 0;
    for rank in 3..23 {
        scene.visit(rank, &many);
        most = most.max(scene.live().saturating_sub(before));
    }
    println!("{most} bytes of {MAX_LEFT_BYTES} and {LIVE}");
    assert!(most <= MAX_LEFT_BYTES + LIVE, "grew by {most} bytes");

    // Who left little keeps it, whoever else came; what fits of the others is there.
    assert_eq!(scene.drain(2), 1);
    let counts: Vec<u32> = (3..23).map(|rank| scene.drain(rank)).collect();
    let whole = counts.iter().filter(|n| **n >= 64).count();
    assert!((10..20).contains(&whole), "{counts:?}");
    let lost = counts.iter().position(|n| *n == 0).unwrap();
    let told = scene.actor.try_request(&format!("recv {} 0", lost + 3)).unwrap_err();
    assert!(told.contains("PeerDead") && told.contains("dropped"), "{told}");
    until("all is given back", LONG, || {
        let left = scene.live().saturating_sub(before);
        (left <= 1 << 18 && count_of(scene.actor.pid(), "fd") <= files).then_some(())
    });
}

/// Of a link that is over only its messages are kept: neither descriptors nor buffers.
#[test]
fn many_that_left_little_are_limited_too() {
    let mut scene = Scene::new();
    let tag = frame(&ControlMessage::Tag(7));
    scene.visit(1, &tag);
    let (before, files) = (scene.live(), count_of(scene.actor.pid(), "fd"));
    for rank in 2..102 {
        scene.visit(rank, &tag);
    }
    let mut each = 0;
    until("what is left costs little", LONG, || {
        each = scene.live().saturating_sub(before) / 100;
        // One socket stands for those of all.
        (each <= 8 << 10 && count_of(scene.actor.pid(), "fd") <= files + 1).then_some(())
    });
    println!("{each} bytes for each");
    for rank in 1..102 {
        assert_eq!(scene.drain(rank), 1, "rank {rank}");
    }
}

/// Messages that one inbox takes.
const INBOX: usize = 4096;
/// More than that.
const TAGS: usize = INBOX + 100;

/// Fills the inbox of its peer, lets `last` say its last words, and ends. Its end is seen although nothing is read then, and
/// what it has sent is there.
fn is_seen_to_end(session: &Session, rank: u32, mut rogue: Rogue, last: fn(&mut Rogue)) {
    let tags = frame(&ControlMessage::Tag(7)).repeat(TAGS);
    assert_eq!(pour(&mut rogue.control, &tags, 0), Some(tags.len()));
    let peer = session.accept(rank).within(LONG).wait().unwrap();
    until("the inbox is full", LONG, || {
        session.stats().peers.iter().any(|p| p.rank.0 == rank && p.inbox == INBOX).then_some(())
    });
    last(&mut rogue);
    drop(rogue);
    until("its end is seen", LONG, || (!peer.is_connected()).then_some(()));
    let e = peer.send(Message::Tag(1)).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::PeerDead, "{e}");
    for n in 0..TAGS {
        assert_eq!(
            peer.recv(Wanted::Tag).within(LONG).wait().unwrap(),
            hmc_std::Message::Tag(7),
            "{n}"
        );
    }
    let e = peer.recv(Wanted::Tag).within(LONG).wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::PeerDead, "{e}");
}

/// Returns a session with a listener of each kind, and their addresses.
fn listening(dir: &TempDir, heartbeat: Option<Duration>) -> (Session, [Address; 2]) {
    let session = Session::builder(0).uds(dir.path()).tcp("127.0.0.1:0").insecure_loopback();
    let session = session.heartbeat(heartbeat).buffer(65_536).accept_upstream().start().unwrap();
    let tcp = Address::Tcp(session.tcp_addr().unwrap());
    (session, [dir.address(), tcp])
}

/// It has one connection, and no heartbeats.
#[test]
fn a_full_inbox_hides_no_end_of_a_node_of_the_cxx_hmc() {
    let dir = TempDir::new();
    let (session, addresses) = listening(&dir, None);
    for (rank, address) in (1..).zip(&addresses) {
        is_seen_to_end(&session, rank, Rogue::join_upstream(rank, address), |_| ());
    }
}

/// The tag of a put waits for space, too, so that neither connection is read; and no heartbeat detects the exit.
#[test]
fn a_full_inbox_hides_no_end_of_both_connections() {
    let dir = TempDir::new();
    let (session, addresses) = listening(&dir, None);
    for (rank, address) in (1..).zip(&addresses) {
        is_seen_to_end(&session, rank, Rogue::join_mute(rank, address, &addresses[1]), |rogue| {
            let mut put = DataFrame::new(DataKind::Write, 0);
            (put.window, put.epoch) = (rogue.window.window, rogue.window.epoch);
            put.flags = DataFlags::LAST | DataFlags::NOTIFY;
            rogue.data.write_all(&put.emit()).unwrap();
        });
    }
}

/// Over TCP the end follows all sent bytes, for which neither kernel has buffer space.
#[test]
fn a_heartbeat_finds_the_end_behind_a_full_connection() {
    let dir = TempDir::new();
    let (session, [_, tcp]) = listening(&dir, Some(Duration::from_millis(500)));
    let mut rogue = Rogue::join(1, &tcp, &tcp);
    let peer = session.accept(1).within(LONG).wait().unwrap();
    let many = frame(&ControlMessage::Struct(&vec![3; 64 << 10])).repeat(1024);
    let sent = pour(&mut rogue.control, &many, 0).unwrap();
    assert!(sent < many.len(), "it is full");
    drop(rogue);
    until("its end is found", LONG, || (!peer.is_connected()).then_some(()));
}

/// Its messages fill the inbox, and more of them wait in the connection: a ring over shared memory.
#[test]
fn a_process_that_is_killed_behind_a_full_inbox_starts_again_with_its_rank() {
    for via in ["shm", "tcp"] {
        let dir = TempDir::new();
        let (session, _) = listening(&dir, Some(Duration::from_millis(500)));
        let settings = format!("rank=1 uds={} buffer=65536", dir.path().display());
        let connect = format!("connect 0 uds://{} {via} 10000", dir.path().display());
        let mut actor = Actor::session(ACTOR, &settings);
        actor.request(&connect);
        let peer = session.accept(1).within(LONG).wait().unwrap();
        actor.send(&format!("tags 0 0 {TAGS} kill"));
        until("its end is seen", LONG, || (!peer.is_connected()).then_some(()));
        // The mark in shared memory tells of the end before its sockets are closed.
        until("it has ended", LONG, || actor.has_ended().then_some(()));
        let mut again = Actor::session(ACTOR, &settings);
        again.request(&connect);
        for n in 0..TAGS {
            let got = peer.recv(Wanted::Tag).within(LONG).wait().unwrap();
            assert_eq!(got, Message::Tag(n.try_into().unwrap()), "{via}");
        }
    }
}
