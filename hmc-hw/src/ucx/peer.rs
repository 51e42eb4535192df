//! One peer: its endpoint, what is under way to it, its windows as they are known here. Below the worker that it is of.

pub(super) mod am_initiator;
mod am_sending;
mod direct;
mod ends;
pub(super) mod known;
pub(super) mod mapped;
pub(super) mod orphan;
pub(super) mod requests;
pub(super) mod state;
