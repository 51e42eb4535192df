//! One worker of a session, and who drives it: the background thread, or a caller that waits.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use hmc_core::time::Duration;
use hmc_hw::ucx::context::Context;
use hmc_hw::ucx::worker::{Armed, Worker};

use crate::config::Progress;
use crate::driver::{Driver, Token};
use crate::error::Result;

/// Turns of the worker for one event, before others get theirs.
const TURNS: usize = 16;
/// Turns in a row in which nothing happened and UCX would not be slept on, after which it is looked at now and then only.
///
/// So it is when the peer was stopped or killed while it entered a message ([`super::seats`]): UCX waits for that one.
const FUTILE: u32 = 2000;

/// The pause between two looks at a worker that cannot be slept on.
pub(crate) const RESTLESS: Duration = Duration::from_millis(1);

/// A worker and its driver.
pub(crate) struct Seat {
    worker: Arc<Worker>,
    driver: Arc<Driver>,
    progress: Progress,
    token: Token,
    /// Callers that wait and drive the worker themselves.
    attending: AtomicUsize,
    futile: AtomicU32,
    /// The descriptor is not watched: it would say that there is something, and there is nothing.
    restless: AtomicBool,
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
            futile: AtomicU32::new(0),
            restless: AtomicBool::new(false),
        });
        if progress == Progress::Thread {
            driver.watch(&seat.worker, token)?;
            seat.serve();
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
    pub(crate) fn serve(&self) -> bool {
        let mut busy = false;
        if self.progress == Progress::Manual {
            return busy;
        }
        if self.attending.load(Ordering::Acquire) != 0 {
            // It looks anew at what was posted meanwhile, and asks again to be told.
            self.worker.crank().signal();
            return busy;
        }
        for _ in 0..TURNS {
            let crank = self.worker.crank();
            crank.tend();
            let any = crank.progress();
            busy |= any;
            let armed = crank.arm();
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
        if good {
            self.futile.store(0, Ordering::Relaxed);
            if self.restless.swap(false, Ordering::AcqRel)
                && self.attending.load(Ordering::Acquire) == 0
                && let Err(e) = self.driver.watch(&self.worker, self.token)
            {
                tracing::error!(error = %e, "cannot watch UCX");
            }
        } else if self.futile.fetch_add(1, Ordering::Relaxed) >= FUTILE
            && !self.restless.swap(true, Ordering::AcqRel)
        {
            tracing::warn!(
                "a worker of UCX's cannot be slept on: its peer stopped in the middle of a message; it is looked at each millisecond"
            );
            self.driver.unwatch(&self.worker);
        }
    }

    /// Whether the worker cannot be slept on: look at it each millisecond.
    pub(crate) fn is_restless(&self) -> bool {
        self.restless.load(Ordering::Acquire)
    }

    /// Lets the worker work, whoever watches it. Whether anything happened.
    pub(crate) fn crank(&self) -> bool {
        self.worker.try_crank().is_some_and(|crank| crank.progress())
    }

    /// Lets the worker work until it finds nothing, whoever watches it. Whether it came to that.
    pub(crate) fn drain(&self) -> bool {
        let crank = self.worker.crank();
        (0..TURNS).any(|_| !crank.progress())
    }

    /// Whether the worker's descriptor can be slept on.
    pub(crate) fn can_sleep(&self) -> bool {
        let Some(crank) = self.worker.try_crank() else { return false };
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
            self.serve();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.driver.unwatch(&self.worker);
    }
}
