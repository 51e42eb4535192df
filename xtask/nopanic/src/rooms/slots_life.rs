//! `hmc_core::slots::life`.

use crate::values::{any, done};
use hmc_core::slots::life::{Life, Step};

pub(crate) fn call() {
    done(Life::step(any(Life::Free), any(Step::Begin)));
}
