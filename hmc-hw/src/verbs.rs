//! RDMA verbs: libibverbs over InfiniBand and RoCE.
//!
//! From the lowest layer (the layers are in `xtask/src/cmd/tidy/layers.txt`):
//!
//! - `sys` and `functions` declare what `infiniband/verbs.h` does.

mod functions;
mod sys;
