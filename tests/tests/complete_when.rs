//! Puts that are complete when the memory here may be used again: they need nothing of their target.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::sync::mpsc::channel;
use std::time::Duration;

use hmc_std::{
    CompleteWhen, ConnBuffer, ConnType, ErrorKind, Message, Op, Peer, Piece, Progress, Remote,
    Session, Waited, want,
};
use hmc_tests::actor::Actor;
use hmc_tests::env::TempDir;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
/// A stopped target is dead after 2.5 s.
const SOON: Duration = Duration::from_millis(300);
/// Fits into what the system keeps of a connection.
const LEN: u64 = 16 << 10;

struct Stopped {
    actor: Actor,
    session: Session,
    peer: Peer,
    window: Remote,
    _dir: TempDir,
}

impl Stopped {
    /// A target that is connected over TCP and stopped.
    fn new() -> Self {
        let dir = TempDir::new();
        let settings = format!("rank=1 uds={} tcp=127.0.0.1:0 buffer=65536", dir.path().display());
        let mut actor = Actor::session(ACTOR, &settings);
        let session = Session::builder(0).buffer(1 << 16).start().unwrap();
        let to = dir.address();
        let peer = session.connect(&to).rank(1).over(ConnType::Tcp).within(LONG).wait().unwrap();
        actor.request("meet 0 20000");
        let window = peer.buffer().unwrap();
        actor.stop();
        Self { actor, session, peer, window, _dir: dir }
    }

    fn crc_there(&mut self, offset: u64) -> u32 {
        self.actor.request(&format!("crc {offset} {LEN}")).trim().parse().unwrap()
    }

    /// Memory of bytes of that value.
    fn filled(&self, value: u8) -> ConnBuffer {
        let shared = self.session.memory().allocate(LEN).unwrap().share().unwrap();
        shared.fill(0, LEN, value).unwrap();
        shared
    }
}

#[test]
fn a_stopped_target_holds_up_visible_puts_only() {
    let mut stopped = Stopped::new();
    let [one, two, three] = [1, 2, 3].map(|value| stopped.filled(value));
    let put = |at, from: &ConnBuffer| {
        let put = stopped.window.put(at, from.all()).when(CompleteWhen::Local);
        assert_eq!(put.within(LONG).wait().unwrap().bytes, LEN);
        // It may be used again: what was put is on its way.
        from.fill(0, LEN, 0xEE).unwrap();
    };
    put(0, &one);
    let pieces = [Piece::new(two.range(0, LEN / 2).unwrap(), LEN), Piece::new(two.all(), LEN)];
    let list = stopped.window.put_list(&pieces[1..]).when(CompleteWhen::Local);
    assert_eq!(list.start().and_then(Op::wait).unwrap().bytes, LEN);
    two.fill(0, LEN, 0xEE).unwrap();
    // Whose tag tells of the bytes waits for them.
    let local = stopped.window.put(0, two.range(0, 0).unwrap()).when(CompleteWhen::Local);
    let tagged = local.notify(5).start().unwrap();
    let pieces = [Piece::new(three.range(0, 64).unwrap(), 3 * LEN)];
    let tagged_list = stopped.window.put_list(&pieces).when(CompleteWhen::Local).notify(6);
    let tagged_list = tagged_list.start().unwrap();
    for op in [&tagged, &tagged_list] {
        assert!(matches!(op.wait_for(Duration::from_millis(50)), Waited::Limit), "it is not there");
    }
    let visible = stopped.window.put(2 * LEN, three.all()).within(SOON).wait().unwrap_err();
    assert_eq!(visible.kind(), ErrorKind::DeadlineExceeded);
    stopped.actor.resume();
    assert!(stopped.peer.is_connected());
    for (op, tag) in [(tagged, "5"), (tagged_list, "6")] {
        op.wait().unwrap();
        assert_eq!(stopped.actor.request("recv 0 20000").trim(), tag);
    }
    assert_eq!(stopped.crc_there(LEN), stopped.filled(2).crc32c(0, LEN).unwrap());
    stopped.window.get(0, one.all()).within(LONG).wait().unwrap();
    assert_eq!(one.crc32c(0, LEN).unwrap(), stopped.filled(1).crc32c(0, LEN).unwrap());
    stopped.peer.send(Message::Tag(1)).within(LONG).wait().unwrap();
}

