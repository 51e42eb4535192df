//! State of one peer: its endpoint, its requests, its windows as this end knows them. A layer below the worker.

pub(super) mod am_initiator;
mod am_sending;
mod direct;
mod endpoint_state;
pub(super) mod mapped;
pub(super) mod memory_table;
pub(super) mod orphan;
pub(super) mod requests;
pub(super) mod state;
