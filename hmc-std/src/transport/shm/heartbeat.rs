//! Shared pages that show a peer's heartbeats and its exit.

use std::sync::atomic::Ordering;

use hmc_core::limits::MAX_WINDOWS_PER_PEER;

use super::ShmDataPlane;

/// Where, after the words, the owner of the page of window words counts its heartbeats.
const BEAT_AT: u64 = 2048;
const _: () = assert!(MAX_WINDOWS_PER_PEER * 8 <= 2048);

impl ShmDataPlane {
    /// Beats once, and says whether the peer has since the last call. `None` until both pages are
    /// there: heartbeats then travel as messages.
    pub(super) fn beat(&mut self) -> Option<bool> {
        self.stream.retry_offers();
        let theirs = self.peer_page.as_ref()?.page().bytes().atomic_u64(BEAT_AT).ok()?;
        let ours = self.page.bytes();
        let ours = ours.atomic_u64(BEAT_AT).ok()?;
        // Relaxed: a beat orders nothing.
        ours.fetch_add(1, Ordering::Relaxed);
        let count = theirs.load(Ordering::Relaxed);
        Some(std::mem::replace(&mut self.heard, count) != count)
    }
}
