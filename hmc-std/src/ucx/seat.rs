//! One worker of a session, and who drives it: the background thread, or a caller that waits.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use hmc_core::time::{Duration, Instant};
use hmc_hw::ucx::context::Context;
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::worker::{Armed, Worker};

use crate::clock;
use crate::config::Progress;
use crate::driver::{Driver, Token};
use crate::error::Result;

/// Turns of the worker for one event, before others get theirs.
const TURNS: usize = 16;
/// Turns in a row in which nothing happened and UCX would not be slept on, after which it is looked at now and then only.
///
/// So it is when the peer was stopped or killed while it entered a message ([`super::seats`]): UCX waits for that one.
const FUTILE: u32 = 2000;

/// How long that lasts before it is worth a warning: a peer that is well may be without a processor for some milliseconds.
const WORRYING: Duration = Duration::from_millis(1000);

/// A worker and its driver.
pub(crate) struct Seat {
    worker: Arc<Worker>,
    driver: Arc<Driver>,
    progress: Progress,
    token: Token,
    /// Callers that wait and drive the worker themselves.
    attending: AtomicUsize,
    /// While it lasts the descriptor is not watched: it would say that there is something, and there is nothing.
    unrest: Unrest,
}

/// Whether a worker can be slept on, by what looking at it has come to.
#[derive(Debug, Default)]
struct Unrest {
    futile: AtomicU32,
    lasts: AtomicBool,
    /// When it began, by the clock.
    since: AtomicU64,
    told: AtomicBool,
}

/// What one more look has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Begins,
    /// It has lasted for so long that somebody should know. Once.
    Worries,
    Ends,
}

impl Unrest {
    /// One more look, which did good or will, or was in vain.
    fn learn(&self, good: bool, now: impl FnOnce() -> Instant) -> Change {
        if good {
            self.futile.store(0, Ordering::Relaxed);
            let ends = self.lasts.swap(false, Ordering::AcqRel);
            return if ends { Change::Ends } else { Change::None };
        }
        if self.lasts.load(Ordering::Acquire) {
            let since = Instant::from_nanos(self.since.load(Ordering::Relaxed));
            let worries = now().since(since) >= WORRYING;
            let told = worries && !self.told.swap(true, Ordering::Relaxed);
            return if told { Change::Worries } else { Change::None };
        }
        if self.futile.fetch_add(1, Ordering::Relaxed) < FUTILE {
            return Change::None;
        }
        self.since.store(now().as_nanos(), Ordering::Relaxed);
        self.told.store(false, Ordering::Relaxed);
        let begins = !self.lasts.swap(true, Ordering::AcqRel);
        if begins { Change::Begins } else { Change::None }
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("token", &self.token).finish_non_exhaustive()
    }
}

impl AsFd for Seat {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.worker.as_fd()
    }
}

impl Seat {
    /// A worker, watched by the background thread as `token` if there is one.
    ///
    /// # Errors
    /// What UCX answers; `SystemLimit`.
    pub(super) fn new(
        context: &Arc<Context>,
        token: Token,
        progress: Progress,
        driver: &Arc<Driver>,
    ) -> Result<Arc<Self>> {
        let seat = Arc::new(Self {
            worker: Worker::new(context)?,
            driver: Arc::clone(driver),
            progress,
            token,
            attending: AtomicUsize::new(0),
            unrest: Unrest::default(),
        });
        if progress == Progress::Thread {
            driver.watch(&seat.worker, token)?;
            seat.serve(None);
        }
        Ok(seat)
    }

    /// By which the background thread knows it.
    pub(super) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// Something came for the worker, or was posted to it: lets it work, and asks to be told of more. To be called after
    /// whatever was posted by one who does not wait for it: UCX tells of nothing that was begun after it was asked.
    ///
    /// Memory that nothing of peers that are gone uses any more is put into `free`, if there is that: it is to be dropped
    /// without a lock.
    pub(crate) fn serve(&self, mut free: Option<&mut Vec<Arc<Memory>>>) -> bool {
        let mut busy = false;
        if self.progress == Progress::Manual {
            return busy;
        }
        if self.attending.load(Ordering::Acquire) != 0 {
            // It looks anew at what was posted meanwhile, and asks again to be told.
            self.worker.lock().signal();
            return busy;
        }
        for turn in 1..=TURNS {
            let crank = self.worker.lock();
            if let Some(free) = &mut free {
                free.append(&mut crank.reap_orphans());
            }
            let any = crank.progress();
            busy |= any;
            // What has come back just now is tended first, which may begin something: UCX would not tell of its end.
            let again = any && free.is_some() && turn < TURNS && !self.worker.is_idle();
            let armed = if again { Armed::Busy } else { crank.arm() };
            drop(crank);
            self.learn(any || armed == Armed::Yes);
            if armed == Armed::Yes || self.is_restless() {
                break;
            }
        }
        busy
    }

