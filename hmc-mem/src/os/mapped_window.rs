//! A window of a peer on the same host whose pages are mapped here: puts and gets are copies, inside the window's gate.

pub mod handle;
pub mod inside;
mod moved;
mod publish;

pub use moved::Moved;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hmc_core::blocks::WindowBlocks;
use hmc_core::range::{ByteRange, Side};
use hmc_core::region::{Epoch, WindowId};
use hmc_core::types::Access;
use hmc_core::window::{StaleGeneration, WindowFault};
use hmc_core::work::Failure;

use crate::gate::{MAX_EPOCH, WindowGate};
use crate::generations::{ExpectedBlocks, Generations};
use crate::os::life::PeerLife;
use crate::os::memfd::Mapping;
use crate::os::words::PeerWords;
use crate::shared::{SharedBytes, SharedError};

/// The pages that a peer shares in addition to those of its windows.
#[derive(Clone, Debug)]
pub struct PeerPages {
    /// The gates of its windows.
    pub gates: Arc<PeerWords>,
    /// The mark of its process's exit, if the peer shares one.
    pub life: Option<Arc<PeerLife>>,
}

/// One exposure of a peer's window, mapped into this process. All methods may be called by several threads at a time.
/// Each copy checks revocation, epoch, rights and the exit of the peer, without a lock.
#[derive(Debug)]
pub struct MappedWindow {
    id: WindowId,
    epoch: Epoch,
    access: Access,
    /// The window's bytes, of `map`, which stays as long as this value.
    bytes: SharedBytes<'static>,
    map: Arc<Mapping>,
    /// The generations of its blocks, of the mapping beside them.
    generations: Option<(Generations<'static>, Arc<Mapping>)>,
    peer: PeerPages,
    /// Its link uses it no more, and may detach the mapping.
    retired: AtomicBool,
    moved: Arc<Moved>,
}

impl MappedWindow {
    /// Returns the window `id` of an epoch, which is `range` of `map`. `moved` counts the transfers of its handles.
    ///
    /// # Errors
    /// [`SharedError::Range`] if the range does not lie within the mapping.
    pub fn new(
        (id, epoch): (WindowId, Epoch),
        access: Access,
        (map, range): (Arc<Mapping>, ByteRange),
        peer: PeerPages,
        moved: Arc<Moved>,
    ) -> Result<Self, SharedError> {
        let (at, len) = map.bytes().locate(range)?;
        // Never null: it lies within a mapping, or one past its end.
        let at = NonNull::new(at).unwrap_or(NonNull::dangling());
        // SAFETY: the bytes are those of `map`, which keeps its pages mapped and is kept by the value; the view leaves it only
        // with the life of a borrow of the value. No Rust object lies in the pages of a peer.
        let bytes = unsafe { SharedBytes::new(at, len) };
        let bytes = if map.access().contains(Access::WRITE) { bytes } else { bytes.read_only() };
        let retired = AtomicBool::new(false);
        Ok(Self { id, epoch, access, bytes, map, generations: None, peer, retired, moved })
    }

    /// With the generations of its blocks, which `table` has from `offset` on.
    ///
    /// # Errors
    /// [`SharedError::Range`] if the mapping ends before; [`SharedError::Misaligned`].
    pub fn with_generations(
        mut self,
        (table, offset): (Arc<Mapping>, u64),
        blocks: WindowBlocks,
    ) -> Result<Self, SharedError> {
        let (at, len) = table.bytes().locate(table.bytes().span(offset, blocks.table().len())?)?;
        // Never null: it lies within a mapping.
        let at = NonNull::new(at).unwrap_or(NonNull::dangling());
        // SAFETY: as in `new`, of `table`, which the value keeps beside the view.
        let words = unsafe { SharedBytes::new(at, len) }.read_only();
        self.generations = Some((Generations::new(words, blocks)?, table));
        Ok(self)
    }

    /// Whether the generations of its blocks are mapped.
    #[must_use]
    pub const fn has_generations(&self) -> bool {
        self.generations.is_some()
    }

