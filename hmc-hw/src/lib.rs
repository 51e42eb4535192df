//! The real back ends of HMC: libraries of vendors, found and loaded at run time.
//!
//! Nothing here is linked against a vendor's library. A program with this crate builds and starts on
//! every machine; a library that is missing, too old or broken is an answer with its name in it,
//! never a failed build, a crash or a silent fallback. Declarations are generated, committed and
//! compared with the vendor's headers (`cargo xtask bindings`).
//!
//! A library that was loaded stays: its code may have started threads and left hooks behind, and the
//! function pointers that were copied out of it live as long as the process.
//!
//! This crate moves bytes and decides nothing: who may touch which bytes is settled in `hmc-core`,
//! and memory of the host that others write is read and written in `hmc-mem`.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may panic"))]

pub mod api;
mod sys;
pub mod ucx;
