//! Counts of a run, or of many.

use super::node::{RequestError, RequestResult};

/// The kinds of results, `Done` first.
pub const RESULTS: [&str; 16] = [
    "done",
    "peer dead",
    "deadline",
    "cancelled",
    "revoked",
    "stale epoch",
    "out of range",
    "access",
    "quarantined",
    "not connected",
    "duplicate",
    "full",
    "closed",
    "unknown window",
    "unsupported",
    "other",
];

/// The kinds of faults.
pub const FAULTS: [&str; 7] =
    ["cut", "partition", "one-way partition", "kill", "vanish", "pause", "stall"];

/// The kinds of processes outside of the cluster.
pub const OUTSIDERS: [&str; 3] = ["silent connections", "claim of a rank", "flood"];

/// Counts of what happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events of the world: pieces of streams, wake-ups, connections, steps.
    pub events: u64,
    /// Requests passed to nodes.
    pub requests: u64,
    /// Requests of the script that could not be passed: process exited, range in use.
    pub skipped: u64,
    /// Messages that reached applications.
    pub messages: u64,
    /// Messages that were in transit when their sender was killed, and had to arrive.
    pub last_messages: u64,
    /// Bytes that streams carried.
    pub bytes: u64,
    /// Results, as [`RESULTS`] lists them.
    pub results: [u64; RESULTS.len()],
    /// Faults that hit something, as [`FAULTS`] lists them.
    pub faults: [u64; FAULTS.len()],
    /// Steps with processes outside of the cluster, as [`OUTSIDERS`] lists them.
    pub outsiders: [u64; OUTSIDERS.len()],
    /// Processes started again.
    pub restarts: u64,
    /// Virtual time.
    pub virtual_ns: u64,
}

impl Stats {
    /// Counts a result.
    pub(crate) fn completed(&mut self, result: &RequestResult) {
        let index = match result {
            RequestResult::Done { .. } => 0,
            RequestResult::Failed(RequestError::PeerDead) => 1,
            RequestResult::Failed(RequestError::Deadline) => 2,
            RequestResult::Failed(RequestError::Cancelled) => 3,
            RequestResult::Failed(RequestError::Revoked) => 4,
            RequestResult::Failed(RequestError::StaleEpoch) => 5,
            RequestResult::Failed(RequestError::OutOfRange) => 6,
            RequestResult::Failed(RequestError::Access) => 7,
            RequestResult::Failed(RequestError::Quarantined) => 8,
            RequestResult::Failed(RequestError::NotConnected) => 9,
            RequestResult::Failed(RequestError::Duplicate) => 10,
            RequestResult::Failed(RequestError::Full) => 11,
            RequestResult::Failed(RequestError::Closed) => 12,
            RequestResult::Failed(RequestError::Unknown) => 13,
            RequestResult::Failed(RequestError::Unsupported) => 14,
            RequestResult::Failed(RequestError::Other(_)) => 15,
        };
        self.results[index] += 1;
    }

    /// Adds another run.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.requests += other.requests;
        self.skipped += other.skipped;
        self.messages += other.messages;
        self.last_messages += other.last_messages;
        self.bytes += other.bytes;
        self.restarts += other.restarts;
        self.virtual_ns += other.virtual_ns;
        for (to, from) in self.results.iter_mut().zip(other.results) {
            *to += from;
        }
        for (to, from) in self.outsiders.iter_mut().zip(other.outsiders) {
            *to += from;
        }
        for (to, from) in self.faults.iter_mut().zip(other.faults) {
            *to += from;
        }
    }

    /// All faults.
    #[must_use]
    pub fn all_faults(&self) -> u64 {
        self.faults.iter().sum()
    }
}
