//! `hmc_core::wire::cxx`.

use crate::values::{any, done, rank, small};
use hmc_core::wire::header::{FrameKind, Header};
use hmc_core::wire::cxx::{Protocol, hello_v1};

pub(crate) fn call() {
    done(Protocol::of_first(any(Header::new(FrameKind::Int, small()))));
    done(hello_v1(rank()));
}
