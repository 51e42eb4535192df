//! Connections from processes outside of the cluster: silent ones, claims of ranks, and floods of which nothing is read.
//!
//! The cluster gives the bytes that are sent on them ([`Cluster::outsider_bytes`]). What a node holds for them is judged here.

use super::engine::World;
use super::finding::{Kind, Verdict, found};
use super::net::Tell;
use super::node::{Cluster, ConnId, ELSEWHERE, Outsider};
use super::queue::What;

/// Bytes that a node may hold beside the limit of the flood: a connection and its buffers.
const BESIDE_BYTES: i64 = 128 << 10;

#[derive(Debug)]
struct OutsideConn {
    to: u32,
    what: Outsider,
    close_ns: u64,
    dialed: bool,
    conn: Option<ConnId>,
    /// Bytes that the node may hold for it.
    limit: i64,
    /// Bytes by which the node grew while it handled this connection's bytes, without those that it has sent.
    held: i64,
}

/// All such connections of a run.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    conns: Vec<OutsideConn>,
    /// Bytes of storage that nodes have sent, in all.
    pub(crate) sent: i64,
}

impl<C: Cluster> World<'_, C> {
    /// The number of their host in the network.
    const fn outside_host(&self) -> u32 {
        self.plan.ranks
    }

    /// Begins connections within the first of `times`, each for the second of them.
    pub(crate) fn begin_outside(&mut self, to: u32, what: Outsider, many: u32, times: (u64, u64)) {
        let (within_ns, for_ns) = times;
        if let Outsider::Claim { rank, .. } = what
            && rank < self.plan.ranks
        {
            // The rank is taken while the claim lasts.
            let until = self.now + within_ns + for_ns + self.oracle.settle_ns();
            self.oracle.trouble(to, rank, until);
        }
        for _ in 0..many {
            let index = self.outside.conns.len() as u32;
            let at = self.now + self.net.rng.below(within_ns + 1);
            let close_ns = at + for_ns;
            let (dialed, conn, limit, held) = (false, None, 0, 0);
            self.outside.conns.push(OutsideConn { to, what, close_ns, dialed, conn, limit, held });
            self.queue.push(at, What::Outside(index));
        }
        self.stats.outsiders[what.index()] += 1;
    }

    /// [`What::Outside`]: a connection is dialed or closed.
    pub(crate) fn step_outside(&mut self, index: u32) {
        let host = self.outside_host();
        let Some(one) = self.outside.conns.get_mut(index as usize) else { return };
        if !one.dialed {
            one.dialed = true;
            self.queue.push(one.close_ns, What::Outside(index));
            self.net.dial(self.now, host, index, one.to, &mut self.queue);
        } else if let Some(conn) = one.conn {
            self.net.close(self.now, host, conn, &mut self.queue);
        }
    }

    /// Handles an event of a connection at its outer end.
    pub(crate) fn tell_outside(&mut self, tell: Tell) {
        let Tell::Opened { conn, ticket, .. } = tell else { return };
        let (now, host) = (self.now, self.outside_host());
        let Some(one) = self.outside.conns.get_mut(ticket as usize) else { return };
        one.conn = Some(conn);
        if let Some(sent) = self.cluster.outsider_bytes(one.to, &one.what) {
            one.limit = i64::try_from(sent.held).unwrap_or(i64::MAX);
            self.net.send(now, host, conn, sent.bytes, &mut self.queue);
        }
        if now >= one.close_ns {
            self.net.close(now, host, conn, &mut self.queue);
        }
    }

    /// Returns where a connection comes from, as its acceptor sees it.
    pub(crate) fn seen_from(&self, rank: u32, conn: ConnId, from: u32) -> u32 {
        if from != self.outside_host() {
            return from;
        }
        let ticket = self.net.conns[conn.0 as usize].ticket;
        let one = self.outside.conns.get(ticket as usize);
        // Silent connections come from the address of the ranks.
        let near = one.is_some_and(|one| one.what == Outsider::Silent);
        if near { rank } else { ELSEWHERE }
    }

    /// Judges what a node holds after it handled bytes of `conn`: it has grown by `grown` and sent `sent` bytes.
    pub(crate) fn judge_held(&mut self, conn: ConnId, grown: i64, sent: i64) -> Verdict {
        let ticket = self.net.conns[conn.0 as usize].ticket;
        let Some(one) = self.outside.conns.get_mut(ticket as usize) else { return Ok(()) };
        one.held += grown - sent;
        if one.held > one.limit + BESIDE_BYTES {
            let text = format!(
                "rank {} holds {} bytes for {:?}, which reads nothing; the limit is {} and {BESIDE_BYTES}",
                one.to, one.held, one.what, one.limit
            );
            return found(Kind::Held, text);
        }
        Ok(())
    }
}
