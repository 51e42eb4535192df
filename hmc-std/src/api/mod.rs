//! The calls of an application: sessions, peers, groups.

pub(crate) mod events;
pub mod group;
pub(crate) mod listener;
pub(crate) mod listeners;
pub mod peer;
pub(crate) mod prepared;
pub mod probe;
pub mod session;
