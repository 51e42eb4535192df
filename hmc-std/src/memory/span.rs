//! Private ranges of a region, as linear tokens.

use super::region::Region;
use crate::base::error::Result;
use hmc_core::range::{ByteRange, Side};
use hmc_core::region::LocalSlice;
use hmc_mem::error::MemError;
use std::ptr::NonNull;

/// A private range of a region: a linear token, neither `Clone` nor `Copy`.
///
/// While it exists, its bytes cannot be taken, exposed or transferred otherwise. Dropping it returns the range to the region.
///
/// In a forked child calls fail with `Forked`. Calls that return no error (`as_slice`, `as_mut_slice`, `fill`, `crc32c`) fault if a
/// session allocated the memory; memory that was registered in place is the child's own copy.
#[derive(Debug)]
pub struct Span {
    pub(super) region: Region,
    pub(super) range: ByteRange,
}

impl Region {
    /// Takes `len` bytes at `offset` as a private span.
    ///
    /// # Errors
    /// - `Range` if they exceed the region.
    /// - `Busy` if some of them belong to another span, a window, or an operation before its fence, or if the region is a shared
    ///   buffer.
    pub fn take(&self, offset: u64, len: u64) -> Result<Span> {
        let range = self.claim(offset, len)?;
        Ok(Span { region: self.clone(), range })
    }

    /// Takes the whole region as a private span.
    ///
    /// # Errors
    /// As [`Region::take`].
    pub fn take_all(&self) -> Result<Span> {
        self.take(0, self.len())
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.region.check_process().is_ok() {
            self.region.release(self.range);
        }
    }
}

