//! What the header of libibverbs declares, as far as a reliable connection (RC) with a shared receive queue, completion
//! channels, asynchronous events, type 2 memory windows and GID tables needs it; the functions are in
//! [`super::functions`], the inline calls in [`super::ops`].
//!
//! Written by hand from `infiniband/verbs.h` of libibverbs 44.0 (rdma-core); `../tests.rs` compares every size, offset
//! and value with what a C compiler makes of the header. hmc-sim's fake libibverbs includes this module by its path.

mod attrs;
mod constants;
mod objects;
mod types;

pub(crate) use attrs::*;
#[allow(unused_imports, reason = "declared as a whole, whether used or not")]
pub(crate) use constants::*;
pub(crate) use objects::*;
pub(crate) use types::*;
