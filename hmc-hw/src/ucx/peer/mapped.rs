//! Address of the peer's memory in this process, if a lane of shared memory maps it.
//!
//! UCX maps memory that it allocated itself, and `ucp_rkey_ptr` returns the address. UCX would copy there as well, in
//! `ucp_put_nbx`; for gets, 1.22 sends a request to the target's process instead.

use std::ptr::NonNull;

use hmc_core::range::ByteRange;

use crate::ucx::endpoint::Key;
use crate::ucx::sys;
use crate::ucx::ucp_worker::LockedWorker;

/// Address of a peer's window in this process.
#[derive(Clone, Copy, Debug)]
pub(in crate::ucx) struct MappedWindow(NonNull<u8>);

// SAFETY: an address, which any thread may copy to and from.
unsafe impl Send for MappedWindow {}

/// Returns the address of the peer's memory at `base` in this process, if a lane maps it.
pub(in crate::ucx) fn mapped(
    guard: &LockedWorker<'_>,
    key: &Key,
    base: u64,
) -> Option<MappedWindow> {
    let ask = guard.api().ucp_rkey_ptr?;
    let mut at = std::ptr::null_mut();
    // SAFETY: the key lives and the progress lock is held; the address is written when there is one.
    let status = unsafe { ask(key.handle(), base, &mut at) };
    if status == sys::UCS_OK { NonNull::new(at.cast()).map(MappedWindow) } else { None }
}

impl MappedWindow {
    /// Returns the address of a range of the window.
    #[inline]
    pub(in crate::ucx) fn at(self, span: ByteRange) -> *mut u8 {
        span.pointer(self.0.as_ptr())
    }
}
