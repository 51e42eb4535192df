//! Start and end of links: accept, dial, proof, shutdown.

pub(crate) mod accept;
pub(crate) mod admit;
pub(crate) mod claim;
pub(crate) mod connect;
pub(crate) mod connector;
pub(crate) mod dial_target;
pub(crate) mod dialer;
pub(crate) mod expected_peer;
pub(crate) mod handshake;
pub(crate) mod hello;
pub(crate) mod named_dial;
pub(crate) mod proof;
pub(crate) mod rank_query;
pub(crate) mod reconnect;
pub(crate) mod retry;
pub(crate) mod shutdown;
