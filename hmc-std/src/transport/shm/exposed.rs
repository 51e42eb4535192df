//! Local windows that the peer accesses: their gates, and the descriptors of their pages.

use std::sync::Arc;

use hmc_core::blocks::WindowBlocks;
use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId};
use hmc_core::transport::{DataPlane as _, Target as _};
use hmc_core::types::Access;
use hmc_core::window::WindowTransition;
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_mem::gates::WindowGates;
use hmc_mem::sync::Word64;

use super::ShmDataPlane;
use super::mapped::{no_descriptor, word_epoch};
use crate::base::error::Result;
use crate::memory::Region;
use crate::transport::gate::{Gate, window_gates};
use crate::transport::stream::Offer;

impl ShmDataPlane {
    /// Opens the word of a window that was just exposed and offers its pages to the peer, if its
    /// region can be mapped.
    pub(super) fn open_window(
        &mut self,
        region: &Region,
        local: LocalSlice,
        exposed: &WindowDesc,
    ) -> Result<()> {
        // Who was refused at the place's last window may still be at a word: its count stays as it is.
        let _ = self.gates(exposed.window).open(word_epoch(exposed.epoch));
        // An empty region has no pages to hand out; transfers of no bytes go through the stream.
        let Some(mapping) = region.mapping().filter(|m| !m.extent().is_empty()) else {
            return Ok(());
        };
        let writable = exposed.access.contains(Access::WRITE);
        // The kernel can only forbid writing for a whole memfd: seal it while nobody may write, or
        // else serve a read-only window through the stream.
        if !writable && !region.seal_writes() {
            return Ok(());
        }
        if writable && region.is_write_sealed() {
            return Ok(());
        }
        // Pages that were replaced under a revoked window are in no descriptor.
        let Ok(fd) = mapping.fd() else {
            return Ok(());
        };
        let fd = fd.try_clone_to_owned().map_err(no_descriptor)?;
        let mut frame = DataFrame::new(DataKind::Region, 0);
        frame.window = exposed.window;
        frame.epoch = exposed.epoch;
        frame.offset = local.span.offset();
        frame.total = region.len();
        frame.tag = u64::from(exposed.access.bits());
        frame.addr = local.span.len();
        self.stream.offer(Offer { frame, fd });
        Ok(())
    }

    /// Offers the words of a window's blocks to the peer, for reading. A peer that does not get them has this end compare them.
    pub(super) fn offer_generations(
        &mut self,
        table: &Region,
        blocks: &WindowBlocks,
        exposed: &WindowDesc,
    ) {
        let pages = table.mapping().filter(|_| table.is_write_sealed());
        let fd = pages.and_then(|m| m.fd().ok()).and_then(|fd| fd.try_clone_to_owned().ok());
        let Some(fd) = fd else { return };
        let mut frame = DataFrame::new(DataKind::Region, 0);
        frame.flags = DataFlags::EXPECT;
        frame.window = exposed.window;
        frame.epoch = exposed.epoch;
        frame.total = table.len();
        frame.tag = blocks.block_bytes();
        frame.addr = blocks.table().len();
        self.stream.offer(Offer { frame, fd });
    }

    /// The gates of a window of ours.
    pub(super) fn gates(&self, id: WindowId) -> WindowGates<impl Iterator<Item = &Word64> + Clone> {
        window_gates(&self.page, id.index(), self.has_further_gates)
    }

    /// Closes the gates of a window. `None` when nobody can be inside.
    pub(super) fn close_window(&mut self, id: WindowId) -> Option<Gate> {
        self.gates(id).close();
        if self.gates(id).is_drained() || self.stream.peer_has_ended() {
            return None;
        }
        Some(Gate::of_window(Arc::clone(&self.page), id.index(), self.has_further_gates))
    }

    /// Opens the gates of a window that was closed, for that part of it. Nobody entered since the fence of the revocation that closed
    /// it: an entry that a gate counts was refused and accesses nothing.
    pub(super) fn reopen_window(
        &mut self,
        id: WindowId,
        epoch: Epoch,
        (offset, len): (u64, u64),
    ) -> bool {
        self.stream.windows().serve(id, epoch, offset, len).is_ok()
            && self.stream.windows().apply(id, epoch, WindowTransition::Reopen).is_ok()
            && self.gates(id).open(word_epoch(epoch)).is_ok()
    }
}
