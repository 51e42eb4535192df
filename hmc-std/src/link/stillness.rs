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
