//! RDMA verbs as a link's data plane: puts and gets by the NIC, windows that the NIC enforces, and messages between
//! the two ends.
//!
//! The NIC does not report the peer's exit and carries no tags without bytes: a layer with a stream adds both
//! ([`NeedsStream`]). If the device enforces memory windows of type 2B, the links of a session share a protection
//! domain without remote rights, and an exposed window is a memory window for each queue pair. Otherwise each link
//! has its own protection domain, which contains only the windows exposed to its peer, with their range and rights.
//! The NIC refuses all other accesses. The fence of a window is the end of its memory windows or registration; the
//! fence of a link is the end of its queue pairs.

mod link;
mod memory;
mod notify;
mod pieces;
mod progress;
mod windows;

use std::fmt;
use std::sync::Arc;

use hmc_core::transport::{
    CancelOutcome, DataCloseReason, NeedsStream, PeerAccess, PostErrorKind, Transport,
};
use hmc_core::types::Caps;
use hmc_core::window::{WindowEntry, WindowFault, WindowTable};
use hmc_core::work::{Completion, Failure, Opcode, SlotId, WorkRequest};
use hmc_mem::registered::{MemoryCache, Registered};

use super::backlog::Backlog;
use super::domain::{VerbsDomain, random_psn};
use super::error::VerbsError;
use super::exposed::ExposedWindows;
use super::fault::VerbsFault;
use super::lane::{Lane, LaneFailure, LaneParts};
use super::link_nic::LinkNic;
use super::link_queues::LinkQueues;
use super::link_worker::LinkWorker;
use super::locals::LocalTable;
use super::pairing::Spread;
use super::remotes::RemoteTable;
use super::requests::RequestTable;
use super::select::SelectError;
use super::sys::ibv_wc;
use super::tags::{RECEIVES, Tags};
use crate::host::{Event, Notify, TagSink};

/// Completions that are taken at a time.
const MAX_COMPLETIONS: usize = 16;

/// The data plane of one link over RDMA verbs. `M` is the host's handle of memory. The owner calls it under the lock of the link. Its drop
/// destroys the queue pairs, after which the NIC executes no request of either end.
pub struct VerbsDataPlane<M: Registered> {
    /// The queue pairs. They are destroyed before the registrations that their requests name.
    lanes: Vec<Lane>,
    requests: RequestTable,
    tags: Tags,
    backlog: Backlog,
    locals: LocalTable,
    exposed: ExposedWindows,
    remotes: RemoteTable,
    known: MemoryCache<M>,
    /// The first NICs of the session: as many as both ends have.
    nics: Vec<LinkNic>,
    /// Where completions are taken to.
    completions: Box<[ibv_wc; MAX_COMPLETIONS]>,
    domain: Arc<VerbsDomain>,
    worker: Arc<LinkWorker>,
    /// Of a data plane that no layer has a table for.
    windows: WindowTable<Box<[WindowEntry]>>,
    released: Vec<Box<dyn Send>>,
    /// The lane of the next request.
    next_lane: usize,
    /// The queue pairs are connected: the peer's requests are served.
    is_connected: bool,
    /// Requests are posted: both ends serve each other's, and the link is not over. See [`Self::update_service`].
    is_serving: bool,
    /// That, by one queue pair.
    is_alone: bool,
    /// The peer is to receive that.
    owes_word: bool,
    /// The peer has connected its own: it serves requests of this end. One that came before would be lost, and sent again after
    /// the time for an acknowledgement.
    is_peer_connected: bool,
    /// A queue pair was not destroyed. The end of each registration is the fence then.
    is_stuck: bool,
    /// A registration was not ended. The end of the queue pairs is the fence then.
    keeps_memory: bool,
    /// A flush waits for whoever asks for completions: nothing was posted since the last poll but short accesses that nobody waits for.
    is_put_off: bool,
    /// Requests were posted since the last [`hmc_core::transport::Progress::take_posted`].
    has_posted: bool,
    failure: Option<Box<LaneFailure>>,
    refusal: Option<VerbsFault>,
    closed: Option<DataCloseReason>,
}

