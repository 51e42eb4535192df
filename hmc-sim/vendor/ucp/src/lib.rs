//! A fake libucp: UCX's calls between workers of one process, for faults that cannot be provoked in real UCX.
//!
//! A test loads the shared library in place of libucp and writes its script through the functions of [`script`]:
//! completions that are late, failed, out of order or missing, endpoints that fail, calls that fail at the n-th time.
//! Everything else is strict where UCX may be: bytes of a put reach the target with the flush and not before, a local
//! buffer is read when its request ends and not before, a failed or cancelled operation leaves half of its bytes. What
//! a caller must not do (a request freed twice, memory unmapped under a request, a call on a destroyed handle, two
//! threads inside one worker) aborts the process with a message.
//!
//! The declarations are those of hmc-hw, by inclusion; `api` proves that each function of its table is here with that
//! type. Nothing of time, chance or the environment is read: the same calls and script give the same run. Puts, flushes
//! and progress allocate nothing after as many operations were in flight once. Nothing here may be used outside of tests.
//!
//! Reading order: `handle` (names of objects), `message` and `request`, `faults` (the script), `state` (all state),
//! [`script`] (its C functions), then UCX's calls: `setup`, `memory`, `worker`, `endpoint`, `transfer` (posting),
//! `completion`, `am`.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a library of tests; it may panic, and numbers stand for pointers in C"
)]

mod am;
mod api;
mod completion;
mod endpoint;
mod faults;
#[path = "../../../../hmc-hw/src/ucx/functions.rs"]
mod functions;
mod handle;
mod memory;
mod message;
mod request;
pub mod script;
mod setup;
// UCX's declarations are written once, in the files that are compared with its headers.
mod state;
#[path = "../../../../hmc-hw/src/ucx/sys/mod.rs"]
mod sys;
#[cfg(test)]
mod tests;
mod transfer;
mod worker;
