//! UCX as a link's data plane: puts and gets by [`UcxTransport`], windows, and messages between the two ends.
//!
//! UCX carries no tags and does not report the peer's exit: a layer with a stream adds both ([`NeedsStream`]).
//! [`UcxTransport`] exists once the peer's connection info has arrived. A window's range, rights and epoch are
//! checked here, in the initiator's process. On the AM path ([`super::am`]) the target checks them again, and its
//! result decides. UCX's shared-memory lanes check nothing.

mod exposed;
mod link;
mod memory;

use std::fmt;
use std::sync::Arc;

use hmc_core::region::WindowDesc;
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::{
    CancelOutcome, DataCloseReason, NeedsStream, PeerAccess, PostErrorKind, Transport,
};
use hmc_core::types::Caps;
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::wire::advert::UcxKey;
use hmc_core::work::{Completion, SlotId, WorkRequest};
use hmc_mem::registered::{MemoryCache, Registered};

use self::exposed::ExposedWindows;
use super::am::AmTarget;
use super::domain::UcxDomain;
use super::fault::UcxFault;
use super::result::Status;
use super::session_worker::UcxWorker;
use super::transport::{MAX_REQUESTS, UcxTransport};
use crate::host::Event;
use crate::host::Notify;
use crate::releases::{MAX_KEYS, PendingReleases};

/// How long a link waits for the first message of a peer that may send none, having other lanes.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_millis(1000);

/// The data plane of one link over UCX. `M` is the host's handle of memory. The owner calls it under the lock of the link; calls of UCX are
/// made under the progress lock of its worker, which several links may share.
pub struct UcxDataPlane<M: Registered> {
    /// Registrations of what is exposed to the peer. Before `known`, which holds the memory.
    exposed: ExposedWindows,
    ucx: Option<UcxTransport>,
    /// Receives the peer's messages.
    target: Arc<AmTarget>,
    known: MemoryCache<M>,
    /// Of a data plane that no layer has a table for.
    windows: WindowTable<Box<[WindowEntry]>>,
    domain: Arc<UcxDomain>,
    worker: Arc<UcxWorker>,
    released: Vec<Box<dyn Send>>,
    /// Keys that came before the peer's connection info.
    early_keys: Vec<(WindowDesc, u64, Vec<u8>)>,
    /// Windows that the peer revokes while operations of this end use them.
    releases: PendingReleases,
    /// Why the last post was refused, where a kind says too little.
    refusal: Option<UcxFault>,
    /// Since when the path of this end's puts is open.
    wired_up_at: Option<Instant>,
    peer_access: PeerAccess,
    /// The peer is a process of this system.
    same_system: bool,
    closed: Option<DataCloseReason>,
}

