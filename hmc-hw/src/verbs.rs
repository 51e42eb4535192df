//! RDMA verbs: libibverbs over InfiniBand and RoCE.
//!
//! From the lowest layer (the layers are in `xtask/src/cmd/tidy/layers.txt`):
//!
//! - `sys` declares the types of `infiniband/verbs.h`.

mod sys;
