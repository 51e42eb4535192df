//! `hmc_core::wire::upstream`.

use crate::values::{any, done, rank, small};
use hmc_core::wire::header::{FrameKind, Header};
use hmc_core::wire::upstream::{Dialect, hello_v1};

pub(crate) fn call() {
    done(Dialect::of_first(any(Header::new(FrameKind::Int, small()))));
    done(hello_v1(rank()));
}
