//! What the header of libibverbs declares, as far as a reliable connection (RC) with a shared receive queue, completion
//! channels, asynchronous events, type 2 memory windows and GID tables needs it.
//!
//! Written by hand from `infiniband/verbs.h` of libibverbs 44.0 (rdma-core).
#![allow(unused_imports, reason = "declared as a whole, whether used or not")]

mod attrs;
mod constants;
mod objects;
mod types;

pub(crate) use attrs::*;
pub(crate) use constants::*;
pub(crate) use objects::*;
pub(crate) use types::*;
