//! The object that makes progress for several data planes.

use std::sync::Arc;

use hmc_core::time::Duration;
use hmc_hw::host::SharedWorker;

use super::link_waker::LinkWaker;

/// The pause between two polls of a worker that cannot be slept on.
pub(crate) const WORKER_POLL: Duration = Duration::from_millis(1);

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
