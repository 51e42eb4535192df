//! Checked ranges: the only module that adds offsets.
//!
//! An offset from a caller or a peer is untrusted. [`Extent::span`] checks it against a limit and returns a
//! [`ByteRange`], which all other code of HMC uses. No other code computes `offset + len > limit`.

/// Whose memory an offset speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Memory of the process that calls.
    Local,
    /// Memory of the peer.
    Remote,
}

impl core::fmt::Display for Side {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Remote => "remote",
        })
    }
}

/// A range that does not lie within its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeError {
    /// Whose memory was meant.
    pub side: Side,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes in the range.
    pub len: u64,
    /// Bytes there are.
    pub limit: u64,
}

impl core::fmt::Display for RangeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{} range of {} bytes at offset {} exceeds the limit of {} bytes",
            self.side, self.len, self.offset, self.limit
        )
    }
}

impl core::error::Error for RangeError {}

impl RangeError {
    /// One past the last byte that was asked for; the greatest number where that wraps.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

#[cold]
#[inline(never)]
const fn out_of_range(side: Side, offset: u64, len: u64, limit: u64) -> RangeError {
    RangeError { side, offset, len, limit }
}

/// The size of something that has bytes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Extent(u64);

/// A range proven to lie within some [`Extent`]: `offset + len` neither wraps nor exceeds it.
///
/// There is no public constructor. A `ByteRange` grants no access to the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    offset: u64,
    len: u64,
}

impl Extent {
    /// Something of `len` bytes.
    #[must_use]
    pub const fn new(len: u64) -> Self {
        Self(len)
    }

    /// The size in bytes.
    #[must_use]
    pub const fn len(self) -> u64 {
        self.0
    }

    /// Whether there are no bytes at all.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All of it.
    #[must_use]
    pub const fn whole(self) -> ByteRange {
        ByteRange { offset: 0, len: self.0 }
    }

    /// Proves that `len` bytes at `offset` lie within this extent. An empty range at the very end
    /// is legal.
    ///
    /// # Errors
    /// [`RangeError`] with the four numbers when the range wraps or ends beyond the extent.
    #[inline]
    pub const fn span(self, side: Side, offset: u64, len: u64) -> Result<ByteRange, RangeError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.0 => Ok(ByteRange { offset, len }),
            _ => Err(out_of_range(side, offset, len, self.0)),
        }
    }

    /// Proves that the `n`-th of blocks of `len` bytes lies within this extent. Block 0 is at `offset`, and each block begins
    /// `stride` bytes after the one before.
    ///
    /// # Errors
    /// As [`Extent::span`].
    #[inline]
    pub const fn block(
        self,
        side: Side,
        (offset, len): (u64, u64),
        stride: u64,
        n: u64,
    ) -> Result<ByteRange, RangeError> {
        let at = match stride.checked_mul(n) {
            Some(distance) => offset.checked_add(distance),
            None => None,
        };
        match at {
            Some(at) => self.span(side, at, len),
            None => Err(out_of_range(side, u64::MAX, len, self.0)),
        }
    }

    /// Proves that all blocks from block 0 to the `last`-th of [`Extent::block`] lie within this extent. Returns the range from the
    /// first byte of block 0 to the last byte of the `last`-th.
    ///
    /// # Errors
    /// As [`Extent::span`], about that range.
    pub const fn blocks(
        self,
        side: Side,
        (offset, len): (u64, u64),
        stride: u64,
        last: u64,
    ) -> Result<ByteRange, RangeError> {
        let whole = match stride.checked_mul(last) {
            Some(distance) => len.checked_add(distance),
            None => None,
        };
        match whole {
            // Each block ends where the last one does, or before.
            Some(whole) => self.span(side, offset, whole),
            None => Err(out_of_range(side, offset, u64::MAX, self.0)),
        }
    }

    /// Whether `span` lies within this extent too (it may have been proven against another).
    #[must_use]
    #[inline]
    pub const fn contains(self, span: ByteRange) -> bool {
        span.end() <= self.0
    }
}

impl ByteRange {
    /// First byte, counted from the start of the extent.
    #[must_use]
    #[inline]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Bytes in the range.
    #[must_use]
    #[inline]
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Whether the range is empty.
    #[must_use]
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// One past the last byte.
    #[must_use]
    #[inline]
    pub const fn end(self) -> u64 {
        // Cannot wrap: the constructor proved it.
        self.offset.wrapping_add(self.len)
    }

