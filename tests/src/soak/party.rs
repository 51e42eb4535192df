//! One end of a pair of sessions, and which parts of both buffers are its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use hmc_std::Session;

use super::totals::Totals;

const RANKS: u64 = 4;

/// In each buffer a slice for each rank: where it puts, and where its notified puts go.
pub(super) const PUTS: u64 = 768 << 10;
pub(super) const NOTES: u64 = 256 << 10;
const SLICE: u64 = PUTS + NOTES;
/// After them, for each peer, what is sent to it and what is fetched from it.
pub(super) const BUFFER: u64 = RANKS * SLICE * 3;
/// A window at most.
pub(super) const WINDOW: u64 = 4 << 20;

/// One end of a pair.
#[derive(Clone)]
pub(super) struct Party {
    pub(super) session: Arc<Session>,
    pub(super) own: u32,
    pub(super) other: u32,
    pub(super) seed: u64,
    pub(super) stop: Stop,
    pub(super) totals: Arc<Totals>,
    pub(super) faults: Sender<String>,
}

/// Whether initiators, and then targets, are to end: who waits for an answer finds the other half there.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop {
    pub(super) drives: Arc<AtomicBool>,
    pub(super) hosts: Arc<AtomicBool>,
}

impl Party {
    pub(super) fn drives(&self) -> bool {
        !self.stop.drives.load(Ordering::Acquire)
    }

    pub(super) fn hosts(&self) -> bool {
        !self.stop.hosts.load(Ordering::Acquire)
    }

    /// Where this end writes in the other's buffer.
    pub(super) fn there(&self) -> u64 {
        u64::from(self.own) * SLICE
    }

    /// Where the other end writes in ours.
    pub(super) fn here(&self) -> u64 {
        u64::from(self.other) * SLICE
    }

    /// Where bytes for the other end are made.
    pub(super) fn outgoing(&self) -> u64 {
        (RANKS + u64::from(self.other)) * SLICE
    }

    /// Where bytes of the other end come to.
    pub(super) fn incoming(&self) -> u64 {
        (2 * RANKS + u64::from(self.other)) * SLICE
    }
}
