//! UCX as a link's data plane.

use std::fmt;
use std::sync::Arc;

use hmc_core::limits::MAX_CHUNK_BYTES;
use hmc_core::queue::Transfer;
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    DataCloseReason, DataPlane, Fence, Interest, Note, Notes, PeerWindows, Progress, Registration,
    Target,
};
use hmc_core::types::ConnType;
use hmc_core::window::{WindowEntry, WindowFault, WindowState, WindowTable, WindowTransition};
use hmc_core::wire::advert::{ENDPOINT_UCX, ENDPOINT_UCX_KEY, EndpointBlob, EndpointDesc, UcxKey};
use hmc_core::work::Opcode;
use hmc_hw::ucx::result::Status;
use hmc_hw::ucx::transport::UcxTransport;
use hmc_mem::os::mapped_window::MappedWindow;

use super::{GREETING, UcxDataPlane};
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Region;
use crate::transport::gate::Gate;
use crate::transport::released::Released;
use crate::transport::stream::PeerLife;
use crate::transport::worker::Worker;

impl Registration for UcxDataPlane {
    type Memory = Region;
    type Released = Released;

    fn add_memory(&mut self, memory: &Region) {
        self.stream.add_memory(memory);
    }

    /// Registrations of regions that are not cached any more go as well.
    fn release_memory(&mut self, all: bool) {
        self.stream.release_memory(all);
        let regions = self.stream.region_cache();
        if let Some(ucx) = &mut self.ucx {
            let evicted = ucx.evict_locals(|key| regions.get(key).is_some());
            if !evicted.is_empty() {
                self.released.push(evicted);
            }
        }
    }

    fn take_released(&mut self) -> Released {
        let mut released = self.stream.take_released();
        released.append(std::mem::take(&mut self.released));
        released
    }
}

impl Target for UcxDataPlane {
    type Windows = Box<[WindowEntry]>;
    type Gate = Gate;
    type Fault = Error;

    fn windows(&mut self) -> &mut WindowTable<Box<[WindowEntry]>> {
        self.stream.windows()
    }

    /// Registers what is exposed, and writes the key. A window without bytes has none.
    fn open<'a>(
        &mut self,
        memory: &Region,
        local: LocalSlice,
        window: &WindowDesc,
        room: &'a mut [u8],
    ) -> Result<Option<Note<'a>>> {
        if local.span.is_empty() {
            return Ok(None);
        }
        let registered = self.domain.memory_of_window(memory, local, self.near)?;
        let packed = registered.pack()?;
        // A registration of the whole region begins before the window.
        let whole = u64::try_from(registered.len()).unwrap_or(0) != local.span.len();
        let place = if whole { local.span } else { Extent::new(local.span.len()).whole() };
        let base = u64::try_from(registered.start().as_ptr().expose_provenance()).unwrap_or(0);
        let key = UcxKey::compose(window, place.address(base), &packed, room);
        let too_long = || Error::new(ErrorKind::Full, "UCX's memory key is too long");
        let key = key.ok_or_else(too_long)?;
        let at = usize::from(window.window.index());
        if at >= self.exposed.len() {
            self.exposed.resize_with(at.saturating_add(1), || None);
        }
        self.door.open(*window, Arc::clone(&registered), place);
        if let Some(place) = self.exposed.get_mut(at) {
            *place = Some(registered);
        }
        Ok(Some(Note { kind: ENDPOINT_UCX_KEY, bytes: key.content() }))
    }

    /// No message of the peer's gets into the window from now on.
    fn revoke(
        &mut self,
        id: WindowId,
        epoch: Epoch,
    ) -> std::result::Result<Fence<Gate>, WindowFault> {
        self.stream.revoke(id, epoch)?;
        self.door.close(id);
        Ok(Fence::PeerAck)
    }

    /// Whether the peer said so, or cannot use it: its messages are kept out since the window was revoked.
    fn is_released(&self, id: WindowId, epoch: Epoch) -> bool {
        self.left.contains(&(id, epoch)) || self.door.peer_uses_am()
    }

    fn free_window(&mut self, id: WindowId, epoch: Epoch) {
        // An error: the table has no such window, it was freed before.
        let _ = self.windows().apply(id, epoch, WindowTransition::Fence);
        self.door.close(id);
        if let Some(place) = self.exposed.get_mut(usize::from(id.index())) {
            *place = None;
        }
        self.left.retain(|l| *l != (id, epoch));
    }
}

impl PeerWindows for UcxDataPlane {
    type Mapped = Arc<MappedWindow>;

