//! The protocol logic of HMC: which bytes may be moved where, and when a transfer is complete.
//!
//! No code here accesses payload memory, a clock, a socket or a thread. Callers pass the time, the bytes
//! and the storage, and get back what to do next. The crate is `no_std`, allocates nothing,
//! contains no `unsafe` and no reachable panic (`cargo xtask nopanic` proves the last by linking).
//!
//! The data plane and the control plane share only the base modules ([`range`], [`types`], [`place`], [`time`], [`limits`]):
//!
//! - **data**: [`region`], [`window`], [`work`], [`transport`], [`slots`], [`queue`], [`chunks`], [`pipeline`], [`rndv`],
//!   [`device`];
//! - **control**: [`wire`], [`ctrl`].
//!
//! `wire::advert`, `wire::data` and `wire::rndv` are the interfaces between them. Start reading at [`range`].
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        reason = "tests may panic"
    )
)]

#[cfg(test)]
extern crate std;

pub mod blocks;
pub mod chunks;
pub mod ctrl;
pub mod device;
pub mod limits;
pub mod pipeline;
pub mod place;
pub mod queue;
pub mod range;
pub mod region;
pub mod rndv;
pub mod slots;
pub mod time;
pub mod transport;
pub mod types;
pub mod window;
pub mod wire;
pub mod work;
