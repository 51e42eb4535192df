//! Threads that act on what they have received from a link.
//!
//! A thread that polls a link receives under a lock and acts without it: for example it makes the link ready or
//! advances a message. In between, a leader finds neither bytes in a socket nor the effects, and nothing would wake
//! it. A leader therefore parks only for a short time while other threads act.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many threads act on what they have taken.
#[derive(Debug, Default)]
pub(super) struct FollowUps(AtomicU32);

impl FollowUps {
    /// This thread acts until the value is dropped. Call it before the lock is released under which something was taken.
    pub(super) fn begin(&self) -> FollowUp<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        FollowUp(&self.0)
    }

    /// Whether nobody acts. What was done before that can be seen: ask first, then look.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// A thread that acts.
#[derive(Debug)]
pub(super) struct FollowUp<'a>(&'a AtomicU32);

impl Drop for FollowUp<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
