//! The direct way: memory of the peer that a lane of shared memory maps here is copied to and from in the call itself,
//! without the worker, a request or a flush.
//!
//! UCX maps what it allocated itself, and says where by `ucp_rkey_ptr`. It would copy there as well, in `ucp_put_nbx`;
//! for gets 1.22 asks the target's process instead.

use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use hmc_core::region::{LocalSlice, RemoteSlice};
use hmc_core::work::{Failure, Opcode};
use hmc_mem::copy;

use super::UcxTransport;
use super::state::State;
use crate::ucx::endpoint::Key;
use crate::ucx::sys;
use crate::ucx::worker::Crank;

/// Where a window lies in this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapped(NonNull<u8>);

// SAFETY: an address, which any thread may copy to and from.
unsafe impl Send for Mapped {}

/// Where the peer's memory at `base` lies in this process, if it is mapped here.
pub(super) fn mapped(crank: &Crank<'_>, key: &Key, base: u64) -> Option<Mapped> {
    let ask = crank.api().ucp_rkey_ptr?;
    let mut at = std::ptr::null_mut();
    // SAFETY: the key lives and the crank is held; the address is written when there is one.
    let status = unsafe { ask(key.handle(), base, &mut at) };
    if status == sys::UCS_OK { NonNull::new(at.cast()).map(Mapped) } else { None }
}

impl UcxTransport {
    /// Puts or gets here and now, where the window is mapped: when it answers `Some`, the transfer is over, and a put is
    /// visible to the peer. `None` when it must be posted.
    #[inline]
    pub fn transfer_now(
        &mut self,
        opcode: Opcode,
        local: LocalSlice,
        remote: RemoteSlice,
    ) -> Option<Result<u64, Failure>> {
        if self.state.down || matches!(opcode, Opcode::PutNotify { .. }) {
            return None;
        }
        let moved = self.state.copy_mapped(opcode, local, remote)?;
        self.state.bytes = self.state.bytes.saturating_add(moved.unwrap_or(0));
        Some(moved)
    }
}

impl State {
    /// Copies, if the window is mapped.
    #[inline]
    pub(super) fn copy_mapped(
        &self,
        opcode: Opcode,
        local: LocalSlice,
        remote: RemoteSlice,
    ) -> Option<Result<u64, Failure>> {
        let window = self.remote(remote.window)?;
        let Mapped(base) = window.mapped?;
        let span = match window.judged(opcode, remote) {
            Ok(span) => span,
            Err(why) => return Some(Err(why)),
        };
        let (here, len, memory) = match self.here(local) {
            Ok(here) => here,
            // Memory that is not known yet is registered on the long way.
            Err(_) => return None,
        };
        if memory.memory_type() != sys::UCS_MEMORY_TYPE_HOST {
            return None;
        }
        let there = base.as_ptr().wrapping_add(usize::try_from(span.offset()).ok()?);
        let (to, from) = if opcode == Opcode::Get { (here, there) } else { (there, here) };
        // SAFETY: the local range was proven against registered memory, which `locals` holds. The other lies in the mapping
        // of the peer's memory, which lives as long as the key, if the peer told the truth of its window (see the module
        // `ucx` on trust). Neither is reached through references.
        unsafe { copy::copy_overlapping(to, from, len) };
        // What the peer is told after this comes after the bytes.
        fence(Ordering::Release);
        Some(Ok(local.span.len()))
    }
}
