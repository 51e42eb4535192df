//! `ucp_worker_h`: construction, lock and destruction. All its calls are made through its [`LockedWorker`].

use std::fmt;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, Weak};

use hmc_core::limits::MAX_PEERS;

use super::context::{Context, UcxError, check, made};
use super::cq::{CompletionQueue, ReadySet};
use super::functions::Ucp;
use super::lock::{Held, WorkerLock, lock};
use super::result::Status;
use super::sys;
use crate::host::Notify;

/// Calls of progress in a row while each finds something.
const MAX_POLLS: usize = 64;

/// UCX's worker, the lock of its calls, and the completion queues that they write to.
pub(super) struct UcpWorker {
    context: Arc<Context>,
    handle: NonNull<sys::ucp_worker>,
    /// What UCX calls its address.
    pub(super) address: Vec<u8>,
    pub(super) fd: RawFd,
    lock: Arc<WorkerLock>,
    pub(super) ready: Arc<ReadySet>,
    queues: Mutex<Vec<Option<Weak<CompletionQueue>>>>,
    /// Queues that lost requests of UCX name.
    kept: Mutex<Vec<Arc<CompletionQueue>>>,
    /// `Drop` does not destroy it.
    leaked: bool,
}

// SAFETY: the worker is made for serialised calls from several threads, and all are made under its lock.
unsafe impl Send for UcpWorker {}
// SAFETY: as above.
unsafe impl Sync for UcpWorker {}

impl fmt::Debug for UcpWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UcpWorker").field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// Guard of the lock of a worker's calls. When it is dropped, threads whose operations completed are notified.
pub struct LockedWorker<'a> {
    // The lock is released before the notification: fields are dropped in this order.
    held: Held<'a>,
    of: NotifyOnDrop<'a>,
}

/// Notifies the threads that wait for peers of the worker when it is dropped.
struct NotifyOnDrop<'a>(&'a UcpWorker);

impl fmt::Debug for LockedWorker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedWorker").finish_non_exhaustive()
    }
}

/// Result of arming a worker's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// It becomes readable at the next event.
    Yes,
    /// It is not armed: events wait, so make progress first.
    Busy,
}

impl UcpWorker {
    /// Makes a worker with all devices of the context.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, UcxError> {
        let _permit = context.library().ending().enter();
        let api = &context.library().api;
        let mut params = zeroed();
        params.field_mask = sys::UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        params.thread_mode = sys::UCS_THREAD_MODE_SERIALIZED;
        let mut handle = ptr::null_mut();
        // SAFETY: the context lives; the mask says which fields count.
        let status = unsafe { (api.ucp_worker_create)(context.handle(), &params, &mut handle) };
        let mut worker = Self {
            context: Arc::clone(context),
            handle: made("making a worker", status, handle)?,
            address: Vec::new(),
            fd: -1,
            lock: Arc::default(),
            ready: ReadySet::new(),
            queues: Mutex::default(),
            kept: Mutex::default(),
            leaked: false,
        };
        // From here on `Drop` destroys it.
        worker.address = worker.read_address()?;
        // SAFETY: the worker is not shared yet.
        let status = unsafe { (api.ucp_worker_get_efd)(worker.handle.as_ptr(), &mut worker.fd) };
        check("asking for a worker's descriptor", status)?;
        context.library().ending().watch(&worker.lock);
        Ok(worker)
    }

    fn read_address(&self) -> Result<Vec<u8>, UcxError> {
        let api = &self.context.library().api;
        let (mut address, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the worker is not shared yet.
        let status =
            unsafe { (api.ucp_worker_get_address)(self.handle.as_ptr(), &mut address, &mut len) };
        check("asking for a worker's address", status)?;
        // SAFETY: UCX just wrote that many bytes there.
        let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) }.to_vec();
        // SAFETY: from the call above; released once.
        unsafe { (api.ucp_worker_release_address)(self.handle.as_ptr(), address) };
        Ok(bytes)
    }

    /// Its context.
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn handle(&self) -> sys::ucp_worker_h {
        self.handle.as_ptr()
    }

    /// Takes the lock. Returns `None` if another thread holds it.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<LockedWorker<'_>> {
        let at_the_end =
            || self.context.library().ending().is_ending_thread().then(Held::at_the_end);
        let held = self.lock.try_take().or_else(at_the_end)?;
        Some(LockedWorker { held, of: NotifyOnDrop(self) })
    }

    /// Takes the lock, waiting for the thread that holds it.
    pub(super) fn lock(&self) -> LockedWorker<'_> {
        let taken = || LockedWorker { held: self.lock.take(), of: NotifyOnDrop(self) };
        self.try_lock().unwrap_or_else(taken)
    }

    /// Returns `true` if the caller decides whether the worker is destroyed. Otherwise the process ends, and the worker
    /// is leaked.
    pub(super) fn claim(&self) -> bool {
        self.lock.claim()
    }

    /// Leaks the worker.
    pub(super) fn leak(&mut self) {
        self.leaked = true;
        std::mem::forget(Arc::clone(&self.context));
    }

    /// Makes the completion queue of one more peer.
    pub(super) fn new_queue(
        &self,
        records: u32,
        notify: Box<dyn Notify>,
    ) -> Result<Arc<CompletionQueue>, UcxError> {
        let mut queues = lock(&self.queues);
        let is_free = |slot: &Option<Weak<CompletionQueue>>| {
            slot.as_ref().is_none_or(|b| b.strong_count() == 0)
        };
        let at = queues.iter().position(is_free).unwrap_or(queues.len());
        let full = || UcxError {
            call: "making an endpoint",
            status: Status::NO_RESOURCE,
            what: format!("{MAX_PEERS} peers, which is the limit"),
        };
        let index = u32::try_from(at).ok().filter(|p| *p < MAX_PEERS).ok_or_else(full)?;
        let queue = CompletionQueue::new(
            records,
            self.context.library(),
            Arc::clone(&self.ready),
            index,
            notify,
        );
        if at == queues.len() {
            queues.push(None);
        }
        if let Some(free) = queues.get_mut(at) {
            *free = Some(Arc::downgrade(&queue));
        }
        Ok(queue)
    }

    /// Notifies the threads whose operations have completed. Called without the lock.
    #[cold]
    fn notify(&self) {
        self.ready.take(|index| {
            let at = usize::try_from(index).unwrap_or(usize::MAX);
            let queue = lock(&self.queues).get(at).and_then(Option::as_ref).and_then(Weak::upgrade);
            if let Some(queue) = queue.filter(|b| b.has_completions()) {
                queue.notify.notify();
            }
        });
    }
}

