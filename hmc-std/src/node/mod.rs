//! What a session decides about its peers, without sockets, threads or clocks.
//!
//! Everything in this space is fed inputs and asked for outputs, so that a simulator can run the real
//! logic: [`membership`] (who is whom, who may connect, who redials when), [`inbox`] (what was
//! received and who may have it) and [`owed`] (which windows a peer is to be told were left). The shell around it lives in
//! [`crate::session`].

pub(crate) mod inbox;
pub(crate) mod link_tokens;
pub(crate) mod membership;
pub(crate) mod owed;
