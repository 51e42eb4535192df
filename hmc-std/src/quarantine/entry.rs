//! Memory that is kept until its fence, and the conditions of the fence.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use hmc_core::time::Duration;
use hmc_core::types::Rank;

use crate::callbacks::wakers::Wakers;
use crate::transport::stream::PeerLife;

/// How often that is looked at of which no descriptor tells.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// What the keeper holds: it lets go of its memory when it is dropped.
pub(crate) trait Unfenced: Send + Sync {
    /// The peer that may still use it.
    fn peer(&self) -> Rank;

    /// What tells of that peer's end.
    fn life(&self) -> PeerLife;

    /// Whether its fence may pass without that.
    fn may_end_before(&self) -> bool;

    /// Returns `true` if nobody uses the memory any longer. Called periodically, without locks.
    fn is_fenced(&self) -> bool;

    /// The fence has passed: what has to be done before the memory goes.
    fn release(&self);

    /// What drops owners of its memory.
    fn wakers(&self) -> &Arc<Wakers>;

    /// Its pieces, by size and reason.
    fn pieces(&self, each: &mut dyn FnMut(u64, &'static str));
}

/// One piece of memory and what its fence depends on.
pub(super) struct Entry {
    pub(super) what: Arc<dyn Unfenced>,
    pub(super) life: PeerLife,
    pub(super) since: SystemTime,
    /// Its descriptors tell of nothing more.
    pub(super) ended: AtomicBool,
}

impl Entry {
    pub(super) fn needs_ticks(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.what.may_end_before()
    }
}
