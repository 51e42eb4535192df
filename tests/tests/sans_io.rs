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
    BatchPart, Cluster, ConnId, ELSEWHERE, MemoryArea, Node, NodeConfig, NodeInput, NodeMessage,
    NodeOutput, Outsider, Request, RequestError, RequestResult,
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
    results: BTreeMap<u64, RequestResult>,
    messages: Vec<(usize, NodeMessage)>,
    ups: Vec<(usize, u32)>,
    downs: Vec<(usize, u32)>,
}

impl Bus {
    fn new(ranks: u32) -> Self {
        let now = Instant::from_nanos(MS);
        let boot = |rank| NodeConfig {
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
            results: BTreeMap::new(),
            messages: Vec::new(),
            ups: Vec::new(),
            downs: Vec::new(),
        }
    }

    fn request(&mut self, at: usize, number: u64, request: &Request) {
        self.nodes[at].handle(self.now, NodeInput::Request { number, request });
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

    fn carry(&mut self, at: usize, output: NodeOutput) {
        let now = self.now;
        match output {
            NodeOutput::Connect { number, to } => {
                let (conn, to) = (self.next, usize::try_from(to).unwrap());
                self.next += 1;
                self.conns.insert(conn, (at, to));
                let from = u32::try_from(at).unwrap();
                self.nodes[to].handle(now, NodeInput::Accepted { conn: ConnId(conn), from });
                self.nodes[at].handle(now, NodeInput::Opened { number, conn: ConnId(conn) });
            }
            NodeOutput::Send { conn, bytes } => {
                if let Some(to) = self.other(conn.0, at) {
                    let n = u64::try_from(bytes.len()).unwrap();
                    self.nodes[to].handle(now, NodeInput::Bytes { conn, bytes: &bytes });
                    self.nodes[at].handle(now, NodeInput::SendSpace { conn, bytes: n });
                }
            }
            NodeOutput::Taken { .. } => {}
            NodeOutput::Close { conn } => {
                if let Some(to) = self.other(conn.0, at) {
                    self.conns.remove(&conn.0);
                    self.nodes[to].handle(now, NodeInput::Closed { conn, reset: false });
                }
            }
            NodeOutput::Result { number, result } => {
                let twice = self.results.insert(number, result);
                assert_eq!(twice, None, "request {number} completed twice");
            }
            NodeOutput::Message { message, .. } => self.messages.push((at, message)),
            NodeOutput::PeerUp { rank, .. } => self.ups.push((at, rank)),
            NodeOutput::PeerDown { rank } => self.downs.push((at, rank)),
        }
    }

    fn pass(&mut self, ms: u64) {
        let end = self.now.after(Duration::from_millis(ms));
        loop {
            let wake = self.nodes.iter().map(Node::wake_at).min().unwrap().min(end);
            self.now = wake.max(self.now);
            for at in 0..self.nodes.len() {
                if self.nodes[at].wake_at() <= self.now {
                    self.nodes[at].handle(self.now, NodeInput::Tick);
                }
            }
            self.run();
            if self.now >= end {
                return;
            }
        }
    }

    fn done(&self, number: u64) -> u64 {
        match self.results.get(&number) {
            Some(RequestResult::Done { bytes }) => *bytes,
            other => panic!("request {number}: {other:?}"),
        }
    }
}

#[test]
fn sessions_without_sockets_connect_and_move_bytes() {
    let mut bus = Bus::new(3);
    bus.request(0, 1, &Request::Connect { rank: 1 });
    bus.request(2, 2, &Request::Connect { rank: 1 });
    assert_eq!((bus.done(1), bus.done(2)), (0, 0));
    assert!(bus.nodes[0].write(MemoryArea::Buffer, 0, b"hello"));
    let piece = BatchPart { local: 0, remote: 100, len: 5 };
    bus.request(0, 3, &Request::PutNotify { peer: 1, piece, tag: 42 });
    assert_eq!(bus.done(3), 5);
    let mut got = [0; 5];
    assert!(bus.nodes[1].read(MemoryArea::Buffer, 100, &mut got));
    assert_eq!((&got, &bus.messages[..]), (b"hello", &[(1, NodeMessage::Notify(42))][..]));
    bus.request(
        2,
        4,
        &Request::Get { peer: 1, piece: BatchPart { local: 7, remote: 100, len: 5 } },
    );
    assert_eq!(bus.done(4), 5);
    assert!(bus.nodes[2].read(MemoryArea::Buffer, 7, &mut got));
    assert_eq!(&got, b"hello");
    bus.request(
        0,
        5,
        &Request::Put { peer: 1, piece: BatchPart { local: 0, remote: 4095, len: 2 } },
    );
    assert_eq!(bus.results[&5], RequestResult::Failed(RequestError::OutOfRange));
    bus.request(0, 6, &Request::Put { peer: 2, piece });
    assert_eq!(bus.results[&6], RequestResult::Failed(RequestError::NotConnected));
    // Heartbeats keep it alive, and nothing else happens.
    bus.pass(60_000);
    assert_eq!(bus.downs, []);
    bus.request(0, 7, &Request::Disconnect { peer: 1 });
    assert_eq!(bus.done(7), 0);
    bus.downs.sort_unstable();
    assert_eq!(bus.downs, [(0, 1), (1, 0)]);
}

#[test]
fn a_window_is_used_and_taken_back() {
    let mut bus = Bus::new(2);
    bus.request(0, 1, &Request::Connect { rank: 1 });
    let window =
        |number| (number, Request::Expose { peer: 0, label: 9, len: 64, read: true, write: true });
    let (t, request) = window(2);
    bus.request(1, t, &request);
    assert_eq!(bus.done(2), 0);
    assert!(bus.nodes[0].write(MemoryArea::Buffer, 8, &[7; 16]));
    let piece = BatchPart { local: 8, remote: 4, len: 16 };
    bus.request(0, 3, &Request::PutWindow { peer: 1, label: 9, piece });
    assert_eq!(bus.done(3), 16);
    bus.request(1, 4, &Request::Revoke { label: 9, patience_ns: MS });
    assert_eq!(bus.done(4), 0);
    let mut got = [0; 18];
    assert!(bus.nodes[1].read(MemoryArea::Window(9), 3, &mut got));
    assert_eq!((got[0], &got[1..17], got[17]), (0, &[7; 16][..], 0));
    bus.request(0, 5, &Request::PutWindow { peer: 1, label: 9, piece });
    assert_eq!(bus.results[&5], RequestResult::Failed(RequestError::Unknown));
}

/// The limit is the limit, wherever in the session's own rhythm the silence began.
#[test]
fn a_silent_peer_is_dead_at_the_limit_not_at_the_next_tick() {
    for began_ms in [0, 1, 60, 124, 249] {
        let mut bus = Bus::new(2);
        bus.request(0, 1, &Request::Connect { rank: 1 });
        bus.pass(1_000 + began_ms);
        // Heard at this very moment, and then no more.
        bus.request(1, 2, &Request::Tag { peer: 0, tag: 1 });
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
    bus.request(1, 1, &Request::Connect { rank: 0 });
    // The wire is cut for one side only: the other receives nothing from then on.
    let lost: Vec<u32> = bus.conns.keys().copied().collect();
    for conn in lost {
        bus.conns.remove(&conn);
    }
    bus.pass(4_000);
    assert!(bus.downs.contains(&(0, 1)) && bus.downs.contains(&(1, 0)), "{:?}", bus.downs);
    // Rank 0 dialed, and both are up again.
    assert_eq!(bus.ups.len(), 4, "{:?}", bus.ups);
    let piece = BatchPart { local: 0, remote: 0, len: 8 };
    bus.request(1, 2, &Request::Put { peer: 0, piece });
    assert_eq!(bus.done(2), 8);
}

/// Hands node 0's output to node 1 by hand: its data connection ends before the bytes of its control connection come.
#[test]
fn what_a_killed_peer_sent_arrives_before_its_end() {
    let mut bus = Bus::new(2);
    bus.request(0, 1, &Request::Connect { rank: 1 });
    let mut conns: Vec<u32> = bus.conns.keys().copied().collect();
    conns.sort_unstable();
    let [control, data] = conns[..] else { panic!("two connections: {conns:?}") };
    let now = bus.now;
    let mut sent = Vec::new();
    for tag in 1..=3 {
        let request = Request::Tag { peer: 1, tag };
        bus.nodes[0].handle(now, NodeInput::Request { number: 1 + tag, request: &request });
        while let Some(output) = bus.nodes[0].poll() {
            match output {
                NodeOutput::Send { conn, bytes } if conn == ConnId(control) => sent.extend(bytes),
                NodeOutput::Result { result: RequestResult::Done { .. }, .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    bus.nodes[1].handle(now, NodeInput::Closed { conn: ConnId(data), reset: true });
    bus.nodes[1].handle(now, NodeInput::Bytes { conn: ConnId(control), bytes: &sent });
    bus.nodes[1].handle(now, NodeInput::Closed { conn: ConnId(control), reset: true });
    let mut heard = Vec::new();
    while let Some(output) = bus.nodes[1].poll() {
        if let NodeOutput::Message { .. } | NodeOutput::PeerDown { .. } = output {
            heard.push(output);
        }
    }
    let tags = [1, 2, 3].map(|tag| NodeOutput::Message { from: 0, message: NodeMessage::Tag(tag) });
    assert_eq!(heard[..3], tags);
    assert_eq!(heard[3..], [NodeOutput::PeerDown { rank: 0 }]);
}

#[test]
fn silent_connections_take_no_place_of_a_peer() {
    let mut bus = Bus::new(2);
    for n in 1_000..1_100 {
        bus.nodes[1].handle(bus.now, NodeInput::Accepted { conn: ConnId(n), from: 1 });
        bus.run();
    }
    bus.request(0, 1, &Request::Connect { rank: 1 });
    assert_eq!(bus.done(1), 0);
}

#[test]
fn a_claim_that_comes_and_goes_does_not_keep_a_rank() {
    for incarnation in [1, u64::MAX] {
        let mut bus = Bus::new(2);
        let claim = Outsider::Claim { rank: 0, incarnation };
        let bytes = Sessions.outsider_bytes(1, &claim).expect("a HELLO").bytes;
        let conn = ConnId(1_000);
        bus.nodes[1].handle(bus.now, NodeInput::Accepted { conn, from: ELSEWHERE });
        bus.nodes[1].handle(bus.now, NodeInput::Bytes { conn, bytes: &bytes });
        bus.run();
        // While it lasts it has the rank.
        bus.request(0, 1, &Request::Connect { rank: 1 });
        bus.pass(2_000);
        assert_eq!(bus.results[&1], RequestResult::Failed(RequestError::Duplicate));
        bus.nodes[1].handle(bus.now, NodeInput::Closed { conn, reset: false });
        bus.request(0, 2, &Request::Connect { rank: 1 });
        bus.pass(1_000);
        assert_eq!(bus.done(2), 0);
    }
}
