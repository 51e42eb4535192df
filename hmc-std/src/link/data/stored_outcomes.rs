//! Outcomes that have left the slots of their operations, by the operations' ids.

use std::collections::HashMap;

use hmc_core::slots::{Outcome, SlotId};

use crate::link::op_resources::OpResources;

/// Outcomes that no call has taken, beside those in slots, at the most.
pub(crate) const MAX_STORED: usize = 1 << 16;

/// The outcomes, with what the operations still hold.
#[derive(Debug, Default)]
pub(super) struct StoredOutcomes(HashMap<SlotId, (Outcome, OpResources)>);

impl StoredOutcomes {
    /// How many more may be kept.
    pub(super) fn space(&self) -> usize {
        MAX_STORED.saturating_sub(self.0.len())
    }

    pub(super) fn insert(&mut self, op: SlotId, ended: (Outcome, OpResources)) {
        self.0.insert(op, ended);
    }

    pub(super) fn get(&self, op: SlotId) -> Option<Outcome> {
        self.0.get(&op).map(|(outcome, _)| *outcome)
    }

    pub(super) fn take(&mut self, op: SlotId) -> Option<(Outcome, OpResources)> {
        self.0.remove(&op)
    }
}
