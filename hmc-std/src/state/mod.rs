//! The state of one session: its links, listeners, pending connections and counters.

pub(crate) mod closed_links;
pub(crate) mod inner;
pub(crate) mod links;
pub(crate) mod listeners;
pub mod metrics;
pub(crate) mod pending_conns;
pub(crate) mod reconnect_info;
pub(crate) mod wait_pool;
