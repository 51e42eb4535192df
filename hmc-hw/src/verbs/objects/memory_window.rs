//! A memory window of type 2: a part of a memory region that the peer of one queue pair can access.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{MemoryRegion, QueuePair};
use crate::verbs::error::{VerbsError, check};
use crate::verbs::ops;
use crate::verbs::sys::{
    IBV_MW_TYPE_2, IBV_SEND_SIGNALED, IBV_WR_BIND_MW, ibv_mw, ibv_mw_bind_info, ibv_send_wr,
    ibv_send_wr_bind_mw, ibv_send_wr_rdma, ibv_send_wr_wr,
};

/// What a window allows, and where.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct WindowRange {
    /// The address of its first byte, which is the region's as well.
    pub(in crate::verbs) address: u64,
    /// Its length, at most 2^31.
    pub(in crate::verbs) len: u64,
    /// What the peer may do (`IBV_ACCESS_REMOTE_*`).
    pub(in crate::verbs) access: u32,
}

/// A memory window. It lets nobody in until it is bound. Its end is a fence: once `ibv_dealloc_mw` has returned, its key is not
/// valid, whatever the state of its queue pair.
pub(in crate::verbs) struct MemoryWindow {
    mw: NonNull<ibv_mw>,
    /// Dropped after the window has ended, as is the domain, which the region holds.
    region: ManuallyDrop<Arc<MemoryRegion>>,
    rkey: u32,
}

// SAFETY: libibverbs may be called from any thread (ibv_alloc_mw(3)); the structure is written to by the owner alone.
unsafe impl Send for MemoryWindow {}
// SAFETY: nothing of it is changed through a shared reference.
unsafe impl Sync for MemoryWindow {}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not its key: who has it can reach the memory.
        f.debug_struct("MemoryWindow").finish_non_exhaustive()
    }
}

/// Returns the key of the next bind: the low eight bits are the user's (`ibv_inc_rkey`).
const fn next_key(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}

impl MemoryWindow {
    /// A window of that region, not bound yet.
    ///
    /// # Errors
    /// [`VerbsError`]: `EOPNOTSUPP` where the provider has no windows.
    pub(in crate::verbs) fn new(region: &Arc<MemoryRegion>) -> Result<Self, VerbsError> {
        let pd = region.pd();
        // SAFETY: the domain exists, since the region holds it.
        let mw = unsafe { ops::alloc_mw(pd.raw(), IBV_MW_TYPE_2) }
            .map_err(|errno| VerbsError::new("making a window", pd.device().name(), errno))?;
        // SAFETY: the provider returned it, with its key filled in.
        let rkey = unsafe { mw.as_ref().rkey };
        Ok(Self { mw, region: ManuallyDrop::new(Arc::clone(region)), rkey })
    }

    /// The key by which the peer names it. It changes with [`Self::bind`].
    pub(in crate::verbs) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Posts that the window is bound to this queue pair. The completion names `number`; the key is valid from then on.
    ///
    /// # Errors
    /// [`VerbsError`]: it is not bound. `EOPNOTSUPP` from mlx5 for more than 2^31 bytes.
    pub(in crate::verbs) fn bind(
        &mut self,
        qp: &QueuePair,
        number: u64,
        range: WindowRange,
    ) -> Result<(), VerbsError> {
        let rkey = next_key(self.rkey);
        let bind_info = ibv_mw_bind_info {
            mr: self.region.raw(),
            addr: range.address,
            length: range.len,
            mw_access_flags: range.access,
        };
        let mut request = ibv_send_wr {
            wr_id: number,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: 0,
            opcode: IBV_WR_BIND_MW,
            send_flags: IBV_SEND_SIGNALED,
            imm_data: 0,
            wr: ibv_send_wr_wr { rdma: ibv_send_wr_rdma { remote_addr: 0, rkey: 0 } },
            qp_type: 0,
            bind_mw: ibv_send_wr_bind_mw { mw: self.mw.as_ptr(), rkey, bind_info },
        };
        // SAFETY: a chain of one bind without memory of its own; window and region exist, and are of the queue pair's domain or the
        // device refuses the bind.
        let returned = unsafe { qp.post(&raw mut request) };
        if returned != 0 {
            return Err(*qp.refusal(returned));
        }
        // Most providers read the structure's key at the post and do not write it (rdma-core, pull request 1777).
        // SAFETY: the window exists, and the caller has it exclusively.
        unsafe { (*self.mw.as_ptr()).rkey = rkey };
        self.rkey = rkey;
        Ok(())
    }

    /// Ends the window, bound or not. Returns its region. No bind of it is to be under way, unless its queue pair is in the error state
    /// or destroyed: one that is carried out later could let the peer into another window of that index.
    ///
    /// # Errors
    /// [`VerbsError`]: the peer may still be let in. The window stays for ever, as do its region and its domain. The end of its queue
    /// pair is the fence then, as long as no other one of the domain gets its number.
    pub(in crate::verbs) fn deallocate(self) -> Result<Arc<MemoryRegion>, VerbsError> {
        let mut this = ManuallyDrop::new(self);
        this.end()?;
        // SAFETY: taken once, since `this` is never dropped.
        Ok(unsafe { ManuallyDrop::take(&mut this.region) })
    }

    fn end(&self) -> Result<(), VerbsError> {
        let device = self.region.pd().device();
        // In a forked child it is the parent's.
        if device.library().is_inherited() {
            return Ok(());
        }
        // SAFETY: made in `new`; called once, by `deallocate` or by `drop`.
        let result = unsafe { ops::dealloc_mw(self.mw.as_ptr()) };
        check("ending a window", device.name(), result)
    }
}

impl Drop for MemoryWindow {
    /// See [`Self::deallocate`].
    fn drop(&mut self) {
        if self.end().is_ok() {
            // SAFETY: the value is dropped, so that nothing reads it again.
            unsafe { ManuallyDrop::drop(&mut self.region) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::next_key;

    /// As `ibv_inc_rkey` has it.
    #[test]
    fn the_next_key_changes_eight_bits() {
        assert_eq!(next_key(0x1234_5600), 0x1234_5601);
        assert_eq!(next_key(0x1234_56ff), 0x1234_5600);
    }
}
