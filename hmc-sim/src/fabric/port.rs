//! A simulated process and its queues.

use std::collections::VecDeque;

use hmc_core::limits::MAX_WINDOWS_PER_PEER;
use hmc_core::region::{Epoch, LocalSlice, WindowId};
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::work::{Completion, WorkRequest};

use super::in_flight::{InFlight, Replay};
use super::{INBOX, NO_COMPLETION};
use crate::memory::Memory;
use crate::ring::Ring;

/// Polled completions that a NIC may report once more.
const POLLED_KEPT: usize = 16;

/// One process.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) memory: Memory,
    pub(crate) alive: bool,
}

impl Host {
    pub(crate) const fn new() -> Self {
        Self { memory: Memory::new(), alive: true }
    }
}

/// Latency and rate from one end to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Path {
    /// Virtual nanoseconds, one direction.
    pub latency_ns: u64,
    /// Bytes that the wire carries in a virtual microsecond; 0 is no limit.
    pub bytes_per_us: u64,
}

impl Path {
    /// Returns how long the wire is busy with `len` bytes.
    pub(crate) fn wire_ns(self, len: u64) -> u64 {
        len.saturating_mul(1000).checked_div(self.bytes_per_us).unwrap_or(0)
    }
}

/// The state of a request queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// It is not connected: the address of the other end has not come.
    Init,
    /// It accepts requests.
    Ready,
    /// It accepts none; its requests are flushed, or lost.
    Error,
    /// It is destroyed with all its requests.
    Destroyed,
}

/// A revocation that was not acknowledged yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRevoke {
    pub(crate) window: (WindowId, Epoch),
    pub(crate) range: LocalSlice,
    pub(crate) due_ns: u64,
}

/// One end of a connection: a request queue, a completion queue, and the windows towards the peer.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) host: usize,
    /// The other end of the connection.
    pub(crate) peer: usize,
    pub(crate) peer_host: usize,
    pub(crate) windows: WindowTable<Box<[WindowEntry]>>,
    pub(crate) closing: Vec<PendingRevoke>,
    /// Windows of the peer that it revoked; one for each index.
    pub(crate) removed: Vec<(WindowId, Epoch)>,
    pub(crate) in_flight: Vec<InFlight>,
    pub(crate) replays: Vec<Replay>,
    pub(crate) done: Ring<Completion>,
    pub(crate) polled: VecDeque<Completion>,
    pub(crate) inbox: Ring<u64>,
    pub(crate) depth: usize,
    pub(crate) queue: Queue,
    /// This end has closed the connection.
    pub(crate) closed: bool,
    /// Bytes that its requests moved.
    pub(crate) moved: u64,
    /// When the queue fails by itself.
    pub(crate) dies_ns: u64,
    pub(crate) path: Path,
    /// When the wire is free again.
    pub(crate) wire_free_ns: u64,
}

impl Port {
    pub(crate) fn new(
        (host, peer_host): (usize, usize),
        peer: usize,
        depth: usize,
        places: usize,
        path: Path,
    ) -> Self {
        Self {
            host,
            peer,
            peer_host,
            windows: WindowTable::new(vec![WindowEntry::FREE; MAX_WINDOWS_PER_PEER].into()),
            closing: Vec::new(),
            removed: Vec::new(),
            in_flight: Vec::with_capacity(depth),
            replays: Vec::new(),
            done: Ring::new(places, NO_COMPLETION),
            polled: VecDeque::with_capacity(POLLED_KEPT),
            inbox: Ring::new(INBOX, 0),
            depth,
            queue: Queue::Ready,
            closed: false,
            moved: 0,
            dies_ns: u64::MAX,
            path,
            wire_free_ns: 0,
        }
    }

    /// Returns `true` if the queue is full. With a completion queue of its own size only the request queue is counted, which is
    /// the mistake to be simulated.
    pub(crate) fn is_full(&self, own_places: bool) -> bool {
        let unpolled = if own_places { 0 } else { self.done.len() };
        self.in_flight.len().saturating_add(unpolled) >= self.depth
    }

    /// Returns `true` if a request in flight meets the condition.
    pub(crate) fn any(&self, is_it: impl Fn(&WorkRequest) -> bool) -> bool {
        self.in_flight.iter().any(|request| is_it(&request.work))
    }

    /// Keeps a polled completion for a second report.
    pub(crate) fn remember(&mut self, completion: Completion) {
        if self.polled.len() >= POLLED_KEPT {
            self.polled.pop_front();
        }
        self.polled.push_back(completion);
    }
}
