//! A mapped window with one of its gates.

use std::sync::Arc;

use hmc_core::range::ByteRange;

use super::MappedWindow;
use super::moved::Counts;
use crate::gate::WindowGate;
use crate::os::words::PeerWord;
use crate::shared::SharedBytes;

/// A mapped window and the gate by which the handle's copies enter it. All methods may be called by several threads at a time.
/// [`GATES`](crate::os::words::GATES) handles of a peer's windows that are made one after another write no cache line in common,
/// if each is of one of the first [`FURTHER_GATE_WINDOWS`](crate::os::words::FURTHER_GATE_WINDOWS) windows. Others may share
/// one, since the numbers of gates repeat over all handles that were ever made, and a window beyond the first ones has one gate.
#[derive(Debug)]
pub struct MappedHandle {
    window: Arc<MappedWindow>,
    gate: PeerWord,
    number: u8,
}

impl MappedHandle {
    /// Returns a handle of a window, by the next of the gates in turn. `None` if the peer's pages have no gate for the window.
    #[must_use]
    pub fn new(window: Arc<MappedWindow>) -> Option<Self> {
        let number = window.moved.next();
        let gate = window.peer.gates.gate(number, window.id.index())?;
        Some(Self { window, gate, number })
    }

    /// Returns another handle of the window, by the next gate.
    #[must_use]
    pub fn another(&self) -> Option<Self> {
        Self::new(Arc::clone(&self.window))
    }

    /// Copies a range of `from`, one piece of a transfer of `whole` bytes, to `offset` of the window and counts it. When it returns
    /// `true`, the peer can read the bytes. Returns `false` if [`MappedWindow::write`] fails.
    #[must_use]
    #[inline(always)]
    pub fn put(
        &self,
        (offset, expected): (u64, Option<u32>),
        from: SharedBytes<'_>,
        local: ByteRange,
        whole: u64,
    ) -> bool {
        let done =
            self.window.write_by(self.gate(), (offset, expected), from, local, whole).is_ok();
        if done && let Some(counts) = self.counts() {
            counts.add_put(local.len());
        }
        done
    }

    /// Copies from `offset` of the window to the range `local` of `into`, one piece of a transfer of `whole` bytes, and counts it. Returns
    /// `false` if [`MappedWindow::read`] fails.
    #[must_use]
    #[inline(always)]
    pub fn get(
        &self,
        (offset, expected): (u64, Option<u32>),
        into: SharedBytes<'_>,
        local: ByteRange,
        whole: u64,
    ) -> bool {
        let done = self.window.read_by(self.gate(), (offset, expected), into, local, whole).is_ok();
        if done && let Some(counts) = self.counts() {
            counts.add_get(local.len());
        }
        done
    }

    #[inline(always)]
    const fn gate(&self) -> WindowGate<'_> {
        WindowGate::new(self.gate.get())
    }

    #[inline(always)]
    fn counts(&self) -> Option<&Counts> {
        self.window.moved.of(self.number)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::super::tests::{EPOCH, NAME, range, window};
    use super::super::{MappedWindow, Moved, PeerPages};
    use super::MappedHandle;
    use crate::gate::WindowGate;
    use crate::os::memfd::Mapping;
    use crate::os::words::{GATES, PeerWords};
    use hmc_core::types::Access;
    use std::sync::Arc;

    #[test]
    fn what_is_copied_is_counted_and_nothing_else() {
        let ours = Mapping::create(4096).unwrap();
        let (window, theirs) = window(Access::all());
        let handle = MappedHandle::new(Arc::clone(&window)).unwrap();
        let moved = || (window.moved.puts(), window.moved.gets(), window.moved.bytes());
        ours.bytes().fill(range(0, 8), 7).unwrap();
        assert!(handle.put((16, None), ours.bytes(), range(0, 8), 8));
        assert!(handle.another().unwrap().get((12, None), ours.bytes(), range(100, 12), 12));
        let mut got = [0; 12];
        theirs.bytes().read_at(range(1024 + 12, 12), &mut got).unwrap();
        assert_eq!((&got[4..], moved()), (&[7; 8][..], (1, 1, 20)));
        ours.bytes().read_at(range(100, 12), &mut got).unwrap();
        assert_eq!(got[4..], [7; 8]);
        for (offset, len) in [(1017, 8), (0, 1025), (u64::MAX, 2)] {
            assert!(!handle.put((offset, None), ours.bytes(), range(0, len), len));
            assert!(!handle.get((offset, None), ours.bytes(), range(0, len), len));
        }
        window.retire();
        assert!(!handle.put((0, None), ours.bytes(), range(0, 8), 8));
        assert!(!handle.get((0, None), ours.bytes(), range(0, 8), 8));
        assert_eq!((moved(), window.gate().unwrap().active()), ((1, 1, 20), 0));
    }

    /// Handles take the gates in turn, over all windows of a peer. Each is refused when its own gate is closed, and no other.
    #[test]
    fn each_handle_enters_by_a_gate_of_its_own() {
        let gates = Arc::new(
            PeerWords::new(Mapping::create(4096).unwrap()).unwrap().with_further_gates(true),
        );
        let ours = Arc::new(Mapping::create(4096).unwrap());
        let (pages, moved) =
            (PeerPages { gates: Arc::clone(&gates), life: None }, Arc::new(Moved::default()));
        let part = (Arc::clone(&ours), range(0, 4096));
        let window = MappedWindow::new(NAME, Access::all(), part, pages, Arc::clone(&moved));
        let first = MappedHandle::new(Arc::new(window.unwrap())).unwrap();
        let others = (1..GATES).map(|_| first.another().unwrap());
        let handles: Vec<MappedHandle> =
            std::iter::once(first.another().unwrap()).chain(others).collect();
        drop(first);
        let word = |number| gates.gate(number, NAME.0.index()).unwrap();
        let is_let_in = || {
            let put = |handle: &MappedHandle| handle.put((0, None), ours.bytes(), range(64, 8), 8);
            handles.iter().map(put).collect::<Vec<_>>()
        };
        (0..GATES).for_each(|number| WindowGate::new(word(number).get()).open(EPOCH).unwrap());
        assert!(is_let_in().iter().all(|is_in| *is_in));
        assert_eq!((moved.puts(), moved.bytes()), (8, 64));
        for number in 0..GATES {
            let word = word(number);
            WindowGate::new(word.get()).close();
            let refused = is_let_in().iter().filter(|is_in| !**is_in).count();
            assert_eq!(refused, 1, "gate {number}");
            WindowGate::new(word.get()).open(EPOCH).unwrap();
        }
    }
}
