//! Outcomes that have left the slots of their operations, under the operations' names.

use std::collections::HashMap;

use hmc_core::slots::{Outcome, SlotId};

use crate::link::hold::Hold;

/// Outcomes that nobody has asked for, beside those in slots, at the most.
pub(crate) const MAX_UNASKED: usize = 1 << 16;

/// Outcomes that have left their slots, with what the operations still hold.
#[derive(Debug, Default)]
pub(super) struct Unasked(HashMap<SlotId, (Outcome, Hold)>);

impl Unasked {
    /// Whether no more are kept.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MAX_UNASKED
    }

    pub(super) fn insert(&mut self, op: SlotId, ended: (Outcome, Hold)) {
        self.0.insert(op, ended);
    }

    pub(super) fn get(&self, op: SlotId) -> Option<Outcome> {
        self.0.get(&op).map(|(outcome, _)| *outcome)
    }

    pub(super) fn take(&mut self, op: SlotId) -> Option<(Outcome, Hold)> {
        self.0.remove(&op)
    }
}
