//! Driven sessions on a wire that loses nothing: the least that must hold before a world is built on them.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::collections::BTreeMap;

use hmc_core::time::{Duration, Instant};
use hmc_sim::world::node::{
    Answer, Area, Ask, Boot, Cluster, ConnId, ELSEWHERE, Fault, Input, Message, Node, Output,
    Outsider, Piece,
};
use hmc_tests::cluster::{SessionNode, Sessions};

const MS: u64 = 1_000_000;

/// Nodes, and a wire on which everything arrives at once.
struct Bus {
    nodes: Vec<SessionNode>,
    now: Instant,
    /// Who is at the two ends.
    conns: BTreeMap<u32, (usize, usize)>,
    next: u32,
    answers: BTreeMap<u64, Answer>,
    messages: Vec<(usize, Message)>,
    ups: Vec<(usize, u32)>,
    downs: Vec<(usize, u32)>,
}

impl Bus {
    fn new(ranks: u32) -> Self {
        let now = Instant::from_nanos(MS);
        let boot = |rank| Boot {
            rank,
            ranks,
            incarnation: 1,
            seed: u64::from(rank) + 7,
            now,
            buffer_len: 4096,
            heartbeat_ns: 500 * MS,
            deadline_ns: 30_000 * MS,
        };
        Self {
            nodes: (0..ranks).map(|r| Sessions.boot(&boot(r))).collect(),
            now,
            conns: BTreeMap::new(),
            next: 1,
            answers: BTreeMap::new(),
            messages: Vec::new(),
            ups: Vec::new(),
            downs: Vec::new(),
        }
    }

    fn ask(&mut self, at: usize, ticket: u64, ask: &Ask) {
        self.nodes[at].handle(self.now, Input::Ask { ticket, ask });
        self.run();
    }

    fn other(&self, conn: u32, at: usize) -> Option<usize> {
        self.conns.get(&conn).map(|(a, b)| if *a == at { *b } else { *a })
    }

    /// Carries everything until nobody says anything.
    fn run(&mut self) {
        let mut busy = true;
        while busy {
            busy = false;
            for at in 0..self.nodes.len() {
                while let Some(output) = self.nodes[at].poll() {
                    busy = true;
                    self.carry(at, output);
                }
            }
        }
    }

    fn carry(&mut self, at: usize, output: Output) {
        let now = self.now;
        match output {
            Output::Connect { ticket, to } => {
                let (conn, to) = (self.next, usize::try_from(to).unwrap());
                self.next += 1;
                self.conns.insert(conn, (at, to));
                let from = u32::try_from(at).unwrap();
                self.nodes[to].handle(now, Input::Accepted { conn: ConnId(conn), from });
                self.nodes[at].handle(now, Input::Opened { ticket, conn: ConnId(conn) });
            }
            Output::Send { conn, bytes } => {
                if let Some(to) = self.other(conn.0, at) {
                    let n = u64::try_from(bytes.len()).unwrap();
                    self.nodes[to].handle(now, Input::Bytes { conn, bytes: &bytes });
                    self.nodes[at].handle(now, Input::SendSpace { conn, bytes: n });
                }
            }
            Output::Taken { .. } => {}
            Output::Close { conn } => {
                if let Some(to) = self.other(conn.0, at) {
                    self.conns.remove(&conn.0);
                    self.nodes[to].handle(now, Input::Closed { conn, reset: false });
                }
            }
            Output::Answer { ticket, answer } => {
                let twice = self.answers.insert(ticket, answer);
                assert_eq!(twice, None, "ask {ticket} was answered twice");
            }
            Output::Message { message, .. } => self.messages.push((at, message)),
            Output::PeerUp { rank, .. } => self.ups.push((at, rank)),
            Output::PeerDown { rank } => self.downs.push((at, rank)),
        }
    }

    fn pass(&mut self, ms: u64) {
        let end = self.now.after(Duration::from_millis(ms));
        loop {
            let wake = self.nodes.iter().map(Node::wake_at).min().unwrap().min(end);
            self.now = wake.max(self.now);
            for at in 0..self.nodes.len() {
                if self.nodes[at].wake_at() <= self.now {
                    self.nodes[at].handle(self.now, Input::Tick);
                }
            }
            self.run();
            if self.now >= end {
                return;
            }
        }
    }

