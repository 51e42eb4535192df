//! Memory of both ends: local registrations, windows of this end, and windows of the peer.

use std::convert::Infallible;
use std::sync::Arc;

use hmc_core::limits::MAX_CHUNK_BYTES;
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId, WindowSlice};
use hmc_core::transport::{Fence, Note, PeerWindows, Registration, Target};
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::wire::advert::{ENDPOINT_UCX_KEY, UcxKey};
use hmc_core::work::{Opcode, Transfer};
use hmc_mem::registered::Registered;

use super::UcxDataPlane;
use crate::ucx::fault::UcxFault;

impl<M: Registered> Registration for UcxDataPlane<M> {
    type Memory = M;
    type Released = Vec<Box<dyn Send>>;

    fn add_memory(&mut self, memory: &M) {
        self.known.add(memory);
    }

    /// Registrations of memory that is not known any more are released as well.
    fn release_memory(&mut self, all: bool) {
        let handles = if all { self.known.clear() } else { self.known.sweep() };
        if !handles.is_empty() {
            self.released.push(Box::new(handles));
        }
        if let Some(ucx) = &mut self.ucx {
            let evicted = ucx.evict_locals(|key| self.known.get(key).is_some());
            if !evicted.is_empty() {
                self.released.push(Box::new(evicted));
            }
        }
    }

    fn take_released(&mut self) -> Vec<Box<dyn Send>> {
        std::mem::take(&mut self.released)
    }
}

impl<M: Registered> Target for UcxDataPlane<M> {
    type Windows = Box<[WindowEntry]>;
    type Gate = Infallible;
    type Fault = UcxFault;

    fn windows(&mut self) -> &mut WindowTable<Box<[WindowEntry]>> {
        &mut self.windows
    }

    /// Registers what is exposed, and returns its key. A window without bytes has none.
    fn open<'a>(
        &mut self,
        memory: &M,
        local: LocalSlice,
        window: &WindowDesc,
        buf: &'a mut [u8],
    ) -> Result<Option<Note<'a>>, UcxFault> {
        if local.span.is_empty() {
            self.exposed.open(window.window, window.epoch, None);
            return Ok(None);
        }
        let registered = self.domain.memory_of_window(memory, local, self.same_system)?;
        let packed = registered.pack()?;
        // A registration of the whole region begins before the window.
        let whole = u64::try_from(registered.len()).unwrap_or(0) != local.span.len();
        let range = if whole { local.span } else { Extent::new(local.span.len()).whole() };
        let key = UcxKey::compose(window, range.address(registered.address()), &packed, buf);
        let key = key.ok_or(UcxFault::TooLong("memory key"))?;
        self.target.open(*window, Arc::clone(&registered), range);
        self.exposed.open(window.window, window.epoch, Some(registered));
        Ok(Some(Note { kind: ENDPOINT_UCX_KEY, bytes: key.content() }))
    }

    /// No message of the peer's gets into the window from now on.
    fn close_window(&mut self, id: WindowId, epoch: Epoch) -> Fence<Infallible> {
        self.exposed.close(id, epoch);
        self.target.close(id);
        Fence::PeerAck
    }

    /// Whether the peer said so, or cannot use it: its messages are kept out since the window was revoked.
    fn is_released(&self, id: WindowId, epoch: Epoch) -> bool {
        self.exposed.is_released(id, epoch) || self.target.peer_uses_am()
    }

    fn forget_window(&mut self, id: WindowId, epoch: Epoch) {
        self.target.close(id);
        self.exposed.forget(id, epoch);
    }
}

impl<M: Registered> PeerWindows for UcxDataPlane<M> {
    type Mapped = Infallible;

    fn remove_window(&mut self, id: WindowId, epoch: Epoch) -> bool {
        let is_unused = self.ucx.as_mut().is_none_or(|ucx| ucx.remove_window(id));
        if !is_unused {
            self.releases.add(id, epoch);
        }
        is_unused
    }

    #[inline]
    fn try_transfer(&mut self, opcode: Opcode, local: LocalSlice, remote: WindowSlice) -> bool {
        let len = local.span.len();
        let small = len != 0 && len <= MAX_CHUNK_BYTES && self.closed.is_none();
        small && self.ucx.as_mut().is_some_and(|ucx| ucx.try_transfer(opcode, local, remote))
    }

    fn try_transfer_list(&mut self, list: &[Transfer]) -> bool {
        self.closed.is_none() && self.ucx.as_mut().is_some_and(|ucx| ucx.try_transfer_list(list))
    }
}