impl<M: Registered> fmt::Debug for VerbsDataPlane<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("VerbsDataPlane");
        s.field("lanes", &self.lanes).field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl<M: Registered> VerbsDataPlane<M> {
    /// Creates the data plane of link number `serial`: its completion queues, its queue pairs in state INIT, and its worker. The peer's
    /// conn info connects them ([`hmc_core::transport::Notes::receive_note`]).
    ///
    /// `windows` is the number of windows that its own table can expose: 0 if a layer above has a table. `notify` is called, without a lock
    /// of this crate, when there are completions and no caller waits. `tags` receives the tags of the peer's puts, after their bytes.
    ///
    /// # Errors
    /// [`VerbsFault::Device`] and [`VerbsFault::Port`] if a NIC can no longer be used; [`VerbsFault::Call`] if a call of libibverbs fails,
    /// for example at a limit of the device; [`VerbsFault::Watch`].
    pub fn new(
        domain: &Arc<VerbsDomain>,
        serial: u32,
        windows: usize,
        notify: Box<dyn Notify>,
        tags: Box<dyn TagSink>,
    ) -> Result<Self, VerbsFault> {
        let _ = domain.take_events();
        let spread = Spread::new(domain.nics().len(), domain.options().lanes);
        let making = domain.making();
        let made = domain.nics().iter().zip(0..);
        let made = made.map(|(nic, index)| LinkNic::new(domain, nic, spread.lanes_of(index)));
        let nics = made.collect::<Result<Vec<_>, _>>()?;
        let worker = domain.new_worker(serial, queues_of(&nics)?, notify)?;
        let mut lanes = Vec::new();
        for lane in 0..spread.lanes {
            let nic = spread.nic_of(lane);
            let Some(LinkNic { pd, cq, port, .. }) = nics.get(nic) else { continue };
            lanes.push(Lane::new(LaneParts {
                nic,
                pd,
                cq,
                port: port.number(),
                psn: random_psn()?,
                // The first carries tags.
                receives: if lane == 0 { RECEIVES } else { 0 },
            })?);
        }
        drop(making);
        Ok(Self {
            lanes,
            requests: RequestTable::new(),
            tags: Tags::new(tags),
            backlog: Backlog::new(),
            locals: LocalTable::default(),
            exposed: ExposedWindows::default(),
            remotes: RemoteTable::new(),
            known: MemoryCache::default(),
            nics,
            completions: Box::new([ibv_wc::default(); MAX_COMPLETIONS]),
            domain: Arc::clone(domain),
            worker,
            windows: WindowTable::new(vec![WindowEntry::FREE; windows].into()),
            released: Vec::new(),
            next_lane: 0,
            is_connected: false,
            is_serving: false,
            is_alone: false,
            owes_word: false,
            is_peer_connected: false,
            is_stuck: false,
            keeps_memory: false,
            is_put_off: false,
            has_posted: false,
            failure: None,
            refusal: None,
            closed: None,
        })
    }

    /// Returns the worker of the link, through which waiting threads receive its completions.
    #[must_use]
    pub fn link_worker(&self) -> Arc<LinkWorker> {
        Arc::clone(&self.worker)
    }

    /// Whether both ends serve each other's requests.
    #[inline]
    pub(super) fn serves(&self) -> bool {
        self.is_connected && self.is_peer_connected
    }

    /// To be called if one of these changes: what serves the peer, or the end of the link.
    pub(super) fn update_service(&mut self) {
        self.is_serving = self.serves() && self.closed.is_none() && self.failure.is_none();
        self.is_alone = self.is_serving && self.lanes.len() == 1 && self.nics.len() == 1;
    }

    /// The reason why no request is posted.
    #[cold]
    fn why_not_serving(&self, work: &WorkRequest) -> PostErrorKind {
        if self.closed.is_some() || self.failure.is_some() {
            PostErrorKind::Disconnected
        } else if self.known.resolve(work.local).is_none() {
            PostErrorKind::UnknownRegion
        } else {
            PostErrorKind::Busy
        }
    }

    /// Registers memory at its first request. Returns what [`LocalTable::resolve`] does.
    #[cold]
    fn register(&mut self, work: &WorkRequest) -> Result<(u64, u32), PostErrorKind> {
        let memory = self.known.resolve(work.local).ok_or(PostErrorKind::UnknownRegion)?;
        let local = memory.local();
        let mut regions = Vec::new();
        match self.regions_of(memory, &mut regions) {
            Ok(base) => {
                let old = self.locals.add(local, regions, base);
                self.release(old);
                self.locals.resolve(&work.local).ok_or(PostErrorKind::UnknownRegion)
            }
            Err(e) => {
                self.release(regions);
                self.domain.host().report(Event::NotRegistered(&e));
                self.refusal = Some(e);
                Err(PostErrorKind::Other)
            }
        }
    }

    /// A queue pair serves nothing any more: the link is over.
    #[cold]
    fn fail(&mut self, failure: Box<LaneFailure>) {
        self.failure.get_or_insert(failure);
        self.update_service();
        self.end_requests();
    }

    /// Ends all requests of both ends. Destroying the queue pairs is the fence: their flushed completions are none. Memory windows that
    /// are bound to them end before.
    fn end_requests(&mut self) {
        let executes_nothing = self.lanes.iter_mut().fold(true, |all, lane| all & lane.set_error());
        if !self.lanes.is_empty() && !self.is_inherited() {
            self.take_successes();
        }
        // Those that have completed are not kept for a queue pair that goes on.
        self.exposed.settle(&self.lanes);
        self.lanes.iter_mut().for_each(|lane| lane.record_shorts(&mut self.requests));
        let lanes = std::mem::take(&mut self.lanes);
        let regions = self.end_bound_windows(executes_nothing);
        let mut stuck = None;
        for lane in lanes {
            stuck = lane.destroy().err().or(stuck);
        }
        self.release(regions);
        if let Some(e) = stuck {
            self.fence_by_registrations(&e);
        }
        self.backlog.clear();
        let remotes = &self.remotes;
        self.requests.fail_all(|window| {
            let revoked = remotes.is_revoked(window);
            if revoked { Failure::Window(WindowFault::Revoked) } else { Failure::PeerDead }
        });
        self.worker.set_busy(false);
    }

    /// A queue pair was not destroyed: what it has may still be executed, but reaches no memory whose registration has ended.
    #[cold]
    fn fence_by_registrations(&mut self, e: &VerbsError) {
        self.is_stuck = true;
        self.domain.host().report(Event::NotDestroyed(e));
        let all = self.locals.evict(|_| false);
        // Those that other links use go on.
        self.keeps_memory |= !self.release(all);
    }

    /// The device may access memory of this link for ever: neither its queue pairs nor its registrations have ended.
    fn is_unfenced(&self) -> bool {
        self.is_stuck && self.keeps_memory
    }

    /// Returns `true` in a forked child: all is the parent's.
    fn is_inherited(&self) -> bool {
        self.nics.first().is_some_and(|nic| nic.cq.is_inherited())
    }

    /// Its NICs, for people.
    fn nic_names(&self) -> String {
        self.nics.iter().map(LinkNic::name).collect::<Vec<_>>().join(", ")
    }

    /// Whether a queue pair has something to do without a completion.
    fn has_work(&self) -> bool {
        let waits = || self.is_connected && self.lanes.iter().any(Lane::has_work);
        let has_any = self.requests.has_any_done() || self.exposed.owes_keys();
        has_any || self.has_messages() || !self.is_put_off && waits()
    }
}

