//! What several data planes share that makes progress for all of them.

use std::os::fd::AsFd;
use std::sync::Arc;

use hmc_core::time::Duration;

use super::link_waker::LinkWaker;

/// The pause between two polls of a worker that cannot be slept on.
pub(crate) const WORKER_POLL: Duration = Duration::from_millis(1);

/// A worker that links share: its descriptor becomes readable when there is progress to make.
pub(crate) trait SharedWorker: AsFd + Send + Sync {
    /// A caller that waits makes progress from now on: the progress thread leaves the worker alone.
    fn claim(&self);

    /// The caller waits no more.
    fn release(&self);

    /// Whether the descriptor can be slept on: it becomes readable when there is something to do.
    fn can_sleep(&self) -> bool;

    /// Whether it cannot be slept on for some time, and is to be polled each millisecond.
    fn must_poll(&self) -> bool;

    /// Makes progress for what was posted by one who does not wait for it, and watches for more.
    fn resume(&self);
}

/// The worker of a link, and what wakes a caller that sleeps on it. Only transports of this crate have one.
#[derive(Clone)]
pub struct Worker {
    pub(crate) shared: Arc<dyn SharedWorker>,
    pub(crate) waker: Arc<LinkWaker>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("waker", &self.waker).finish_non_exhaustive()
    }
}
