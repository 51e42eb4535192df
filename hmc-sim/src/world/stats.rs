//! What a run, or many, did: counts only.

use super::node::{Answer, Fault};

/// The kinds of answers, `Done` first.
pub const ANSWERS: [&str; 16] = [
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
    /// Asks given to nodes.
    pub asks: u64,
    /// Asks of the script that could not be asked: process gone, range in use.
    pub skipped: u64,
    /// Messages that reached applications.
    pub messages: u64,
    /// Messages that were under way when their sender was killed, and had to arrive.
    pub last_messages: u64,
    /// Bytes that streams carried.
    pub bytes: u64,
    /// Answers, as [`ANSWERS`] lists them.
    pub answers: [u64; ANSWERS.len()],
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
    /// Counts an answer.
    pub(crate) fn answer(&mut self, answer: &Answer) {
        let index = match answer {
            Answer::Done { .. } => 0,
            Answer::Failed(Fault::PeerDead) => 1,
            Answer::Failed(Fault::Deadline) => 2,
            Answer::Failed(Fault::Cancelled) => 3,
            Answer::Failed(Fault::Revoked) => 4,
            Answer::Failed(Fault::StaleEpoch) => 5,
            Answer::Failed(Fault::OutOfRange) => 6,
            Answer::Failed(Fault::Access) => 7,
            Answer::Failed(Fault::Quarantined) => 8,
            Answer::Failed(Fault::NotConnected) => 9,
            Answer::Failed(Fault::Duplicate) => 10,
            Answer::Failed(Fault::Full) => 11,
            Answer::Failed(Fault::Closed) => 12,
            Answer::Failed(Fault::Unknown) => 13,
            Answer::Failed(Fault::Unsupported) => 14,
            Answer::Failed(Fault::Other(_)) => 15,
        };
        self.answers[index] += 1;
    }

    /// Adds another run.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.asks += other.asks;
        self.skipped += other.skipped;
        self.messages += other.messages;
        self.last_messages += other.last_messages;
        self.bytes += other.bytes;
        self.restarts += other.restarts;
        self.virtual_ns += other.virtual_ns;
        for (to, from) in self.answers.iter_mut().zip(other.answers) {
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
