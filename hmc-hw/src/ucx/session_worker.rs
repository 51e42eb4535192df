//! One worker of a session, and its progress: by the session's thread, or by a waiting caller.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use hmc_core::time::{Duration, Instant};

use super::context::Context;
use super::fault::UcxFault;
use super::memory::Memory;
use super::worker::{Armed, Worker};
use crate::host::{Event, Host, SharedWorker};

/// Calls of progress for one event, before other workers get theirs.
const MAX_POLLS: usize = 16;
/// Failures in a row to arm a worker on which nothing happens, after which it is polled instead.
///
/// So it is when the peer was stopped or killed while it entered a message ([`super::worker_pool`]): UCX waits for that message.
const MAX_FAILED_ARMS: u32 = 2000;

/// How long that lasts before it is reported: a peer that is well may be without a processor for some milliseconds.
const REPORT_AFTER: Duration = Duration::from_millis(1000);

/// A worker, and who makes its progress.
pub struct UcxWorker {
    worker: Arc<Worker>,
    host: Arc<dyn Host>,
    /// Only callers make progress.
    is_manual: bool,
    number: u32,
    /// Callers that wait and make progress themselves.
    claims: AtomicUsize,
    /// While it lasts the descriptor is not watched: it would be readable, and there is nothing to do.
    polling: Polling,
}

/// Whether a worker cannot be armed, and is polled instead.
#[derive(Debug, Default)]
struct Polling {
    failed_arms: AtomicU32,
    lasts: AtomicBool,
    /// When it began, by the host's clock.
    since: AtomicU64,
    is_reported: AtomicBool,
}

/// What one more call of progress has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    PollingBegins,
    /// It has lasted for long. Once.
    PollingIsLong,
    PollingEnds,
}

impl Polling {
    /// One more call of progress, which found something or armed the worker, or did neither.
    fn record(&self, is_useful: bool, now: impl FnOnce() -> Instant) -> Change {
        if is_useful {
            self.failed_arms.store(0, Ordering::Relaxed);
            let ends = self.lasts.swap(false, Ordering::AcqRel);
            return if ends { Change::PollingEnds } else { Change::None };
        }
        if self.lasts.load(Ordering::Acquire) {
            let since = Instant::from_nanos(self.since.load(Ordering::Relaxed));
            let is_long = now().since(since) >= REPORT_AFTER;
            let first = is_long && !self.is_reported.swap(true, Ordering::Relaxed);
            return if first { Change::PollingIsLong } else { Change::None };
        }
        if self.failed_arms.fetch_add(1, Ordering::Relaxed) < MAX_FAILED_ARMS {
            return Change::None;
        }
        self.since.store(now().as_nanos(), Ordering::Relaxed);
        self.is_reported.store(false, Ordering::Relaxed);
        let begins = !self.lasts.swap(true, Ordering::AcqRel);
        if begins { Change::PollingBegins } else { Change::None }
    }
}

impl fmt::Debug for UcxWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UcxWorker").field("number", &self.number).finish_non_exhaustive()
    }
}

impl AsFd for UcxWorker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.worker.as_fd()
    }
}

impl UcxWorker {
    /// A worker, watched by the host's thread under `number` unless only callers make progress.
    pub(super) fn new(
        context: &Arc<Context>,
        host: &Arc<dyn Host>,
        is_manual: bool,
        number: u32,
    ) -> Result<Arc<Self>, UcxFault> {
        let worker = Arc::new(Self {
            worker: Worker::new(context)?,
            host: Arc::clone(host),
            is_manual,
            number,
            claims: AtomicUsize::new(0),
            polling: Polling::default(),
        });
        if !is_manual {
            host.watch(number, worker.as_fd())?;
            worker.service(None);
        }
        Ok(worker)
    }

    /// The number under which the host watches it.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// UCX's worker.
    pub(super) fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// Makes progress for the host's thread, and arms the descriptor. Called when the descriptor is readable, and after requests that
    /// no caller waits for: UCX does not wake an armed worker for requests that were posted later.
    ///
    /// With `free`, memory of closed peers that no request uses any more is moved there: the caller drops it without a lock.
    pub(super) fn service(&self, mut free: Option<&mut Vec<Arc<Memory>>>) -> bool {
        let mut busy = false;
        if self.is_manual {
            return busy;
        }
        if self.claims.load(Ordering::Acquire) != 0 {
            // The caller looks for what was posted meanwhile, and arms the worker again.
            self.worker.lock().signal();
            return busy;
        }
        for poll in 1..=MAX_POLLS {
            let guard = self.worker.lock();
            if let Some(free) = &mut free {
                free.append(&mut guard.reap_orphans());
            }
            let any = guard.progress();
            busy |= any;
            // Orphans that have just finished are reaped before the worker is armed. That may begin a request, for whose end UCX
            // would not wake the worker.
            let again = any && free.is_some() && poll < MAX_POLLS && !self.worker.is_idle();
            let armed = if again { Armed::Busy } else { guard.arm() };
            drop(guard);
            self.record(any || armed == Armed::Yes);
            if armed == Armed::Yes || self.must_poll() {
                break;
            }
        }
        busy
    }

