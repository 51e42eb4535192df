//! The commands, one module each. A command is its options and a `run` function.

pub(crate) mod doctor;
pub(crate) mod get;
pub(crate) mod perf;
pub(crate) mod put;
pub(crate) mod serve;
