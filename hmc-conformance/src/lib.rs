//! Suites that each implementation of an interface (trait) must pass.
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
mod completion_checker;
pub mod device;
mod device_cases;
mod device_copies;
mod device_fixture;
mod device_memory;
mod device_refusals;
mod device_rows;
mod device_streams;
mod device_subject;
mod expected_memory;
mod report;
pub mod rng;
mod subject;
pub mod transport;
