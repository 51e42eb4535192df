//! The suites of `hmc-conformance`, and the subjects that this crate brings for them.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a subject computes on constants of the suite; a panic in it fails the case that ran"
)]

pub mod device_subjects;
pub mod subjects;

pub use hmc_conformance::{device, transport};
