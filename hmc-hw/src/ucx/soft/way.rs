//! The way of messages to a peer.

use crate::ucx::sys;

/// The way to the peer: its endpoint, and the number of its door.
#[derive(Clone, Copy, Debug)]
pub(in crate::ucx) struct Way {
    pub(in crate::ucx) endpoint: sys::ucp_ep_h,
    pub(in crate::ucx) door: u64,
}

// SAFETY: a name that is only used under the progress lock of its worker.
unsafe impl Send for Way {}
