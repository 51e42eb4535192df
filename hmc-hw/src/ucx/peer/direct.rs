//! Direct copies: memory of the peer that a lane of shared memory maps is copied in the call itself, without the
//! worker, a request or a flush.

use std::sync::atomic::{Ordering, fence};

use hmc_core::queue::Transfer;
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalSlice, RegionKey, WindowId, WindowSlice};
use hmc_core::work::Opcode;
use hmc_mem::copy;

use super::mapped::MappedWindow;
use super::memory_table::MemoryTable;
use super::state::PeerState;

/// Copies between two addresses of this process.
#[inline(always)]
fn copy_at(opcode: Opcode, here: *mut u8, there: *mut u8, len: usize) {
    let (to, from) = if opcode == Opcode::Get { (here, there) } else { (there, here) };
    // SAFETY: the callers checked the local range against registered memory, which `locals` owns. The other range lies in the
    // mapping of the peer's memory, which lives as long as the key, if the peer described its window truthfully (see the module
    // `ucx` on trust). No references to either range exist.
    unsafe { copy::copy_overlapping(to, from, len) };
}

impl PeerState {
    /// Copies at once if the window is mapped. If it returns `false`, the caller posts the transfer, which reports the
    /// reason.
    #[inline(always)]
    pub(in crate::ucx) fn copy_mapped(
        &self,
        opcode: Opcode,
        local: LocalSlice,
        remote: WindowSlice,
    ) -> bool {
        let window = self.memory.remote(remote.window);
        let Some((window, there)) = window.and_then(|w| Some((w, w.mapped?))) else { return false };
        let checked = window.check_access(opcode, remote).ok().map(|span| there.at(span));
        // Memory that is not registered yet is registered by the post.
        let entry = self.memory.local(local.key).filter(|l| l.is_host());
        let here = entry.and_then(|l| l.at(local.span));
        let len = usize::try_from(local.span.len());
        let (Some(there), Some(here), Ok(len)) = (checked, here, len) else { return false };
        copy_at(opcode, here, there, len);
        // A message that is sent after this arrives after the bytes.
        fence(Ordering::Release);
        true
    }

    /// Copies all transfers of a list at once if their windows are mapped. If it returns `false`, some may have been
    /// copied, and the caller may repeat them.
    pub(in crate::ucx) fn copy_list_mapped(&mut self, list: &[Transfer]) -> bool {
        let (mut range, mut bytes): (Option<BatchRange>, u64) = (None, 0);
        if self.down {
            return false;
        }
        for t in list {
            if !range.as_ref().is_some_and(|c| c.covers(t)) {
                range = self.memory.batch_range_of(t);
            }
            let Some(range) = &range else { return false };
            if range.copy(t).is_none() {
                return false;
            }
            bytes = bytes.saturating_add(t.local.span.len());
        }
        fence(Ordering::Release);
        self.requests.count_bytes(bytes);
        true
    }
}

/// Both ends of the transfers of a list that use the same memory and the same window.
struct BatchRange {
    key: RegionKey,
    window: WindowId,
    epoch: Epoch,
    get: bool,
    here: *mut u8,
    here_bytes: u64,
    there: MappedWindow,
    extent: Extent,
}

impl BatchRange {
    #[inline]
    fn covers(&self, t: &Transfer) -> bool {
        let same = self.key == t.local.key && self.window == t.remote.window;
        same && self.epoch == t.remote.epoch && self.get == (t.opcode == Opcode::Get)
    }

    /// Copies if both ranges lie within.
    #[inline]
    fn copy(&self, t: &Transfer) -> Option<()> {
        let (here, there) = (t.local.span, t.remote.span);
        if here.end() > self.here_bytes || !self.extent.contains(there) || here.len() != there.len()
        {
            return None;
        }
        let at = here.pointer(self.here);
        copy_at(t.opcode, at, self.there.at(there), usize::try_from(here.len()).ok()?);
        Some(())
    }
}

impl MemoryTable {
    /// Returns both ends of a transfer, if it is allowed and the window is mapped.
    fn batch_range_of(&self, t: &Transfer) -> Option<BatchRange> {
        let remote = self.remote(t.remote.window)?;
        let there = remote.mapped?;
        remote.check_access(t.opcode, t.remote).ok()?;
        let local = self.local(t.local.key)?;
        if !local.is_host() || matches!(t.opcode, Opcode::PutNotify { .. }) {
            return None;
        }
        Some(BatchRange {
            key: t.local.key,
            window: t.remote.window,
            epoch: t.remote.epoch,
            get: t.opcode == Opcode::Get,
            here: local.start.as_ptr(),
            here_bytes: local.bytes,
            there,
            extent: remote.region.extent,
        })
    }
}
