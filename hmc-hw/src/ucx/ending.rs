//! The end of the process by exit(3), or because `main` returns: UCX's own state is taken down then while threads still run.
//! From that moment on no thread is in UCX, but for the one that ends the process: the others rest where they would enter it.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError, Weak};
use std::time::{Duration, Instant};

use hmc_mem::os::fork::ForkGuard;

use super::lock::{WorkerLock, lock};

/// How long the end of the process waits for calls that are under way. UCX may take that long only where a device hangs.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Who may be in UCX.
pub(super) struct Ending {
    /// The thread that ends the process; 0: nobody does.
    thread: AtomicI32,
    /// How many there are.
    contexts: AtomicUsize,
    /// Those of the workers, under which each is entered.
    locks: Mutex<Vec<Weak<WorkerLock>>>,
    /// Calls that are made without a progress lock are made under this.
    others: RwLock<()>,
    /// `None` when the system refused: a forked child that ends then waits for threads which it does not have.
    process: Option<ForkGuard>,
}

/// That there is time for a call without a progress lock. The thread that ends the process needs no leave.
pub(super) struct CallPermit<'a>(
    #[expect(dead_code, reason = "held")] Option<RwLockReadGuard<'a, ()>>,
);

/// What a parent did with UCX when it forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inherited {
    /// It had a context, or was in a call: the child has their state and none of UCX's threads.
    InUse,
    Idle,
}

fn this_thread() -> i32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

impl Ending {
    pub(super) fn new() -> Self {
        Self {
            thread: AtomicI32::new(0),
            contexts: AtomicUsize::new(0),
            locks: Mutex::default(),
            others: RwLock::default(),
            process: ForkGuard::new().ok(),
        }
    }

    /// Whether the process is about to end: no call of UCX returns any more in other threads.
    pub(super) fn has_begun(&self) -> bool {
        self.thread.load(Ordering::Acquire) != 0
    }

    /// Whether the thread that calls ends the process, and so holds all progress locks.
    #[cold]
    pub(super) fn is_ending_thread(&self) -> bool {
        self.has_begun() && self.thread.load(Ordering::Acquire) == this_thread()
    }

    /// There is one more context, or one less.
    pub(super) fn count_context(&self, is_new: bool) {
        if is_new {
            self.contexts.fetch_add(1, Ordering::AcqRel);
        } else {
            self.contexts.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Has the end of the process wait for who holds that worker's lock.
    pub(super) fn watch(&self, worker: &Arc<WorkerLock>) {
        let mut locks = lock(&self.locks);
        locks.retain(|l| l.strong_count() != 0);
        locks.push(Arc::downgrade(worker));
    }

    /// Before calls without a progress lock. Once the process ends, this returns in the thread that ends it alone.
    pub(super) fn enter(&self) -> CallPermit<'_> {
        CallPermit(match self.others.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if self.is_ending_thread() => None,
            Err(TryLockError::WouldBlock) => {
                Some(self.others.read().unwrap_or_else(PoisonError::into_inner))
            }
        })
    }

    /// Whether the caller is a forked child of the process that this is of, and what that one did with UCX.
    pub(super) fn inherited(&self) -> Option<Inherited> {
        self.is_of_a_parent().then(|| {
            // A lock that is taken is so for ever.
            let idle = self.contexts.load(Ordering::Acquire) == 0
                && self.others.try_write().is_ok()
                && self.locks.try_lock().is_ok();
            if idle { Inherited::Idle } else { Inherited::InUse }
        })
    }

    fn is_of_a_parent(&self) -> bool {
        self.process.as_ref().is_some_and(ForkGuard::is_child)
    }

    /// Waits for the calls that are under way, and lets nobody in any more. In a forked child that began nothing of its own
    /// nobody is.
    pub(super) fn stop_calls(&self) {
        if self.is_of_a_parent() || self.thread.swap(this_thread(), Ordering::AcqRel) != 0 {
            return;
        }
        let start = Instant::now();
        self.take_locks(start);
        try_until(start, || match self.others.try_write() {
            Err(TryLockError::WouldBlock) => false,
            all => {
                std::mem::forget(all);
                true
            }
        });
        // Those that were made meanwhile.
        self.take_locks(start);
    }

    fn take_locks(&self, start: Instant) {
        let mut locks = Vec::new();
        try_until(start, || match self.locks.try_lock() {
            Err(TryLockError::WouldBlock) => false,
            Ok(mut all) => {
                locks.extend(all.drain(..).filter_map(|l| l.upgrade()));
                true
            }
            Err(TryLockError::Poisoned(_)) => true,
        });
        for lock in locks {
            // A worker that is being destroyed is called under `others`.
            if lock.claim() {
                try_until(start, || lock.keep());
            }
        }
    }
}

/// Tries again and again, until it could or the time since `start` is over.
fn try_until(start: Instant, mut could: impl FnMut() -> bool) {
    while !could() && start.elapsed() < STOP_TIMEOUT {
        std::thread::yield_now();
    }
}