    /// The blocks that have bytes of `there`, if their generations are to be compared.
    #[inline(always)]
    fn expect(
        &self,
        there: ByteRange,
        expected: Option<u32>,
    ) -> Result<Option<ExpectedBlocks<'static>>, Failure> {
        let Some(expected) = expected else { return Ok(None) };
        let (generations, _) = self.generations.as_ref().ok_or(Failure::Unsupported)?;
        Ok(Some(generations.expect(there, expected)))
    }

    /// Returns the window's id.
    #[must_use]
    pub const fn id(&self) -> WindowId {
        self.id
    }

    /// Returns the epoch of the exposure.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the rights that the peer granted.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Returns the mapping that contains the window. Windows over one memfd share a mapping.
    #[must_use]
    pub const fn map(&self) -> &Arc<Mapping> {
        &self.map
    }

    /// Retires the window before its mapping is detached: later copies fail, and so do copies in progress, whose bytes
    /// may be in detached pages.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Copies a range of `from`, one piece of a transfer of `whole` bytes, to `offset` of the window. If a generation is
    /// `expected`, each block of which the copy has bytes must have it before and after the copy.
    ///
    /// # Errors
    /// `Window` if the window is closed or retired, does not allow writing or is too short, or a block has another
    /// generation; `PeerDead` if the peer's process has exited; `UnknownRegion` if `local` exceeds `from`; `Unsupported`
    /// if the generations are not mapped. The bytes of the window are then old, new or mixed.
    #[inline(always)]
    pub fn write(
        &self,
        (offset, expected): (u64, Option<u32>),
        from: SharedBytes<'_>,
        local: ByteRange,
        whole: u64,
    ) -> Result<(), Failure> {
        self.write_by(self.gate()?, (offset, expected), from, local, whole)
    }

    /// [`Self::write`] by one of the window's gates.
    #[inline(always)]
    fn write_by(
        &self,
        gate: WindowGate<'_>,
        (offset, expected): (u64, Option<u32>),
        from: SharedBytes<'_>,
        local: ByteRange,
        whole: u64,
    ) -> Result<(), Failure> {
        let there = self.range(Access::WRITE, offset, local.len())?;
        let blocks = self.expect(there, expected)?;
        self.enter(gate)?;
        let copied = compare(&blocks, ExpectedBlocks::check).and_then(|()| {
            let copied = from.copy_piece_to(local, &self.bytes, there, whole);
            copied.map_err(|_| Failure::UnknownRegion)
        });
        self.exit(gate, Access::WRITE)?;
        copied.and_then(|()| compare(&blocks, ExpectedBlocks::recheck_write))
    }

    /// Copies from `offset` of the window to a range of `into`, one piece of a transfer of `whole` bytes.
    ///
    /// # Errors
    /// Those of [`Self::write`], for reading. The bytes of `into` are then old, new or mixed.
    #[inline(always)]
    pub fn read(
        &self,
        (offset, expected): (u64, Option<u32>),
        into: SharedBytes<'_>,
        local: ByteRange,
        whole: u64,
    ) -> Result<(), Failure> {
        self.read_by(self.gate()?, (offset, expected), into, local, whole)
    }

    /// [`Self::read`] by one of the window's gates.
    #[inline(always)]
    fn read_by(
        &self,
        gate: WindowGate<'_>,
        (offset, expected): (u64, Option<u32>),
        into: SharedBytes<'_>,
        local: ByteRange,
        whole: u64,
    ) -> Result<(), Failure> {
        let there = self.range(Access::READ, offset, local.len())?;
        let blocks = self.expect(there, expected)?;
        self.enter(gate)?;
        let copied = compare(&blocks, ExpectedBlocks::check).and_then(|()| {
            let copied = self.bytes.copy_piece_to(there, &into, local, whole);
            copied.map_err(|_| Failure::UnknownRegion)
        });
        self.exit(gate, Access::READ)?;
        copied.and_then(|()| compare(&blocks, ExpectedBlocks::recheck_read))
    }

