//! Shared memory as a link's data plane.

use std::fmt;
use std::sync::Arc;

use hmc_core::blocks::WindowBlocks;
use hmc_core::limits::MAX_WINDOWS_PER_PEER;
use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    DataCloseReason, DataPlane, Fence, Interest, Note, Notes, PeerWindows, Progress, Registration,
    Target,
};
use hmc_core::types::ConnType;
use hmc_core::window::{WindowEntry, WindowFault, WindowTable};
use hmc_core::work::{Completion, Failure};
use hmc_mem::os::life::PeerLife as LifeMark;
use hmc_mem::os::mapped_window::MappedWindow;

use super::{LIFE_ID, PAGE_ID, RING_ID, ShmDataPlane};
use crate::base::error::{Error, Result};
use crate::memory::Region;
use crate::transport::gate::{Gate, window_gates};
use crate::transport::released::Released;
use crate::transport::stream::PeerLife;
use crate::transport::worker::Worker;

impl Registration for ShmDataPlane {
    type Memory = Region;
    type Released = Released;

    fn add_memory(&mut self, memory: &Region) {
        self.stream.add_memory(memory);
    }

    fn release_memory(&mut self, all: bool) {
        self.stream.release_memory(all);
    }

    fn take_released(&mut self) -> Released {
        let mut released = self.stream.take_released();
        if !self.unused.is_empty() {
            released.push(std::mem::take(&mut self.unused));
        }
        released
    }
}

impl Target for ShmDataPlane {
    type Windows = Box<[WindowEntry]>;
    type Gate = Gate;
    type Fault = Error;

    fn windows(&mut self) -> &mut WindowTable<Box<[WindowEntry]>> {
        self.stream.windows()
    }

    /// Offers the generations' pages to the peer, ahead of those of the window.
    fn add_generations(
        &mut self,
        table: &Region,
        blocks: WindowBlocks,
        window: &WindowDesc,
    ) -> bool {
        let compares = self.stream.add_generations(table, blocks, window);
        if compares {
            self.offer_generations(table, &blocks, window);
        }
        compares
    }

    /// Opens the gate of the window and offers its pages to the peer, if the region can be mapped.
    fn open<'a>(
        &mut self,
        memory: &Region,
        local: LocalSlice,
        window: &WindowDesc,
        _space: &'a mut [u8],
    ) -> Result<Option<Note<'a>>> {
        self.open_window(memory, local, window).map(|()| None)
    }

    fn offers_pages(&self, id: WindowId, epoch: Epoch) -> bool {
        self.stream.offers_pages(id, epoch)
    }

    fn revoke(
        &mut self,
        id: WindowId,
        epoch: Epoch,
    ) -> std::result::Result<Fence<Gate>, WindowFault> {
        self.stream.revoke(id, epoch)?;
        Ok(self.close_window(id).map_or(Fence::Passed, Fence::Gate))
    }

    fn reopen(&mut self, id: WindowId, epoch: Epoch, part: (u64, u64)) -> bool {
        self.reopen_window(id, epoch, part)
    }

    fn forget_window(&mut self, id: WindowId, epoch: Epoch) {
        self.stream.forget_window(id, epoch);
    }
}

impl PeerWindows for ShmDataPlane {
    type Mapped = Arc<MappedWindow>;

    fn mapped(&self, id: WindowId, epoch: Epoch) -> Option<&Arc<MappedWindow>> {
        self.mapped_window(id).filter(|w| w.epoch() == epoch)
    }

    fn mapped_counts(&self) -> (u64, u64) {
        (self.moved.puts(), self.moved.gets())
    }

    fn is_settled(&self, id: WindowId, epoch: Epoch) -> bool {
        self.mapped(id, epoch).is_some() || self.unmapped.has(id, epoch)
    }

    fn remove_window(&mut self, id: WindowId, epoch: Epoch) -> bool {
        if let Some(place) = self.remote.get_mut(usize::from(id.index()))
            && place.as_ref().is_some_and(|m| m.window.id() == id && m.window.epoch() == epoch)
            && let Some(gone) = place.take()
        {
            self.unused.push(gone, &self.remote);
        }
        if self.unmapped.has(id, epoch) {
            self.unmapped.free(id);
        }
        true
    }
}

impl Progress for ShmDataPlane {
    type Worker = Worker;

    /// Whether the peer's gates have arrived.
    fn is_ready(&self) -> bool {
        self.peer_page.is_some()
    }

