//! Ranges of shared memory that are proven to lie within it.

use hmc_core::range::ByteRange;

use super::buffer::ConnBuffer;
use super::region::Region;
use crate::base::error::Result;

/// A range of a shared buffer, checked against the buffer's length. Transfers read or write its bytes in place.
///
/// It borrows the buffer. An operation that was started keeps the memory until its fence, whether or not the buffer still exists.
#[derive(Clone, Copy, Debug)]
pub struct LocalRange<'m> {
    region: &'m Region,
    range: ByteRange,
}

impl ConnBuffer {
    /// Returns the range of `len` bytes at `offset`, for transfers and messages.
    ///
    /// # Errors
    /// `Range` if it exceeds the buffer.
    #[inline]
    pub fn range(&self, offset: u64, len: u64) -> Result<LocalRange<'_>> {
        let range = self.region().slice(offset, len)?.span;
        Ok(LocalRange { region: self.region(), range })
    }

    /// Returns the range of all bytes.
    #[must_use]
    #[inline]
    pub fn all(&self) -> LocalRange<'_> {
        LocalRange { region: self.region(), range: self.region().local().extent.whole() }
    }
}

impl<'m> LocalRange<'m> {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(self) -> u64 {
        self.range.len()
    }

    /// Returns `true` if the range is empty.
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
