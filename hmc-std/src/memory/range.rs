//! Ranges of shared memory that are proven to lie within it.

use hmc_core::range::ByteRange;

use super::buffer::ConnBuffer;
use super::region::Region;
use crate::base::error::Result;

/// A range of a shared buffer, which was checked against its length. Transfers read or write it in place.
///
/// It borrows the buffer, so that it cannot outlive it; an operation that was started keeps the memory by itself. All in bytes.
#[derive(Clone, Copy, Debug)]
pub struct LocalRange<'m> {
    region: &'m Region,
    range: ByteRange,
}

impl ConnBuffer {
    /// The `len` bytes at `offset`, for transfers and messages.
    ///
    /// # Errors
    /// `Range` when they exceed the buffer.
    #[inline]
    pub fn range(&self, offset: u64, len: u64) -> Result<LocalRange<'_>> {
        let range = self.region().slice(offset, len)?.span;
        Ok(LocalRange { region: self.region(), range })
    }

    /// All bytes.
    #[must_use]
    #[inline]
    pub fn all(&self) -> LocalRange<'_> {
        LocalRange { region: self.region(), range: self.region().local().extent.whole() }
    }
}

impl<'m> LocalRange<'m> {
    /// Bytes in the range.
    #[must_use]
    pub fn len(self) -> u64 {
        self.range.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.range.is_empty()
    }

    /// A handle of the buffer that it is a range of.
    pub(crate) fn buffer(self) -> ConnBuffer {
        ConnBuffer::of_shared(self.region)
    }

    #[inline(always)]
    pub(crate) fn region(self) -> &'m Region {
        self.region
    }

    #[inline(always)]
    pub(crate) fn bytes(self) -> ByteRange {
        self.range
    }
}