    fn poll_peer(&mut self, _claimed: bool) -> bool {
        let life = self.peer_life.as_deref();
        let busy = self.stream.poll_peer_while(&|| !life.is_some_and(LifeMark::has_ended));
        while let Some(arrival) = self.stream.take_arrival() {
            let (id, epoch) = (arrival.window, arrival.epoch);
            let is_page = id == PAGE_ID || id == LIFE_ID;
            let is_ring = id == RING_ID && self.has_ring;
            if usize::from(id.index()) >= MAX_WINDOWS_PER_PEER && !is_page && !is_ring {
                self.close(DataCloseReason::Protocol("a window beyond the last place"));
                break;
            }
            if is_page && arrival.fd.is_err() {
                self.close(DataCloseReason::NoDescriptor);
                break;
            }
            if let Err(e) = self.map(arrival) {
                if is_ring {
                    // Control frames to the peer stay on the socket.
                    continue;
                }
                if is_page {
                    self.page_error.get_or_insert(e);
                    self.close(DataCloseReason::NotMapped);
                    break;
                }
                // The window stays reachable through the stream.
                self.unmapped.note(self.stream.peer(), id, epoch, &e);
            }
        }
        if let Some(why) = self.stream.close_reason() {
            self.close(why);
        }
        busy
    }

    fn flush(&mut self) {
        self.stream.flush();
    }

    fn interest(&mut self) -> Interest {
        let mut interest = self.stream.interest();
        interest.work |= !self.pieces.is_empty();
        interest
    }

    fn is_paused(&self) -> bool {
        self.stream.is_paused()
    }

    fn take_delivered(&mut self) -> bool {
        self.stream.take_delivered()
    }

    fn heartbeat(&mut self) -> Option<bool> {
        self.beat()
    }
}

impl Notes for ShmDataPlane {}

impl DataPlane for ShmDataPlane {
    type PeerLife = PeerLife;

    fn kind(&self) -> Option<ConnType> {
        Some(ConnType::Shm)
    }

    fn close_reason(&self) -> Option<DataCloseReason> {
        self.stream.close_reason()
    }

    fn close(&mut self, why: DataCloseReason) {
        self.stream.close(why);
        for index in 0..u16::try_from(MAX_WINDOWS_PER_PEER).unwrap_or(0) {
            window_gates(&self.page, index, self.has_further_gates).close();
        }
        let dead = Err(Failure::PeerDead);
        self.pieces.close(|op| self.done.push_back(Completion { op, result: dead }));
        for gone in std::mem::take(&mut self.remote).into_iter().flatten() {
            self.unused.push(gone, &[]);
        }
        self.peer_page = None;
        self.peer_life = None;
    }

    fn copy_piece(&mut self) -> bool {
        let Some((work, ..)) = self.pieces.next() else { return false };
        self.copy_chunk(&work);
        self.conclude_copied();
        true
    }

    fn peer_life(&self) -> PeerLife {
        self.stream.peer_life()
    }

    fn is_peer_marked(&self) -> bool {
        self.peer_life.as_deref().is_some_and(LifeMark::has_ended)
    }

    fn peer_has_ended(&mut self) -> bool {
        self.stream.peer_has_ended()
    }

    fn are_requests_fenced(&mut self) -> bool {
        self.stream.are_requests_fenced()
    }

    fn are_puts_answered(&mut self) -> bool {
        self.stream.are_puts_answered()
    }

    fn uses_memory_of(&mut self, op: SlotId) -> bool {
        self.pieces.has(op) || self.stream.uses_memory_of(op)
    }

    fn bytes_moved(&self) -> (u64, u64) {
        let (out, into) = self.stream.bytes_moved();
        (out.saturating_add(self.bytes).saturating_add(self.moved.bytes()), into)
    }

    fn checks_accesses(&self) -> bool {
        false
    }

    fn trust(&self) -> &'static str {
        "the kernel bounds mapped regions; offsets and revocation are checked by this library in the peer's process (same user)"
    }

    fn degraded(&self, each: &mut dyn FnMut(fmt::Arguments<'_>)) {
        self.unmapped.tell(each);
        if let Some(why) = self.stream.refused_refs() {
            each(format_args!(
                "{why}: bytes to and from memory that cannot be mapped (registered in place) go through a socket"
            ));
        }
    }

    fn describe_close(&self, why: DataCloseReason, out: &mut dyn fmt::Write) -> fmt::Result {
        match (why, &self.page_error) {
            (DataCloseReason::NotMapped, Some(e)) => write!(out, "{why}: {e}"),
            _ => self.stream.describe_close(why, out),
        }
    }
}
