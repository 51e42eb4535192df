//! Counts of what was copied into and out of the mapped windows of a peer.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::os::words::GATES;

/// Lines of counts.
#[allow(clippy::as_conversions, reason = "to a wider type, in a constant")]
const LINES: usize = GATES as usize;

/// Numbers of the puts, gets and bytes copied by the [`MappedHandle`](super::handle::MappedHandle)s of one peer's windows, in no order with
/// others. Handles with different numbers write different cache lines.
#[derive(Debug, Default)]
pub struct Moved {
    counts: [Counts; LINES],
    handles: AtomicU8,
}

/// The counts of the handles of one number. Processors fetch lines of 64 bytes in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counts {
    puts: AtomicU64,
    gets: AtomicU64,
    bytes: AtomicU64,
}

impl Counts {
    #[inline(always)]
    pub(super) fn add_put(&self, bytes: u64) {
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn add_get(&self, bytes: u64) {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Moved {
    /// Returns the number of puts.
    #[must_use]
    pub fn puts(&self) -> u64 {
        self.sum(|counts| &counts.puts)
    }

    /// Returns the number of gets.
    #[must_use]
    pub fn gets(&self) -> u64 {
        self.sum(|counts| &counts.gets)
    }

    /// Returns the number of bytes of all puts and gets.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sum(|counts| &counts.bytes)
    }

    fn sum(&self, of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        let values = self.counts.iter().map(|counts| of(counts).load(Ordering::Relaxed));
        values.fold(0, u64::wrapping_add)
    }

    /// Returns the number of the next handle, below [`GATES`]: each in turn.
    pub(super) fn next(&self) -> u8 {
        self.handles.fetch_add(1, Ordering::Relaxed) % GATES
    }

    /// Returns the counts of the handles of that number.
    #[inline(always)]
    pub(super) fn of(&self, number: u8) -> Option<&Counts> {
        self.counts.get(usize::from(number))
    }
}
