//! [`PeerWords`]: a peer's page of window words, whose words are looked up once; and where each word lies in such a page.

use std::ptr::NonNull;
use std::sync::Arc;

use hmc_core::limits::MAX_WINDOWS_PER_PEER;
use hmc_core::types::Access;

use super::memfd::Mapping;
use crate::error::MemError;
use crate::length::widen;
use crate::sync::Word64;

/// Bytes of a page of window words.
pub const PAGE_BYTES: u64 = 4096;
/// Gates of a window of the first [`FURTHER_GATE_WINDOWS`] entries, in pages that have further gates.
pub const GATES: u8 = 8;
/// Entries of the window table whose windows have further gates: as many as the page has space for.
pub const FURTHER_GATE_WINDOWS: u16 = 32;

/// Entries of the window table.
const ENTRIES: u16 = 256;

/// The first gates of all windows.
type Row = [Word64; MAX_WINDOWS_PER_PEER];
/// Bytes from one further gate of a window to the next. Gates of one window never share a cache line.
const STRIDE_BYTES: u64 = 256;
/// Where the first further gate of the first entry would be, if gate 0 was one. The owner's heartbeat is here.
const FURTHER_AT: u64 = 2048;
const _: () = assert!(
    size_of::<Row>() == 2048
        && ENTRIES == 256
        && STRIDE_BYTES == 8 * 32
        && FURTHER_GATE_WINDOWS == 32
);
const _: () = assert!(GATES == 8 && FURTHER_AT + 8 * STRIDE_BYTES == PAGE_BYTES);

/// Returns the number of gates that an entry of the window table has, if the page has further gates; 0 beyond the last entry.
#[must_use]
pub const fn gates_of(index: u16) -> u8 {
    match index {
        ..FURTHER_GATE_WINDOWS => GATES,
        FURTHER_GATE_WINDOWS..ENTRIES => 1,
        _ => 0,
    }
}

/// Returns the offset of the gate `number` of an entry of the window table, or `None` from [`gates_of`] of the entry on.
#[must_use]
pub fn gate_at(number: u8, index: u16) -> Option<u64> {
    if number >= gates_of(index) {
        return None;
    }
    let first = match number {
        0 => 0,
        _ => u64::from(number).saturating_mul(STRIDE_BYTES).saturating_add(FURTHER_AT),
    };
    Some(u64::from(index).saturating_mul(8).saturating_add(first))
}

/// A peer's page that starts with one word for each entry of its window table.
#[derive(Debug)]
pub struct PeerWords {
    /// Checked once: a copy into a window pays for a look at its word only.
    words: NonNull<Row>,
    page: Mapping,
    has_further_gates: bool,
}

/// One word of a peer's page, which the value keeps mapped.
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
        Ok(Self { words, page, has_further_gates: false })
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

    /// The same page, which has further gates behind the heartbeat if the peer knows them.
    #[must_use]
    pub fn with_further_gates(self, has_further_gates: bool) -> Self {
        Self { has_further_gates, ..self }
    }

    /// Returns the word of gate `number` of an entry, or `None` if the index is out of range. Numbers beyond the last gate of the
    /// entry name its gates again, from the first on.
    #[must_use]
    pub fn gate(self: &Arc<Self>, number: u8, index: u16) -> Option<PeerWord> {
        self.get(index)?;
        let gates = if self.has_further_gates { gates_of(index) } else { 1 };
        let number = number.checked_rem(gates)?;
        let word = self.page.bytes().word(gate_at(number, index)?).ok()?;
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
    use super::{GATES, PAGE_BYTES, PeerWords, gate_at, gates_of};
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
    fn gates_of_a_window_lie_apart_and_never_on_other_words() {
        let offsets = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| gate_at(n, 3).unwrap());
        assert_eq!(offsets, [24, 2328, 2584, 2840, 3096, 3352, 3608, 3864]);
        let gates = |index| (0..=u8::MAX).filter_map(move |number| gate_at(number, index));
        for (index, count) in [(0, 8), (31, 8), (32, 1), (255, 1), (256, 0), (u16::MAX, 0)] {
            assert_eq!((gates(index).count(), usize::from(gates_of(index))), (count, count));
        }
        let all = (0..256).flat_map(gates);
        let all: BTreeSet<u64> = all.chain([2048]).collect();
        assert_eq!(all.len(), 256 + 32 * 7 + 1, "each word is its own, and the heartbeat's");
        assert_eq!(all.last(), Some(&4088));
        let page = || PeerWords::new(Mapping::create(PAGE_BYTES).unwrap()).unwrap();
        let words = Arc::new(page().with_further_gates(true));
        let store = |words: &Arc<PeerWords>, number, index| {
            let word = words.gate(number, index).unwrap();
            word.get().atomic().fetch_add(1, Ordering::Relaxed);
        };
        let load = |words: &PeerWords, at| {
            words.page().bytes().atomic_u64(at).unwrap().load(Ordering::Relaxed)
        };
        (0..=GATES).for_each(|number| store(&words, number, 3));
        assert_eq!(offsets.map(|at| load(&words, at)), [2, 1, 1, 1, 1, 1, 1, 1]);
        store(&words, 5, 32);
        assert_eq!(load(&words, 256), 1, "an entry with one gate");
        assert!(words.gate(1, 256).is_none());
        // The page of a peer that knows one gate for each window.
        let words = Arc::new(page());
        store(&words, 5, 3);
        assert_eq!(load(&words, 24), 1);
    }
}
