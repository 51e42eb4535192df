//! How much was done.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) puts: AtomicU64,
    pub(super) gets: AtomicU64,
    pub(super) notes: AtomicU64,
    pub(super) windows: AtomicU64,
    bytes: AtomicU64,
    pub(super) lives: AtomicU64,
}

impl Totals {
    pub(super) fn count(which: &AtomicU64) {
        which.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn moved(&self, which: &AtomicU64, bytes: u64) {
        Self::count(which);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn operations(&self) -> u64 {
        [&self.puts, &self.gets, &self.notes].into_iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n = |a: &AtomicU64| a.load(Ordering::Relaxed);
        write!(
            f,
            "{} operations ({} puts, {} gets, {} notified puts), {} MiB, {} windows taken back, {} lives of links",
            self.operations(),
            n(&self.puts),
            n(&self.gets),
            n(&self.notes),
            n(&self.bytes) >> 20,
            n(&self.windows),
            n(&self.lives),
        )
    }
}