impl<M: Registered> fmt::Debug for UcxDataPlane<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("UcxDataPlane");
        s.field("ucx", &self.ucx).field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl<M: Registered> UcxDataPlane<M> {
    /// Creates the data plane of link number `serial`, and its worker unless links share one. The peer's connection info opens the endpoint
    /// ([`hmc_core::transport::Notes::receive_note`]).
    ///
    /// `same_system` states that the peer is a process of this system, by its own word. `windows` is the number of windows that its own
    /// table can expose: 0 if a layer above has a table. `notify` is called, without a lock of this crate, when the progress of another
    /// thread has completed an operation.
    ///
    /// # Errors
    /// [`UcxFault::Ucx`] if UCX cannot create the worker or its handler of messages; [`UcxFault::Watch`] if its descriptor cannot be watched.
    pub fn new(
        domain: &Arc<UcxDomain>,
        serial: u32,
        same_system: bool,
        windows: usize,
        notify: Box<dyn Notify>,
    ) -> Result<Self, UcxFault> {
        let worker = domain.worker(serial, same_system)?;
        Ok(Self {
            exposed: ExposedWindows::default(),
            ucx: None,
            target: worker.worker().new_am_target(notify)?,
            known: MemoryCache::default(),
            windows: WindowTable::new(vec![WindowEntry::FREE; windows].into()),
            domain: Arc::clone(domain),
            worker,
            released: Vec::new(),
            early_keys: Vec::new(),
            releases: PendingReleases::default(),
            refusal: None,
            wired_up_at: None,
            peer_access: PeerAccess::Unknown,
            same_system,
            closed: None,
        })
    }

    /// Returns its worker, through which waiting threads make progress.
    #[must_use]
    pub fn shared_worker(&self) -> Arc<UcxWorker> {
        Arc::clone(&self.worker)
    }

    /// The peer's connection info has come: opens the endpoint.
    fn set_peer_info(&mut self, info: &[u8]) -> Result<(), UcxFault> {
        if self.ucx.is_some() || self.closed.is_some() {
            return Ok(());
        }
        let mut ucx = UcxTransport::new(self.worker.worker(), &self.target, info, true)?;
        for (region, base, key) in self.early_keys.drain(..) {
            ucx.add_remote(region, base, &key)?;
        }
        // A window may have been opened before, by the registration that lanes of shared memory map.
        let shares = ucx.shares_memory() || !ucx.uses_am() && self.domain.shares_memory();
        self.peer_access =
            if shares { PeerAccess::Process(ucx.peer_pid()) } else { PeerAccess::Remote };
        self.ucx = Some(ucx);
        Ok(())
    }

    /// The key to one of the peer's windows has come.
    fn add_rkey(&mut self, key: &UcxKey<'_>) -> Result<(), UcxFault> {
        let index = usize::from(key.region.window.index());
        if index >= MAX_KEYS || self.early_keys.len() >= MAX_KEYS {
            return Err(UcxFault::UnknownWindow { index, limit: MAX_KEYS });
        }
        match &mut self.ucx {
            Some(ucx) => Ok(ucx.add_remote(key.region, key.base, key.key)?),
            None => {
                self.early_keys.push((key.region, key.base, key.key.to_vec()));
                Ok(())
            }
        }
    }

    /// Registers memory at its first request.
    #[cold]
    fn register(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        let known = self.known.get(work.local.key);
        let (Some(memory), Some(ucx)) = (known, &mut self.ucx) else {
            return Err(PostErrorKind::UnknownRegion);
        };
        match self.domain.memory_of(memory) {
            Ok(memory) => {
                ucx.add_local(work.local.key, memory);
                Ok(())
            }
            Err(e) => {
                self.domain.host().report(Event::NotRegistered(&e));
                self.refusal = Some(e);
                Err(PostErrorKind::Other)
            }
        }
    }

    /// Whether bytes go as messages both ways, so that each end checks what comes.
    fn uses_messages(&self) -> bool {
        self.ucx.as_ref().is_some_and(UcxTransport::uses_am) && self.target.peer_uses_am()
    }

    /// Why its endpoint has failed: by what the peer did, or with that status.
    #[cold]
    fn failure_reason(&self, status: Status) -> DataCloseReason {
        match self.target.violation() {
            Some(violation) => DataCloseReason::Protocol(violation.what()),
            None => DataCloseReason::Failed(i32::from(status.0)),
        }
    }
}

impl<M: Registered> Transport for UcxDataPlane<M> {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::PUT | Caps::GET
    }

    #[inline]
    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        if self.closed.is_some() {
            return Err(PostErrorKind::Disconnected);
        }
        if self.known.resolve(work.local).is_none() {
            return Err(PostErrorKind::UnknownRegion);
        }
        let Some(ucx) = &self.ucx else { return Err(PostErrorKind::Busy) };
        if !ucx.has_local(work.local.key) {
            self.register(work)?;
        }
        self.ucx.as_mut().map_or(Err(PostErrorKind::Busy), |ucx| ucx.post(work))
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.ucx.as_mut().map_or(0, |ucx| ucx.poll(out))
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        self.ucx.as_mut().map_or(CancelOutcome::Withdrawn, |ucx| ucx.cancel(op))
    }
}

impl<M: Registered> NeedsStream for UcxDataPlane<M> {
    const MAX_NOTIFIES: usize = MAX_REQUESTS;

    fn peer_access(&self) -> PeerAccess {
        self.peer_access
    }

    #[inline]
    fn take_notify(&mut self) -> Option<WorkRequest> {
        self.ucx.as_mut()?.take_notify()
    }

    fn is_idle(&self) -> bool {
        self.ucx.as_ref().is_none_or(UcxTransport::is_idle)
    }

    fn has_windows(&self) -> bool {
        self.exposed.has_memory()
    }

    /// A peer that uses messages alone reaches nothing once the windows are closed.
    fn is_shut(&self) -> bool {
        self.closed.is_some() && self.target.peer_uses_am()
    }

    /// What the peer's lanes still hold lands now. UCX may never be done with closing the endpoint to a process that was killed with
    /// its queue full (1.13.1); between processes of one host that does not matter.
    fn has_drained(&mut self) -> bool {
        let drained = self.worker.drain();
        let is_over = |ucx: &UcxTransport| ucx.is_closed() || ucx.is_same_host();
        drained && self.ucx.as_ref().is_none_or(is_over)
    }
}
