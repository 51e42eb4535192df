//! Words that a peer reads in its window, stored behind bytes.

use std::sync::atomic::{Ordering, fence};

use hmc_core::range::ByteRange;
use hmc_core::types::Access;
use hmc_core::work::Failure;

use super::MappedWindow;
use crate::shared::{SharedBytes, SharedError};

impl MappedWindow {
    /// Returns the length of the window in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.bytes.extent().len()
    }

    /// Returns whether the window has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies a range of bytes to an offset, if there is one, then stores `words`, each at its offset, with release ordering: a
    /// reader that acquires one sees the bytes. Returns the word at `look`, read after a sequentially consistent fence.
    ///
    /// # Errors
    /// As [`Self::write`]; `UnknownRegion` for a word that is not aligned or exceeds the window.
    pub fn publish(
        &self,
        copy: Option<(u64, SharedBytes<'_>, ByteRange)>,
        words: &[(u64, u64)],
        look: u64,
    ) -> Result<u64, Failure> {
        let whole = self.range(Access::all(), 0, self.len())?;
        let gate = self.enter()?;
        let published = self.publish_inside(copy, words, look, whole);
        self.exit(gate, Access::WRITE)?;
        published.map_err(|_| Failure::UnknownRegion)
    }

    fn publish_inside(
        &self,
        copy: Option<(u64, SharedBytes<'_>, ByteRange)>,
        words: &[(u64, u64)],
        look: u64,
        whole: ByteRange,
    ) -> Result<u64, SharedError> {
        if let Some((offset, from, range)) = copy {
            let there = self.bytes.span(offset, range.len())?;
            from.copy_piece_to(range, &self.bytes, there, whole.len())?;
        }
        for (at, word) in words {
            self.bytes.flag(*at)?.store_release(*word);
        }
        fence(Ordering::SeqCst);
        Ok(self.bytes.flag(look)?.load_acquire())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::super::tests::{REVOKED, range, window};
    use crate::os::memfd::Mapping;
    use hmc_core::types::Access;
    use hmc_core::work::Failure;

    #[test]
    fn words_are_published_behind_their_bytes_and_only_into_an_open_window() {
        let (w, theirs) = window(Access::all());
        let ours = Mapping::create(4096).unwrap();
        ours.bytes().fill(range(0, 8), 7).unwrap();
        theirs.bytes().flag(1024 + 64).unwrap().store_release(5);
        let copy = || Some((128, ours.bytes(), range(0, 8)));
        assert_eq!(w.publish(copy(), &[(0, 1), (8, 2)], 64), Ok(5));
        let word = |at: u64| theirs.bytes().flag(1024 + at).unwrap().load_acquire();
        assert_eq!((word(0), word(8), word(128)), (1, 2, 0x0707_0707_0707_0707));
        for (at, look) in [(1, 64), (1024, 64), (0, 1024), (0, 3)] {
            assert_eq!(w.publish(None, &[(at, 9)], look), Err(Failure::UnknownRegion));
        }
        let e = w.publish(Some((1020, ours.bytes(), range(0, 8))), &[], 64);
        assert_eq!((e, w.gate().active()), (Err(Failure::UnknownRegion), 0));
        w.gate().close();
        assert_eq!(w.publish(copy(), &[(0, 8)], 64), Err(REVOKED));
        let (writing, _theirs) = window(Access::WRITE);
        assert!(writing.publish(None, &[], 64).is_err(), "it looks, too");
    }
}
