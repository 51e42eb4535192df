//! The path of active messages to a peer.

use crate::ucx::sys;

/// The endpoint to a peer, and the number of the peer's AM target.
#[derive(Clone, Copy, Debug)]
pub(in crate::ucx) struct AmPath {
    pub(in crate::ucx) endpoint: sys::ucp_ep_h,
    pub(in crate::ucx) target: u64,
}

// SAFETY: a handle that is only used under the progress lock of its worker.
unsafe impl Send for AmPath {}
