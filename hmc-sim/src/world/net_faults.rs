//! Effects of faults on the network: cuts, blocked paths, stalls, and processes that end.
//!
//! See [`super::network`] for its behaviour without faults.

use super::network::{Network, other};
use super::pipe::End;
use super::queue::{Queue, What};

impl Network {
    /// Connections between two living ends that `want` picks.
    fn open_conns(&self, want: impl Fn(u32, u32) -> bool) -> Vec<usize> {
        let open = |conn: &super::network::Conn| {
            let [a, b] = &conn.sides;
            !(a.closed && b.closed) && (want(a.rank, b.rank) || want(b.rank, a.rank))
        };
        (0..self.conns.len()).filter(|index| open(&self.conns[*index])).collect()
    }

    /// Resets connections between two ranks, each direction at any byte. How many it hit.
    pub(crate) fn cut(&mut self, now: u64, a: u32, b: u32, all: bool, queue: &mut Queue) -> usize {
        let mut hit = self.open_conns(|x, y| (x, y) == (a, b));
        if !all && hit.len() > 1 {
            let one = self.rng.index(hit.len());
            hit = vec![hit[one]];
        }
        for index in &hit {
            for side in 0..2 {
                let coming = self.conns[*index].pipes[other(side)].coming();
                let keep = self.rng.index(coming + 1);
                self.reset_to(now, *index, side, keep, queue);
            }
        }
        hit.len()
    }

    /// From here on the network does its best.
    pub(crate) fn heal_faults(&mut self) {
        self.conditions.delay_ns = self.conditions.delay_ns.min(1_000_000);
        self.conditions.jitter_ns = 0;
        self.conditions.ns_per_kib = 0;
        self.conditions.stall_one_in = 0;
        self.conditions.window = self.conditions.window.max(32 << 10);
    }

    /// Blocks the path.
    pub(crate) fn block(&mut self, from: u32, to: u32) {
        let path = self.path(from, to);
        self.blocked[path] += 1;
    }

    /// [`What::Heal`]: unblocks it, and what waited goes on.
    pub(crate) fn heal(&mut self, now: u64, from: u32, to: u32, queue: &mut Queue) {
        let path = self.path(from, to);
        self.blocked[path] -= 1;
        if self.blocked[path] != 0 {
            return;
        }
        for index in self.open_conns(|x, y| (x, y) == (from, to)) {
            for side in 0..2 {
                let pipe_index = (index * 2 + side) as u32;
                let delay = self.delay();
                self.schedule(now, pipe_index, delay, queue);
                let pipe = &mut self.conns[index].pipes[side];
                if pipe.unreported > 0 && !pipe.reporting {
                    pipe.reporting = true;
                    queue.push(now + delay, What::SendSpace(pipe_index));
                }
            }
        }
    }

    /// Open streams from..to stand still until then.
    pub(crate) fn stall(&mut self, from: u32, to: u32, all: bool, until_ns: u64) {
        let mut hit = self.open_conns(|x, y| (x, y) == (from, to));
        if !all && hit.len() > 1 {
            let one = self.rng.index(hit.len());
            hit = vec![hit[one]];
        }
        for index in hit {
            let side = usize::from(self.conns[index].sides[0].rank != from);
            let pipe = &mut self.conns[index].pipes[side];
            pipe.not_before_ns = pipe.not_before_ns.max(until_ns);
        }
    }

    /// Whether the kernel of a process that is killed sends all that it took. The kernel of one that had not read
    /// everything resets connections, and may send nothing more.
    pub(crate) fn sends_the_rest(&mut self) -> bool {
        self.rng.below(4) != 0
    }

    /// The process of a rank ended. Unless `silent`, its kernel says so to all its peers, after all that it took if it is
    /// `whole`.
    pub(crate) fn crash(
        &mut self,
        now: u64,
        rank: u32,
        (silent, whole): (bool, bool),
        queue: &mut Queue,
    ) {
        let host = &mut self.hosts[rank as usize];
        host.alive = false;
        host.paused = false;
        host.silent = silent;
        for index in self.open_conns(|x, _| x == rank) {
            let side = usize::from(self.conns[index].sides[0].rank != rank);
            if self.conns[index].sides[side].incarnation != self.hosts[rank as usize].incarnation {
                continue;
            }
            self.conns[index].sides[side].closed = true;
            let pipe = &mut self.conns[index].pipes[side];
            pipe.kept |= whole;
            let keep = self.rng.index(pipe.coming() + 1);
            if silent {
                pipe.cut(keep, pipe.end);
                continue;
            }
            let end = if self.rng.below(2) == 0 { End::Rst } else { End::Fin };
            if pipe.end == End::Open {
                pipe.cut(if end == End::Fin { pipe.coming() } else { keep }, end);
            }
            let delay = self.delay();
            self.schedule(now, (index * 2 + side) as u32, delay, queue);
        }
    }
}
