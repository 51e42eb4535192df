//! The network: connections, paths between hosts, and the effects of network conditions and faults.
//!
//! It moves bytes and notifies ends of connections; it never inspects the bytes.

use super::node::ConnId;
use super::pipe::{End, Pipe};
use super::queue::{Queue, What};
use super::swarm::{ChunkMode, NetConditions};
use crate::rng::Rng;

/// How long a dialer waits between two tries of its kernel.
const RETRY_NS: u64 = 50_000_000;
/// Bytes that wait at either end of a connection from outside of the cluster.
const OUTSIDE_WINDOW: u64 = 8 << 10;

/// A host as the network sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimHost {
    /// Counts the processes of this rank.
    pub(crate) incarnation: u64,
    /// Its process runs (or is stopped).
    pub(crate) alive: bool,
    /// Its process is stopped.
    pub(crate) paused: bool,
    /// It is not there at all: not even its kernel replies.
    pub(crate) silent: bool,
}

#[derive(Debug)]
pub(crate) struct ConnSide {
    pub(crate) rank: u32,
    pub(crate) incarnation: u64,
    /// The node was notified of it.
    known: bool,
    /// The node has closed it, or was notified that it is closed.
    pub(crate) closed: bool,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) sides: [ConnSide; 2],
    /// `pipes[i]` goes from `sides[i]` to the other one.
    pub(crate) pipes: [Pipe; 2],
    pub(crate) number: u32,
}

#[derive(Debug)]
struct Dial {
    from: u32,
    incarnation: u64,
    to: u32,
    number: u32,
    give_up_ns: u64,
}

/// An event for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeEvent {
    /// Nothing.
    Nothing,
    /// Later, when the process goes on.
    Later(u32),
    /// The bytes that wait in this pipe; then call [`Network::bytes_delivered`].
    Bytes { rank: u32, conn: ConnId },
    /// The connection is over.
    Closed { rank: u32, conn: ConnId, reset: bool },
    /// Free space in the send buffer.
    SendSpace { rank: u32, conn: ConnId, bytes: u64 },
    /// A connection was accepted.
    Accepted { rank: u32, conn: ConnId, from: u32 },
    /// A dial succeeded.
    Opened { rank: u32, conn: ConnId, number: u32 },
    /// A dial failed.
    Failed { rank: u32, number: u32 },
}

pub(crate) struct Network {
    /// Of the ranks, and one for all processes outside of the cluster.
    pub(crate) hosts: Vec<SimHost>,
    pub(crate) conns: Vec<Conn>,
    dials: Vec<Dial>,
    /// How often the path from..to is blocked.
    pub(crate) blocked: Vec<u32>,
    pub(crate) conditions: NetConditions,
    pub(crate) rng: Rng,
}

/// The other side.
pub(crate) const fn other(side: usize) -> usize {
    1 - side
}

impl Network {
    pub(crate) fn new(ranks: u32, conditions: NetConditions, seed: u64) -> Self {
        let host = SimHost { incarnation: 0, alive: false, paused: false, silent: false };
        let mut hosts = vec![host; ranks as usize];
        hosts.push(SimHost { incarnation: 1, alive: true, ..host });
        Self {
            blocked: vec![0; hosts.len() * hosts.len()],
            hosts,
            conns: Vec::new(),
            dials: Vec::new(),
            conditions,
            rng: Rng::new(seed ^ 0x4E45_5400),
        }
    }

    pub(crate) fn path(&self, from: u32, to: u32) -> usize {
        from as usize * self.hosts.len() + to as usize
    }

    /// The host of all processes outside of the cluster.
    const fn outside(&self) -> u32 {
        self.hosts.len() as u32 - 1
    }

    /// Whether a process outside of the cluster sends through that pipe.
    pub(crate) fn comes_from_outside(&self, pipe_index: u32) -> bool {
        let sides = &self.conns[pipe_index as usize / 2].sides;
        sides[pipe_index as usize % 2].rank == self.outside()
    }

    /// Bytes that may wait at the receiving end.
    fn window(&self, index: usize) -> u64 {
        // Only the side that dialed can be outside.
        let outside = self.conns[index].sides[0].rank == self.outside();
        if outside { OUTSIDE_WINDOW } else { self.conditions.window }
    }