    /// The address of the first byte, in a process where the extent begins at `base`.
    #[must_use]
    #[inline]
    pub const fn address(self, base: u64) -> u64 {
        // Addresses wrap; an extent does not lie across their end.
        base.wrapping_add(self.offset)
    }

    /// The same in this process: a pointer for the bytes of the range, if `base` is one for those of the extent.
    #[must_use]
    #[inline]
    pub fn pointer(self, base: *mut u8) -> *mut u8 {
        // No memory is as long as what would not fit.
        base.wrapping_add(usize::try_from(self.offset).unwrap_or(usize::MAX))
    }

    /// The part of `len` bytes that starts `offset` bytes into this range.
    ///
    /// # Errors
    /// [`RangeError`], in terms of this range, when the part does not lie within it.
    #[inline]
    pub const fn sub(self, side: Side, offset: u64, len: u64) -> Result<Self, RangeError> {
        match Extent(self.len).span(side, offset, len) {
            // Cannot wrap: the part ends within this range.
            Ok(part) => Ok(Self { offset: self.offset.wrapping_add(part.offset), len: part.len }),
            Err(e) => Err(e),
        }
    }

    /// Cuts after `at` bytes; `None` when the range is shorter.
    #[must_use]
    pub const fn split_at(self, at: u64) -> Option<(Self, Self)> {
        match self.len.checked_sub(at) {
            None => None,
            Some(rest) => Some((
                Self { offset: self.offset, len: at },
                Self { offset: self.offset.saturating_add(at), len: rest },
            )),
        }
    }

    /// Cuts after at most `at` bytes. The second part is empty when the range is no longer than that.
    #[must_use]
    pub const fn split_at_most(self, at: u64) -> (Self, Self) {
        let at = if at < self.len { at } else { self.len };
        let head = Self { offset: self.offset, len: at };
        // Neither operation can saturate: `at <= len`.
        let tail =
            Self { offset: self.offset.saturating_add(at), len: self.len.saturating_sub(at) };
        (head, tail)
    }

