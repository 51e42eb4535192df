//! Suites that an implementation of a border trait must pass, whoever wrote it.

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
pub mod device_subjects;
mod image;
mod ledger;
mod report;
mod subject;
pub mod subjects;
pub mod transport;
