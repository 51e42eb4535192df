//! The calls of an application: sessions, peers, groups.

mod events_fd;
pub mod group;
pub(crate) mod listeners;
pub mod peer;
pub(crate) mod prepared;
pub mod probe;
pub mod session;
