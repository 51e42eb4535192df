//! The blocks of a window: ranges of equal length, each of which has a generation.
//!
//! The owner of a window keeps one 64-bit word for each block; its low half is the block's generation. This module
//! computes which words belong to a range. It reads none of them.

use core::ops::Range;

use crate::limits::MAX_BLOCKS;
use crate::range::{ByteRange, Extent};

/// Bytes of the word of one block.
pub const GENERATION_BYTES: u64 = 8;

/// How a window is divided into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowBlocks {
    window: Extent,
    block_bytes: u64,
    /// The greatest number that, times `block_bytes`, is below 2^64.
    inverse: u64,
    count: u32,
}

impl WindowBlocks {
    /// Blocks of `block_bytes` bytes. `None` unless the window is 1 to [`MAX_BLOCKS`] whole blocks.
    #[must_use]
    pub fn new(window: Extent, block_bytes: u64) -> Option<Self> {
        let count = window.len().checked_div(block_bytes)?;
        let is_whole = count.checked_mul(block_bytes) == Some(window.len());
        let count =
            u32::try_from(count).ok().filter(|n| is_whole && (1..=MAX_BLOCKS).contains(n))?;
        Some(Self { window, block_bytes, inverse: u64::MAX.checked_div(block_bytes)?, count })
    }

    /// The window that they are of.
    #[must_use]
    pub const fn window(&self) -> Extent {
        self.window
    }

    /// Bytes of each block.
    #[must_use]
    pub const fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The table of the blocks' words.
    #[must_use]
    pub const fn table(&self) -> Extent {
        // At most 2^16 words of 8 bytes.
        Extent::new(widen(self.count).wrapping_mul(GENERATION_BYTES))
    }

    /// Where the word of a block begins in the table, in bytes.
    #[must_use]
    #[inline]
    pub const fn word_at(block: u32) -> u64 {
        widen(block).wrapping_mul(GENERATION_BYTES)
    }

    /// The blocks that have bytes of `span`: none if it is empty.
    #[must_use]
    #[inline]
    pub fn touched(&self, span: ByteRange) -> Range<u32> {
        if span.is_empty() || !self.window.contains(span) {
            return 0..0;
        }
        let (first, into) = self.block_of(span.offset());
        // Most ranges lie in one block. Neither difference wraps: the range is not empty, and `into` is less than a block.
        let last = match span.len() <= self.block_bytes.wrapping_sub(into) {
            true => first,
            false => self.block_of(span.end().wrapping_sub(1)).0,
        };
        first..last.saturating_add(1)
    }

    /// The block of a byte of the window, and how many bytes of it come before.
    #[inline]
    fn block_of(&self, at: u64) -> (u32, u64) {
        // A division by a multiplication: the quotient, or one less.
        let product = u128::from(at).wrapping_mul(u128::from(self.inverse));
        let [.., a, b, c, d, e, f, g, h] = (product >> 64).to_be_bytes();
        let quotient = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        // Neither wraps: the product is not above `at`.
        let rest = at.wrapping_sub(quotient.wrapping_mul(self.block_bytes));
        let (quotient, rest) = match rest.checked_sub(self.block_bytes) {
            Some(rest) => (quotient.wrapping_add(1), rest),
            None => (quotient, rest),
        };
        // Below `count`, since the byte lies in the window.
        (u32::try_from(quotient).unwrap_or(u32::MAX), rest)
    }
}

/// As a `u64`, in constants too.
const fn widen(n: u32) -> u64 {
    let [a, b, c, d] = n.to_le_bytes();
    u64::from_le_bytes([a, b, c, d, 0, 0, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::WindowBlocks;
    use crate::limits::MAX_BLOCKS;
    use crate::range::{Extent, Side};

    #[test]
    fn a_window_is_whole_blocks_and_not_too_many() {
        let new = |len, block| WindowBlocks::new(Extent::new(len), block).map(|b| b.count());
        assert_eq!(new(12, 4), Some(3));
        assert_eq!(new(12, 12), Some(1));
        assert_eq!(new(u64::MAX - 3, 1 << 60), None);
        assert_eq!(new(15 << 60, 1 << 60), Some(15));
        for (len, block) in [(12, 0), (12, 5), (12, 13), (0, 4), (0, 0)] {
            assert_eq!(new(len, block), None, "{len} {block}");
        }
        assert_eq!(new(u64::from(MAX_BLOCKS) * 3, 3), Some(MAX_BLOCKS));
        assert_eq!(new((u64::from(MAX_BLOCKS) + 1) * 3, 3), None);
        let all = WindowBlocks::new(Extent::new(u64::from(MAX_BLOCKS)), 1).unwrap();
        assert_eq!(all.table().len(), u64::from(MAX_BLOCKS) * 8);
        assert_eq!(WindowBlocks::word_at(7), 56);
    }

    /// Against the blocks that divisions give, at the edges of blocks.
    #[test]
    fn a_range_touches_the_blocks_that_have_its_bytes() {
        for block in [1, 2, 3, 7, 4096, 12_288, (1 << 32) + 1, 1 << 47, (1 << 48) - 1] {
            for count in [1, 2, 3, 1000, u64::from(MAX_BLOCKS)] {
                let window = Extent::new(block * count);
                let blocks = WindowBlocks::new(window, block).unwrap();
                let edges = [0, 1, 2, count / 2, count - 1, count].map(|n| n.min(count) * block);
                let ends = edges.iter().flat_map(|e| [e.saturating_sub(1), *e, e + 1]);
                let ends: std::vec::Vec<u64> = ends.filter(|e| *e <= window.len()).collect();
                for (from, to) in ends.iter().flat_map(|a| ends.iter().map(move |b| (*a, *b))) {
                    let Some(len) = to.checked_sub(from) else { continue };
                    let span = window.span(Side::Remote, from, len).unwrap();
                    let want = if len == 0 { 0..0 } else { from / block..(to - 1) / block + 1 };
                    let got = blocks.touched(span);
                    assert_eq!(
                        u64::from(got.start)..u64::from(got.end),
                        want,
                        "{block} {from} {to}"
                    );
                }
            }
        }
        let small = WindowBlocks::new(Extent::new(8), 4).unwrap();
        let beyond = Extent::new(99).span(Side::Remote, 4, 5).unwrap();
        assert_eq!(small.touched(beyond), 0..0, "it is no range of the window");
    }
}
