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

    /// It is still held a tick after it came: logs a warning if its peer should be out of it by then.
    fn warn(&self) {}

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
    /// A look has found it held.
    seen: AtomicBool,
    warned: AtomicBool,
}

impl Entry {
    pub(super) fn new(what: Arc<dyn Unfenced>) -> Self {
        let [ended, seen, warned] = Default::default();
        Self { life: what.life(), what, since: SystemTime::now(), ended, seen, warned }
    }

    pub(super) fn needs_ticks(&self) -> bool {
        let waits = self.ended.load(Ordering::Relaxed) || self.what.may_end_before();
        waits || !self.warned.load(Ordering::Relaxed)
    }

    /// A look found it held. A peer that copies at this moment is out before the next tick, as a rule.
    pub(super) fn note_held(&self) {
        let was_seen = self.seen.swap(true, Ordering::Relaxed);
        let age = self.since.elapsed().unwrap_or_default();
        let is_late = was_seen && age.as_nanos() >= u128::from(TICK.as_nanos());
        if is_late && !self.warned.swap(true, Ordering::Relaxed) {
            self.what.warn();
        }
    }
}
