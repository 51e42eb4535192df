//! Threads that act on what they have taken from a link.
//!
//! Whoever polls a link takes what is there under a lock and acts on it without one: the link becomes ready, a message moves on.
//! A leader that looks in between finds neither the bytes in a socket nor what follows from them, and nothing would wake it. So it
//! sleeps for a short time only while others act.

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