    /// One more call of progress, which found something or armed the worker, or did neither.
    fn record(&self, is_useful: bool) {
        match self.polling.record(is_useful, || self.host.now()) {
            Change::None => {}
            Change::PollingBegins => self.host.unwatch(self.as_fd()),
            Change::PollingIsLong => self.host.report(Event::NeverArmed),
            Change::PollingEnds => {
                if self.claims.load(Ordering::Acquire) == 0 {
                    self.watch();
                }
            }
        }
    }

    fn watch(&self) {
        if let Err(e) = self.host.watch(self.number, self.as_fd()) {
            self.host.report(Event::NotWatched(e));
        }
    }

    /// Makes progress, unless another thread does. Returns `true` if anything happened.
    pub(super) fn progress(&self) -> bool {
        self.worker.try_lock().is_some_and(|guard| guard.progress())
    }

    /// As [`Self::progress`], and moves memory of closed peers to `free`, as [`Self::service`] does.
    pub(super) fn progress_and_reap(&self, free: &mut Vec<Arc<Memory>>) -> bool {
        let Some(guard) = self.worker.try_lock() else { return false };
        let any = guard.progress();
        free.append(&mut guard.reap_orphans());
        any
    }

    /// Returns `true` if only callers make progress.
    pub(super) fn is_manual(&self) -> bool {
        self.is_manual
    }

    /// Makes progress until there is none to make. Returns `true` if it came to that.
    pub(super) fn drain(&self) -> bool {
        let guard = self.worker.lock();
        (0..MAX_POLLS).any(|_| !guard.progress())
    }
}

impl SharedWorker for UcxWorker {
    /// Returns `true` if the worker cannot be armed: poll it each millisecond.
    fn must_poll(&self) -> bool {
        self.polling.lasts.load(Ordering::Acquire)
    }

    /// Makes progress, and arms the descriptor if nothing happened. Returns `true` if it is armed, so that a caller can sleep on it.
    fn can_sleep(&self) -> bool {
        let Some(guard) = self.worker.try_lock() else { return false };
        let any = guard.progress();
        let armed = !any && guard.arm() == Armed::Yes;
        drop(guard);
        self.record(any || armed);
        armed
    }

    /// A waiting caller makes progress from now on: the host's thread no longer watches the descriptor.
    fn claim(&self) {
        if !self.is_manual && self.claims.fetch_add(1, Ordering::AcqRel) == 0 {
            self.host.unwatch(self.as_fd());
        }
    }

    /// The caller stops waiting: after the last one, the host's thread watches the descriptor again.
    fn release(&self) {
        if !self.is_manual && self.claims.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The host's thread is woken for what comes from now on.
            if !self.must_poll() {
                self.watch();
            }
            self.service(None);
        }
    }

    /// Makes progress for requests that no caller waits for, and arms the descriptor.
    fn resume(&self) {
        self.service(None);
    }

    /// Does nothing: the worker is armed, or the caller that claimed it makes progress.
    fn wake_on_completion(&self) {}
}

impl Drop for UcxWorker {
    fn drop(&mut self) {
        self.host.unwatch(self.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use hmc_core::time::{Duration, Instant};

    use super::{Change, MAX_FAILED_ARMS, Polling, REPORT_AFTER};

    #[test]
    fn only_polling_that_lasts_is_reported_and_once() {
        let polling = Polling::default();
        let begun = Instant::from_nanos(5_000_000_000);
        for _ in 0..3 {
            for _ in 0..MAX_FAILED_ARMS {
                assert_eq!(polling.record(false, || begun), Change::None);
            }
            assert_eq!(polling.record(false, || begun), Change::PollingBegins);
            let soon = begun.after(Duration::from_millis(999));
            assert_eq!(polling.record(false, || soon), Change::None, "no processor for a while");
            assert_eq!(polling.record(true, || soon), Change::PollingEnds);
            assert_eq!(polling.record(true, || soon), Change::None);
        }
        for _ in 0..MAX_FAILED_ARMS {
            let _ = polling.record(false, || begun);
        }
        assert_eq!(polling.record(false, || begun), Change::PollingBegins);
        let late = begun.after(REPORT_AFTER);
        assert_eq!(polling.record(false, || late), Change::PollingIsLong);
        assert_eq!(polling.record(false, || late), Change::None, "it was reported");
        assert_eq!(polling.record(true, || late), Change::PollingEnds);
    }
}
