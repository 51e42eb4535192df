//! What concerns the wake bytes of a link's control connection and is changed without its lock.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Calls that are about to wait, and whether bytes lie in the ring of which no socket tells.
#[derive(Debug, Default)]
pub(super) struct CtrlWakes {
    deferrals: AtomicU32,
    unread: AtomicBool,
}

impl CtrlWakes {
    /// A call begins that sends and then waits for the peer.
    pub(super) fn defer(&self) {
        self.deferrals.fetch_add(1, Ordering::Relaxed);
    }

    /// It is over. Whoever defers calls this, and wakes the peer then.
    pub(super) fn resume(&self) {
        self.deferrals.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a thread will wake the peer, unless the peer looks by itself before.
    pub(super) fn is_deferred(&self) -> bool {
        self.deferrals.load(Ordering::Relaxed) != 0
    }

    /// A poll left bytes behind.
    pub(super) fn set_unread(&self) {
        self.unread.store(true, Ordering::Release);
    }

    pub(super) fn take_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed) && self.unread.swap(false, Ordering::Acquire)
    }
}
