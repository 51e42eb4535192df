//! The workers of a session: a few that links to other hosts share, and one for each link to a process on the same
//! host.
//!
//! A shared-memory lane of UCX enqueues messages in the receiver's memory. A sender that is killed after it
//! reserved an entry and before it filled the entry blocks that queue permanently, for all senders
//! (`uct_mm_ep_am_common_send`; shown with 1.13.1 and 1.22.0 by killing a sender there). A worker has one such
//! queue for each device, so peers on the same host do not share a worker.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::context::Context;
use super::fault::UcxFault;
use super::lock::lock;
use super::session_worker::UcxWorker;
use crate::host::Host;

/// The workers of a session.
pub(super) struct WorkerPool {
    context: Arc<Context>,
    host: Arc<dyn Host>,
    /// Only callers make progress.
    is_manual: bool,
    /// Whether a peer of this system gets a worker of its own: where there are lanes of shared memory.
    own_worker_per_peer: bool,
    /// Those that links share, made when one is needed.
    shared: Mutex<Box<[Option<Arc<UcxWorker>>]>>,
    /// Every one, of a number of its own. Taken as it is at the moment, and used without the lock.
    all: Mutex<Arc<[Arc<UcxWorker>]>>,
    next: AtomicU32,
}

impl WorkerPool {
    /// Of `shared` workers for all links but those that have their own. Workers are numbered from `first` on.
    pub(super) fn new(
        context: &Arc<Context>,
        host: &Arc<dyn Host>,
        is_manual: bool,
        (shared, first): (u32, u32),
        own_worker_per_peer: bool,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            host: Arc::clone(host),
            is_manual,
            own_worker_per_peer,
            shared: Mutex::new((0..shared.max(1)).map(|_| None).collect()),
            all: Mutex::new([].into()),
            next: AtomicU32::new(first),
        }
    }

    /// Returns the worker for the link of that number. `same_system`: its peer is a process of this system.
    pub(super) fn for_link(
        &self,
        serial: u32,
        same_system: bool,
    ) -> Result<Arc<UcxWorker>, UcxFault> {
        if same_system && self.own_worker_per_peer {
            return self.add();
        }
        let mut shared = lock(&self.shared);
        let count = shared.len().max(1);
        let at = usize::try_from(serial).unwrap_or(0).checked_rem(count).unwrap_or(0);
        if let Some(Some(worker)) = shared.get(at) {
            return Ok(Arc::clone(worker));
        }
        let worker = self.add()?;
        if let Some(place) = shared.get_mut(at) {
            *place = Some(Arc::clone(&worker));
        }
        Ok(worker)
    }

    fn add(&self) -> Result<Arc<UcxWorker>, UcxFault> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let worker = UcxWorker::new(&self.context, &self.host, self.is_manual, number)?;
        let mut all = lock(&self.all);
        *all = all.iter().chain([&worker]).map(Arc::clone).collect();
        Ok(worker)
    }

    /// All there are.
    pub(super) fn all(&self) -> Arc<[Arc<UcxWorker>]> {
        Arc::clone(&lock(&self.all))
    }

    /// The one of that number.
    pub(super) fn find(&self, number: u32) -> Option<Arc<UcxWorker>> {
        self.all().iter().find(|worker| worker.number() == number).map(Arc::clone)
    }

    /// Whether the link of a worker is closed, and no other may use it.
    pub(super) fn is_unused(worker: &Arc<UcxWorker>) -> bool {
        // `all` is one holder, and one that is shared has another.
        Arc::strong_count(worker) == 1
    }

    /// Whether there is a worker to drop or something for one to do once their links are closed. A worker that is not shared counts
    /// while it exists: the last user of a closed link may let go of it at any time, and tells nobody.
    pub(super) fn has_leftovers(&self) -> bool {
        let shared = lock(&self.shared);
        let is_shared = |worker: &Arc<UcxWorker>| {
            shared.iter().flatten().any(|other| Arc::ptr_eq(other, worker))
        };
        self.all().iter().any(|worker| !is_shared(worker) || !worker.worker().is_idle())
    }

    /// Drops workers whose link is closed and of which UCX uses nothing any more.
    pub(super) fn reap(&self) {
        let is_over =
            |worker: &Arc<UcxWorker>| Self::is_unused(worker) && worker.worker().is_idle();
        let mut all = lock(&self.all);
        if !all.iter().any(is_over) {
            return;
        }
        let left = all.iter().filter(|worker| !is_over(worker)).map(Arc::clone).collect();
        // To destroy them takes some milliseconds: not under the lock.
        let before = std::mem::replace(&mut *all, left);
        drop(all);
        drop(before);
    }
}
