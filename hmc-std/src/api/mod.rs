//! The calls of an application: sessions, peers, groups.

pub mod communicator;
pub mod control;
pub mod group;
pub(crate) mod listeners;
pub(crate) mod named_peers;
pub mod peer;
pub(crate) mod prepared;
pub mod probe;
pub mod session;
