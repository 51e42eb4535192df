//! Whether nothing has come on the socket of a link's data plane for some time.

use std::sync::atomic::{AtomicU8, Ordering};

/// So many waits in a row without bytes on the data plane's socket, and the next ones look at it less often.
const STILL: u8 = 8;

/// For how many waits in a row nothing has come on the socket of a link's data plane. A hint.
#[derive(Debug, Default)]
pub(crate) struct Stillness(AtomicU8);

impl Stillness {
    /// Something came.
    pub(super) fn end(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// One more wait begins. Whether there have been enough.
    pub(super) fn lasts(&self) -> bool {
        let waits = self.0.load(Ordering::Relaxed);
        if waits < STILL {
            self.0.store(waits.saturating_add(1), Ordering::Relaxed);
        }
        waits >= STILL
    }
}

#[cfg(test)]
mod tests {
    use super::{STILL, Stillness};

    #[test]
    fn it_lasts_after_so_many_waits_until_something_comes() {
        let still = Stillness::default();
        for _ in 0..3 {
            for n in 0..STILL {
                assert!(!still.lasts(), "after {n} waits");
            }
            for _ in 0..300 {
                assert!(still.lasts());
            }
            still.end();
        }
        // Also before there were enough.
        assert!(!still.lasts());
        still.end();
        for n in 0..STILL {
            assert!(!still.lasts(), "after {n} waits");
        }
        assert!(still.lasts());
    }
}
