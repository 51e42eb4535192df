//! Suites that an implementation of a border trait must pass, whoever wrote it.
//!
//! - [`transport`]: for a [`Transport`](hmc_core::transport::Transport). Start at [`transport::run`].
//! - [`device`]: for a [`Device`](hmc_core::device::Device). Start at [`device::run`].
//! - [`rng`]: the chance of both, from seeds.
//!
//! Add it to the dependencies of your tests. It needs nothing but `hmc-core` and the standard library.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "the suite computes on its own constants; a panic in it fails the case that ran"
)]

mod cases;
pub mod device;
mod device_bench;
mod device_cases;
mod device_memory;
mod device_subject;
mod image;
mod ledger;
mod report;
pub mod rng;
mod subject;
pub mod transport;
