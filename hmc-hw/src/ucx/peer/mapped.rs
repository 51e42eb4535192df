//! Where memory of the peer lies in this process, if a lane of shared memory maps it.
//!
//! UCX maps what it allocated itself, and says where by `ucp_rkey_ptr`. It would copy there as well, in `ucp_put_nbx`;
//! for gets 1.22 asks the target's process instead.

use std::ptr::NonNull;

use hmc_core::span::Span;

use crate::ucx::endpoint::Key;
use crate::ucx::sys;
use crate::ucx::ucp_worker::LockedWorker;

/// Where a window lies in this process.
#[derive(Clone, Copy, Debug)]
pub(in crate::ucx) struct Mapped(NonNull<u8>);

// SAFETY: an address, which any thread may copy to and from.
unsafe impl Send for Mapped {}

/// Where the peer's memory at `base` lies in this process, if it is mapped here.
pub(in crate::ucx) fn mapped(guard: &LockedWorker<'_>, key: &Key, base: u64) -> Option<Mapped> {
    let ask = guard.api().ucp_rkey_ptr?;
    let mut at = std::ptr::null_mut();
    // SAFETY: the key lives and the progress lock is held; the address is written when there is one.
    let status = unsafe { ask(key.handle(), base, &mut at) };
    if status == sys::UCS_OK { NonNull::new(at.cast()).map(Mapped) } else { None }
}

impl Mapped {
    /// Where a range of the window lies.
    #[inline]
    pub(in crate::ucx) fn at(self, span: Span) -> *mut u8 {
        span.pointer(self.0.as_ptr())
    }
}