    fn remove_window(&mut self, id: WindowId, epoch: Epoch) -> bool {
        let left = self.ucx.as_mut().is_none_or(|u| u.remove_window(id));
        if !left {
            // One that is used has a place.
            self.leaving.add(id, epoch);
        }
        left
    }

    #[inline]
    fn try_transfer(&mut self, opcode: Opcode, local: LocalSlice, remote: WindowSlice) -> bool {
        let len = local.span.len();
        let small = len != 0 && len <= MAX_CHUNK_BYTES && !self.down;
        small && self.ucx.as_mut().is_some_and(|ucx| ucx.try_transfer(opcode, local, remote))
    }

    fn try_transfer_list(&mut self, list: &[Transfer]) -> bool {
        !self.down && self.ucx.as_mut().is_some_and(|ucx| ucx.try_transfer_list(list))
    }
}

impl Progress for UcxDataPlane {
    type Worker = Worker;

    /// Whether the way to the peer is open.
    fn is_ready(&self) -> bool {
        let Some(ucx) = self.ucx.as_ref().filter(|ucx| ucx.is_wired_up()) else { return false };
        // The peer's greeting tells that it works by messages, too. It comes about when ours is answered, if at all.
        let waited = self.wired.is_some_and(|since| clock::now().since(since) >= GREETING);
        !ucx.uses_am() || self.door.peer_uses_am() || waited
    }

    fn poll_peer(&mut self, claimed: bool) -> bool {
        let mut busy = self.stream.poll_peer(claimed);
        if claimed && self.is_idle() {
            // Otherwise the next poll makes progress, and takes what it finds.
            busy |= self.seat.progress();
        }
        // The poll that follows each call makes progress while the two ends meet, and finds an endpoint that has failed.
        if let Some(ucx) = &mut self.ucx {
            busy |= ucx.take_progressed();
            if ucx.is_wired_up() && self.wired.is_none() {
                self.wired = Some(clock::now());
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
        interest.work |= !self.down && self.ucx.as_ref().is_some_and(UcxTransport::has_work);
        interest
    }

    fn is_paused(&self) -> bool {
        self.stream.is_paused()
    }

    fn take_delivered(&mut self) -> bool {
        self.stream.take_delivered()
    }

    fn worker(&self) -> Option<Worker> {
        Some(self.worker.clone())
    }

    fn take_posted(&mut self) -> bool {
        self.ucx.as_mut().is_some_and(UcxTransport::take_posted)
    }

    fn can_coalesce(&self) -> bool {
        self.late.is_empty() && self.ucx.as_ref().is_some_and(UcxTransport::can_coalesce)
    }
}

impl Notes for UcxDataPlane {
    /// The connection info of this end's worker.
    ///
    /// # Errors
    /// As [`hmc_hw::ucx::worker::Worker::conn_info`]; `Full` if it exceeds a note.
    fn greeting<'a>(&mut self, room: &'a mut [u8]) -> Result<Option<Note<'a>>> {
        let info = self.seat.worker().conn_info(&self.door)?;
        let too_long = || Error::new(ErrorKind::Full, "UCX's worker address is too long");
        let bytes = room.get_mut(..info.len()).ok_or_else(too_long)?;
        bytes.copy_from_slice(&info);
        Ok(Some(Note { kind: ENDPOINT_UCX, bytes }))
    }

    /// The peer's connection info, or the key to one of its windows.
    ///
    /// # Errors
    /// `Unavailable` when the two ends have no device in common; `Io` when UCX cannot read it; `Protocol`.
    fn receive_note(&mut self, note: Note<'_>) -> Result<()> {
        match (EndpointBlob { kind: note.kind, bytes: note.bytes }).decode() {
            Ok(EndpointDesc::Ucx { address }) => self.learn_card(address),
            Ok(EndpointDesc::UcxKey(key)) => self.learn_key(&key),
            _ => Ok(()),
        }
    }

    fn has_releases(&self) -> bool {
        !self.leaving.is_empty()
    }

    fn next_release(&mut self) -> Option<(WindowId, Epoch)> {
        let ucx = self.ucx.as_ref()?;
        self.leaving.take_if(|id| ucx.is_window_unused(id))
    }

    fn receive_release(&mut self, id: WindowId, epoch: Epoch) {
        let revoked =
            self.windows().entry(id, epoch).is_ok_and(|e| e.state() != WindowState::Exposed);
        if revoked && !self.left.contains(&(id, epoch)) {
            self.left.push((id, epoch));
        }
    }
}

impl DataPlane for UcxDataPlane {
    type PeerLife = PeerLife;

    fn kind(&self) -> Option<ConnType> {
        Some(ConnType::Ucx)
    }

