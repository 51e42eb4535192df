//! Words that a peer reads in its window, stored behind bytes.

use std::sync::atomic::{Ordering, fence};

use hmc_core::range::ByteRange;
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::work::Failure;

use super::MappedWindow;
use crate::gate::WindowGate;
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

    /// Returns whether its owner has not closed the window, and its link uses it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let is_open = self.gate().is_ok_and(|gate| gate.is_open(self.gate_epoch()));
        is_open && !self.retired.load(Ordering::Acquire)
    }

    /// Returns whether the owner's process has exited, by its exit mark: the kernel sets that before the process's memory goes.
    /// `None` if the owner shares no mark.
    #[must_use]
    pub fn has_owner_ended(&self) -> Option<bool> {
        self.peer.life.as_ref().map(|life| life.has_ended())
    }

    /// Copies a range of bytes to an offset, if there is one, then stores `words`, each at its offset, with release ordering: a
    /// reader that acquires one sees the bytes. Returns the word at `look`, read after a sequentially consistent fence; `None` if the
    /// window was closed meanwhile: all was stored, but perhaps too late for its owner.
    ///
    /// # Errors
    /// As [`Self::write`] for a window that was closed before, and then nothing is stored; `UnknownRegion` for a word that is not aligned or exceeds the window.
    pub fn publish(
        &self,
        copy: Option<(u64, SharedBytes<'_>, ByteRange)>,
        words: &[(u64, u64)],
        look: u64,
    ) -> Result<Option<u64>, Failure> {
        let whole = self.range(Access::all(), 0, self.len())?;
        let gate = self.gate()?;
        self.enter(gate)?;
        let published = self.publish_inside(copy, words, look, whole);
        self.exit_published(gate, published)
    }

    fn exit_published(
        &self,
        gate: WindowGate<'_>,
        published: Result<u64, SharedError>,
    ) -> Result<Option<u64>, Failure> {
        let left = self.exit(gate, Access::WRITE);
        let looked = published.map_err(|_| Failure::UnknownRegion);
        match left {
            Ok(()) => looked.map(Some),
            Err(Failure::Window(WindowFault::Revoked)) => looked.map(|_| None),
            Err(failure) => Err(failure),
        }
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
    use super::super::tests::{REVOKED, entered, range, window};
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
        assert_eq!(w.publish(copy(), &[(0, 1), (8, 2)], 64), Ok(Some(5)));
        let word = |at: u64| theirs.bytes().flag(1024 + at).unwrap().load_acquire();
        assert_eq!((word(0), word(8), word(128)), (1, 2, 0x0707_0707_0707_0707));
        for (at, look) in [(1, 64), (1024, 64), (0, 1024), (0, 3)] {
            assert_eq!(w.publish(None, &[(at, 9)], look), Err(Failure::UnknownRegion));
        }
        let e = w.publish(Some((1020, ours.bytes(), range(0, 8))), &[], 64);
        assert_eq!((e, w.gate().unwrap().active()), (Err(Failure::UnknownRegion), 0));
        // It is closed between the words and the exit.
        let gate = entered(&w);
        let published = w.publish_inside(copy(), &[(0, 7)], 64, range(0, 1024));
        assert!(w.is_open());
        w.gate().unwrap().close();
        assert!(!w.is_open());
        assert_eq!((w.exit_published(gate, published), word(0)), (Ok(None), 7));
        assert_eq!(w.publish(copy(), &[(0, 8)], 64), Err(REVOKED));
        assert_eq!(word(0), 7, "nothing is stored");
        let (writing, _theirs) = window(Access::WRITE);
        assert!(writing.publish(None, &[], 64).is_err(), "it looks, too");
        assert!(writing.is_open());
        writing.retire();
        assert!(!writing.is_open());
    }
}
