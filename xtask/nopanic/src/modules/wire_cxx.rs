//! `hmc_core::wire::cxx`.

use crate::values::{done, rank};
use hmc_core::wire::cxx::hello_v1;

pub(crate) fn call() {
    done(hello_v1(rank()));
}
