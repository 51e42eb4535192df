//! [`PeerWords`]: a peer's pages of window words, whose words are looked up once; and where each word lies in such pages.

use std::ptr::NonNull;
use std::sync::Arc;

use hmc_core::limits::MAX_WINDOWS_PER_PEER;
use hmc_core::types::Access;

use super::memfd::Mapping;
use crate::error::MemError;
use crate::length::widen;
use crate::sync::Word64;

/// Bytes of the pages that have one gate for each window.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of the pages that have [`GATES`] gates for each window.
pub const GATE_PAGES_BYTES: u64 = 20_480;
/// Gates of a window in pages of [`GATE_PAGES_BYTES`].
pub const GATES: u8 = 8;

/// The first gates of all windows.
type Row = [Word64; MAX_WINDOWS_PER_PEER];
/// Bytes of the gates of one number of all windows. Gates of one window never share a cache line.
const ROW_BYTES: u64 = 2048;
const _: () = assert!(size_of::<Row>() == 2048 && GATE_PAGES_BYTES == 10 * ROW_BYTES && GATES < 10);

/// Returns the offset of the gate `number` of an entry of the window table. The second row of the pages has no gates: it
/// starts with the owner's heartbeat.
#[must_use]
pub fn gate_at(number: u8, index: u16) -> u64 {
    let row = if number == 0 { 0 } else { u64::from(number).saturating_add(1) };
    row.saturating_mul(ROW_BYTES).saturating_add(u64::from(index).saturating_mul(8))
}

/// A peer's pages that start with one word for each entry of its window table.
#[derive(Debug)]
pub struct PeerWords {
    /// Checked once: a copy into a window pays for a look at its word only.
    words: NonNull<Row>,
    page: Mapping,
}

/// One word of a peer's pages, which the value keeps mapped.
#[derive(Debug)]
pub struct PeerWord {
    word: NonNull<Word64>,
    _words: Arc<PeerWords>,
}

// SAFETY: the word is an atomic, reached by shared references only, and stays mapped as long as the value lives, whichever
// thread has it.
unsafe impl Send for PeerWord {}
// SAFETY: as above.
unsafe impl Sync for PeerWord {}

impl PeerWord {
    /// Returns the word.
    #[must_use]
    #[inline(always)]
    pub const fn get(&self) -> &Word64 {
        // SAFETY: `PeerWords::gate` has it from a reference to a word of the pages, which `_words` keeps mapped. This process
        // accesses it by atomics only.
        unsafe { self.word.as_ref() }
    }
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
        let span = bytes.span(0, widen(size_of::<Row>()))?;
        if !page.access().contains(Access::WRITE) {
            return Err(MemError::Shared(crate::shared::SharedError::ReadOnly));
        }
        let (at, _) = bytes.locate(span)?;
        let words = NonNull::new(at.cast::<Row>()).filter(|w| w.is_aligned());
        let words = words.ok_or(MemError::Unaligned { value: 0, align: 8 })?;
        Ok(Self { words, page })
    }

    /// Returns the first gate's word of an entry, or `None` if the index is out of range.
    #[must_use]
    #[inline]
    pub fn get(&self, index: u16) -> Option<&Word64> {
        // SAFETY: `new` found the page long enough, aligned and writable; `self` keeps it mapped, and this process accesses
        // its words by atomics only. A `Word64` has the layout of a `u64`, of which every value is one.
        let words = unsafe { self.words.as_ref() };
        words.get(usize::from(index))
    }

    /// Returns the number of gates that each window has: [`GATES`] if the pages are long enough, otherwise 1.
    #[must_use]
    pub fn gates(&self) -> u8 {
        if self.page.extent().len() >= GATE_PAGES_BYTES { GATES } else { 1 }
    }

    /// Returns the word of gate `number` of an entry, or `None` if the index is out of range. Numbers from [`Self::gates`] on
    /// name the gates again, from the first on.
    #[must_use]
    pub fn gate(self: &Arc<Self>, number: u8, index: u16) -> Option<PeerWord> {
        self.get(index)?;
        let number = number.checked_rem(self.gates())?;
        let word = self.page.bytes().word(gate_at(number, index)).ok()?;
        Some(PeerWord { word: NonNull::from(word), _words: Arc::clone(self) })
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
    use super::{GATE_PAGES_BYTES, GATES, PAGE_BYTES, PeerWords, gate_at};
    use crate::os::memfd::Mapping;
    use crate::sync::Ordering;
    use std::collections::BTreeSet;
    use std::sync::Arc;

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

    #[test]
    fn gates_of_a_window_lie_apart_and_never_on_the_heartbeat() {
        let offsets: Vec<u64> = (0..GATES).map(|n| gate_at(n, 3)).collect();
        assert_eq!(offsets, [24, 4120, 6168, 8216, 10264, 12312, 14360, 16408]);
        assert_eq!(gate_at(GATES - 1, 255) + 8, 18432, "the last one of all");
        let words = Arc::new(PeerWords::new(Mapping::create(GATE_PAGES_BYTES).unwrap()).unwrap());
        assert_eq!(words.gates(), GATES);
        for number in 0..GATES {
            let word = words.gate(number, 3).unwrap();
            word.get().atomic().store(u64::from(number) + 1, Ordering::Relaxed);
        }
        let of_page = |at| words.page().bytes().atomic_u64(at).unwrap().load(Ordering::Relaxed);
        let stored: BTreeSet<u64> = offsets.into_iter().map(of_page).collect();
        assert_eq!(stored, (1..=u64::from(GATES)).collect());
        assert_eq!(of_page(2048), 0);
        let again = words.gate(GATES + 2, 3).unwrap();
        assert_eq!(again.get().atomic().load(Ordering::Relaxed), 3);
        assert!(words.gate(1, 256).is_none());
        // A page of a peer that knows one gate for each window.
        let words = Arc::new(PeerWords::new(Mapping::create(PAGE_BYTES).unwrap()).unwrap());
        words.gate(5, 3).unwrap().get().atomic().store(9, Ordering::Relaxed);
        let first = words.get(3).unwrap().atomic().load(Ordering::Relaxed);
        assert_eq!((words.gates(), first), (1, 9));
    }
}
