//! A worker of a session: it receives active messages, and owns the requests of closed transports. All its calls
//! are made through its [`WorkerGuard`].

use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::am::{AmDispatcher, AmTarget};
use super::conn_info::ConnInfo;
use super::context::{Context, UcxError};
use super::cq::CompletionQueue;
use super::lock::lock;
use super::memory::Memory;
use super::peer::orphan::Orphan;
use super::process::Process;
use super::records::RECORDS;
use super::result::Status;
pub use super::ucp_worker::Armed;
use super::ucp_worker::{LockedWorker, UcpWorker};
use crate::host::Notify;

/// Bytes of the wireup page.
const WIREUP_PAGE_BYTES: usize = 4096;
/// How long the drop of a worker waits for requests of closed transports.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A worker. A session has one or several (channels), which its peers share.
#[derive(Debug)]
pub struct Worker {
    // Destroyed before what it may touch is dropped: fields are dropped in this order.
    ucp: UcpWorker,
    /// Takes the first put of each peer, which shows that the path is open: from the second word of the peer's page to
    /// the first word of this one.
    wireup_page: Option<Memory>,
    /// Dispatches the messages of peers.
    am: Arc<AmDispatcher>,
    /// What requests of closed transports still use.
    orphans: Mutex<Vec<Orphan>>,
}

/// Guard of the progress lock. When it is dropped, threads whose operations completed are notified.
pub struct WorkerGuard<'a> {
    locked: LockedWorker<'a>,
    worker: &'a Worker,
}

impl fmt::Debug for WorkerGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerGuard").finish_non_exhaustive()
    }
}

impl<'a> Deref for WorkerGuard<'a> {
    type Target = LockedWorker<'a>;

    #[inline]
    fn deref(&self) -> &LockedWorker<'a> {
        &self.locked
    }
}

impl Worker {
    /// Makes a worker with all devices of the context. Takes some 15 ms, 4 MB and ten descriptors.
    ///
    /// # Errors
    /// [`UcxError`].
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, UcxError> {
        let ucp = UcpWorker::new(context)?;
        let mut worker =
            Self { ucp, wireup_page: None, am: AmDispatcher::new(), orphans: Mutex::default() };
        {
            // Not around the calls that take a permit of their own: once the process ends, they stay there, and the end would
            // wait for this one.
            let _permit = context.library().ending().enter();
            worker.am.receive(context.library(), worker.ucp.handle())?;
        }
        worker.wireup_page = Some(Memory::allocate(context, WIREUP_PAGE_BYTES)?);
        Ok(Arc::new(worker))
    }

