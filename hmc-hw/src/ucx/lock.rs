//! The lock under which all calls on one worker of UCX are made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Locks a mutex, even if a thread has panicked while it held it.
pub(super) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock of one worker.
#[derive(Debug, Default)]
pub(super) struct WorkerLock {
    mutex: Mutex<()>,
    /// Set once it is decided whether the worker is destroyed or leaked.
    claimed: AtomicBool,
    /// Set once the process ends.
    closed: AtomicBool,
}

/// Blocks a thread that may not call UCX any more.
#[cold]
pub(super) fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

/// Proof that this thread may call the worker: it holds the lock, or ends the process.
#[derive(Debug)]
pub(super) struct Held<'a>(#[expect(dead_code, reason = "dropped")] Option<MutexGuard<'a, ()>>);

impl WorkerLock {
    /// Takes the lock. Returns `None` if another thread holds it, or the process ends.
    #[inline]
    pub(super) fn try_take(&self) -> Option<Held<'_>> {
        self.try_mutex().filter(|_| self.is_open()).map(|guard| Held(Some(guard)))
    }

    /// Takes the lock, waiting for the thread that holds it. Does not return if the process ends.
    pub(super) fn take(&self) -> Held<'_> {
        let guard = lock(&self.mutex);
        if !self.is_open() {
            drop(guard);
            stay();
        }
        Held(Some(guard))
    }

    #[inline]
    fn try_mutex(&self) -> Option<MutexGuard<'_, ()>> {
        match self.mutex.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[inline]
    fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    /// The process ends: no thread takes the lock after the one that holds it now. A thread that takes it again and again would
    /// leave no moment to [`Self::keep`] it, if both share a processor.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Takes the lock and never releases it, if no thread holds it now. Returns `true` on success.
    pub(super) fn keep(&self) -> bool {
        self.try_mutex().map(std::mem::forget).is_some()
    }

    /// Returns `true` for the first caller. The worker's drop calls it before it destroys the worker, and the end of
    /// the process before it keeps the lock: whichever is second leaves the worker to the other.
    pub(super) fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }
}

impl Held<'_> {
    /// For the thread that ends the process, which has kept all locks or given up waiting for them.
    pub(super) const fn at_the_end() -> Self {
        Held(None)
    }
}

#[cfg(test)]
mod tests {
    use super::WorkerLock;

    #[test]
    fn a_kept_lock_is_never_free_again() {
        let lock = WorkerLock::default();
        let held = lock.try_take();
        assert!(held.is_some() && lock.try_take().is_none() && !lock.keep());
        drop(held);
        assert!(lock.keep() && !lock.keep() && lock.try_take().is_none());
    }

    #[test]
    fn a_lock_that_was_closed_is_taken_by_nobody_and_can_be_kept() {
        let lock = WorkerLock::default();
        let held = lock.try_take();
        lock.close();
        assert!(held.is_some() && !lock.keep(), "it is held");
        drop(held);
        assert!(lock.try_take().is_none() && lock.keep());
    }

    #[test]
    fn a_worker_is_claimed_once() {
        let lock = WorkerLock::default();
        assert!(lock.claim() && !lock.claim());
    }
}