    fn is_blocked(&self, from: u32, to: u32) -> bool {
        self.blocked[self.path(from, to)] != 0
    }

    pub(crate) fn delay(&mut self) -> u64 {
        self.conditions.delay_ns + self.rng.below(self.conditions.jitter_ns)
    }

    /// The process that owns this side is still the one of then.
    fn is_running(&self, side: &ConnSide) -> bool {
        let host = self.hosts[side.rank as usize];
        host.alive && host.incarnation == side.incarnation
    }

    /// Schedules the pipe's next move, unless one is scheduled.
    pub(crate) fn schedule(&mut self, now: u64, index: u32, after_ns: u64, queue: &mut Queue) {
        let pipe = &mut self.conns[index as usize / 2].pipes[index as usize % 2];
        if !pipe.flowing && (pipe.coming() > 0 || pipe.end != End::Open) {
            pipe.flowing = true;
            queue.push((now + after_ns).max(pipe.not_before_ns), What::Flow(index));
        }
    }

    /// Which side of a connection belongs to `rank` and is in use.
    fn side_of(&self, rank: u32, conn: ConnId) -> Option<usize> {
        let sides = &self.conns.get(conn.0 as usize)?.sides;
        let side = sides.iter().position(|side| side.rank == rank && self.is_running(side))?;
        (sides[side].known && !sides[side].closed).then_some(side)
    }

    /// A node dials.
    pub(crate) fn dial(&mut self, now: u64, from: u32, number: u32, to: u32, queue: &mut Queue) {
        let index = self.dials.len() as u32;
        let incarnation = self.hosts[from as usize].incarnation;
        let give_up_ns = now + self.conditions.dial_ns;
        self.dials.push(Dial { from, incarnation, to, number, give_up_ns });
        let bad = to == from || to >= self.outside();
        let what = if bad { What::Refused(index) } else { What::Syn(index) };
        let delay = self.delay();
        queue.push(now + delay, what);
    }

    /// A node sends. False when it has no business with that connection.
    pub(crate) fn send(
        &mut self,
        now: u64,
        rank: u32,
        conn: ConnId,
        bytes: Vec<u8>,
        queue: &mut Queue,
    ) -> bool {
        let Some(side) = self.side_of(rank, conn) else { return false };
        if bytes.is_empty() {
            return true;
        }
        let pipe = &mut self.conns[conn.0 as usize].pipes[side];
        if pipe.end == End::Open {
            pipe.push(bytes);
            let delay = self.delay();
            self.schedule(now, conn.0 * 2 + side as u32, delay, queue);
        }
        true
    }

    /// A node has consumed received bytes. False when it never got so many.
    pub(crate) fn taken(
        &mut self,
        now: u64,
        rank: u32,
        conn: ConnId,
        bytes: u64,
        queue: &mut Queue,
    ) -> bool {
        let Some(side) = self.side_of(rank, conn) else { return true };
        let pipe = &mut self.conns[conn.0 as usize].pipes[other(side)];
        let Some(left) = pipe.untaken.checked_sub(bytes) else { return false };
        pipe.untaken = left;
        let delay = self.delay();
        self.schedule(now, conn.0 * 2 + other(side) as u32, delay, queue);
        true
    }

    /// A node closes.
    pub(crate) fn close(&mut self, now: u64, rank: u32, conn: ConnId, queue: &mut Queue) {
        let Some(side) = self.side_of(rank, conn) else { return };
        let found = &mut self.conns[conn.0 as usize];
        found.sides[side].closed = true;
        if found.pipes[side].end == End::Open {
            found.pipes[side].end = End::Fin;
        }
        let delay = self.delay();
        self.schedule(now, conn.0 * 2 + side as u32, delay, queue);
    }

    /// The connection is closed for `side`; returns the event for its node.
    fn closed(&mut self, index: usize, side: usize, reset: bool) -> NodeEvent {
        let conn = &mut self.conns[index];
        conn.sides[side].closed = true;
        conn.pipes[side].release();
        conn.pipes[other(side)].release();
        NodeEvent::Closed { rank: conn.sides[side].rank, conn: ConnId(index as u32), reset }
    }