    /// The range of `len` bytes from `offset`, to be accessed with those rights.
    #[inline(always)]
    fn range(&self, needed: Access, offset: u64, len: u64) -> Result<ByteRange, Failure> {
        if !self.access.contains(needed) {
            return Err(Failure::Window(WindowFault::Access));
        }
        let there = self.bytes.extent().span(Side::Remote, offset, len);
        there.map_err(|e| Failure::Window(WindowFault::OutOfWindow(e)))
    }

    /// The window's first gate.
    #[inline(always)]
    fn gate(&self) -> Result<WindowGate<'_>, Failure> {
        let word = self.peer.gates.get(self.id.index());
        Ok(WindowGate::new(word.ok_or(Failure::Window(WindowFault::Unknown))?))
    }

    /// Enters a gate of the window.
    #[inline(always)]
    fn enter(&self, gate: WindowGate<'_>) -> Result<(), Failure> {
        gate.enter(self.gate_epoch()).map_err(|_| Failure::Window(WindowFault::Revoked))
    }

    /// Leaves the gate after a copy. `Err` if the bytes may be nobody's.
    #[inline(always)]
    fn exit(&self, gate: WindowGate<'_>, needed: Access) -> Result<(), Failure> {
        let stayed_open = gate.exit_open(self.gate_epoch());
        // Pages outlive their owner: bytes for nobody are no success. The kernel says so before anybody can wait for its end.
        let ended = self.peer.life.as_ref().is_some_and(|life| life.has_ended());
        if ended {
            return Err(Failure::PeerDead);
        }
        // A copy that touched a page of a detached mapping finds this set: it is set before the pages are replaced.
        if self.retired.load(Ordering::Acquire) {
            return Err(Failure::Window(WindowFault::Revoked));
        }
        // An owner that gave up waiting has put fresh pages under its window: bytes in the old ones are no success either.
        if !stayed_open && needed.contains(Access::WRITE) {
            return Err(Failure::Window(WindowFault::Revoked));
        }
        Ok(())
    }

    #[inline]
    const fn gate_epoch(&self) -> u32 {
        self.epoch.0 & MAX_EPOCH
    }
}