    /// Whether the two ranges share a byte. Empty ranges share none.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.len != 0 && other.len != 0 && self.offset < other.end() && other.offset < self.end()
    }

    /// The two ranges as one, when `other` starts where this one ends.
    #[must_use]
    pub const fn join(self, other: Self) -> Option<Self> {
        if self.end() != other.offset {
            return None;
        }
        match self.len.checked_add(other.len) {
            Some(len) => Some(Self { offset: self.offset, len }),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ByteRange, Extent, RangeError, Side};
    use std::vec::Vec;

    /// Numbers at which 16-, 31-, 32-, 63- and 64-bit arithmetic breaks.
    fn edges() -> Vec<u64> {
        let mut all = Vec::new();
        for bit in [0, 16, 31, 32, 63] {
            let p = 1u64 << bit;
            all.extend([p - 1, p, p.wrapping_add(1)]);
        }
        all.extend([u64::MAX - 1, u64::MAX]);
        all
    }

    #[test]
    fn the_boundary_grid_agrees_with_wide_arithmetic() {
        for &limit in &edges() {
            for &offset in &edges() {
                for &len in &edges() {
                    let fits = u128::from(offset) + u128::from(len) <= u128::from(limit);
                    let got = Extent::new(limit).span(Side::Remote, offset, len);
                    assert_eq!(got.is_ok(), fits, "offset {offset} len {len} limit {limit}");
                    match got {
                        Ok(s) => {
                            assert_eq!((s.offset(), s.len(), s.end()), (offset, len, offset + len))
                        }
                        Err(e) => {
                            assert_eq!(e, RangeError { side: Side::Remote, offset, len, limit });
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_agree_with_wide_arithmetic() {
        let (limits, counts) = ([0, 1, 100, 1 << 31, u64::MAX], [0, 1, 2, 1 << 16, 1 << 63]);
        for &offset in &edges() {
            for &len in &edges() {
                for &stride in &edges() {
                    for (limit, n) in limits.iter().flat_map(|l| counts.map(|n| (*l, n))) {
                        let extent = Extent::new(limit);
                        // Products may exceed 128 bits by the sum.
                        let at = (u128::from(stride) * u128::from(n)).saturating_add(offset.into());
                        let fits = at.saturating_add(len.into()) <= limit.into();
                        let what = std::format!("{offset} {len} {stride} {n} of {limit}");
                        match extent.block(Side::Local, (offset, len), stride, n) {
                            Ok(b) => {
                                assert!(fits, "{what}");
                                assert_eq!((u128::from(b.offset()), b.len()), (at, len), "{what}");
                                let all = extent.blocks(Side::Local, (offset, len), stride, n);
                                let all = all.expect("the last fits, and so do all");
                                assert_eq!((all.offset(), all.end()), (offset, b.end()), "{what}");
                            }
                            Err(e) => {
                                assert!(!fits, "{what}");
                                assert_eq!((e.side, e.len, e.limit), (Side::Local, len, limit));
                                assert_eq!(u128::from(e.offset), at.min(u64::MAX.into()));
                                let all = extent.blocks(Side::Remote, (offset, len), stride, n);
                                let e = all.expect_err("the last does not fit");
                                let whole = at.saturating_add(len.into()) - u128::from(offset);
                                let whole = u64::try_from(whole).unwrap_or(u64::MAX);
                                let want =
                                    RangeError { side: Side::Remote, offset, len: whole, limit };
                                assert_eq!(e, want);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn sub_spans_agree_with_wide_arithmetic() {
        for &start in &edges() {
            for &size in &edges() {
                let Ok(outer) = Extent::new(u64::MAX).span(Side::Local, start, size) else {
                    continue;
                };
                for &offset in &edges() {
                    for &len in &edges() {
                        let fits = u128::from(offset) + u128::from(len) <= u128::from(size);
                        let got = outer.sub(Side::Local, offset, len);
                        assert_eq!(got.is_ok(), fits);
                        if let Ok(s) = got {
                            assert_eq!(
                                u128::from(s.offset()),
                                u128::from(start) + u128::from(offset)
                            );
                            assert!(s.end() <= outer.end());
                        }
                    }
                }
            }
        }
    }

    fn span(offset: u64, len: u64) -> ByteRange {
        Extent::new(u64::MAX).span(Side::Local, offset, len).unwrap()
    }

    #[test]
    fn cutting_and_joining_are_inverse() {
        for at in 0..=10 {
            let (a, b) = span(5, 10).split_at(at).unwrap();
            assert_eq!(a.join(b), Some(span(5, 10)));
            assert_eq!(span(5, 10).split_at_most(at), (a, b));
        }
        assert_eq!(span(5, 10).split_at(11), None);
        assert_eq!(span(5, 10).split_at_most(u64::MAX), (span(5, 10), span(15, 0)));
        assert_eq!(span(0, 4).join(span(5, 1)), None);
    }

    #[test]
    fn overlap_is_symmetric_and_exact() {
        for a in 0..6u64 {
            for b in 0..6u64 {
                for x in 0..4u64 {
                    for y in 0..4u64 {
                        let share = (a..a + x).any(|i| (b..b + y).contains(&i));
                        assert_eq!(span(a, x).overlaps(span(b, y)), share);
                    }
                }
            }
        }
    }

    #[test]
    fn addresses_are_those_of_the_first_byte() {
        let mut bytes = [0u8; 16];
        let base = bytes.as_mut_ptr();
        for offset in 0..=16 {
            let part = span(offset, 16 - offset);
            assert_eq!(part.address(1 << 40), (1 << 40) + offset);
            let at = part.pointer(base).addr() - base.addr();
            assert_eq!(u64::try_from(at).unwrap(), offset);
        }
        let e = Extent::new(7).span(Side::Remote, 5, 9).unwrap_err();
        assert_eq!(e.end(), 14);
        let e = Extent::new(7).span(Side::Remote, 5, u64::MAX).unwrap_err();
        assert_eq!(e.end(), u64::MAX);
    }

    #[test]
    fn the_error_names_all_four_numbers() {
        let text = std::format!("{}", Extent::new(7).span(Side::Remote, 5, 9).unwrap_err());
        assert_eq!(text, "remote range of 9 bytes at offset 5 exceeds the limit of 7 bytes");
    }
}
