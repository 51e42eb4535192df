//! Initiator side of the AM path: operations in progress, and how much of each was sent.

use std::collections::VecDeque;

use crate::ucx::am::AmMessage;
use crate::ucx::records::{MAX_REQUESTS, SENDS};

/// Progress of one operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AmOp {
    /// The operation's number: the record's index, and above it a count of the record's uses.
    pub(super) seq: u32,
    pub(super) sent: u64,
}

#[derive(Debug)]
pub(in crate::ucx) struct AmInitiator {
    pub(super) target: u64,
    /// Operations with fragments to send.
    pub(super) queue: VecDeque<u16>,
    pub(super) ops: Box<[AmOp]>,
    pub(super) messages: Box<[AmMessage]>,
}

impl AmInitiator {
    /// Makes an initiator for the peer's AM target of that number.
    pub(in crate::ucx) fn new(target: u64) -> Self {
        Self {
            target,
            queue: VecDeque::with_capacity(MAX_REQUESTS),
            ops: vec![AmOp::default(); MAX_REQUESTS].into(),
            messages: (0..SENDS).map(|_| AmMessage::new()).collect(),
        }
    }

    /// Returns `true` if no message is in flight.
    pub(in crate::ucx) fn is_idle(&self) -> bool {
        !self.messages.iter().any(AmMessage::is_busy)
    }

    /// Returns `true` if a message can be sent now.
    pub(in crate::ucx) fn can_send(&self) -> bool {
        !self.queue.is_empty() && self.messages.iter().any(|p| !p.is_busy())
    }

    pub(super) fn op(&mut self, record: u16) -> Option<&mut AmOp> {
        self.ops.get_mut(usize::from(record))
    }

    /// Returns the record of the operation of that number, if it is in flight.
    pub(super) fn record_of(&self, seq: u32) -> Option<u16> {
        let record = u16::from(seq.to_le_bytes()[0]);
        self.ops.get(usize::from(record)).filter(|t| t.seq == seq).map(|_| record)
    }
}

#[cfg(test)]
mod tests {
    use super::{AmInitiator, AmOp};

    #[test]
    fn a_number_names_one_use_of_a_record() {
        let mut initiator = AmInitiator::new(1);
        *initiator.op(5).unwrap() = AmOp { seq: 0x0305, sent: 0 };
        assert_eq!(initiator.record_of(0x0305), Some(5));
        for seq in [0x0205, 0x0405, 0x0306, 0x0005] {
            assert_eq!(initiator.record_of(seq), None, "{seq:#x}");
        }
        assert!(initiator.op(256).is_none());
        assert!(initiator.is_idle() && !initiator.can_send());
        initiator.queue.push_back(5);
        assert!(initiator.can_send());
    }
}
