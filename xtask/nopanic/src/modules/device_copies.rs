//! `hmc_core::device::copies`.

use crate::values::{done, number, small};
use hmc_core::device::Rows;

pub(crate) fn call() {
    let rows =
        Rows { count: small(), len: number(), from_stride: number(), to_stride: number() };
    done(Rows::extents(&rows));
}
