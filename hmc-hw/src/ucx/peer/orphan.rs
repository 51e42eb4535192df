//! Requests of a closed transport, which its worker owns.

use std::sync::Arc;

use super::state::PeerState;
use crate::ucx::memory::Memory;
use crate::ucx::ucp_worker::LockedWorker;

/// What the requests of a closed transport still use.
#[derive(Debug)]
pub(in crate::ucx) struct Orphan {
    pub(in crate::ucx) state: PeerState,
}

impl Orphan {
    /// Returns `true` if all requests have completed. Moves memory that they use no more to `free`, before that if
    /// possible.
    pub(in crate::ucx) fn is_finished(
        &mut self,
        guard: &LockedWorker<'_>,
        free: &mut Vec<Arc<Memory>>,
    ) -> bool {
        self.state.drain_completions(guard);
        self.state.close_endpoint(guard);
        if !self.state.uses_memory() {
            free.extend(self.state.memory.locals.drain(..).flatten().map(|local| local.memory));
        }
        let finished = self.state.is_idle();
        if finished {
            self.state.destroy_keys(guard);
        }
        finished
    }
}