    fn done(&self, ticket: u64) -> u64 {
        match self.answers.get(&ticket) {
            Some(Answer::Done { bytes }) => *bytes,
            other => panic!("ask {ticket}: {other:?}"),
        }
    }
}

#[test]
fn sessions_without_sockets_connect_and_move_bytes() {
    let mut bus = Bus::new(3);
    bus.ask(0, 1, &Ask::Connect { rank: 1 });
    bus.ask(2, 2, &Ask::Connect { rank: 1 });
    assert_eq!((bus.done(1), bus.done(2)), (0, 0));
    assert!(bus.nodes[0].write(Area::Buffer, 0, b"hello"));
    let piece = Piece { local: 0, remote: 100, len: 5 };
    bus.ask(0, 3, &Ask::PutNotify { peer: 1, piece, tag: 42 });
    assert_eq!(bus.done(3), 5);
    let mut got = [0; 5];
    assert!(bus.nodes[1].read(Area::Buffer, 100, &mut got));
    assert_eq!((&got, &bus.messages[..]), (b"hello", &[(1, Message::Notify(42))][..]));
    bus.ask(2, 4, &Ask::Get { peer: 1, piece: Piece { local: 7, remote: 100, len: 5 } });
    assert_eq!(bus.done(4), 5);
    assert!(bus.nodes[2].read(Area::Buffer, 7, &mut got));
    assert_eq!(&got, b"hello");
    bus.ask(0, 5, &Ask::Put { peer: 1, piece: Piece { local: 0, remote: 4095, len: 2 } });
    assert_eq!(bus.answers[&5], Answer::Failed(Fault::OutOfRange));
    bus.ask(0, 6, &Ask::Put { peer: 2, piece });
    assert_eq!(bus.answers[&6], Answer::Failed(Fault::NotConnected));
    // Heartbeats keep it alive, and nothing else happens.
    bus.pass(60_000);
    assert_eq!(bus.downs, []);
    bus.ask(0, 7, &Ask::Disconnect { peer: 1 });
    assert_eq!(bus.done(7), 0);
    bus.downs.sort_unstable();
    assert_eq!(bus.downs, [(0, 1), (1, 0)]);
}

#[test]
fn a_window_is_used_and_taken_back() {
    let mut bus = Bus::new(2);
    bus.ask(0, 1, &Ask::Connect { rank: 1 });
    let window =
        |ticket| (ticket, Ask::Expose { peer: 0, label: 9, len: 64, read: true, write: true });
    let (t, ask) = window(2);
    bus.ask(1, t, &ask);
    assert_eq!(bus.done(2), 0);
    assert!(bus.nodes[0].write(Area::Buffer, 8, &[7; 16]));
    let piece = Piece { local: 8, remote: 4, len: 16 };
    bus.ask(0, 3, &Ask::PutWindow { peer: 1, label: 9, piece });
    assert_eq!(bus.done(3), 16);
    bus.ask(1, 4, &Ask::Revoke { label: 9, patience_ns: MS });
    assert_eq!(bus.done(4), 0);
    let mut got = [0; 18];
    assert!(bus.nodes[1].read(Area::Window(9), 3, &mut got));
    assert_eq!((got[0], &got[1..17], got[17]), (0, &[7; 16][..], 0));
    bus.ask(0, 5, &Ask::PutWindow { peer: 1, label: 9, piece });
    assert_eq!(bus.answers[&5], Answer::Failed(Fault::Unknown));
}

/// The limit is the limit, wherever in the session's own rhythm the silence began.
#[test]
fn a_silent_peer_is_dead_at_the_limit_not_at_the_next_tick() {
    for began_ms in [0, 1, 60, 124, 249] {
        let mut bus = Bus::new(2);
        bus.ask(0, 1, &Ask::Connect { rank: 1 });
        bus.pass(1_000 + began_ms);
        // Heard at this very moment, and then no more.
        bus.ask(1, 2, &Ask::Tag { peer: 0, tag: 1 });
        let heard = bus.now;
        bus.conns.clear();
        while !bus.downs.contains(&(0, 1)) {
            bus.pass(1);
        }
        let silent = bus.now.since(heard).as_nanos() / MS;
        assert!(
            (2_500..=2_511).contains(&silent),
            "dead after {silent} ms, begun at {began_ms} ms"
        );
    }
}