    /// Returns its context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        self.ucp.context()
    }

    /// Returns the connection info for the peer of `target`: the target's number, the worker's address, and the address
    /// and key of its wireup page. Some hundred bytes, more with more devices.
    ///
    /// # Errors
    /// [`UcxError`].
    pub fn conn_info(&self, target: &AmTarget) -> Result<Vec<u8>, UcxError> {
        let (wireup_page, target) = (self.wireup_page()?, target.number());
        let key = &wireup_page.pack()?;
        let (owner, wireup_page) = (Process::own(), wireup_page.address());
        Ok(ConnInfo { target, wireup_page, owner, address: &self.ucp.address, key }.to_bytes())
    }

    /// Returns the worker's address.
    #[cfg(feature = "testing")]
    pub(super) fn address(&self) -> &[u8] {
        &self.ucp.address
    }

    /// Makes the AM target of one more peer. `notify` is called when another thread's progress has completed a
    /// request of its transport.
    ///
    /// # Errors
    /// [`UcxError`]: too many peers.
    pub fn new_am_target(&self, notify: Box<dyn Notify>) -> Result<Arc<AmTarget>, UcxError> {
        let queue = self.new_queue(RECORDS, notify)?;
        Ok(self.am.new_target(self.context().library(), queue))
    }

    /// The page whose first word peers write, and whose second word is written to theirs.
    pub(super) fn wireup_page(&self) -> Result<&Memory, UcxError> {
        let missing = UcxError {
            call: "asking for a worker's memory",
            status: Status::NO_MEMORY,
            what: String::new(),
        };
        self.wireup_page.as_ref().ok_or(missing)
    }

    /// Takes the progress lock. Returns `None` if another thread holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<WorkerGuard<'_>> {
        self.ucp.try_lock().map(|locked| WorkerGuard { locked, worker: self })
    }

    /// Takes the progress lock, waiting for the thread that holds it. No thread holds it while it sleeps. When the
    /// process ends (`ucx/ending.rs`), no other thread gets it any more.
    pub fn lock(&self) -> WorkerGuard<'_> {
        WorkerGuard { locked: self.ucp.lock(), worker: self }
    }

    /// Makes the completion queue of one more peer.
    pub(super) fn new_queue(
        &self,
        records: u32,
        notify: Box<dyn Notify>,
    ) -> Result<Arc<CompletionQueue>, UcxError> {
        self.ucp.new_queue(records, notify)
    }

    /// Keeps what requests of a closed transport still use, until UCX has completed them.
    pub(super) fn keep_orphan(&self, orphan: Orphan) {
        lock(&self.orphans).push(orphan);
    }

    /// Returns `true` if no request of a closed transport is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        lock(&self.orphans).is_empty()
    }

    /// Leaks UCX's worker, with all memory that it may still access.
    #[cold]
    fn leak(&mut self) {
        self.ucp.leak();
        std::mem::forget(self.wireup_page.take());
        std::mem::forget(std::mem::take(&mut *lock(&self.orphans)));
        std::mem::forget(Arc::clone(&self.am));
    }
}

impl AsFd for Worker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: UCX keeps the descriptor open as long as the worker, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(self.ucp.fd) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.ucp.claim() {
            // The process ends, and destruction would call UCX.
            return self.leak();
        }
        self.wireup_page = None;
        let deadline = Instant::now().checked_add(CLOSE_TIMEOUT);
        // Only if requests are in flight: 1.13.1 ends the process if it replies to a connecting peer that has exited
        // (`ucp_request.c`, "got REP message").
        while !lock(&self.orphans).is_empty() {
            let free = {
                let _permit = self.context().library().ending().enter();
                let guard = self.lock();
                guard.progress();
                guard.reap_orphans()
            };
            drop(free);
            if deadline.is_none_or(|at| Instant::now() >= at) {
                // UCX ends the process if a worker is destroyed whose endpoints are not closed (1.13.1,
                // `ucp_request.c`). Requests in flight may access their memory, too: all of it is leaked.
                return self.leak();
            }
            std::thread::yield_now();
        }
    }
}

impl WorkerGuard<'_> {
    /// Makes progress: UCX receives, sends and completes requests, then targets send their replies. Bounded. Returns
    /// `true` if anything happened.
    #[inline]
    pub fn progress(&self) -> bool {
        let mut any = self.progress_ucx();
        let am = &self.worker.am;
        if am.ready.is_marked() {
            any |= am.send_replies(self);
        }
        any
    }

    /// As [`WorkerGuard::progress`], for a caller that takes the completions of `queue` as soon as it returns.
    #[inline]
    pub(super) fn progress_for(&self, queue: &CompletionQueue) -> bool {
        self.worker.ucp.ready.excluding(queue, || self.progress())
    }

    /// Removes closed transports whose requests have completed, and returns memory that no request uses any more. It
    /// may hold the last handle of memory whose owner is application code, so the caller drops it without the progress
    /// lock.
    #[must_use]
    pub fn reap_orphans(&self) -> Vec<Arc<Memory>> {
        let mut free = Vec::new();
        let mut orphans = lock(&self.worker.orphans);
        if !orphans.is_empty() {
            orphans.retain_mut(|orphan| !orphan.is_finished(self, &mut free));
        }
        free
    }
}
