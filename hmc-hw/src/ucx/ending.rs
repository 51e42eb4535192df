//! The end of the process by exit(3), or because `main` returns: UCX then destroys its state while threads still run.
//! From that moment only the thread that ends the process calls UCX: the other threads block before their next call.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError, Weak};
use std::time::{Duration, Instant};

use hmc_mem::os::fork::ForkGuard;

use super::lock::{WorkerLock, lock, stay};

/// How long the end of the process waits for calls in progress. A call of UCX takes that long only if a device hangs.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Which threads may call UCX.
pub(super) struct Ending {
    /// The thread that ends the process, or 0.
    thread: AtomicI32,
    /// The number of contexts.
    contexts: AtomicUsize,
    /// The progress locks of the workers.
    locks: Mutex<Vec<Weak<WorkerLock>>>,
    /// Read-locked by calls that are made without a progress lock.
    others: RwLock<()>,
    /// `None` if the system call failed: a forked child that exits then waits for threads that it does not have.
    process: Option<ForkGuard>,
}

/// Permits a call without a progress lock. The thread that ends the process needs no permit.
pub(super) struct CallPermit<'a>(
    #[expect(dead_code, reason = "held")] Option<RwLockReadGuard<'a, ()>>,
);

/// How a parent used UCX when it forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inherited {
    /// It had a context or was in a call: the child has that state and none of UCX's threads.
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

    /// Returns `true` if the process is about to end: calls of UCX no longer return in other threads.
    pub(super) fn has_begun(&self) -> bool {
        self.thread.load(Ordering::Acquire) != 0
    }

    /// Returns `true` if the calling thread ends the process, and so holds all progress locks.
    #[cold]
    pub(super) fn is_ending_thread(&self) -> bool {
        self.has_begun() && self.thread.load(Ordering::Acquire) == this_thread()
    }

    /// Counts one context more, or one less.
    pub(super) fn count_context(&self, is_new: bool) {
        if is_new {
            self.contexts.fetch_add(1, Ordering::AcqRel);
        } else {
            self.contexts.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Adds a worker's lock to those that the end of the process waits for.
    pub(super) fn watch(&self, worker: &Arc<WorkerLock>) {
        let mut locks = lock(&self.locks);
        locks.retain(|l| l.strong_count() != 0);
        locks.push(Arc::downgrade(worker));
    }

    /// Called before calls without a progress lock. Once the process ends, it returns only in the thread that ends it.
    pub(super) fn enter(&self) -> CallPermit<'_> {
        self.try_enter().unwrap_or_else(|| stay())
    }

    /// The permit for a call; `None` if the process ends, unless by this thread. The end may be waiting for other permits: threads that
    /// took one after the other would leave it no moment without.
    fn try_enter(&self) -> Option<CallPermit<'_>> {
        let guard = match self.others.try_read() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.is_ending_thread() => {
                return Some(CallPermit(None));
            }
            Err(TryLockError::WouldBlock) => {
                self.others.read().unwrap_or_else(PoisonError::into_inner)
            }
        };
        let may = !self.has_begun() || self.is_ending_thread();
        may.then_some(CallPermit(Some(guard)))
    }

    /// Returns how the parent used UCX, if the caller is a forked child of the process that made this.
    pub(super) fn inherited(&self) -> Option<Inherited> {
        self.is_of_a_parent().then(|| {
            // A lock that the parent held is never released.
            let idle = self.contexts.load(Ordering::Acquire) == 0
                && self.others.try_write().is_ok()
                && self.locks.try_lock().is_ok();
            if idle { Inherited::Idle } else { Inherited::InUse }
        })
    }

    fn is_of_a_parent(&self) -> bool {
        self.process.as_ref().is_some_and(ForkGuard::is_child)
    }

    /// Waits for the calls in progress, and blocks later ones. Does nothing in a forked child, which has no calls of
    /// its own.
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
        // Workers that were made meanwhile.
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
        // `others` guards a worker that is being destroyed.
        locks.retain(|lock| lock.claim());
        // All of them first: no call begins under one while another is waited for.
        locks.iter().for_each(|lock| lock.close());
        for lock in locks {
            try_until(start, || lock.keep());
        }
    }
}

