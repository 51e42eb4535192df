//! How the toy's links come, live and go.

use hmc_sim::world::node::{ConnId, NodeOutput, RequestError};

use super::wire::{In, Out, next};
use super::{Bug, Toy};

pub const HELLO: u8 = 1;
pub const WELCOME: u8 = 2;
pub const REFUSE: u8 = 3;
pub const PING: u8 = 4;

const REDIAL_NS: u64 = 100_000_000;
const GREET_NS: u64 = 700_000_000;

pub struct Peer {
    /// The link, if it is up.
    pub up: Option<u32>,
    pub incarnation: u64,
    pub heard: u64,
    /// Waiting requests to connect.
    pub wanted: Vec<u64>,
    /// The dial under way: its number, then its connection.
    pub dial: Option<u32>,
    pub dial_conn: Option<u32>,
    pub dial_since: u64,
    /// When to dial next.
    pub redial: u64,
    pub lost: bool,
    pub adverts: std::collections::BTreeMap<u64, super::ops::Advert>,
    /// Messages without a receive yet, and receives without a message yet.
    pub sends: std::collections::VecDeque<(u64, Vec<u8>)>,
    pub receivers: std::collections::VecDeque<(u64, u64, u64)>,
    /// Tags held back, for one of the bugs.
    pub held: Vec<Vec<u8>>,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            up: None,
            incarnation: 0,
            heard: 0,
            wanted: Vec::new(),
            dial: None,
            dial_conn: None,
            dial_since: 0,
            redial: u64::MAX,
            lost: false,
            adverts: std::collections::BTreeMap::new(),
            sends: std::collections::VecDeque::new(),
            receivers: std::collections::VecDeque::new(),
            held: Vec::new(),
        }
    }
}

pub struct Conn {
    pub peer: Option<u32>,
    pub since: u64,
    stream: Vec<u8>,
    at: usize,
}

impl Conn {
    fn new(since: u64) -> Self {
        Self { peer: None, since, stream: Vec::new(), at: 0 }
    }
}

impl Toy {
    pub fn connect(&mut self, number: u64, rank: u32) {
        let peer = &mut self.peers[rank as usize];
        if peer.up.is_some() {
            return self.done(number, 0);
        }
        peer.wanted.push(number);
        self.dial(rank);
    }

    fn dial(&mut self, rank: u32) {
        let (now, bug) = (self.now, self.bug);
        let number = self.dials;
        let peer = &mut self.peers[rank as usize];
        peer.redial = u64::MAX;
        let never = bug == Bug::NoRedial && peer.lost;
        if peer.up.is_none() && peer.dial.is_none() && peer.dial_conn.is_none() && !never {
            peer.dial = Some(number);
            peer.dial_since = now;
            self.dials += 1;
            self.out.push_back(NodeOutput::Connect { number, to: rank });
        }
    }

    fn again(&mut self, rank: u32) {
        let at = self.now + REDIAL_NS;
        let peer = &mut self.peers[rank as usize];
        if !peer.wanted.is_empty() && peer.up.is_none() {
            peer.redial = at;
        }
    }

    fn dialing(&self, number: u32) -> Option<u32> {
        let rank = self.peers.iter().position(|peer| peer.dial == Some(number))?;
        u32::try_from(rank).ok()
    }

    pub fn opened(&mut self, number: u32, conn: u32) {
        let Some(rank) = self.dialing(number) else { return self.close(conn) };
        let peer = &mut self.peers[rank as usize];
        peer.dial = None;
        peer.dial_conn = Some(conn);
        let mut state = Conn::new(self.now);
        state.peer = Some(rank);
        self.conns.insert(conn, state);
        let hello = Out::new(HELLO).n(u64::from(self.boot.rank)).n(self.boot.incarnation).end();
        self.send(conn, hello);
    }

    pub fn refused(&mut self, number: u32) {
        if let Some(rank) = self.dialing(number) {
            self.peers[rank as usize].dial = None;
            self.again(rank);
        }
    }

    pub fn accepted(&mut self, conn: u32) {
        self.conns.insert(conn, Conn::new(self.now));
    }

    pub fn close(&mut self, conn: u32) {
        self.conns.remove(&conn);
        self.out.push_back(NodeOutput::Close { conn: ConnId(conn) });
    }

