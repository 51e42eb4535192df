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
}

/// Proof that this thread may call the worker: it holds the lock, or ends the process.
#[derive(Debug)]
pub(super) struct Held<'a>(#[expect(dead_code, reason = "dropped")] Option<MutexGuard<'a, ()>>);

impl WorkerLock {
    /// Takes the lock. Returns `None` if another thread holds it.
    #[inline]
    pub(super) fn try_take(&self) -> Option<Held<'_>> {
        match self.mutex.try_lock() {
            Ok(guard) => Some(Held(Some(guard))),
            Err(TryLockError::Poisoned(poisoned)) => Some(Held(Some(poisoned.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes the lock, waiting for the thread that holds it.
    pub(super) fn take(&self) -> Held<'_> {
        Held(Some(lock(&self.mutex)))
    }

    /// Takes the lock and never releases it, if no thread holds it now. Returns `true` on success.
    pub(super) fn keep(&self) -> bool {
        self.try_take().map(std::mem::forget).is_some()
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
    fn a_worker_is_claimed_once() {
        let lock = WorkerLock::default();
        assert!(lock.claim() && !lock.claim());
    }
}