    /// Resets what goes to `side`, behind so many bytes of those under way.
    pub(crate) fn reset_to(
        &mut self,
        now: u64,
        index: usize,
        side: usize,
        keep: usize,
        queue: &mut Queue,
    ) {
        let from = other(side);
        let pipe = &mut self.conns[index].pipes[from];
        if pipe.end != End::Rst {
            pipe.cut(keep, End::Rst);
            let delay = self.delay();
            self.schedule(now, (index * 2 + from) as u32, delay, queue);
        }
    }

    /// [`What::Flow`]: the pipe moves.
    pub(crate) fn flow(&mut self, now: u64, pipe_index: u32, queue: &mut Queue) -> NodeEvent {
        let (index, from) = (pipe_index as usize / 2, pipe_index as usize % 2);
        let to = other(from);
        let conn = &self.conns[index];
        let (sender, receiver) = (&conn.sides[from], &conn.sides[to]);
        let pipe = &conn.pipes[from];
        if now < pipe.not_before_ns {
            queue.push(pipe.not_before_ns, What::Flow(pipe_index));
            return NodeEvent::Nothing;
        }
        let host = self.hosts[receiver.rank as usize];
        let (is_running, blocked) =
            (self.is_running(receiver), self.is_blocked(sender.rank, receiver.rank));
        let (known, closed) = (receiver.known, receiver.closed);
        let receiver_rank = receiver.rank;
        let pipe = &mut self.conns[index].pipes[from];
        pipe.flowing = false;
        if blocked {
            return NodeEvent::Nothing; // `heal` goes on
        }
        if !is_running || closed {
            let any = pipe.coming() > 0;
            pipe.release();
            // A vanished host sends nothing; a new process has no old connections.
            if !host.silent && any && (!is_running || self.conditions.strict_close) {
                self.reset_to(now, index, from, 0, queue);
            }
            return NodeEvent::Nothing;
        }
        if !known {
            if host.paused {
                return NodeEvent::Later(receiver_rank);
            }
            self.conns[index].pipes[from].flowing = true;
            queue.push(now + 1_000, What::Flow(pipe_index));
            return NodeEvent::Nothing;
        }
        let moved = self.arrive(index, from);
        let gap = self.gap(moved);
        let pipe = &mut self.conns[index].pipes[from];
        if pipe.unreported > 0 && !pipe.reporting {
            pipe.reporting = true;
            let delay = self.delay();
            queue.push(now + delay, What::SendSpace(pipe_index));
        }
        let pipe = &self.conns[index].pipes[from];
        if host.paused {
            let space = pipe.space(self.window(index));
            if pipe.coming() > 0 && space > 0 {
                self.schedule(now, pipe_index, gap, queue);
            }
            return NodeEvent::Later(receiver_rank);
        }
        if !pipe.waiting().is_empty() {
            return NodeEvent::Bytes { rank: receiver_rank, conn: ConnId(index as u32) };
        }
        if pipe.at_end() {
            return self.closed(index, to, pipe.end == End::Rst);
        }
        NodeEvent::Nothing // no window: `taken` goes on
    }

    /// Some bytes reach the receiver's kernel.
    fn arrive(&mut self, index: usize, from: usize) -> usize {
        let window = self.window(index);
        let pipe = &mut self.conns[index].pipes[from];
        let most = usize::try_from(pipe.space(window)).unwrap_or(usize::MAX);
        let most = most.min(pipe.coming());
        let many = match self.conditions.split {
            ChunkMode::Whole => most,
            // At least a share of what waits, so that no stream needs thousands of moves.
            ChunkMode::Random => (most / 8).max(1 + self.rng.index(most.max(1))),
            ChunkMode::Fine if self.rng.below(2) == 0 => (most / 8).max(1),
            ChunkMode::Fine => (most / 8).max(1 + self.rng.index(64)),
        };
        let many = many.min(most);
        pipe.arrive(many);
        many
    }

    /// Returns the time that so many bytes need, with an occasional stall.
    fn gap(&mut self, moved: usize) -> u64 {
        let mut gap = 1 + self.conditions.ns_per_kib * moved as u64 / 1024;
        if self.conditions.stall_one_in != 0 && self.rng.below(self.conditions.stall_one_in) == 0 {
            gap += self.rng.below(self.conditions.stall_ns);
        }
        gap
    }

    /// The bytes of a [`NodeEvent::Bytes`].
    pub(crate) fn bytes(&self, pipe_index: u32) -> &[u8] {
        self.conns[pipe_index as usize / 2].pipes[pipe_index as usize % 2].waiting()
    }

