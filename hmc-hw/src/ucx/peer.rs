//! One peer: its endpoint, what is under way to it, its windows as they are known here. Below the worker that it is of.

mod direct;
mod ends;
pub(super) mod flights;
pub(super) mod known;
pub(super) mod mapped;
pub(super) mod orphan;
mod sending;
pub(super) mod state;
pub(super) mod trips;
