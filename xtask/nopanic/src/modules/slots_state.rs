//! `hmc_core::slots::state`.

use crate::values::{any, done};
use hmc_core::slots::state::{SlotState, SlotTransition};

pub(crate) fn call() {
    done(SlotState::next(any(SlotState::Free), any(SlotTransition::Begin)));
}
