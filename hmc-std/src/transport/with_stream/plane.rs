//! A data plane with a stream as a link's data plane.

use std::fmt::{self, Write};
use std::sync::Arc;

use hmc_core::blocks::WindowBlocks;
use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    DataCloseReason, DataPlane, Fence, Interest, Note, Notes, PeerAccess, PeerWindows, Progress,
    Registration, Served, Target,
};
use hmc_core::types::{ConnType, MemoryKind};
use hmc_core::window::{WindowEntry, WindowFault, WindowTable};
use hmc_core::work::{Opcode, Transfer};
use hmc_mem::os::mapped_window::MappedWindow;

use super::{BareDataPlane, WithStream, of_host};
use crate::base::error::{Error, Result};
use crate::memory::Region;
use crate::transport::gate::Gate;
use crate::transport::released::Released;
use crate::transport::stream::PeerLife;
use crate::transport::worker::Worker;

impl<P: BareDataPlane> Registration for WithStream<P> {
    type Memory = Region;
    type Released = Released;

    fn serves(&self, kind: MemoryKind) -> Served {
        self.plane.serves(kind)
    }

    fn add_memory(&mut self, memory: &Region) {
        // What the stream knows is known to both.
        if self.stream.region_cache().get(memory.key()).is_none() {
            self.plane.add_memory(memory);
            self.stream.add_memory(memory);
        }
    }

    fn release_memory(&mut self, all: bool) {
        // The stream never knows what the data plane does not.
        self.plane.release_memory(all);
        self.stream.release_memory(all);
    }

    fn take_released(&mut self) -> Released {
        let mut released = self.stream.take_released();
        released.append(self.plane.take_released());
        released
    }
}

impl<P: BareDataPlane> Target for WithStream<P> {
    type Windows = Box<[WindowEntry]>;
    type Gate = Gate;
    type Fault = Error;

    fn windows(&mut self) -> &mut WindowTable<Box<[WindowEntry]>> {
        self.stream.windows()
    }

    fn add_generations(
        &mut self,
        table: &Region,
        blocks: WindowBlocks,
        window: &WindowDesc,
    ) -> bool {
        self.stream.add_generations(table, blocks, window)
    }

    fn open<'a>(
        &mut self,
        memory: &Region,
        local: LocalSlice,
        window: &WindowDesc,
        buf: &'a mut [u8],
    ) -> Result<Option<Note<'a>>> {
        self.plane.open(memory, local, window, buf).map_err(Into::into)
    }

    fn revoke(
        &mut self,
        id: WindowId,
        epoch: Epoch,
    ) -> std::result::Result<Fence<Gate>, WindowFault> {
        self.stream.revoke(id, epoch)?;
        Ok(self.close_window(id, epoch))
    }

    fn close_window(&mut self, id: WindowId, epoch: Epoch) -> Fence<Gate> {
        of_host(self.plane.close_window(id, epoch))
    }

    fn is_released(&self, id: WindowId, epoch: Epoch) -> bool {
        self.plane.is_released(id, epoch)
    }

    fn forget_window(&mut self, id: WindowId, epoch: Epoch) {
        self.stream.forget_window(id, epoch);
        self.plane.forget_window(id, epoch);
    }
}

impl<P: BareDataPlane> PeerWindows for WithStream<P> {
    type Mapped = Arc<MappedWindow>;

    fn remove_window(&mut self, id: WindowId, epoch: Epoch) -> bool {
        self.plane.remove_window(id, epoch)
    }

    #[inline]
    fn try_transfer(&mut self, opcode: Opcode, local: LocalSlice, remote: WindowSlice) -> bool {
        self.plane.try_transfer(opcode, local, remote)
    }

    fn try_transfer_list(&mut self, list: &[Transfer]) -> bool {
        self.plane.try_transfer_list(list)
    }
}

impl<P: BareDataPlane> Progress for WithStream<P> {
    type Worker = Worker;

    fn is_ready(&self) -> bool {
        self.plane.is_ready()
    }

    fn poll_peer(&mut self, claimed: bool) -> bool {
        let mut busy = self.stream.poll_peer(claimed);
        busy |= self.plane.poll_peer(claimed);
        if let Some(why) = self.stream.close_reason() {
            self.close(why);
        }
        busy
    }

    fn flush(&mut self) {
        self.stream.flush();
        self.plane.flush();
    }

    fn interest(&mut self) -> Interest {
        let mut interest = self.stream.interest();
        interest.work |= self.plane.interest().work;
        interest
    }

    fn is_paused(&self) -> bool {
        self.stream.is_paused() || self.plane.is_paused()
    }

    fn take_delivered(&mut self) -> bool {
        self.stream.take_delivered() | self.plane.take_delivered()
    }

    fn deliver_rest(&mut self) {
        self.plane.deliver_rest();
    }

    fn worker(&self) -> Option<Worker> {
        self.worker.clone()
    }

