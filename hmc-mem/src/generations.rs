//! [`Generations`]: a table in shared memory with a word for each block of a window, whose low half is the block's generation.
//!
//! The owner of the window advances a block's generation before it writes other bytes into the block. Who copies bytes of the
//! block compares the generation with the expected one before and after, as a reader of a seqlock does.
//!
//! Orders: [`Generations::advance`] ends with a sequentially consistent fence, so the owner's later stores come after the new
//! generation. [`ExpectedBlocks::check`] orders the copy after its loads. [`ExpectedBlocks::recheck_read`] orders its loads after
//! those of the copy: if one of them had read a byte that was stored after an advance, it finds the new generation.
//! [`ExpectedBlocks::recheck_write`] orders its loads after the stores of the copy.

use core::ops::Range;

use hmc_core::blocks::WindowBlocks;
use hmc_core::range::ByteRange;
use hmc_core::window::StaleGeneration;

use crate::shared::{SharedBytes, SharedError};
use crate::sync::{Ordering, Word64, fence, low};

/// The generations of the blocks of one window.
#[derive(Clone, Copy, Debug)]
pub struct Generations<'a> {
    table: SharedBytes<'a>,
    blocks: WindowBlocks,
}

/// Loads a generation before a copy of bytes that it covers.
#[inline]
pub fn load_before(load: impl FnOnce() -> u64) -> u32 {
    let now = load();
    fence(Ordering::Acquire);
    low(now)
}

/// Loads a generation after bytes that it covers were read.
#[inline]
pub fn load_after(load: impl FnOnce() -> u64) -> u32 {
    fence(Ordering::Acquire);
    low(load())
}

/// Orders loads of generations after the stores of a copy: called between them.
#[inline]
pub fn after_writes() {
    fence(Ordering::SeqCst);
}

/// Advances the generation in `word`, and returns it.
#[inline]
pub fn advance(word: &Word64) -> u32 {
    let before = word.atomic().fetch_add(1, Ordering::AcqRel);
    fence(Ordering::SeqCst);
    low(before.wrapping_add(1))
}

impl<'a> Generations<'a> {
    /// The generations in `table`.
    ///
    /// # Errors
    /// [`SharedError::Range`] if the table is too short; [`SharedError::Misaligned`].
    pub fn new(table: SharedBytes<'a>, blocks: WindowBlocks) -> Result<Self, SharedError> {
        table.span(0, blocks.table().len())?;
        table.load_u64(0)?;
        Ok(Self { table, blocks })
    }

    /// How the window is divided.
    #[must_use]
    pub const fn blocks(&self) -> &WindowBlocks {
        &self.blocks
    }

    /// The generation of a block; `None` if there is no such block.
    #[must_use]
    pub fn get(&self, block: u32) -> Option<u32> {
        let at = self.word_at(block)?;
        Some(load_before(|| self.table.load_u64(at).unwrap_or(0)))
    }

    /// Advances the generation of a block, and returns it; `None` if there is no such block, or the table may only be read.
    pub fn advance(&self, block: u32) -> Option<u32> {
        Some(advance(self.table.word(self.word_at(block)?).ok()?))
    }

    fn word_at(&self, block: u32) -> Option<u64> {
        (block < self.blocks.count()).then_some(WindowBlocks::word_at(block))
    }

    /// The blocks that have bytes of `span`, each of which is expected to have that generation.
    #[inline]
    #[must_use]
    pub fn expect(&self, span: ByteRange, expected: u32) -> ExpectedBlocks<'a> {
        ExpectedBlocks { table: self.table, touched: self.blocks.touched(span), expected }
    }
}

/// The blocks of which a copy has bytes, and the generation that each of them is expected to have: computed once, and compared before
/// and after the copy.
#[derive(Clone, Debug)]
pub struct ExpectedBlocks<'a> {
    table: SharedBytes<'a>,
    touched: Range<u32>,
    expected: u32,
}