    pub fn bytes(&mut self, conn: u32, bytes: &[u8]) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        state.stream.extend_from_slice(bytes);
        let mut stream = std::mem::take(&mut state.stream);
        let mut at = state.at;
        let many = u64::try_from(bytes.len()).expect("small");
        self.out.push_back(NodeOutput::Taken { conn: ConnId(conn), bytes: many });
        while self.conns.contains_key(&conn) {
            let Some((kind, body)) = next(&stream, &mut at) else { break };
            self.frame(conn, kind, body);
        }
        if let Some(state) = self.conns.get_mut(&conn) {
            if at == stream.len() {
                stream.clear();
                at = 0;
            } else if at > 4096 {
                stream.drain(..at);
                at = 0;
            }
            state.stream = stream;
            state.at = at;
        }
    }

    fn frame(&mut self, conn: u32, kind: u8, body: &[u8]) {
        let known = self.conns.get(&conn).and_then(|conn| conn.peer);
        if let Some(rank) = known {
            self.peers[rank as usize].heard = self.now;
        }
        match (kind, known) {
            (HELLO, None) => {
                let mut body = In(body);
                let (rank, incarnation) = (body.n(), body.n());
                self.hello(conn, u32::try_from(rank).expect("a rank"), incarnation);
            }
            (WELCOME, Some(rank)) => self.up(rank, conn, In(body).n()),
            (REFUSE, Some(rank)) => {
                self.close(conn);
                self.peers[rank as usize].dial_conn = None;
                self.again(rank);
            }
            (PING, _) => {}
            (_, Some(rank)) if self.peers[rank as usize].up == Some(conn) => {
                self.operation(rank, conn, kind, body);
            }
            _ => {}
        }
    }

    fn hello(&mut self, conn: u32, rank: u32, incarnation: u64) {
        let own = self.boot.rank;
        let peer = &self.peers[rank as usize];
        let newer = incarnation > peer.incarnation;
        let older = incarnation < peer.incarnation;
        let taken = peer.up.is_some() && !newer && self.bug != Bug::EvictOnDuplicate;
        let calling = peer.dial.is_some() || peer.dial_conn.is_some();
        let crossing = peer.up.is_none() && calling && own < rank;
        if self.left || older || taken || crossing {
            self.send(conn, Out::new(REFUSE).end());
            return self.close(conn);
        }
        if peer.up.is_some() {
            self.down(rank, true);
        }
        self.peers[rank as usize].dial = None;
        if let Some(own) = self.peers[rank as usize].dial_conn.take() {
            self.close(own);
        }
        if let Some(state) = self.conns.get_mut(&conn) {
            state.peer = Some(rank);
        }
        self.send(conn, Out::new(WELCOME).n(self.boot.incarnation).end());
        self.up(rank, conn, incarnation);
    }

    fn up(&mut self, rank: u32, conn: u32, incarnation: u64) {
        let now = self.now;
        let peer = &mut self.peers[rank as usize];
        peer.up = Some(conn);
        peer.incarnation = incarnation;
        peer.heard = now;
        peer.dial_conn = None;
        peer.redial = u64::MAX;
        let wanted = std::mem::take(&mut peer.wanted);
        self.out.push_back(NodeOutput::PeerUp { rank, incarnation });
        for number in wanted {
            self.done(number, 0);
        }
    }

    /// The link is over. `close`: the connection still is open.
    pub fn down(&mut self, rank: u32, close: bool) {
        let bug = self.bug;
        let peer = &mut self.peers[rank as usize];
        let Some(conn) = peer.up.take() else { return };
        peer.lost = true;
        peer.adverts.clear();
        peer.held.clear();
        peer.sends.clear();
        peer.receivers.clear();
        if close {
            self.close(conn);
        }
        for window in self.windows.values_mut().filter(|window| window.peer == rank) {
            window.ended = true;
        }
        self.delayed.retain(|(from, _)| *from != rank);
        let of = |(number, op): (&u64, &super::ops::Pending)| (op.peer == rank).then_some(*number);
        let lost: Vec<u64> = self.pending.iter().filter_map(of).collect();
        for number in lost {
            let Some(op) = self.pending.remove(&number) else { continue };
            match bug {
                Bug::LostOnReset => {}
                Bug::DoneOnReset => self.done(number, op.total),
                _ => self.fail(number, RequestError::PeerDead),
            }
        }
        if bug != Bug::SilentDown {
            self.out.push_back(NodeOutput::PeerDown { rank });
        }
    }

    pub fn closed(&mut self, conn: u32) {
        let Some(state) = self.conns.remove(&conn) else { return };
        let Some(rank) = state.peer else { return };
        if self.peers[rank as usize].up == Some(conn) {
            self.down(rank, false);
        } else if self.peers[rank as usize].dial_conn == Some(conn) {
            self.peers[rank as usize].dial_conn = None;
            self.again(rank);
        }
    }

    pub fn tick(&mut self) {
        self.flush();
        while let Some((at, number)) = self.deadlines.front().copied() {
            if at > self.now {
                break;
            }
            self.deadlines.pop_front();
            if self.bug != Bug::HangOnPartition {
                self.expire(number);
            }
        }
        for rank in 0..self.boot.ranks {
            if self.peers[rank as usize].redial <= self.now {
                self.dial(rank);
            }
        }
        if self.now < self.beat {
            return;
        }
        self.beat = self.now + self.boot.heartbeat_ns;
        let deaf = matches!(self.bug, Bug::NoHeartbeat | Bug::HangOnPartition);
        let beats = if self.bug == Bug::Impatient { 1 } else { 10 };
        let patience = self.boot.heartbeat_ns * beats / 2;
        for rank in 0..self.boot.ranks {
            let peer = &self.peers[rank as usize];
            if let Some(conn) = peer.up {
                if self.now - peer.heard > patience && !deaf {
                    self.down(rank, true);
                } else {
                    self.send(conn, Out::new(PING).end());
                }
            } else if let Some(conn) = peer.dial_conn
                && self.now - self.conns.get(&conn).map_or(0, |conn| conn.since) > GREET_NS
            {
                self.peers[rank as usize].dial_conn = None;
                self.close(conn);
                self.again(rank);
            }
        }
        let old = |(id, conn): (&u32, &Conn)| {
            (conn.peer.is_none() && self.now - conn.since > GREET_NS).then_some(*id)
        };
        for conn in self.conns.iter().filter_map(old).collect::<Vec<_>>() {
            self.close(conn);
        }
    }

    fn expire(&mut self, number: u64) {
        let waits = |peer: &mut Peer| {
            let at = peer.wanted.iter().position(|wanted| *wanted == number);
            at.map(|at| peer.wanted.remove(at)).is_some()
        };
        let connecting = self.peers.iter_mut().any(waits);
        if connecting || self.pending.remove(&number).is_some() {
            self.fail(number, RequestError::Deadline);
        }
    }
}
