//! Outcomes that have left the slots of their operations, under the operations' names.

use std::collections::HashMap;
use std::sync::Arc;

use hmc_core::slots::{Outcome, SlotId};

use crate::link::at_once::{AtOnce, PLACES};
use crate::link::op_resources::OpResources;

/// Outcomes that no call has taken, beside those in slots, at the most.
pub(crate) const MAX_STORED: usize = 1 << 16;

/// Outcomes that have left their slots, with what the operations still hold, and those that never had one.
#[derive(Debug, Default)]
pub(super) struct StoredOutcomes {
    moved: HashMap<SlotId, (Outcome, OpResources)>,
    at_once: Arc<AtOnce>,
}

impl StoredOutcomes {
    pub(super) fn at_once(&self) -> Arc<AtOnce> {
        Arc::clone(&self.at_once)
    }

    /// How many more may be kept.
    pub(super) fn space(&self) -> usize {
        MAX_STORED.saturating_sub(self.moved.len()).saturating_sub(self.at_once.len())
    }

    pub(super) fn insert(&mut self, op: SlotId, ended: (Outcome, OpResources)) {
        self.moved.insert(op, ended);
        self.leave_space();
    }

    pub(super) fn get(&self, op: SlotId) -> Option<Outcome> {
        let moved = self.moved.get(&op).map(|(outcome, _)| *outcome);
        moved.or_else(|| self.at_once.get(op).map(success))
    }

    pub(super) fn take(&mut self, op: SlotId) -> Option<(Outcome, OpResources)> {
        let Some(ended) = self.moved.remove(&op) else {
            return self.at_once.take(op).map(|bytes| (success(bytes), OpResources::default()));
        };
        self.leave_space();
        Some(ended)
    }

    /// All places of operations that are over at once count as taken when there is space for no more than these.
    fn leave_space(&self) {
        self.at_once.open(self.moved.len().saturating_add(PLACES) <= MAX_STORED);
    }
}

/// The outcome of an operation that was over at once.
fn success(bytes: u64) -> Outcome {
    Outcome { result: Ok(bytes), fenced: true }
}
