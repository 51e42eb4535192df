//! What a closed transport leaves to its worker.

use std::sync::Arc;

use super::state::State;
use crate::ucx::memory::Memory;
use crate::ucx::ucp_worker::LockedWorker;

/// What the requests of a transport that is gone still use.
#[derive(Debug)]
pub(in crate::ucx) struct Orphan {
    pub(in crate::ucx) state: State,
}

impl Orphan {
    /// Whether all requests have come back. Memory that they use no more is put into `free`, before that if it can be.
    pub(in crate::ucx) fn is_over(
        &mut self,
        guard: &LockedWorker<'_>,
        free: &mut Vec<Arc<Memory>>,
    ) -> bool {
        self.state.collect(guard);
        self.state.part(guard);
        if !self.state.uses_memory() {
            free.extend(self.state.known.locals.drain(..).flatten().map(|local| local.memory));
        }
        let over = self.state.is_quiet();
        if over {
            self.state.forget_keys(guard);
        }
        over
    }
}
