//! Small copies into memory that can be reached directly: done in the call, without the transport's queues.

use hmc_core::lane::Transfer;
use hmc_core::limits::MAX_CHUNK_BYTES;
use hmc_core::region::{LocalSlice, RemoteSlice};
use hmc_core::slots::OpId;
use hmc_core::work::{Failure, Opcode};

use super::DataState;
use crate::memory::Region;
use crate::transport::Port;

impl DataState {
    /// A small copy into memory that can be reached directly, done here and now; `None` when it must be posted.
    #[inline]
    pub(crate) fn transfer_now(
        &mut self,
        region: &Region,
        opcode: Opcode,
        local: LocalSlice,
        remote: RemoteSlice,
    ) -> Option<Result<u64, Failure>> {
        match self.lane.transport_mut() {
            Port::Shm(p) => p.transfer_now(region, opcode, local.span, remote),
            Port::Ucx(p) => p.transfer_now(opcode, local, remote),
            Port::Loopback(_) | Port::Tcp(_) | Port::None => None,
        }
    }

    /// As [`Self::transfer_now`], with a name by which its outcome is taken later. `None` when it must be posted, be it to fail.
    #[inline]
    pub(crate) fn begin_now(
        &mut self,
        region: &Region,
        opcode: Opcode,
        local: LocalSlice,
        remote: RemoteSlice,
    ) -> Option<OpId> {
        let slots = self.lane.slots();
        if slots.in_use() >= slots.capacity() {
            return None;
        }
        let bytes = self.transfer_now(region, opcode, local, remote)?.ok()?;
        let op = self.lane.record(bytes).ok()?;
        self.arm(op);
        if let Some(word) = self.words.get(usize::from(op.index)) {
            let _ = word.finish(op.generation, true);
        }
        self.count(opcode);
        Some(op)
    }

    /// A list of small copies, of so many bytes in all, into memory that can be reached directly, done here and now; `None`
    /// when it must be posted, all of it: some copies may have been done, and are done again.
    pub(crate) fn transfer_list_now(
        &mut self,
        region: &Region,
        list: &[Transfer],
        bytes: u64,
    ) -> Option<Result<(), Failure>> {
        if bytes > MAX_CHUNK_BYTES {
            return None;
        }
        for t in list {
            if let Err(why) = self.transfer_now(region, t.opcode, t.local, t.remote)? {
                return Some(Err(why));
            }
        }
        Some(Ok(()))
    }
}
