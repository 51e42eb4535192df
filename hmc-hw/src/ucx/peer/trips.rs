//! Which operations of ours go as messages, and how much of each was sent.

use std::collections::VecDeque;

use crate::ucx::am::AmMessage;
use crate::ucx::records::{MAX_REQUESTS, SENDS};

/// The part of one operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trip {
    /// Its number: the record, and above it a count of the record's uses.
    pub(super) seq: u32,
    pub(super) sent: u64,
}

#[derive(Debug)]
pub(in crate::ucx) struct Trips {
    pub(super) target: u64,
    /// Operations with something to be sent.
    pub(super) queue: VecDeque<u16>,
    pub(super) trips: Box<[Trip]>,
    pub(super) messages: Box<[AmMessage]>,
}

impl Trips {
    /// Makes an initiator for the peer's AM target of that number.
    pub(in crate::ucx) fn new(target: u64) -> Self {
        Self {
            target,
            queue: VecDeque::with_capacity(MAX_REQUESTS),
            trips: vec![Trip::default(); MAX_REQUESTS].into(),
            messages: (0..SENDS).map(|_| AmMessage::new()).collect(),
        }
    }

    /// Whether UCX has given all messages back.
    pub(in crate::ucx) fn is_idle(&self) -> bool {
        !self.messages.iter().any(AmMessage::is_busy)
    }

    /// Whether a message could be sent now.
    pub(in crate::ucx) fn can_send(&self) -> bool {
        !self.queue.is_empty() && self.messages.iter().any(|p| !p.is_busy())
    }

    pub(super) fn trip(&mut self, record: u16) -> Option<&mut Trip> {
        self.trips.get_mut(usize::from(record))
    }

    /// The operation of that number, if it is under way.
    pub(super) fn record_of(&self, seq: u32) -> Option<u16> {
        let record = u16::from(seq.to_le_bytes()[0]);
        self.trips.get(usize::from(record)).filter(|t| t.seq == seq).map(|_| record)
    }
}
