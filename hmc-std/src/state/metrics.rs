//! Counters, as plain values.

use std::sync::atomic::Ordering;

use hmc_core::types::{ConnType, Rank};

use crate::link::{Link, LinkState};
use crate::quarantine::{Held, held};
use crate::state::inner::SessionInner;
use crate::transport::domain::Domain;

/// Counters of one peer since it connected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerStats {
    /// Its rank.
    pub rank: Rank,
    /// The transport that moves the bytes.
    pub conn: Option<ConnType>,
    /// Whether it can be used now.
    pub connected: bool,
    /// Puts begun; a list is one, and so is a pipeline.
    pub puts: u64,
    /// Gets begun, counted alike.
    pub gets: u64,
    /// Puts and gets that failed and were waited for.
    pub failures: u64,
    /// Bytes moved by this end, or handed to the transport to be moved.
    pub bytes_out: u64,
    /// Bytes that this end moved for the peer, or received.
    pub bytes_in: u64,
    /// Tags, numbers and opaque bytes sent.
    pub messages_out: u64,
    /// Tags, numbers and opaque bytes received, and tags that followed their puts.
    pub messages_in: u64,
    /// Waits that nothing woke: their park of 50 ms was over, and what they waited for was there. A lost wake-up, unless another
    /// thread cancelled the operation; a few on a loaded machine mean nothing, many are a defect.
    pub overslept: u64,
    /// Operations whose memory is still in use.
    pub in_flight: usize,
    /// Messages that nobody took yet.
    pub inbox: usize,
    /// Bytes of our memory that it may access.
    pub exposed_bytes: u64,
}

/// Counters of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Peers that are connected, by rank.
    pub peers: Vec<PeerStats>,
    /// Panics of the application's code, in wakers and in the drops of owners of memory, that were caught.
    pub panics_caught: u64,
    /// Links that ended without a goodbye.
    pub peers_lost: u64,
    /// Connections that were turned away.
    pub strangers_refused: u64,
    /// Bytes of revoked windows that a silent peer may still touch.
    pub quarantined_bytes: u64,
    /// Links that are over but whose peers may still copy from or into our memory.
    pub quarantined_links: usize,
    /// Memory of the process, of all its sessions, that peers may still read or write: [`held`](crate::held()).
    pub held: Vec<Held>,
    /// Registrations of memory with UCX that were made, those that are gone included.
    pub ucx_registrations: u64,
}

impl Stats {
    pub(crate) fn of(shared: &SessionInner) -> Self {
        let mut peers: Vec<PeerStats> = shared.links().iter().map(|l| PeerStats::of(l)).collect();
        peers.sort_by_key(|p| p.rank);
        Self {
            peers,
            panics_caught: shared.wakers.panics(),
            peers_lost: shared.peers_lost.load(Ordering::Relaxed),
            strangers_refused: shared.refused.load(Ordering::Relaxed),
            quarantined_bytes: shared.tally.window_bytes.load(Ordering::Acquire),
            quarantined_links: shared.tally.links.load(Ordering::Acquire),
            held: held(),
            ucx_registrations: shared.domains.iter().map(Domain::registrations).sum(),
        }
    }
}

impl PeerStats {
    pub(crate) fn of(link: &Link) -> Self {
        let (conn, (bytes_out, bytes_in), in_flight, exposed, (puts, gets)) = {
            let mut data = link.data();
            let (exposed, _) = data.exposed_bytes();
            let in_flight = data.queue().in_flight();
            (data.plane().kind(), data.bytes_moved(), in_flight, exposed, data.counts())
        };
        let (messages_in, inbox) = {
            let inbox = link.inbox();
            (inbox.received(), inbox.len())
        };
        let c = &link.counters;
        Self {
            rank: link.peer,
            conn,
            connected: link.state() == LinkState::Ready,
            puts,
            gets,
            failures: c.failures.load(Ordering::Relaxed),
            bytes_out,
            bytes_in,
            messages_out: c.messages_out.load(Ordering::Relaxed),
            messages_in,
            overslept: c.overslept.load(Ordering::Relaxed),
            in_flight,
            inbox,
            exposed_bytes: exposed,
        }
    }
}
