//! Suites that each implementation of an interface (trait) must pass.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "the suite computes on its own constants; a panic in it fails the case that ran"
)]

mod cases;
mod completion_checker;
pub mod device;
mod device_cases;
mod device_fixture;
mod device_memory;
mod device_subject;
pub mod device_subjects;
mod expected_memory;
mod report;
mod subject;
pub mod subjects;
pub mod transport;