    /// Whether looking at the worker did any good, or will.
    fn learn(&self, good: bool) {
        match self.unrest.learn(good, clock::now) {
            Change::None => {}
            Change::Begins => self.driver.unwatch(&self.worker),
            Change::Worries => tracing::warn!(
                "a worker of UCX's cannot be slept on: its peer stopped in the middle of a message; it is looked at each millisecond"
            ),
            Change::Ends => {
                if self.attending.load(Ordering::Acquire) == 0
                    && let Err(e) = self.driver.watch(&self.worker, self.token)
                {
                    tracing::error!(error = %e, "cannot watch UCX");
                }
            }
        }
    }

    /// Whether the worker cannot be slept on: look at it each millisecond.
    pub(crate) fn is_restless(&self) -> bool {
        self.unrest.lasts.load(Ordering::Acquire)
    }

    /// Lets the worker work, whoever watches it. Whether anything happened.
    pub(crate) fn crank(&self) -> bool {
        self.worker.try_lock().is_some_and(|crank| crank.progress())
    }

    /// As [`Seat::crank`], with an eye on what peers that are gone have left, as in [`Seat::serve`].
    pub(super) fn crank_and_tend(&self, free: &mut Vec<Arc<Memory>>) -> bool {
        let Some(crank) = self.worker.try_lock() else { return false };
        let any = crank.progress();
        free.append(&mut crank.reap_orphans());
        any
    }

    /// Whether only callers drive it.
    pub(super) fn is_manual(&self) -> bool {
        self.progress == Progress::Manual
    }

    /// Lets the worker work until it finds nothing, whoever watches it. Whether it came to that.
    pub(crate) fn drain(&self) -> bool {
        let crank = self.worker.lock();
        (0..TURNS).any(|_| !crank.progress())
    }

    /// Whether the worker's descriptor can be slept on.
    pub(crate) fn can_sleep(&self) -> bool {
        let Some(crank) = self.worker.try_lock() else { return false };
        let any = crank.progress();
        let armed = !any && crank.arm() == Armed::Yes;
        drop(crank);
        self.learn(any || armed);
        armed
    }

    /// A caller that waits drives the worker from now on, or no longer: the background thread leaves it alone meanwhile.
    pub(crate) fn attend(&self, on: bool) {
        if self.progress == Progress::Manual {
            return;
        }
        if on {
            if self.attending.fetch_add(1, Ordering::AcqRel) == 0 {
                self.driver.unwatch(&self.worker);
            }
        } else if self.attending.fetch_sub(1, Ordering::AcqRel) == 1 {
            // What comes from now on is told to the background thread.
            if !self.is_restless()
                && let Err(e) = self.driver.watch(&self.worker, self.token)
            {
                tracing::error!(error = %e, "cannot watch UCX");
            }
            self.serve(None);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.driver.unwatch(&self.worker);
    }
}

#[cfg(test)]
mod tests {
    use hmc_core::time::{Duration, Instant};

    use super::{Change, FUTILE, Unrest, WORRYING};

    #[test]
    fn only_what_lasts_is_worth_a_warning_and_one() {
        let unrest = Unrest::default();
        let begun = Instant::from_nanos(5_000_000_000);
        for _ in 0..3 {
            for _ in 0..FUTILE {
                assert_eq!(unrest.learn(false, || begun), Change::None);
            }
            assert_eq!(unrest.learn(false, || begun), Change::Begins);
            let soon = begun.after(Duration::from_millis(999));
            assert_eq!(unrest.learn(false, || soon), Change::None, "no processor for a while");
            assert_eq!(unrest.learn(true, || soon), Change::Ends);
            assert_eq!(unrest.learn(true, || soon), Change::None);
        }
        for _ in 0..FUTILE {
            let _ = unrest.learn(false, || begun);
        }
        assert_eq!(unrest.learn(false, || begun), Change::Begins);
        let late = begun.after(WORRYING);
        assert_eq!(unrest.learn(false, || late), Change::Worries);
        assert_eq!(unrest.learn(false, || late), Change::None, "it was said");
        assert_eq!(unrest.learn(true, || late), Change::Ends);
    }
}