    /// They were given to the node.
    pub(crate) fn bytes_delivered(&mut self, now: u64, pipe_index: u32, queue: &mut Queue) {
        let (index, from) = (pipe_index as usize / 2, pipe_index as usize % 2);
        let window = self.window(index);
        let pipe = &mut self.conns[index].pipes[from];
        let moved = pipe.waiting().len();
        pipe.delivered();
        if pipe.at_end() || pipe.space(window) > 0 {
            let gap = self.gap(moved);
            self.schedule(now, pipe_index, gap, queue);
        }
    }

    /// [`What::SendSpace`]: the sender is notified that bytes were sent.
    pub(crate) fn send_space(&mut self, pipe_index: u32) -> NodeEvent {
        let (index, from) = (pipe_index as usize / 2, pipe_index as usize % 2);
        let conn = &self.conns[index];
        let (sender, receiver) = (&conn.sides[from], &conn.sides[other(from)]);
        let rank = sender.rank;
        if sender.closed || !self.is_running(sender) {
            return NodeEvent::Nothing;
        }
        if self.is_blocked(receiver.rank, rank) {
            self.conns[index].pipes[from].reporting = false; // `heal` goes on
            return NodeEvent::Nothing;
        }
        if self.hosts[rank as usize].paused {
            return NodeEvent::Later(rank);
        }
        let pipe = &mut self.conns[index].pipes[from];
        pipe.reporting = false;
        let bytes = std::mem::take(&mut pipe.unreported);
        if bytes == 0 {
            return NodeEvent::Nothing;
        }
        NodeEvent::SendSpace { rank, conn: ConnId(index as u32), bytes }
    }

    /// [`What::Syn`]: a dial reaches its host, or not.
    pub(crate) fn syn(&mut self, now: u64, dial_index: u32, queue: &mut Queue) {
        let Dial { from, incarnation, to, number, give_up_ns } = self.dials[dial_index as usize];
        let host = self.hosts[to as usize];
        if self.hosts[from as usize].incarnation != incarnation || !self.hosts[from as usize].alive
        {
            return;
        }
        if host.silent || self.is_blocked(from, to) || self.is_blocked(to, from) {
            let late = now >= give_up_ns;
            let what = if late { What::Refused(dial_index) } else { What::Syn(dial_index) };
            queue.push(now + if late { 0 } else { RETRY_NS }, what);
            return;
        }
        let delay = self.delay();
        if !host.alive {
            queue.push(now + delay, What::Refused(dial_index));
            return;
        }
        let side = |rank, incarnation| ConnSide { rank, incarnation, known: false, closed: false };
        let index = self.conns.len() as u32;
        self.conns.push(Conn {
            sides: [side(from, incarnation), side(to, host.incarnation)],
            pipes: [Pipe::new(now), Pipe::new(now + delay)],
            number,
        });
        queue.push(now, What::Accept(index));
        queue.push(now + delay, What::Opened(index));
    }

    /// [`What::Accept`] and [`What::Opened`]: an end is notified of its connection.
    pub(crate) fn open_side(&mut self, index: u32, side: usize) -> NodeEvent {
        let conn = &self.conns[index as usize];
        let (own, peer) = (&conn.sides[side], &conn.sides[other(side)]);
        let (rank, from, number, id) = (own.rank, peer.rank, conn.number, ConnId(index));
        if !self.is_running(own) {
            return NodeEvent::Nothing;
        }
        if self.hosts[rank as usize].paused {
            return NodeEvent::Later(rank);
        }
        self.conns[index as usize].sides[side].known = true;
        if side == 0 {
            NodeEvent::Opened { rank, conn: id, number }
        } else {
            NodeEvent::Accepted { rank, conn: id, from }
        }
    }

    /// [`What::Refused`].
    pub(crate) fn refused(&self, dial_index: u32) -> NodeEvent {
        let dial = &self.dials[dial_index as usize];
        let host = self.hosts[dial.from as usize];
        if host.incarnation != dial.incarnation || !host.alive {
            return NodeEvent::Nothing;
        }
        if host.paused {
            return NodeEvent::Later(dial.from);
        }
        NodeEvent::Failed { rank: dial.from, number: dial.number }
    }
}