    fn take_posted(&mut self) -> bool {
        self.plane.take_posted()
    }

    fn can_coalesce(&self) -> bool {
        self.late.is_empty() && self.plane.can_coalesce()
    }
}

impl<P: BareDataPlane> Notes for WithStream<P> {
    fn greeting<'a>(&mut self, buf: &'a mut [u8]) -> Result<Option<Note<'a>>> {
        self.plane.greeting(buf).map_err(Into::into)
    }

    /// The note may tell how the peer accesses memory of this end.
    fn receive_note(&mut self, note: Note<'_>) -> Result<()> {
        self.plane.receive_note(note).map_err(Into::into)?;
        if self.near
            && let PeerAccess::Process(pid) = self.plane.peer_access()
        {
            self.stream.draw_near(pid);
        }
        Ok(())
    }

    fn next_note<'a>(&mut self, buf: &'a mut [u8]) -> Option<Note<'a>> {
        self.plane.next_note(buf)
    }

    fn has_notes(&self) -> bool {
        self.plane.has_notes()
    }

    fn has_releases(&self) -> bool {
        self.plane.has_releases()
    }

    fn next_release(&mut self) -> Option<(WindowId, Epoch)> {
        self.plane.next_release()
    }

    fn receive_release(&mut self, id: WindowId, epoch: Epoch) {
        self.plane.receive_release(id, epoch);
    }
}

impl<P: BareDataPlane> DataPlane for WithStream<P> {
    type PeerLife = PeerLife;

    fn kind(&self) -> Option<ConnType> {
        self.plane.kind()
    }

    fn close_reason(&self) -> Option<DataCloseReason> {
        self.stream.close_reason()
    }

    fn close(&mut self, why: DataCloseReason) {
        if self.near && self.plane.peer_access() == PeerAccess::Unknown {
            // It may have what it needs for accesses of its own.
            self.stream.draw_near(None);
        }
        self.stream.close(why);
        self.down = true;
        self.plane.close(why);
        self.say_out();
    }

    fn peer_life(&self) -> PeerLife {
        self.stream.peer_life()
    }

    /// Whether the link is over, and nothing of the peer's can arrive any more. Of a peer that copies by itself its word or the end of
    /// its process is needed, which the stream shows; of any other the data plane knows.
    fn peer_has_ended(&mut self) -> bool {
        if self.plane.is_shut() {
            return true;
        }
        if !self.stream.is_near() {
            return self.are_requests_fenced() && self.plane.peer_has_ended();
        }
        if !self.stream.peer_has_ended() {
            return false;
        }
        let fenced = self.are_requests_fenced();
        self.plane.has_drained() && fenced
    }

    /// Nothing of ours is read or written by the data plane, nor by the peer through the stream.
    fn are_requests_fenced(&mut self) -> bool {
        let fenced = self.plane.are_requests_fenced();
        self.say_out();
        fenced && self.stream.are_requests_fenced()
    }

    fn is_fenced(&mut self) -> bool {
        let exposed = self.plane.has_windows();
        self.are_requests_fenced() && (!exposed || self.peer_has_ended())
    }

    fn copy_piece(&mut self) -> bool {
        self.plane.copy_piece()
    }

    fn are_puts_answered(&mut self) -> bool {
        self.plane.are_puts_answered() && self.stream.are_puts_answered()
    }

    fn uses_memory_of(&mut self, op: SlotId) -> bool {
        self.plane.uses_memory_of(op) || self.stream.uses_memory_of(op)
    }

    fn bytes_moved(&self) -> (u64, u64) {
        let (plane, stream) = (self.plane.bytes_moved(), self.stream.bytes_moved());
        (plane.0.saturating_add(stream.0), plane.1.saturating_add(stream.1))
    }

    fn bytes_offloaded(&self) -> u64 {
        self.plane.bytes_offloaded()
    }

    fn checks_accesses(&self) -> bool {
        self.plane.checks_accesses()
    }

    fn trust(&self) -> &'static str {
        self.plane.trust()
    }

    fn unfenced_reason(&self) -> &'static str {
        self.plane.unfenced_reason()
    }

    fn unfenced_window_reason(&self) -> Option<&'static str> {
        self.plane.unfenced_window_reason()
    }

    fn lanes(&self, each: &mut dyn FnMut(&str)) {
        self.plane.lanes(each);
    }

    fn degraded(&self, each: &mut dyn FnMut(fmt::Arguments<'_>)) {
        self.plane.degraded(each);
    }

    fn describe_close(&self, why: DataCloseReason, out: &mut dyn Write) -> fmt::Result {
        if self.has_failed || matches!(why, DataCloseReason::Failed(_)) {
            self.plane.describe_close(why, out)
        } else {
            self.stream.describe_close(why, out)
        }
    }

    fn take_refusal(&mut self) -> Option<Error> {
        self.plane.take_refusal().map(Into::into)
    }
}