    fn close_reason(&self) -> Option<DataCloseReason> {
        self.stream.close_reason()
    }

    fn close(&mut self, why: DataCloseReason) {
        if self.near && self.ucx.is_none() {
            // It may have our card already.
            self.stream.draw_near(None);
        }
        self.stream.close(why);
        self.down = true;
        if let Some(ucx) = &mut self.ucx {
            ucx.close();
        }
        // The end of the link is the word.
        self.leaving.clear();
        self.say_out();
    }

    fn peer_life(&self) -> PeerLife {
        self.stream.peer_life()
    }

    /// Whether the link is over, and nothing of the peer's can arrive any more once the registrations of its windows have
    /// ended too, which they do before their memory is given back.
    ///
    /// UCX's lanes of shared memory copy to addresses that the peer was told: of a peer of this system its word or the end of
    /// its process is needed. Of any other none is, and why its link ended does not matter. It reaches us through our NIC,
    /// which executes an access only if its key is of a memory region that is registered. A window of such a peer has a
    /// region of its own ([`hmc_hw::ucx::domain::UcxDomain::memory_of_window`]), and without a cache `ucp_mem_unmap` deregisters it in the
    /// call: the NIC refuses what comes from then on. Besides, the queue pair that the peer's end is connected to is in its
    /// error state, or destroyed, once our endpoint is closed by force and the worker has no more to do.
    fn peer_has_ended(&mut self) -> bool {
        if self.down && self.door.peer_uses_am() {
            // It reaches us by messages alone, and the door is shut.
            return true;
        }
        let near = self.stream.is_near();
        let ended = if near { self.stream.peer_has_ended() } else { self.down };
        if !ended {
            return false;
        }
        let fenced = self.are_requests_fenced();
        // What its lanes still hold lands now. UCX may never be done with closing the way to a process that was killed with
        // its queue full (1.13.1); between processes of one host that is no matter.
        let drained = self.seat.drain();
        let over = self.ucx.as_ref().is_none_or(|ucx| ucx.is_closed() || ucx.is_same_host());
        drained && over && fenced
    }

    /// Nothing of ours is read or written by UCX, nor by the peer through the stream.
    fn are_requests_fenced(&mut self) -> bool {
        let idle = self.ucx.as_mut().is_none_or(|ucx| {
            ucx.advance();
            ucx.is_idle()
        });
        self.say_out();
        idle && self.stream.are_requests_fenced()
    }

    fn is_fenced(&mut self) -> bool {
        let exposed = self.exposed.iter().any(Option::is_some);
        self.are_requests_fenced() && (!exposed || self.peer_has_ended())
    }

    /// UCX tells of all requests together.
    fn uses_memory_of(&mut self, op: SlotId) -> bool {
        !self.is_idle() || self.stream.uses_memory_of(op)
    }

    fn bytes_moved(&self) -> (u64, u64) {
        let (out, into) = self.stream.bytes_moved();
        (self.bytes_offloaded().saturating_add(out), into)
    }

    fn bytes_offloaded(&self) -> u64 {
        self.ucx.as_ref().map_or(0, UcxTransport::bytes_moved)
    }

    fn checks_accesses(&self) -> bool {
        self.is_soft()
    }

    fn trust(&self) -> &'static str {
        if self.is_soft() {
            "the target checks window, range and epoch of every message; but whoever can send to UCX's worker \
             can reach all memory of its process by UCX's own messages, so the peer is trusted"
        } else {
            "lanes with a NIC check memory keys; UCX's lanes of shared memory check nothing at the target: \
             range, rights and epoch are checked by this library in the peer's process, which is trusted"
        }
    }

    fn unfenced_reason(&self) -> &'static str {
        "UCX has not ended an operation of this memory"
    }

    fn unfenced_window_reason(&self) -> Option<&'static str> {
        Some("the peer's UCX may be reading or writing this memory")
    }

    /// The transports of UCX's lanes to the peer, once its connection info has come.
    fn lanes(&self, each: &mut dyn FnMut(&str)) {
        let lanes = self.ucx.as_ref().map_or(&[][..], UcxTransport::lanes);
        lanes.iter().for_each(|lane| each(lane));
    }

    fn describe_close(&self, why: DataCloseReason, out: &mut dyn fmt::Write) -> fmt::Result {
        match why {
            DataCloseReason::Failed(status) => {
                let status = Status(i8::try_from(status).unwrap_or(i8::MIN));
                write!(out, "UCX gave it up: {status}")
            }
            why => self.stream.describe_close(why, out),
        }
    }

    fn take_refusal(&mut self) -> Option<Error> {
        self.refusal.take()
    }
}
