//! Hardware back ends of HMC: vendors' libraries, found and loaded at run time.
//!
//! Nothing here is linked against a vendor's library. A program with this crate builds and starts on every machine; a
//! library that is missing, too old or broken is an error that names it, never a failed build, a crash or a silent
//! fallback. Declarations are committed and compared with the vendor's headers: UCX's are generated
//! (`cargo xtask bindings`), libibverbs' are written by hand (`verbs/tests.rs`).
//!
//! A loaded library is never unloaded: its code may have started threads and installed hooks, and the function pointers
//! that were copied out of it live as long as the process.
//!
//! This crate moves bytes and holds no protocol logic: `hmc-core` decides which process may access which bytes, and
//! `hmc-mem` accesses host memory that other processes write.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may panic"))]

pub mod api;
pub mod host;
mod loader;
pub mod opencl;
mod releases;
mod sys;
pub mod ucx;
pub mod verbs;