impl<M: Registered> Drop for VerbsDataPlane<M> {
    /// Memory windows end before the queue pairs to which they are bound.
    fn drop(&mut self) {
        if self.domain.shares_memory() && !self.lanes.is_empty() {
            self.end_requests();
        }
    }
}

/// The completion queues of a link's NICs.
///
/// # Errors
/// [`VerbsFault`].
fn queues_of(nics: &[LinkNic]) -> Result<LinkQueues, VerbsFault> {
    let (first, others) = nics.split_first().ok_or(VerbsFault::Port(SelectError::NoDevice))?;
    Ok(LinkQueues::new(&first.cq, others.iter().map(|nic| Arc::clone(&nic.cq)).collect())?)
}

impl<M: Registered> Transport for VerbsDataPlane<M> {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::PUT | Caps::GET | Caps::TARGET_CHECKED
    }

    #[inline]
    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        if self.is_alone && work.opcode == Opcode::Put {
            self.post_alone(work)
        } else {
            self.post_any(work)
        }
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.poll_into(out)
    }

    /// What was posted cannot be withdrawn: a request of which more was to be posted completes once that has ended.
    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        self.withdraw(op)
    }
}

impl<M: Registered> NeedsStream for VerbsDataPlane<M> {
    const MAX_NOTIFIES: usize = 0;

    /// Through the NIC, as soon as the peer can have this end's conn info.
    fn peer_access(&self) -> PeerAccess {
        if self.is_connected || self.closed.is_some() {
            PeerAccess::Remote
        } else {
            PeerAccess::Unknown
        }
    }

    /// None: the NIC carries tags, too.
    #[inline]
    fn take_notify(&mut self) -> Option<WorkRequest> {
        None
    }

    fn is_idle(&self) -> bool {
        // What a queue pair carries itself needs no registration here.
        self.requests.is_idle() && !self.is_stuck
    }

    fn has_windows(&self) -> bool {
        self.exposed.has_memory()
    }

    /// Its queue pairs are destroyed then, and its windows closed.
    fn is_shut(&self) -> bool {
        self.closed.is_some() && !self.is_unfenced()
    }

    /// What the peer's NIC sends after the end of the queue pairs is refused.
    fn has_drained(&mut self) -> bool {
        true
    }
}
