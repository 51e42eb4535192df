//! Whether the socket of a link's data plane has received no bytes for some time.

use std::sync::atomic::{AtomicU8, Ordering};

/// So many waits in a row without bytes on the data plane's socket, and the next ones leave it to the background thread, or look at it less often (`WaitSet`).
const MIN_WAITS: u8 = 8;

/// For how many waits in a row nothing has come on the socket of a link's data plane. A hint.
#[derive(Debug, Default)]
pub(crate) struct IdleWaits(AtomicU8);

impl IdleWaits {
    /// Bytes came: counts from zero.
    pub(super) fn reset(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a wait that begins. Whether there were enough before it.
    pub(super) fn add(&self) -> bool {
        let waits = self.0.load(Ordering::Relaxed);
        if waits < MIN_WAITS {
            self.0.store(waits.saturating_add(1), Ordering::Relaxed);
        }
        waits >= MIN_WAITS
    }
}

#[cfg(test)]
mod tests {
    use super::{IdleWaits, MIN_WAITS};

    #[test]
    fn enough_waits_count_as_idle_until_bytes_come() {
        let waits = IdleWaits::default();
        for _ in 0..3 {
            for n in 0..MIN_WAITS {
                assert!(!waits.add(), "after {n} waits");
            }
            for _ in 0..300 {
                assert!(waits.add());
            }
            waits.reset();
        }
        // Also before there were enough.
        assert!(!waits.add());
        waits.reset();
        for n in 0..MIN_WAITS {
            assert!(!waits.add(), "after {n} waits");
        }
        assert!(waits.add());
    }
}
