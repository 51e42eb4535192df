//! Memory of both ends: local registrations, windows of this end, and windows of the peer.

use std::convert::Infallible;
use std::sync::Arc;

use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId};
use hmc_core::transport::{Fence, Note, PeerWindows, Registration, Target};
use hmc_core::types::Access;
use hmc_core::window::{WindowEntry, WindowFault, WindowTable};
use hmc_core::wire::cursor::Writer;
use hmc_core::work::Failure;
use hmc_mem::registered::Registered;

use super::VerbsDataPlane;
use super::pieces::{shorts, uses_window};
use crate::verbs::conn_info::ENDPOINT_VERBS_KEY;
use crate::verbs::fault::VerbsFault;
use crate::verbs::locals::register;
use crate::verbs::objects::MemoryRegion;
use crate::verbs::sys::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE};

impl<M: Registered> VerbsDataPlane<M> {
    /// Registers all of `memory` on each NIC, for requests and windows. Adds the regions to `regions`, in the order of the NICs, also
    /// if one fails. Returns the address of the first byte.
    pub(super) fn regions_of(
        &self,
        memory: &M,
        regions: &mut Vec<Arc<MemoryRegion>>,
    ) -> Result<u64, VerbsFault> {
        let mut base = 0;
        for nic in &self.nics {
            let whole = memory.local().extent.whole();
            let (region, at) = match &nic.shared {
                Some(shared) => shared.region_of(memory)?,
                None => register(&nic.pd, memory, whole, IBV_ACCESS_LOCAL_WRITE)
                    .map(|(region, base)| (Arc::new(region), base))?,
            };
            regions.push(region);
            base = at;
        }
        Ok(base)
    }

    /// Ends registrations. What kept their memory is dropped without the lock. One that does not end ends the link: that of its queue
    /// pairs keeps the peer out.
    /// A region that other links use as well goes on: returns whether there was none.
    pub(super) fn release(&mut self, regions: impl IntoIterator<Item = Arc<MemoryRegion>>) -> bool {
        let mut were_own = true;
        for region in regions {
            let Some(region) = Arc::into_inner(region) else {
                were_own = false;
                continue;
            };
            match region.deregister() {
                Ok(keep) => self.released.push(keep),
                Err(e) => {
                    self.keeps_memory = true;
                    self.fail(e.into());
                }
            }
        }
        were_own
    }
}

impl<M: Registered> Registration for VerbsDataPlane<M> {
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
        let (known, requests, lanes) = (&self.known, &self.requests, &self.lanes);
        let is_used =
            |key| requests.uses_memory(key) || shorts(lanes).any(|parts| parts.memory == key);
        let evicted = self.locals.evict(|key| known.get(key).is_some() || is_used(key));
        self.release(evicted);
    }

    fn take_released(&mut self) -> Vec<Box<dyn Send>> {
        std::mem::take(&mut self.released)
    }
}

/// What a peer may do by a window.
fn remote_rights(access: Access) -> u32 {
    let read = if access.contains(Access::READ) { IBV_ACCESS_REMOTE_READ } else { 0 };
    if access.contains(Access::WRITE) { read | IBV_ACCESS_REMOTE_WRITE } else { read }
}

/// What a registration for a window needs besides: the NIC writes to what the peer writes to.
fn local_rights(access: Access) -> u32 {
    if access.contains(Access::WRITE) { IBV_ACCESS_LOCAL_WRITE } else { 0 }
}

impl<M: Registered> Target for VerbsDataPlane<M> {
    type Windows = Box<[WindowEntry]>;
    type Gate = Infallible;
    type Fault = VerbsFault;

    fn windows(&mut self) -> &mut WindowTable<Box<[WindowEntry]>> {
        &mut self.windows
    }

    /// Registers or binds what is exposed, and returns its key. A window without bytes has none.
    fn open<'a>(
        &mut self,
        memory: &M,
        local: LocalSlice,
        window: &WindowDesc,
        buf: &'a mut [u8],
    ) -> Result<Option<Note<'a>>, VerbsFault> {
        let (id, epoch) = (window.window, window.epoch);
        if local.span.is_empty() || self.closed.is_some() {
            let now = self.domain.host().now();
            self.exposed.open((id, epoch), None, now);
            self.end_revoked();
            return Ok(None);
        }
        let access = remote_rights(window.access);
        let opened = if self.domain.shares_memory() {
            self.open_windows(memory, local, window, access)
        } else {
            self.open_regions(memory, local, window, access | local_rights(window.access))
        };
        opened?;
        let key = self.exposed.key_of(id, epoch);
        self.end_revoked();
        let Some(key) = key else { return Ok(None) };
        let mut out = Writer::new(buf);
        key.emit(&mut out)?;
        let len = usize::try_from(out.written()).unwrap_or(0);
        Ok(buf.get(..len).map(|bytes| Note { kind: ENDPOINT_VERBS_KEY, bytes }))
    }

    /// The peer is asked first whether it uses the window: an access that is refused ends the connection. It is closed soon in any case.
    fn close_window(&mut self, id: WindowId, epoch: Epoch) -> Fence<Infallible> {
        let now = self.domain.host().now();
        self.exposed.revoke(id, epoch, now);
        if self.is_released(id, epoch) { Fence::Passed } else { Fence::PeerAck }
    }

    fn is_released(&self, id: WindowId, epoch: Epoch) -> bool {
        self.exposed.is_closed(id, epoch) && !self.is_unfenced()
    }

    fn forget_window(&mut self, id: WindowId, epoch: Epoch) {
        self.exposed.forget(id, epoch, self.domain.host().now());
        self.end_revoked();
    }
}

impl<M: Registered> PeerWindows for VerbsDataPlane<M> {
    type Mapped = Infallible;

    /// Nothing more is posted of requests that name the window: what was posted of them ends before the owner loses its patience.
    fn remove_window(&mut self, id: WindowId, epoch: Epoch) -> bool {
        let revoked = Failure::Window(WindowFault::Revoked);
        self.cut(revoked, |parts| parts.window == id);
        let is_used = uses_window(&self.requests, &self.lanes, id);
        self.remotes.revoke(id, epoch, is_used);
        if is_used {
            // The peer waits for the message that they have ended.
            self.has_posted = true;
            self.worker.set_awaited();
        }
        !is_used
    }
}
