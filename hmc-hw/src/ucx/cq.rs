//! Completion queues, which UCX's callbacks write to: requests that completed, an endpoint that failed.
//!
//! Callbacks come from inside calls of UCX, in the thread that holds the worker's progress lock, so they write to
//! atomics and do nothing else. A queue outlives every request whose callback names it; see [`super::worker::Worker`].

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use hmc_core::limits::MAX_PEERS;

use super::library::Library;
use super::lock::Held;
use super::result::Status;
use super::sys;
use crate::host::Notify;

/// For a queue that no thread waits for.
pub(super) struct NoNotify;

impl Notify for NoNotify {
    fn notify(&self) {}
}

/// The end of a list of records.
const NONE: u32 = u32::MAX;

/// One request that may be in flight.
struct RequestRecord {
    queue: AtomicPtr<CompletionQueue>,
    index: u32,
    status: AtomicI32,
    next: AtomicU32,
}

/// Completed records that were taken, by the first of them.
pub(super) struct Completed(u32);

/// The completed requests of one peer, and the status of its endpoint.
pub(super) struct CompletionQueue {
    records: Box<[RequestRecord]>,
    /// The record that completed last, and through `next` those before it. Written under the worker's progress lock
    /// alone, by the callbacks and by the thread that takes them; other threads only check whether there are any.
    completed: AtomicU32,
    /// The status with which the endpoint failed; 0 while it has not.
    failed: AtomicI32,
    /// Replies of the peer wait at the target.
    pub(super) replies_ready: AtomicBool,
    library: &'static Library,
    ready: Arc<ReadySet>,
    /// Its index in the worker's table.
    pub(super) index: u32,
    pub(super) notify: Box<dyn Notify>,
    /// The endpoint's close was answered.
    pub(super) closed: AtomicBool,
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("index", &self.index).finish_non_exhaustive()
    }
}

impl CompletionQueue {
    pub(super) fn new(
        records: u32,
        library: &'static Library,
        ready: Arc<ReadySet>,
        index: u32,
        notify: Box<dyn Notify>,
    ) -> Arc<Self> {
        let record = |index| RequestRecord {
            queue: AtomicPtr::new(std::ptr::null_mut()),
            index,
            status: AtomicI32::new(0),
            next: AtomicU32::new(NONE),
        };
        let queue = Arc::new(Self {
            records: (0..records).map(record).collect(),
            completed: AtomicU32::new(NONE),
            failed: AtomicI32::new(0),
            replies_ready: AtomicBool::new(false),
            library,
            ready,
            index,
            notify,
            closed: AtomicBool::new(false),
        });
        for record in &queue.records {
            record.queue.store(Arc::as_ptr(&queue).cast_mut(), Ordering::Release);
        }
        queue
    }

    /// The argument of the callback of that record's request.
    #[inline]
    pub(super) fn request_arg(&self, record: u32) -> *mut c_void {
        let found = usize::try_from(record).ok().and_then(|at| self.records.get(at));
        found.map_or(std::ptr::null_mut(), |r| std::ptr::from_ref(r).cast_mut().cast())
    }