#[test]
fn silence_is_death_and_the_lower_rank_dials_again() {
    let mut bus = Bus::new(2);
    bus.ask(1, 1, &Ask::Connect { rank: 0 });
    // The wire is cut for one side only: the other hears nothing any more.
    let lost: Vec<u32> = bus.conns.keys().copied().collect();
    for conn in lost {
        bus.conns.remove(&conn);
    }
    bus.pass(4_000);
    assert!(bus.downs.contains(&(0, 1)) && bus.downs.contains(&(1, 0)), "{:?}", bus.downs);
    // Rank 0 dialed, and both are up again.
    assert_eq!(bus.ups.len(), 4, "{:?}", bus.ups);
    let piece = Piece { local: 0, remote: 0, len: 8 };
    bus.ask(1, 2, &Ask::Put { peer: 0, piece });
    assert_eq!(bus.done(2), 8);
}

/// Hands node 0's output to node 1 by hand: its data connection ends before the bytes of its control connection come.
#[test]
fn what_a_killed_peer_sent_arrives_before_its_end() {
    let mut bus = Bus::new(2);
    bus.ask(0, 1, &Ask::Connect { rank: 1 });
    let mut conns: Vec<u32> = bus.conns.keys().copied().collect();
    conns.sort_unstable();
    let [control, data] = conns[..] else { panic!("two connections: {conns:?}") };
    let now = bus.now;
    let mut sent = Vec::new();
    for tag in 1..=3 {
        let ask = Ask::Tag { peer: 1, tag };
        bus.nodes[0].handle(now, Input::Ask { ticket: 1 + tag, ask: &ask });
        while let Some(output) = bus.nodes[0].poll() {
            match output {
                Output::Send { conn, bytes } if conn == ConnId(control) => sent.extend(bytes),
                Output::Answer { answer: Answer::Done { .. }, .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    bus.nodes[1].handle(now, Input::Closed { conn: ConnId(data), reset: true });
    bus.nodes[1].handle(now, Input::Bytes { conn: ConnId(control), bytes: &sent });
    bus.nodes[1].handle(now, Input::Closed { conn: ConnId(control), reset: true });
    let mut heard = Vec::new();
    while let Some(output) = bus.nodes[1].poll() {
        if let Output::Message { .. } | Output::PeerDown { .. } = output {
            heard.push(output);
        }
    }
    let tags = [1, 2, 3].map(|tag| Output::Message { from: 0, message: Message::Tag(tag) });
    assert_eq!(heard[..3], tags);
    assert_eq!(heard[3..], [Output::PeerDown { rank: 0 }]);
}

#[test]
fn silent_connections_take_no_place_of_a_peer() {
    let mut bus = Bus::new(2);
    for n in 1_000..1_100 {
        bus.nodes[1].handle(bus.now, Input::Accepted { conn: ConnId(n), from: 1 });
        bus.run();
    }
    bus.ask(0, 1, &Ask::Connect { rank: 1 });
    assert_eq!(bus.done(1), 0);
}

#[test]
fn a_claim_that_comes_and_goes_does_not_keep_a_rank() {
    for incarnation in [1, u64::MAX] {
        let mut bus = Bus::new(2);
        let claim = Outsider::Claim { rank: 0, incarnation };
        let bytes = Sessions.outsider_bytes(1, &claim).expect("a HELLO").bytes;
        let conn = ConnId(1_000);
        bus.nodes[1].handle(bus.now, Input::Accepted { conn, from: ELSEWHERE });
        bus.nodes[1].handle(bus.now, Input::Bytes { conn, bytes: &bytes });
        bus.run();
        // While it lasts it has the rank.
        bus.ask(0, 1, &Ask::Connect { rank: 1 });
        bus.pass(2_000);
        assert_eq!(bus.answers[&1], Answer::Failed(Fault::Duplicate));
        bus.nodes[1].handle(bus.now, Input::Closed { conn, reset: false });
        bus.ask(0, 2, &Ask::Connect { rank: 1 });
        bus.pass(1_000);
        assert_eq!(bus.done(2), 0);
    }
}