impl ExpectedBlocks<'_> {
    /// Checks, before their bytes are copied, that all of them have the expected generation.
    ///
    /// # Errors
    /// The first block with another one.
    #[inline]
    pub fn check(&self) -> Result<(), StaleGeneration> {
        self.compare::<false>()
    }

    /// As [`Self::check`], after their bytes were read.
    ///
    /// # Errors
    /// The first block with another generation: bytes that were read may be of that one.
    #[inline]
    pub fn recheck_read(&self) -> Result<(), StaleGeneration> {
        self.compare::<true>()
    }

    /// As [`Self::check`], after their bytes were written.
    ///
    /// # Errors
    /// The first block with another generation: bytes may have been written after it had that one.
    #[inline]
    pub fn recheck_write(&self) -> Result<(), StaleGeneration> {
        after_writes();
        self.recheck_read()
    }

    #[inline(always)]
    fn compare<const AFTER: bool>(&self) -> Result<(), StaleGeneration> {
        for block in self.touched.clone() {
            let at = WindowBlocks::word_at(block);
            // The table has a word for each block.
            let load = || self.table.load_u64(at).unwrap_or(0);
            let found = if AFTER { load_after(load) } else { load_before(load) };
            if found != self.expected {
                return Err(StaleGeneration { block, expected: self.expected, found });
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::{ExpectedBlocks, Generations};
    use crate::shared::{SharedBytes, SharedError};
    use hmc_core::blocks::WindowBlocks;
    use hmc_core::range::{ByteRange, Extent, Side};
    use hmc_core::window::StaleGeneration;

    fn span(at: u64, len: u64) -> ByteRange {
        Extent::new(64).span(Side::Remote, at, len).unwrap()
    }

    fn blocks() -> WindowBlocks {
        WindowBlocks::new(Extent::new(64), 16).unwrap()
    }

    #[repr(align(8))]
    struct Table([u8; 40]);

    #[test]
    fn each_block_that_a_range_touches_is_compared() {
        let mut table = Table([0; 40]);
        let all = Generations::new(SharedBytes::of_mut(&mut table.0), blocks()).unwrap();
        assert_eq!((all.advance(2), all.advance(2), all.advance(4)), (Some(1), Some(2), None));
        assert_eq!([0, 2, 4].map(|n| all.get(n)), [Some(0), Some(2), None]);
        let stale = |block, expected, found| Err(StaleGeneration { block, expected, found });
        type Compare = fn(&ExpectedBlocks<'_>) -> Result<(), StaleGeneration>;
        let compares: [Compare; 3] = [|b| b.check(), |b| b.recheck_read(), |b| b.recheck_write()];
        for compare in compares {
            let check = |all: &Generations<'_>, span, n| compare(&all.expect(span, n));
            assert_eq!(check(&all, span(0, 32), 0), Ok(()));
            assert_eq!(check(&all, span(48, 16), 0), Ok(()));
            assert_eq!(check(&all, span(0, 33), 0), stale(2, 0, 2));
            assert_eq!(check(&all, span(47, 1), 2), Ok(()));
            assert_eq!(check(&all, span(47, 2), 2), stale(3, 2, 0));
            assert_eq!(check(&all, span(32, 1), 1), stale(2, 1, 2));
            assert_eq!(check(&all, span(32, 0), 1), Ok(()), "no bytes, no block");
        }
        assert_eq!(table.0.iter().filter(|b| **b != 0).count(), 1, "one word has changed");
    }

    #[test]
    fn a_table_has_all_words_and_may_be_for_reading_only() {
        let mut table = Table([0; 40]);
        table.0[8] = 7;
        let view = SharedBytes::of(&table.0);
        let all = Generations::new(view, blocks()).unwrap();
        assert_eq!((all.get(1), all.advance(1)), (Some(7), None));
        let part = |at, len| Generations::new(view.part(span(at, len)).unwrap(), blocks());
        assert!(matches!(part(0, 31), Err(SharedError::Range(_))));
        assert!(matches!(part(4, 32), Err(SharedError::Misaligned { .. })));
        assert!(part(8, 32).is_ok());
    }

    /// The high half of the word takes what is carried, and means nothing.
    #[test]
    fn a_generation_wraps() {
        let mut table = Table([0xff; 40]);
        let all = Generations::new(SharedBytes::of_mut(&mut table.0), blocks()).unwrap();
        assert_eq!((all.get(0), all.advance(0), all.get(0)), (Some(u32::MAX), Some(0), Some(0)));
        assert_eq!(all.get(1), Some(u32::MAX));
    }
}
