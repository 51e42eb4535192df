//! The state of the connection: progress, notes, and its end.

use std::fmt;
use std::sync::Arc;

use hmc_core::region::{Epoch, WindowId};
use hmc_core::transport::{
    DataCloseReason, DataPlane, Interest, NeedsStream as _, Note, Notes, PeerAccess, Progress,
};
use hmc_core::types::ConnType;
use hmc_core::wire::advert::{ENDPOINT_UCX, EndpointBlob, EndpointDesc};
use hmc_core::work::SlotId;
use hmc_mem::registered::Registered;

use super::{FIRST_MESSAGE_TIMEOUT, UcxDataPlane};
use crate::ucx::fault::UcxFault;
use crate::ucx::result::Status;
use crate::ucx::session_worker::UcxWorker;
use crate::ucx::transport::UcxTransport;

impl<M: Registered> Progress for UcxDataPlane<M> {
    type Worker = Arc<UcxWorker>;

    /// Whether the path to the peer is open.
    fn is_ready(&self) -> bool {
        let Some(ucx) = self.ucx.as_ref().filter(|ucx| ucx.is_wired_up()) else { return false };
        // The peer's first message tells that it uses messages, too. It comes about when that of this end is answered, if at all.
        let waited = |since| self.domain.host().now().since(since) >= FIRST_MESSAGE_TIMEOUT;
        !ucx.uses_am() || self.target.peer_uses_am() || self.wired_up_at.is_some_and(waited)
    }

    fn poll_peer(&mut self, claimed: bool) -> bool {
        // Otherwise the next poll makes progress, and takes what it finds.
        let mut busy = claimed && self.is_idle() && self.worker.progress();
        // The poll that follows each call makes progress while the two ends connect, and finds an endpoint that has failed.
        if let Some(ucx) = &mut self.ucx {
            busy |= ucx.take_progressed();
            if ucx.is_wired_up() && self.wired_up_at.is_none() {
                self.wired_up_at = Some(self.domain.host().now());
            }
        }
        busy
    }

    fn interest(&mut self) -> Interest {
        let work = self.closed.is_none() && self.ucx.as_ref().is_some_and(UcxTransport::has_work);
        Interest { work, ..Interest::default() }
    }

    fn worker(&self) -> Option<Arc<UcxWorker>> {
        Some(Arc::clone(&self.worker))
    }

    fn take_posted(&mut self) -> bool {
        self.ucx.as_mut().is_some_and(UcxTransport::take_posted)
    }

    fn can_coalesce(&self) -> bool {
        self.ucx.as_ref().is_some_and(UcxTransport::can_coalesce)
    }
}

impl<M: Registered> Notes for UcxDataPlane<M> {
    /// The connection info of this end's worker.
    fn greeting<'a>(&mut self, buf: &'a mut [u8]) -> Result<Option<Note<'a>>, UcxFault> {
        let info = self.worker.worker().conn_info(&self.target)?;
        let bytes = buf.get_mut(..info.len()).ok_or(UcxFault::TooLong("worker address"))?;
        bytes.copy_from_slice(&info);
        Ok(Some(Note { kind: ENDPOINT_UCX, bytes }))
    }

    /// The peer's connection info, or the key to one of its windows.
    fn receive_note(&mut self, note: Note<'_>) -> Result<(), UcxFault> {
        match (EndpointBlob { kind: note.kind, bytes: note.bytes }).decode() {
            Ok(EndpointDesc::Ucx { address }) => self.set_peer_info(address),
            Ok(EndpointDesc::UcxKey(key)) => self.add_rkey(&key),
            _ => Ok(()),
        }
    }

    fn has_releases(&self) -> bool {
        !self.releases.is_empty()
    }

    fn next_release(&mut self) -> Option<(WindowId, Epoch)> {
        let ucx = self.ucx.as_ref()?;
        self.releases.take(|id| ucx.is_window_unused(id))
    }

    fn receive_release(&mut self, id: WindowId, epoch: Epoch) {
        self.exposed.release(id, epoch);
    }
}

impl<M: Registered> DataPlane for UcxDataPlane<M> {
    type PeerLife = ();

    fn kind(&self) -> Option<ConnType> {
        Some(ConnType::Ucx)
    }

    /// Its endpoint may have failed before it is closed.
    #[inline]
    fn close_reason(&self) -> Option<DataCloseReason> {
        if self.closed.is_some() {
            return self.closed;
        }
        self.ucx.as_ref()?.failure().map(|status| self.failure_reason(status))
    }

    fn close(&mut self, why: DataCloseReason) {
        self.closed.get_or_insert(why);
        if let Some(ucx) = &mut self.ucx {
            ucx.close();
        }
        self.releases.clear();
    }

    fn peer_life(&self) {}

    /// Whether it is down, and nothing of the peer's can arrive any more once the registrations of its windows have ended too, which
    /// they do before their memory is given back.
    ///
    /// UCX's lanes of shared memory copy to addresses that the peer was told: of a peer of this system its word or the end of its
    /// process is needed, which only a layer above sees. Of any other none is, and why its link ended does not matter. It reaches this
    /// end through a NIC, which executes an access only if its key is of a memory region that is registered. A window of such a peer
    /// has a region of its own (`UcxDomain::memory_of_window`), and without a cache `ucp_mem_unmap` deregisters it in the call: the
    /// NIC refuses what comes from then on. Besides, the queue pair that the peer's end is connected to is in its error state, or
    /// destroyed, once this end's endpoint is closed by force and the worker has no more to do.
    fn peer_has_ended(&mut self) -> bool {
        if self.is_shut() {
            return true;
        }
        let is_remote = !self.same_system || self.peer_access == PeerAccess::Remote;
        if self.closed.is_none() || !is_remote {
            return false;
        }
        let fenced = self.are_requests_fenced();
        self.has_drained() && fenced
    }

    /// Whether UCX reads and writes nothing of this end's requests any more.
    fn are_requests_fenced(&mut self) -> bool {
        self.ucx.as_mut().is_none_or(|ucx| {
            ucx.advance();
            ucx.is_idle()
        })
    }

    /// UCX tells of all requests together.
    fn uses_memory_of(&mut self, _op: SlotId) -> bool {
        !self.is_idle()
    }

    fn is_fenced(&mut self) -> bool {
        self.are_requests_fenced() && (!self.has_windows() || self.peer_has_ended())
    }

    fn bytes_moved(&self) -> (u64, u64) {
        (self.bytes_offloaded(), 0)
    }

    fn bytes_offloaded(&self) -> u64 {
        self.ucx.as_ref().map_or(0, UcxTransport::bytes_moved)
    }

    fn checks_accesses(&self) -> bool {
        self.uses_messages()
    }

    fn trust(&self) -> &'static str {
        if self.uses_messages() {
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
            why => write!(out, "{why}"),
        }
    }

    fn take_refusal(&mut self) -> Option<UcxFault> {
        self.refusal.take()
    }
}
