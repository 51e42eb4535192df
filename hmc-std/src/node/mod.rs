//! Decisions of a session about its peers, without sockets, threads or clocks.
//!
//! Each module takes inputs and returns outputs, so a simulator can run the real logic: [`membership`] (ranks,
//! admission, reconnects), [`inbox`] (received messages) and [`pending_releases`] (release acks that are not sent
//! yet). [`crate::session`] has the I/O around it.

pub(crate) mod inbox;
pub(crate) mod link_tokens;
pub(crate) mod membership;
pub(crate) mod pending_releases;
