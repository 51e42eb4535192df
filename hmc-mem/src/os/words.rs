//! [`PeerWords`]: a peer's page of window words, whose words are looked up once.

use std::ptr::NonNull;

use hmc_core::limits::MAX_WINDOWS_PER_PEER;
use hmc_core::types::Access;

use super::memfd::Mapping;
use crate::error::MemError;
use crate::length::widen;
use crate::sync::Word64;

/// All words of a page.
type All = [Word64; MAX_WINDOWS_PER_PEER];

/// A peer's page that starts with one word for each entry of its window table.
#[derive(Debug)]
pub struct PeerWords {
    /// Checked once: a copy into a window pays for a look at its word only.
    words: NonNull<All>,
    page: Mapping,
}

// SAFETY: the words are atomics, reached by shared references only, and stay mapped as long as the value lives, whichever
// thread has it.
unsafe impl Send for PeerWords {}
// SAFETY: as above.
unsafe impl Sync for PeerWords {}

impl PeerWords {
    /// Takes a page that was mapped for writing.
    ///
    /// # Errors
    /// `Shared` if it is too short or mapped for reading only; `Unaligned`.
    pub fn new(page: Mapping) -> Result<Self, MemError> {
        let bytes = page.bytes();
        let span = bytes.span(0, widen(size_of::<All>()))?;
        if !page.access().contains(Access::WRITE) {
            return Err(MemError::Shared(crate::shared::SharedError::ReadOnly));
        }
        let (at, _) = bytes.locate(span)?;
        let words = NonNull::new(at.cast::<All>()).filter(|w| w.is_aligned());
        let words = words.ok_or(MemError::Unaligned { value: 0, align: 8 })?;
        Ok(Self { words, page })
    }

    /// Returns the word of an entry, or `None` if the index is out of range.
    #[must_use]
    #[inline]
    pub fn get(&self, index: u16) -> Option<&Word64> {
        // SAFETY: `new` found the page long enough, aligned and writable; `self` keeps it mapped, and this process accesses
        // its words by atomics only. A `Word64` has the layout of a `u64`, of which every value is one.
        let words = unsafe { self.words.as_ref() };
        words.get(usize::from(index))
    }

    /// Returns the page.
    #[must_use]
    pub const fn page(&self) -> &Mapping {
        &self.page
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::PeerWords;
    use crate::os::memfd::Mapping;
    use crate::sync::Ordering;

    #[test]
    fn a_word_is_the_pages_and_there_are_no_more() {
        let words = PeerWords::new(Mapping::create(4096).unwrap()).unwrap();
        words.get(3).unwrap().atomic().store(7, Ordering::Relaxed);
        let same = words.page().bytes().atomic_u64(24).unwrap().load(Ordering::Relaxed);
        assert_eq!(same, 7);
        assert!(words.get(255).is_some());
        assert!(words.get(256).is_none() && words.get(u16::MAX).is_none());
        assert!(PeerWords::new(Mapping::create(2047).unwrap()).is_err());
    }
}