/// An orderly end waits for the answers to puts that were complete locally, also while another thread of this end drives the link.
#[test]
fn what_was_put_locally_is_there_after_an_orderly_end() {
    const PUTS: u64 = 64;
    let dir = TempDir::new();
    let settings = format!("rank=1 uds={} tcp=127.0.0.1:0 buffer=1048576", dir.path().display());
    let mut actor = Actor::session(ACTOR, &settings);
    for (round, ends) in (1..=12u8).zip([0, 1, 2].into_iter().cycle()) {
        let session = Session::builder(0).buffer(64).start().unwrap();
        let to = dir.address();
        let peer = session.connect(&to).rank(1).over(ConnType::Tcp).within(LONG).wait().unwrap();
        actor.request("meet 0 20000");
        let window = peer.buffer().unwrap();
        let memory = session.memory().allocate(LEN).unwrap().share().unwrap();
        memory.fill(0, LEN, round).unwrap();
        for at in 0..PUTS {
            let put = window.put(at * LEN, memory.all()).when(CompleteWhen::Local);
            put.within(LONG).wait().unwrap();
        }
        match ends {
            0 => peer.disconnect().within(LONG).wait().unwrap(),
            1 => session.shutdown().within(LONG).wait().unwrap(),
            _ => std::thread::scope(|s| {
                let waits = s.spawn(|| peer.recv(want::Tag).within(LONG).wait().unwrap_err());
                peer.disconnect().within(LONG).wait().unwrap();
                assert_ne!(waits.join().unwrap().kind(), ErrorKind::DeadlineExceeded);
            }),
        }
        for at in 0..PUTS {
            let there: u32 =
                actor.request(&format!("crc {} {LEN}", at * LEN)).trim().parse().unwrap();
            assert_eq!(there, memory.crc32c(0, LEN).unwrap(), "put {at} of round {round}");
        }
    }
}

/// A peer that answers nothing does not delay the goodbye to another one.
#[test]
fn a_stopped_target_delays_the_goodbye_to_itself_only() {
    let stopped = Stopped::new();
    stopped.actor.resume();
    let dir = TempDir::new();
    let other = Session::builder(2).uds(dir.path()).buffer(64).start().unwrap();
    stopped.session.connect(&dir.address()).within(LONG).wait().unwrap();
    let peer = other.accept(0).within(LONG).wait().unwrap();
    stopped.actor.stop();
    let bytes = stopped.filled(1);
    let put = stopped.window.put(0, bytes.all()).when(CompleteWhen::Local);
    put.within(LONG).wait().unwrap();
    let (says, hears) = channel();
    std::thread::scope(|s| {
        for (waits, ended) in
            [(&peer, "the other peer left"), (&stopped.peer, "the stopped one died")]
        {
            let says = says.clone();
            s.spawn(move || {
                let error = waits.recv(want::Tag).within(LONG).wait().unwrap_err();
                says.send(ended).unwrap();
                assert_eq!(error.kind(), ErrorKind::PeerDead, "{ended}");
            });
        }
        stopped.session.shutdown().within(LONG).wait().unwrap();
    });
    assert_eq!(hears.recv(), Ok("the other peer left"));
}

/// The same of another one that still has to answer puts when the end begins.
#[test]
fn a_stopped_target_delays_no_goodbye_to_a_peer_that_answers_later() {
    let stopped = Stopped::new();
    let other = Session::builder(2).tcp("127.0.0.1:0").buffer(1 << 16).progress(Progress::Manual);
    let other = other.start().unwrap();
    let to = other.info().listeners.first().unwrap().address().clone();
    let (peer, window) = std::thread::scope(|s| {
        let accepted = s.spawn(|| other.accept(0).within(LONG).wait().unwrap());
        let there = stopped.session.connect(&to).over(ConnType::Tcp).within(LONG).wait().unwrap();
        (accepted.join().unwrap(), there.buffer().unwrap())
    });
    let bytes = stopped.filled(1);
    for to in [&stopped.window, &window] {
        let put = to.put(0, bytes.all()).when(CompleteWhen::Local);
        put.within(LONG).wait().unwrap();
    }
    let (says, hears) = channel();
    std::thread::scope(|s| {
        s.spawn(|| stopped.session.shutdown().within(LONG).wait().unwrap());
        let died = says.clone();
        let stopped_peer = &stopped.peer;
        s.spawn(move || {
            let error = stopped_peer.recv(want::Tag).within(LONG).wait().unwrap_err();
            died.send("the stopped one died").unwrap();
            assert_eq!(error.kind(), ErrorKind::PeerDead);
        });
        // Once it has begun nobody connects any more.
        let begun = || {
            let refused = stopped.session.connect(&to).rank(3).within(SOON).wait();
            refused.is_err_and(|e| e.kind() == ErrorKind::Closed)
        };
        while !begun() {}
        let error = peer.recv(want::Tag).within(LONG).wait().unwrap_err();
        says.send("the other peer left").unwrap();
        assert_eq!(error.kind(), ErrorKind::PeerDead);
    });
    assert_eq!(hears.recv(), Ok("the other peer left"));
}

/// A prepared list keeps it.
#[test]
fn runs_of_a_prepared_list_are_complete_as_the_list_was() {
    let mut stopped = Stopped::new();
    let bytes = stopped.filled(9);
    let pieces = [Piece::new(bytes.all(), 0)];
    let local = stopped.window.put_list(&pieces).when(CompleteWhen::Local).prepare().unwrap();
    let visible = stopped.window.put_list(&pieces).prepare().unwrap();
    assert_eq!(local.again().within(LONG).wait().unwrap().bytes, LEN);
    let late = visible.again().within(SOON).wait().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::DeadlineExceeded);
    stopped.actor.resume();
    visible.again().within(LONG).wait().unwrap();
    assert_eq!(stopped.crc_there(0), bytes.crc32c(0, LEN).unwrap());
}
