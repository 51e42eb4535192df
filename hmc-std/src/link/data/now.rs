//! Small copies into memory that can be reached directly: done in the call, without the transport's queues.

use std::sync::Arc;

use hmc_core::limits::MAX_CHUNK_BYTES;
use hmc_core::queue::Transfer;
use hmc_core::region::{Epoch, LocalSlice, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::work::Opcode;
use hmc_mem::os::mapped_window::MappedWindow;
use hmc_mem::shared::SharedBytes;

use super::DataState;
use crate::memory::Region;
use crate::transport::Port;

impl DataState {
    /// A window of the peer, if its pages are mapped here.
    pub(crate) fn mapped(&self, id: WindowId, epoch: Epoch) -> Option<Arc<MappedWindow>> {
        let Port::Shm(port) = self.queue.transport() else { return None };
        port.mapped(id).filter(|w| w.epoch() == epoch).cloned()
    }

    /// Puts and gets that were begun.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let Port::Shm(port) = self.queue.transport() else { return (self.puts, self.gets) };
        let moved = port.moved();
        (self.puts.saturating_add(moved.puts()), self.gets.saturating_add(moved.gets()))
    }

    /// A small copy into memory that can be reached directly, done here and now; `false` when it must be posted, be it to
    /// fail.
    #[inline]
    pub(crate) fn transfer_now(
        &mut self,
        region: &Region,
        opcode: Opcode,
        local: LocalSlice,
        remote: WindowSlice,
    ) -> bool {
        match self.queue.transport_mut() {
            Port::Shm(p) => p.transfer_now(region, opcode, local.span, remote),
            Port::Ucx(p) => p.transfer_now(opcode, local, remote),
            Port::Loopback(_) | Port::Tcp(_) | Port::None => false,
        }
    }

    /// A put of at most 1 MiB of bytes that are in no region, into memory that can be reached directly, done here and
    /// now; `false` when it must be posted from a region.
    pub(crate) fn write_now(&mut self, bytes: &SharedBytes<'_>, remote: WindowSlice) -> bool {
        let done = match self.queue.transport_mut() {
            Port::Shm(p) => p.write_now(bytes, remote),
            Port::Ucx(_) | Port::Loopback(_) | Port::Tcp(_) | Port::None => false,
        };
        if done {
            self.count(Opcode::Put);
        }
        done
    }

    /// As [`Self::transfer_now`], with a name by which its outcome is taken later. `None` when it must be posted. Always inlined:
    /// a program that uses buffers and routes calls it at two places, and would pay 20 instructions for each call.
    #[inline(always)]
    pub(crate) fn begin_now(
        &mut self,
        region: &Region,
        opcode: Opcode,
        local: LocalSlice,
        remote: WindowSlice,
    ) -> Option<SlotId> {
        if self.queue.is_full() || !self.transfer_now(region, opcode, local, remote) {
            return None;
        }
        let op = self.queue.record(local.span.len())?;
        self.count(opcode);
        Some(op)
    }

    /// A list of small copies, of so many bytes in all, into memory that can be reached directly, done here and now; `false`
    /// when it must be posted, all of it: some copies may have been done, and are done again.
    pub(crate) fn transfer_list_now(
        &mut self,
        region: &Region,
        list: &[Transfer],
        bytes: u64,
    ) -> bool {
        if bytes > MAX_CHUNK_BYTES {
            return false;
        }
        if let Port::Ucx(p) = self.queue.transport_mut() {
            return p.transfer_list_now(list);
        }
        list.iter().all(|t| self.transfer_now(region, t.opcode, t.local, t.remote))
    }
}
