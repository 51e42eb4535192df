//! Whether this thread polls one of this crate's futures: an executor's thread, which must not block.

use std::cell::Cell;

thread_local!(static POLLS: Cell<u32> = const { Cell::new(0) });

/// A poll, until it is dropped.
#[derive(Debug)]
pub(crate) struct Polling(());

impl Polling {
    #[inline]
    pub(crate) fn enter() -> Self {
        POLLS.set(POLLS.get().saturating_add(1));
        Self(())
    }
}

impl Drop for Polling {
    #[inline]
    fn drop(&mut self) {
        POLLS.set(POLLS.get().saturating_sub(1));
    }
}

/// Whether this thread is in a poll.
#[inline]
pub(crate) fn is_polling() -> bool {
    POLLS.get() != 0
}

/// The thread is about to wait for something.
///
/// # Panics
/// In test builds, inside of a poll.
#[inline(always)]
#[track_caller]
pub(crate) fn waits() {
    #[cfg(any(test, feature = "testing"))]
    assert!(!is_polling() || std::thread::panicking(), "a future waits in its poll");
}

#[cfg(test)]
mod tests {
    use super::{Polling, is_polling, waits};

    #[test]
    fn who_waits_in_a_poll_is_found() {
        waits();
        let outer = Polling::enter();
        drop(Polling::enter());
        assert!(is_polling() && std::panic::catch_unwind(waits).is_err());
        drop(outer);
        assert!(!is_polling());
        waits();
    }
}