/// Repeats `could` until it returns `true`, or until the time limit since `start`.
fn try_until(start: Instant, mut could: impl FnMut() -> bool) {
    while !could() && start.elapsed() < STOP_TIMEOUT {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::{Ending, Inherited, STOP_TIMEOUT, WorkerLock, lock, try_until};

    #[test]
    fn what_is_tried_ends_with_success_or_at_the_time_limit() {
        for successes_at in [1, 3] {
            let mut tries = 0;
            try_until(Instant::now(), || {
                tries += 1;
                tries == successes_at
            });
            assert_eq!(tries, successes_at);
        }
        let Some(long_ago) = Instant::now().checked_sub(STOP_TIMEOUT) else { return };
        let mut tries = 0;
        try_until(long_ago, || {
            tries += 1;
            false
        });
        assert_eq!(tries, 1, "the limit has passed");
    }

    #[test]
    fn once_the_process_ends_one_thread_alone_may_enter() {
        let ending = Ending::new();
        let workers = [(); 2].map(|()| Arc::new(WorkerLock::default()));
        let gone = Arc::new(WorkerLock::default());
        for worker in [&gone, &workers[0]] {
            ending.watch(worker);
        }
        drop(gone);
        ending.watch(&workers[1]);
        assert_eq!(lock(&ending.locks).len(), 2, "what is gone is not waited for");
        assert!(!ending.has_begun() && !ending.is_ending_thread());
        let permit = ending.enter();
        assert!(ending.others.try_write().is_err(), "the end of the process waits for it");
        drop(permit);
        assert!(ending.others.try_write().is_ok());
        assert_eq!(ending.inherited(), None, "this is no child");
        ending.stop_calls();
        assert!(ending.has_begun() && ending.is_ending_thread());
        drop(ending.enter());
        for worker in &workers {
            assert!(worker.try_take().is_none() && !worker.claim());
        }
        std::thread::scope(|s| {
            s.spawn(|| assert!(ending.has_begun() && !ending.is_ending_thread()));
        });
    }

    /// One call is in progress: another one does not begin beside it.
    #[test]
    fn no_call_begins_once_the_end_waits_for_one() {
        let ending = Ending::new();
        let permit = ending.enter();
        std::thread::scope(|s| {
            let ends = s.spawn(|| {
                ending.stop_calls();
                ending.others.try_read().is_err()
            });
            while !ending.has_begun() {
                std::thread::yield_now();
            }
            assert!(ending.try_enter().is_none());
            drop(permit);
            assert!(ends.join().expect("it ends"), "nobody was in the way");
        });
    }

    /// How a forked child finds that its parent used UCX.
    fn found_by_a_child(ending: &Ending) -> Option<Inherited> {
        // SAFETY: the child reads atomics, tries locks without waiting, and ends.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "no process can be made");
        if child == 0 {
            let found = match ending.inherited() {
                None => 1,
                Some(Inherited::Idle) => 2,
                Some(Inherited::InUse) => 3,
            };
            // SAFETY: it ends the child alone, and runs nothing of the parent's.
            unsafe { libc::_exit(found) };
        }
        let mut status = 0;
        // SAFETY: a number of this function's.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        match libc::WEXITSTATUS(status) {
            1 => None,
            2 => Some(Inherited::Idle),
            3 => Some(Inherited::InUse),
            other => panic!("the child ended with {other}"),
        }
    }

    #[test]
    fn a_child_finds_whether_its_parent_was_using_ucx() {
        let ending = Ending::new();
        assert_eq!(found_by_a_child(&ending), Some(Inherited::Idle));
        ending.count_context(true);
        ending.count_context(true);
        ending.count_context(false);
        assert_eq!(found_by_a_child(&ending), Some(Inherited::InUse), "there is a context");
        ending.count_context(false);
        assert_eq!(found_by_a_child(&ending), Some(Inherited::Idle));
        let permit = ending.enter();
        assert_eq!(found_by_a_child(&ending), Some(Inherited::InUse), "a call is under way");
        drop(permit);
        let locks = lock(&ending.locks);
        assert_eq!(found_by_a_child(&ending), Some(Inherited::InUse), "a worker is being made");
        drop(locks);
        assert_eq!(found_by_a_child(&ending), Some(Inherited::Idle));
    }
}
