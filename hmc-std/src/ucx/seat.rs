//! One worker of a session, and who drives it: the background thread, or a caller that waits.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hmc_hw::ucx::context::Context;
use hmc_hw::ucx::worker::{Armed, Worker};

use crate::config::Progress;
use crate::driver::{Driver, Token};
use crate::error::Result;

/// Turns of the worker for one event, before others get theirs.
const TURNS: usize = 16;

/// A worker and its driver.
pub(crate) struct Seat {
    worker: Arc<Worker>,
    driver: Arc<Driver>,
    progress: Progress,
    token: Token,
    /// Callers that wait and drive the worker themselves.
    attending: AtomicUsize,
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
        });
        if progress == Progress::Thread {
            driver.watch(&seat.worker, token)?;
            seat.serve();
        }
        Ok(seat)
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
            busy |= crank.progress();
            if crank.arm() == Armed::Yes {
                break;
            }
            busy = true;
        }
        busy
    }

    /// Lets the worker work, whoever watches it. Whether anything happened.
    pub(crate) fn crank(&self) -> bool {
        self.worker.try_crank().is_some_and(|crank| crank.progress())
    }

    /// Whether the worker's descriptor can be slept on.
    pub(crate) fn can_sleep(&self) -> bool {
        self.worker.turn() == Some(Armed::Yes)
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
            if let Err(e) = self.driver.watch(&self.worker, self.token) {
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
