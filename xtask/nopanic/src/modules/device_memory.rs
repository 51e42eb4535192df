//! `hmc_core::device::memory`.

use crate::values::{done, number};
use hmc_core::device::Allocation;

pub(crate) fn call() {
    done(Allocation::device(number()));
}
