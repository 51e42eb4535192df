//! A fake libibverbs: its calls between queue pairs of one process, for faults that cannot be provoked in soft-RoCE.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a library of tests; it may panic, and numbers stand for pointers in C"
)]
#![allow(dead_code, reason = "the calls that use it follow")]

pub mod abi;
pub mod api;
mod async_event;
mod bytes;
mod channel;
mod completion;
mod context;
mod cq;
mod device;
mod domain;
mod event;
mod faults;
mod message;
mod modify;
mod mw;
mod object;
mod ops;
mod port;
mod post;
mod progress;
mod qp;
mod queue;
mod queue_pair;
mod region;
mod release;
pub mod script;
mod srq;
mod state;
mod table;
mod target;
#[cfg(test)]
mod tests;
mod text;
mod ticker;
mod window;
