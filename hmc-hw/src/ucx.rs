//! UCX: one library over InfiniBand, RoCE, shared memory, TCP and the memory of devices.
//!
//! [`result`] is what its calls answer; `sys` is what its headers declare.

#[cfg(test)]
mod layout;
pub mod result;
mod sys;