impl Drop for UcpWorker {
    fn drop(&mut self) {
        if self.leaked {
            return;
        }
        let _permit = self.context.library().ending().enter();
        let api = &self.context.library().api;
        // SAFETY: transports hold the worker, so none is left; no request is under way and no endpoint is open.
        unsafe { (api.ucp_worker_destroy)(self.handle.as_ptr()) };
    }
}

impl LockedWorker<'_> {
    pub(super) fn api(&self) -> &'static Ucp {
        &self.of.0.context.library().api
    }

    pub(super) fn handle(&self) -> sys::ucp_worker_h {
        self.of.0.handle()
    }

    /// Returns the proof that the lock is held.
    #[inline]
    pub(super) fn held(&self) -> &Held<'_> {
        &self.held
    }

    /// Makes progress: UCX receives, sends and completes requests. Bounded. Returns `true` if anything happened.
    #[inline]
    pub(super) fn progress_ucx(&self) -> bool {
        let mut any = false;
        for _ in 0..MAX_POLLS {
            // SAFETY: the worker lives, and this thread has its lock.
            let events = unsafe { (self.api().ucp_worker_progress)(self.handle()) };
            if events == 0 {
                break;
            }
            any = true;
        }
        any
    }

    /// Arms the descriptor for the next event. Called after a call of progress that found nothing.
    #[must_use]
    pub fn arm(&self) -> Armed {
        // SAFETY: as in `progress_ucx`.
        match Status(unsafe { (self.api().ucp_worker_arm)(self.handle()) }) {
            Status::OK => Armed::Yes,
            // BUSY, or an error, after which the descriptor is not reliable.
            _ => Armed::Busy,
        }
    }

    /// Wakes the thread that sleeps on the descriptor.
    pub fn signal(&self) {
        // SAFETY: as in `progress_ucx`.
        let _ = unsafe { (self.api().ucp_worker_signal)(self.handle()) };
    }

    /// Keeps a queue while there are calls of this worker.
    pub(super) fn keep(&self, queue: Arc<CompletionQueue>) {
        lock(&self.of.0.kept).push(queue);
    }
}

impl Drop for NotifyOnDrop<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.ready.is_marked() {
            self.0.notify();
        }
    }
}

fn zeroed() -> sys::ucp_worker_params_t {
    // SAFETY: numbers and pointers that may be null.
    unsafe { std::mem::zeroed() }
}
