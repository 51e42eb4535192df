//! UCX: one library over InfiniBand, RoCE, shared memory, TCP and the memory of devices.
//!
//! [`result`] is what its calls answer. Facts that hold for every version from 1.10 on stand at the
//! head of the file that relies on them.

pub mod result;
