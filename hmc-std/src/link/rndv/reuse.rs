//! Which half-buffers and windows serve other messages, and which are taken back.

use hmc_core::region::RegionKey;

use super::actions::RndvActions;
use super::kept_window::KeptWindow;
use super::state::{BounceBuffers, MAX_SPARE, PostedRecv, RndvState};
use crate::memory::Region;

/// So many windows are kept at most: a peer has few.
pub(super) const MAX_KEPT: usize = 4;

impl PostedRecv {
    /// Its halves or its window serve other messages.
    pub(super) fn give_back(&mut self, spare: &mut Vec<BounceBuffers>, kept: &mut Vec<KeptWindow>) {
        spare.extend(self.staging.take());
        kept.extend(self.kept.take());
    }

    /// Whether its window serves no other message.
    pub(super) const fn has_own_window(&self) -> bool {
        self.staging.is_none() && self.kept.is_none()
    }
}

impl RndvState {
    /// A window over that region that served before.
    pub(crate) fn take_kept(&mut self, region: RegionKey) -> Option<KeptWindow> {
        let at = self.kept.iter().rposition(|k| k.region.key() == region && !k.is_useless())?;
        Some(self.kept.remove(at))
    }

    /// How many windows no message uses now: they serve later ones.
    pub(crate) fn idle_windows(&self) -> usize {
        self.spare.len().saturating_add(self.kept.len())
    }

    pub(crate) fn has_useless_windows(&self) -> bool {
        self.kept.iter().any(KeptWindow::is_useless)
    }

    /// The next poll takes back windows of memory that nobody else uses any more.
    pub(crate) fn evict_windows(&mut self) {
        self.evicts = true;
    }

    /// The link is over: nothing serves another message.
    pub(super) fn release_idle(&mut self, after: &mut RndvActions) {
        let kept = std::mem::take(&mut self.kept);
        after.regions.extend(kept.iter().map(|k| Region::clone(&k.region)));
        after.regions.extend(std::mem::take(&mut self.spare).into_iter().map(|s| s.region));
        after.regions.append(&mut self.bounces);
    }

    /// The next poll takes that window back.
    pub(super) fn retire(&mut self, window: BounceBuffers) {
        self.retired.push(window);
    }

    /// Whether half-buffers or windows are to go, or have gone and wait for their fence.
    pub(super) fn has_surplus(&self) -> bool {
        let windows = self.evicts || !self.retired.is_empty() || self.kept.len() > MAX_KEPT;
        windows || self.spare.len() > MAX_SPARE || !self.fencing_buffers.is_empty()
    }

    /// Removes windows that are retired or too many, and the useless ones if they are to be evicted.
    pub(super) fn surplus_windows(&mut self) -> Vec<BounceBuffers> {
        let evicts = std::mem::take(&mut self.evicts);
        let mut too_many = self.kept.len().saturating_sub(MAX_KEPT);
        let surplus = self.kept.extract_if(.., |k| {
            let goes = too_many != 0 || evicts && k.is_useless();
            too_many = too_many.saturating_sub(1);
            goes
        });
        let surplus =
            surplus.map(|k| BounceBuffers { region: Region::clone(&k.region), remote: k.remote });
        let retired = std::mem::take(&mut self.retired);
        surplus.chain(retired).collect()
    }
}