impl Span {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.range.len()
    }

    /// Returns `true` if the range is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns the offset of the first byte in the region, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.range.offset()
    }

    /// Returns the region of the range.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn slice(&self) -> LocalSlice {
        LocalSlice { key: self.region.key(), span: self.range }
    }

    /// Replaces the pages of the range by new pages with the same bytes, so that a peer that maps the old pages cannot read or change
    /// the range any longer. Returns `true` if that was possible.
    pub(crate) fn renew_pages(&self) -> bool {
        let mapping = self.region.mapping().filter(|_| !self.region.is_pinned());
        let renewed = mapping.map(|m| m.replace_pages(self.range));
        if let Some(Err(e)) = &renewed {
            tracing::debug!(error = %e, "no fresh pages under a revoked window");
        }
        matches!(renewed, Some(Ok(())))
    }

    fn part(&self, offset: u64, len: usize) -> Result<ByteRange> {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        Ok(self.range.sub(Side::Local, offset, len)?)
    }

    /// Copies `out.len()` bytes from `offset` of the span to `out`.
    ///
    /// # Errors
    /// `Range` if they exceed the span.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let part = self.part(offset, out.len())?;
        self.region.checked()?.read_at(part, out).map_err(MemError::from)?;
        Ok(())
    }

    /// Copies `bytes` to `offset` of the span.
    ///
    /// # Errors
    /// `Range` if they exceed the span.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let part = self.part(offset, bytes.len())?;
        self.region.checked()?.write_at(part, bytes).map_err(MemError::from)?;
        Ok(())
    }

    /// Sets every byte to `value`.
    pub fn fill(&mut self, value: u8) {
        // A span lies within its region, so this cannot fail.
        let _ = self.region.bytes().fill(self.range, value);
    }

    /// Returns the CRC-32C of the bytes.
    #[must_use]
    pub fn crc32c(&self) -> u32 {
        self.region.bytes().crc32c(self.range).unwrap_or(0)
    }

    /// Borrows the bytes. No transfer or window accesses them while the span exists.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        let (start, len) = self.raw();
        // SAFETY: the range lies within the region, which `self` keeps mapped and initialised
        // (fresh memfd pages are zero; adopted memory was vouched for). No other span overlaps it
        // and a span in a window or an operation is owned by that, so nobody writes it meanwhile.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Borrows the bytes for writing. No transfer or window accesses them while the span exists.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let (start, len) = self.raw();
        // SAFETY: as in `as_slice`; `&mut self` excludes every other borrow of the same range.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    fn raw(&self) -> (*mut u8, usize) {
        if self.range.is_empty() {
            return (NonNull::dangling().as_ptr(), 0);
        }
        let start = self.range.pointer(self.region.bytes().as_ptr());
        (start, usize::try_from(self.range.len()).unwrap_or(0))
    }

    /// Splits the span after `at` bytes.
    ///
    /// # Errors
    /// Returns the span unchanged if it is shorter, or in a forked child.
    pub fn split_at(self, at: u64) -> std::result::Result<(Self, Self), Self> {
        let parts = self.range.split_at(at).filter(|_| self.region.check_process().is_ok());
        let Some((a, b)) = parts else {
            return Err(self);
        };
        let (region, whole) = self.into_parts();
        region.split_claim(whole, (a, b));
        Ok((Self { region: region.clone(), range: a }, Self { region, range: b }))
    }

    /// Joins the span with `other`, which begins at its end in the same region.
    ///
    /// # Errors
    /// Returns both unchanged if `other` does not begin there, or in a forked child.
    pub fn join(self, other: Self) -> std::result::Result<Self, (Self, Self)> {
        let same = self.region.key() == other.region.key();
        if !same || self.region.check_process().is_err() {
            return Err((self, other));
        }
        let Some(both) = self.range.join(other.range) else {
            return Err((self, other));
        };
        let (region, first) = self.into_parts();
        let (_, second) = other.into_parts();
        region.join_claims((first, second), both);
        Ok(Self { region, range: both })
    }

    /// The parts, without giving the range back: it lives on under another token.
    fn into_parts(self) -> (Region, ByteRange) {
        let me = std::mem::ManuallyDrop::new(self);
        // SAFETY: `me` is never dropped or used again, so the region is moved out exactly once; the
        // reference it is read through is valid and aligned.
        let region = unsafe { std::ptr::read(&raw const me.region) };
        (region, me.range)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Span;
    use crate::memory::RegionTable;

    /// Offset, length and first byte of a span.
    fn of(span: &Span) -> (u64, u64, Option<u8>) {
        (span.offset(), span.len(), span.as_slice().first().copied())
    }

    #[test]
    fn spans_of_two_regions_do_not_join_and_both_come_back() {
        let table = Arc::new(RegionTable::default());
        let (a, b) = (table.allocate(4096).expect("memory"), table.allocate(4096).expect("memory"));
        let mut first = a.take(0, 100).expect("free");
        first.fill(1);
        // It begins where the first one ends, in another region.
        let mut second = b.take(100, 50).expect("free");
        second.fill(2);
        let (first, second) = first.join(second).expect_err("of two regions");
        assert_eq!((of(&first), of(&second)), ((0, 100, Some(1)), (100, 50, Some(2))));
        assert!(first.region().key() == a.key() && second.region().key() == b.key());
        let (second, first) = second.join(first).expect_err("the other way round");
        // Both still hold their ranges, and give them back.
        for (region, at) in [(&a, 0), (&b, 100)] {
            region.take(at, 1).expect_err("held");
        }
        drop((first, second));
        a.take_all().expect("free again");
        b.take_all().expect("free again");
    }

    #[test]
    fn spans_that_are_no_neighbours_do_not_join() {
        let table = Arc::new(RegionTable::default());
        let region = table.allocate(4096).expect("memory");
        let (first, second) =
            (region.take(0, 100).expect("free"), region.take(101, 50).expect("free"));
        let (first, second) = first.join(second).expect_err("a byte lies between");
        assert_eq!((of(&first), of(&second)), ((0, 100, Some(0)), (101, 50, Some(0))));
        let third = region.take(100, 1).expect("free");
        // In the wrong order.
        let (second, third) = second.join(third).expect_err("it begins before");
        let both = first.join(third).expect("neighbours").join(second).expect("neighbours");
        assert_eq!((both.offset(), both.len()), (0, 151));
        drop(both);
        region.take_all().expect("free again");
    }
}
