//! Connections from processes outside of the cluster: silent ones, claims of ranks, and floods of which nothing is read.
//!
//! The cluster gives the bytes that are sent on them ([`Cluster::outsider_bytes`]). The memory that a node allocates for them is checked here.

use super::finding::{Kind, Verdict, found};
use super::network::{Network, NodeEvent};
use super::node::{Cluster, ConnId, ELSEWHERE, Outsider};
use super::queue::{Queue, What};

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
#[derive(Debug)]
pub(crate) struct Outside {
    /// The number of their host in the network.
    host: u32,
    conns: Vec<OutsideConn>,
    /// Bytes of storage that nodes have sent, in all.
    pub(crate) sent: i64,
}

impl Outside {
    pub(crate) const fn new(host: u32) -> Self {
        Self { host, conns: Vec::new(), sent: 0 }
    }

    /// Adds a connection to rank `to` that lasts until `close_ns`; [`Self::step`] dials it. Returns its number.
    pub(crate) fn add(&mut self, to: u32, what: Outsider, close_ns: u64) -> u32 {
        let index = self.conns.len() as u32;
        let (dialed, conn, limit, held) = (false, None, 0, 0);
        self.conns.push(OutsideConn { to, what, close_ns, dialed, conn, limit, held });
        index
    }

    /// [`What::Outside`]: a connection is dialed or closed.
    pub(crate) fn step(&mut self, now: u64, index: u32, net: &mut Network, queue: &mut Queue) {
        let Some(one) = self.conns.get_mut(index as usize) else { return };
        if !one.dialed {
            one.dialed = true;
            queue.push(one.close_ns, What::Outside(index));
            net.dial(now, self.host, index, one.to, queue);
        } else if let Some(conn) = one.conn {
            net.close(now, self.host, conn, queue);
        }
    }

    /// Handles an event of a connection at its outer end.
    pub(crate) fn notify(
        &mut self,
        now: u64,
        event: NodeEvent,
        cluster: &impl Cluster,
        net: &mut Network,
        queue: &mut Queue,
    ) {
        let NodeEvent::Opened { conn, number, .. } = event else { return };
        let Some(one) = self.conns.get_mut(number as usize) else { return };
        one.conn = Some(conn);
        if let Some(sent) = cluster.outsider_bytes(one.to, &one.what) {
            one.limit = i64::try_from(sent.held).unwrap_or(i64::MAX);
            net.send(now, self.host, conn, sent.bytes, queue);
        }
        if now >= one.close_ns {
            net.close(now, self.host, conn, queue);
        }
    }

    /// Returns where a connection comes from, as its acceptor sees it.
    pub(crate) fn seen_from(&self, net: &Network, rank: u32, conn: ConnId, from: u32) -> u32 {
        if from != self.host {
            return from;
        }
        let number = net.conns[conn.0 as usize].number;
        let one = self.conns.get(number as usize);
        // Silent connections come from the address of the ranks.
        let near = one.is_some_and(|one| one.what == Outsider::Silent);
        if near { rank } else { ELSEWHERE }
    }

    /// Checks what a node holds after it handled bytes of `conn`: it has grown by `grown` and sent `sent` bytes.
    pub(crate) fn check_held(
        &mut self,
        net: &Network,
        conn: ConnId,
        grown: i64,
        sent: i64,
    ) -> Verdict {
        let number = net.conns[conn.0 as usize].number;
        let Some(one) = self.conns.get_mut(number as usize) else { return Ok(()) };
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
