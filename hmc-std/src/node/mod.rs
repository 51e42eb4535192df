//! What a session decides about its peers, without sockets, threads or clocks.
//!
//! Each module here takes inputs and returns outputs, so that a simulator can run the real
//! logic: [`membership`] (who is whom, who may connect, who redials when), [`inbox`] (what was
//! received and who may have it) and [`pending_releases`] (release acks that are not sent yet). The I/O around it is in
//! [`crate::session`].

pub(crate) mod inbox;
pub(crate) mod link_tokens;
pub(crate) mod membership;
pub(crate) mod pending_releases;
