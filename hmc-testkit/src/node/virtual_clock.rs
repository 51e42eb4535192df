//! The clock of a simulated process: it shows what the world says.

use std::sync::atomic::{AtomicU64, Ordering};

use hmc_core::time::Instant;
use hmc_std::internals::session::TimeSource;

/// A clock that is set by hand.
#[derive(Debug)]
pub(super) struct VirtualClock {
    now: AtomicU64,
    /// What the wall clock showed at [`Instant::ZERO`].
    unix: u64,
}

impl VirtualClock {
    pub(super) fn new(now: Instant, unix: u64) -> Self {
        Self { now: AtomicU64::new(now.as_nanos()), unix }
    }

    pub(super) fn set(&self, now: Instant) {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
    }
}

impl TimeSource for VirtualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Relaxed))
    }

    fn unix_nanos(&self) -> u64 {
        self.unix.saturating_add(self.now().as_nanos())
    }
}