    /// The argument of the endpoint's error handler.
    pub(super) fn endpoint_arg(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// The status with which the endpoint failed.
    #[inline]
    pub(super) fn failure(&self) -> Option<Status> {
        match self.failed.load(Ordering::Acquire) {
            0 => None,
            status => Some(Status(i8::try_from(status).unwrap_or(i8::MIN))),
        }
    }

    /// Marks the endpoint as failed.
    pub(super) fn fail(&self, status: Status) {
        let status = if status == Status::OK { Status::IO_ERROR } else { status };
        self.failed.store(i32::from(status.0), Ordering::Release);
    }

    /// Returns `true` if there is something to take.
    #[inline]
    pub(super) fn has_completions(&self) -> bool {
        self.completed.load(Ordering::Acquire) != NONE
            || self.failed.load(Ordering::Acquire) != 0
            || self.replies_ready.load(Ordering::Acquire)
    }

    /// Takes the records whose requests have completed, the last one first: [`CompletionQueue::next`] reads them.
    #[inline]
    pub(super) fn take(&self, _: &Held<'_>) -> Completed {
        let completed = self.completed.load(Ordering::Acquire);
        if completed != NONE {
            self.completed.store(NONE, Ordering::Relaxed);
        }
        Completed(completed)
    }

    /// The next of the records that were taken. After this call another request may use it.
    #[inline]
    pub(super) fn next(&self, completed: &mut Completed) -> Option<(u32, Status)> {
        let at = completed.0;
        let record = usize::try_from(at).ok().and_then(|at| self.records.get(at))?;
        completed.0 = record.next.load(Ordering::Relaxed);
        let status = record.status.load(Ordering::Relaxed);
        Some((at, Status(i8::try_from(status).unwrap_or(i8::MIN))))
    }

    /// Adds the queue to the ready set.
    pub(super) fn mark(&self) {
        self.ready.mark(self.index);
    }

    /// Removes the queue from the ready set: its owner takes the completions now. Under the progress lock.
    #[inline]
    pub(super) fn unmark(&self) {
        self.ready.unmark(self.index);
    }

    #[inline]
    fn complete(&self, record: &RequestRecord, status: Status) {
        record.status.store(i32::from(status.0), Ordering::Relaxed);
        record.next.store(self.completed.load(Ordering::Relaxed), Ordering::Relaxed);
        self.completed.store(record.index, Ordering::Release);
        // The thread that makes progress for this queue takes the completions right after; the threads of other queues
        // are notified.
        if self.ready.excluded.load(Ordering::Relaxed) != self.index {
            self.ready.mark(self.index);
        }
    }
}

/// The callback of every request.
///
/// # Safety
/// UCX calls it, once for each request, with what [`CompletionQueue::request_arg`] gave.
pub(super) unsafe extern "C" fn on_complete(
    request: *mut c_void,
    status: sys::ucs_status_t,
    record: *mut c_void,
) {
    // SAFETY: `record` is what `CompletionQueue::request_arg` gave for this request, and queues outlive their requests.
    let record = unsafe { &*record.cast::<RequestRecord>() };
    // SAFETY: written when the queue was made; the queue is alive, as its record is.
    let queue = unsafe { &*record.queue.load(Ordering::Acquire) };
    // SAFETY: the request has completed, no other code has its address, and callbacks may free it (ucp.h).
    unsafe { (queue.library.api.ucp_request_free)(request) };
    queue.complete(record, Status(status));
}

/// The error handler of every endpoint.
///
/// # Safety
/// UCX calls it with what [`CompletionQueue::endpoint_arg`] gave.
pub(super) unsafe extern "C" fn on_ep_error(
    queue: *mut c_void,
    _endpoint: sys::ucp_ep_h,
    status: sys::ucs_status_t,
) {
    // SAFETY: what `CompletionQueue::endpoint_arg` gave; a queue outlives its endpoint.
    let queue = unsafe { &*queue.cast::<CompletionQueue>() };
    queue.fail(Status(status));
    queue.ready.mark(queue.index);
}

/// Words of bits, one bit for each queue of a worker.
const WORDS: usize = 64;

/// The queues of a worker that have completions: a bit each, and a bit for each word of bits.
pub(super) struct ReadySet {
    some: AtomicU64,
    words: [AtomicU64; WORDS],
    /// The queue whose completions the thread that holds the progress lock takes as soon as its call of progress
    /// returns.
    excluded: AtomicU32,
}

const _: () = assert!(MAX_PEERS <= 64 * 64, "a bit for each peer, and a word for all words");

impl ReadySet {
    pub(super) fn new() -> Arc<Self> {
        let words = [const { AtomicU64::new(0) }; WORDS];
        Arc::new(Self { some: AtomicU64::new(0), words, excluded: AtomicU32::new(NONE) })
    }

    /// Makes progress by `poll`, under the progress lock: callbacks mark all queues but that one, whose completions the
    /// caller takes.
    #[inline]
    pub(super) fn excluding<R>(&self, queue: &CompletionQueue, poll: impl FnOnce() -> R) -> R {
        self.excluded.store(queue.index, Ordering::Relaxed);
        let result = poll();
        self.excluded.store(NONE, Ordering::Relaxed);
        result
    }

    fn mark(&self, index: u32) {
        let (word, bit) = (index >> 6, index & 63);
        if let Some(w) = usize::try_from(word).ok().and_then(|at| self.words.get(at)) {
            w.fetch_or(1 << bit, Ordering::AcqRel);
            self.some.fetch_or(1 << word, Ordering::AcqRel);
        }
    }

    /// Removes one queue.
    #[inline]
    fn unmark(&self, index: u32) {
        let (word, bit) = (index >> 6, index & 63);
        let Some(w) = usize::try_from(word).ok().and_then(|at| self.words.get(at)) else { return };
        if w.load(Ordering::Acquire) & 1 << bit == 0 {
            return;
        }
        if w.fetch_and(!(1 << bit), Ordering::AcqRel) == 1 << bit {
            self.some.fetch_and(!(1 << word), Ordering::AcqRel);
        }
    }

    /// Returns `true` if a queue may have completions.
    #[inline]
    pub(super) fn is_marked(&self) -> bool {
        self.some.load(Ordering::Acquire) != 0
    }

    /// Takes all queues out of the set.
    pub(super) fn take(&self, mut each: impl FnMut(u32)) {
        let mut some = self.some.swap(0, Ordering::AcqRel);
        while some != 0 {
            let word = some.trailing_zeros();
            some &= some.wrapping_sub(1);
            let Some(w) = usize::try_from(word).ok().and_then(|at| self.words.get(at)) else {
                continue;
            };
            let mut bits = w.swap(0, Ordering::AcqRel);
            while bits != 0 {
                each((word << 6) | bits.trailing_zeros());
                bits &= bits.wrapping_sub(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ReadySet;

    fn taken(ready: &ReadySet) -> Vec<u32> {
        let mut indices = Vec::new();
        ready.take(|index| indices.push(index));
        indices
    }

    #[test]
    fn one_mark_is_taken_and_the_others_stay() {
        let ready = ReadySet::new();
        for index in [3, 5, 70] {
            ready.mark(index);
        }
        ready.unmark(5);
        assert!(ready.is_marked());
        assert_eq!(taken(&ready), [3, 70]);
        assert!(!ready.is_marked() && taken(&ready).is_empty());
        // The last of its word, and one that is not marked.
        ready.mark(70);
        ready.unmark(70);
        assert!(!ready.is_marked());
        ready.mark(3);
        ready.unmark(70);
        ready.unmark(4);
        assert_eq!(taken(&ready), [3]);
    }
}