/// Compares the generations of blocks, if they are to be compared.
#[inline(always)]
fn compare(
    blocks: &Option<ExpectedBlocks<'static>>,
    check: impl FnOnce(&ExpectedBlocks<'static>) -> Result<(), StaleGeneration>,
) -> Result<(), Failure> {
    let stale = |e| Failure::Window(WindowFault::StaleGeneration(e));
    blocks.as_ref().map_or(Ok(()), |blocks| check(blocks).map_err(stale))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::{MappedWindow, Moved, PeerPages};
    use crate::gate::WindowGate;
    use crate::generations::Generations;
    use crate::os::memfd::Mapping;
    use crate::os::words::PeerWords;
    use hmc_core::blocks::WindowBlocks;
    use hmc_core::range::{ByteRange, Extent, Side};
    use hmc_core::region::{Epoch, WindowId};
    use hmc_core::types::Access;
    use hmc_core::window::{StaleGeneration, WindowFault};
    use hmc_core::work::Failure;
    use std::sync::Arc;

    pub(super) const EPOCH: u32 = 1;
    pub(super) const NAME: (WindowId, Epoch) = (WindowId::new(3, 0), Epoch(EPOCH));
    pub(super) const REVOKED: Failure = Failure::Window(WindowFault::Revoked);

    pub(super) fn range(offset: u64, len: u64) -> ByteRange {
        Extent::new(u64::MAX).span(Side::Local, offset, len).unwrap()
    }

    /// The bytes 1024 to 2048 of a memfd as an open window, and the memfd.
    pub(super) fn window(access: Access) -> (Arc<MappedWindow>, Mapping) {
        let theirs = Mapping::create(4096).unwrap();
        let fd = theirs.fd().unwrap().try_clone_to_owned().unwrap();
        let map = Arc::new(Mapping::map_peer(fd, 4096, 0, access).unwrap());
        let gates = Arc::new(PeerWords::new(Mapping::create(4096).unwrap()).unwrap());
        WindowGate::new(gates.get(3).unwrap()).open(EPOCH).unwrap();
        let pages = PeerPages { gates, life: None };
        let part = (map, range(1024, 1024));
        let window = MappedWindow::new(NAME, access, part, pages, Arc::new(Moved::default()));
        (Arc::new(window.unwrap()), theirs)
    }

    /// A window that a copy has entered.
    pub(super) fn entered(window: &MappedWindow) -> WindowGate<'_> {
        let gate = window.gate().unwrap();
        window.enter(gate).unwrap();
        gate
    }

    #[test]
    fn bytes_go_to_their_offset_in_the_window_and_back() {
        let (w, theirs) = window(Access::all());
        let ours = Mapping::create(4096).unwrap();
        ours.bytes().fill(range(0, 8), 7).unwrap();
        assert_eq!(w.write((1016, None), ours.bytes(), range(0, 8), 8), Ok(()));
        let mut got = [0; 16];
        theirs.bytes().read_at(range(2036, 16), &mut got).unwrap();
        assert_eq!(got, [0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0]);
        assert_eq!(w.read((1012, None), ours.bytes(), range(100, 12), 12), Ok(()));
        ours.bytes().read_at(range(98, 16), &mut got).unwrap();
        assert_eq!(got, [0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
        assert_eq!(w.gate().unwrap().active(), 0);
    }

    #[test]
    fn what_exceeds_the_window_or_its_rights_moves_nothing() {
        let ours = Mapping::create(4096).unwrap();
        ours.bytes().fill(range(0, 4096), 7).unwrap();
        let (w, theirs) = window(Access::all());
        for (offset, len) in [(1017, 8), (1025, 0), (0, 1025), (u64::MAX, 2)] {
            let e = w.write((offset, None), ours.bytes(), range(0, len), len).unwrap_err();
            assert!(matches!(e, Failure::Window(WindowFault::OutOfWindow(_))), "{offset} {len}");
            assert!(w.read((offset, None), ours.bytes(), range(0, len), len).is_err());
        }
        assert_eq!(
            w.write((0, None), ours.bytes(), range(4090, 8), 8),
            Err(Failure::UnknownRegion)
        );
        assert_eq!(
            theirs.bytes().crc32c(range(0, 4096)),
            Mapping::create(4096).unwrap().bytes().crc32c(range(0, 4096))
        );
        assert_eq!(w.gate().unwrap().active(), 0);
        let denied = Err(Failure::Window(WindowFault::Access));
        let (reading, _theirs) = window(Access::READ);
        assert_eq!(reading.write((0, None), ours.bytes(), range(0, 8), 8), denied);
        assert_eq!(reading.read((0, None), ours.bytes(), range(0, 8), 8), Ok(()));
        let (writing, _theirs) = window(Access::WRITE);
        assert_eq!(writing.read((0, None), ours.bytes(), range(0, 8), 8), denied);
        assert_eq!(writing.write((0, None), ours.bytes(), range(0, 8), 8), Ok(()));
    }

    /// An owner that waits no longer puts fresh pages under its window while a copy is inside: the bytes of a put are in
    /// the old pages, which nobody reads.
    #[test]
    fn a_put_into_a_window_that_was_closed_meanwhile_is_no_success() {
        let (w, _theirs) = window(Access::all());
        let copy = |needed, meanwhile: &dyn Fn()| {
            let gate = entered(&w);
            meanwhile();
            w.exit(gate, needed)
        };
        let open = || {
            w.gate().unwrap().close();
            w.gate().unwrap().open(EPOCH).unwrap();
        };
        assert_eq!(copy(Access::WRITE, &|| ()), Ok(()));
        assert_eq!(copy(Access::WRITE, &|| w.gate().unwrap().close()), Err(REVOKED));
        let ours = Mapping::create(4096).unwrap();
        assert_eq!(w.write((0, None), ours.bytes(), range(0, 8), 8), Err(REVOKED));
        assert_eq!(w.read((0, None), ours.bytes(), range(0, 8), 8), Err(REVOKED));
        open();
        assert_eq!(copy(Access::READ, &|| w.gate().unwrap().close()), Ok(()), "bytes of before");
        open();
        let reopen = || w.gate().unwrap().open(EPOCH + 1).unwrap();
        assert_eq!(copy(Access::WRITE, &reopen), Err(REVOKED), "it is another window");
        assert_eq!(w.gate().unwrap().active(), 0);
    }

    /// A window of blocks of 256 bytes, of which the second has generation 1.
    #[test]
    fn a_copy_needs_the_generation_before_and_after() {
        let blocks = WindowBlocks::new(Extent::new(1024), 256).unwrap();
        let table = Mapping::create(4096).unwrap();
        let theirs = Generations::new(table.bytes(), blocks).unwrap();
        assert_eq!(theirs.advance(1), Some(1));
        let fd = table.fd().unwrap().try_clone_to_owned().unwrap();
        let map = Arc::new(Mapping::map_peer(fd, 4096, 0, Access::READ).unwrap());
        let ours = Mapping::create(4096).unwrap();
        let (w, _pages) = window(Access::all());
        let copies = |w: &MappedWindow, at, expected| {
            [
                w.write((at, expected), ours.bytes(), range(0, 8), 8),
                w.read((at, expected), ours.bytes(), range(0, 8), 8),
            ]
        };
        assert_eq!(copies(&w, 0, Some(0)), [Err(Failure::Unsupported); 2]);
        assert!(
            Arc::into_inner(w).unwrap().with_generations((Arc::clone(&map), 4072), blocks).is_err()
        );
        let (w, _pages) = window(Access::all());
        let w = Arc::new(Arc::into_inner(w).unwrap().with_generations((map, 0), blocks).unwrap());
        let stale = |block, expected, found| {
            let e = StaleGeneration { block, expected, found };
            [Err(Failure::Window(WindowFault::StaleGeneration(e))); 2]
        };
        assert_eq!(copies(&w, 0, Some(0)), [Ok(()); 2]);
        assert_eq!(copies(&w, 256, Some(1)), [Ok(()); 2]);
        assert_eq!(copies(&w, 256, None), [Ok(()); 2]);
        assert_eq!(copies(&w, 256, Some(0)), stale(1, 0, 1));
        assert_eq!(copies(&w, 252, Some(0)), stale(1, 0, 1));
        assert_eq!(copies(&w, 252, Some(1)), stale(0, 1, 0));
        assert_eq!(copies(&w, 256, Some(2)), stale(1, 2, 1));
        assert_eq!(w.gate().unwrap().active(), 0);
    }

    /// Its pages may be replaced at any moment by ones that nobody has: neither what was written nor what was read counts.
    #[test]
    fn copies_during_a_retirement_are_no_success() {
        let ours = Mapping::create(4096).unwrap();
        for needed in [Access::READ, Access::WRITE] {
            let (w, _theirs) = window(Access::all());
            let gate = entered(&w);
            w.retire();
            assert_eq!(w.exit(gate, needed), Err(REVOKED));
            assert_eq!(w.write((0, None), ours.bytes(), range(0, 8), 8), Err(REVOKED));
            assert_eq!(w.read((0, None), ours.bytes(), range(0, 8), 8), Err(REVOKED));
            assert_eq!(w.gate().unwrap().active(), 0);
        }
    }

    /// Views stay valid, and the pages are the owner's alone.
    #[test]
    fn a_detached_mapping_reads_zeros_and_writes_for_nobody() {
        for access in [Access::all(), Access::READ] {
            let (w, theirs) = window(access);
            theirs.bytes().fill(range(0, 4096), 7).unwrap();
            w.map().detach().unwrap();
            let mut byte = [1];
            w.map().bytes().read_at(range(4095, 1), &mut byte).unwrap();
            assert_eq!(byte, [0]);
            assert_eq!(w.map().bytes().fill(range(0, 4096), 9).is_ok(), access == Access::all());
            theirs.bytes().read_at(range(0, 1), &mut byte).unwrap();
            assert_eq!(byte, [7], "the owner's pages are as they were");
            w.map().detach().unwrap();
        }
    }
}
