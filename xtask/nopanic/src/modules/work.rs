//! `hmc_core::work`.

use crate::values::{failure, show};
use hmc_core::work::Failure;

pub(crate) fn call() {
    show::<Failure>(&failure());
}
