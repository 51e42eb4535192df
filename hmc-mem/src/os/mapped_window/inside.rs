//! Several copies between one entry of a window's gate and one exit.

use hmc_core::range::ByteRange;
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::work::Failure;

use super::{MappedWindow, compare};
use crate::generations::ExpectedBlocks;
use crate::shared::SharedBytes;

/// A window whose gate was entered ([`MappedWindow::inside`]).
#[derive(Debug)]
pub struct Inside<'a> {
    window: &'a MappedWindow,
    needed: Access,
}

impl MappedWindow {
    /// Enters the gate for copies that need `needed` (reading or writing), calls `copies`, which must not panic, and exits. An entry
    /// or exit takes as long as the stores before it need to leave the processor, so short copies are faster together. The owner's
    /// revocation waits for all of them: copy at most 1 MiB in one call.
    ///
    /// # Errors
    /// `Window` if the window is closed or retired, or does not grant `needed`; `PeerDead` if the peer's process has exited. The
    /// bytes of all copies are then old, new or mixed.
    #[inline]
    pub fn inside<R>(
        &self,
        needed: Access,
        copies: impl FnOnce(&Inside<'_>) -> R,
    ) -> Result<R, Failure> {
        if !self.access.contains(needed) {
            return Err(Failure::Window(WindowFault::Access));
        }
        let gate = self.gate()?;
        self.enter(gate)?;
        let result = copies(&Inside { window: self, needed });
        self.exit(gate, needed)?;
        Ok(result)
    }
}

impl Inside<'_> {
    /// Copies the range `local` of `memory`, one piece of a transfer of `whole` bytes, to `offset` of the window, or from there if the
    /// gate was entered for reading. If a generation is `expected`, each block of which the copy has bytes must have it before and
    /// after the copy. Success counts only if [`MappedWindow::inside`] succeeds.
    ///
    /// # Errors
    /// `Window` if the window is too short, or a block has another generation; `UnknownRegion` if `local` exceeds `memory`;
    /// `Unsupported` if the generations are not mapped.
    #[inline]
    pub fn copy(
        &self,
        (offset, expected): (u64, Option<u32>),
        memory: SharedBytes<'_>,
        local: ByteRange,
        whole: u64,
    ) -> Result<(), Failure> {
        let Self { window, needed } = self;
        let there = window.range(*needed, offset, local.len())?;
        let blocks = window.expect(there, expected)?;
        compare(&blocks, ExpectedBlocks::check)?;
        if needed.contains(Access::WRITE) {
            let copied = memory.copy_piece_to(local, &window.bytes, there, whole);
            copied.map_err(|_| Failure::UnknownRegion)?;
            compare(&blocks, ExpectedBlocks::recheck_write)
        } else {
            let copied = window.bytes.copy_piece_to(there, &memory, local, whole);
            copied.map_err(|_| Failure::UnknownRegion)?;
            compare(&blocks, ExpectedBlocks::recheck_read)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::super::tests::{REVOKED, range, window};
    use crate::os::memfd::Mapping;
    use hmc_core::blocks::WindowBlocks;
    use hmc_core::range::Extent;
    use hmc_core::types::Access;
    use hmc_core::window::{StaleGeneration, WindowFault};
    use hmc_core::work::Failure;
    use std::sync::Arc;

    #[test]
    fn copies_of_one_entry_go_both_ways_and_fail_one_by_one() {
        let (w, theirs) = window(Access::all());
        let ours = Mapping::create(4096).unwrap();
        ours.bytes().fill(range(0, 8), 7).unwrap();
        let entered = w.inside(Access::WRITE, |inside| {
            assert_eq!(w.gate().unwrap().active(), 1);
            [(0, 0), (1020, 0), (8, 4092), (1016, 0)]
                .map(|(to, from)| inside.copy((to, None), ours.bytes(), range(from, 8), 8))
        });
        let [first, beyond, unknown, last] = entered.unwrap();
        assert_eq!((first, unknown, last), (Ok(()), Err(Failure::UnknownRegion), Ok(())));
        assert!(matches!(beyond, Err(Failure::Window(WindowFault::OutOfWindow(_)))));
        let mut got = [0; 16];
        theirs.bytes().read_at(range(1024, 16), &mut got).unwrap();
        assert_eq!(got, [7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
        let read = w.inside(Access::READ, |inside| {
            inside.copy((1012, None), ours.bytes(), range(64, 12), 12)
        });
        assert_eq!(read, Ok(Ok(())));
        ours.bytes().read_at(range(64, 16), &mut got).unwrap();
        assert_eq!(got, [0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0]);
        assert_eq!(w.gate().unwrap().active(), 0);
    }

    /// The generations of the four blocks are in the first 32 bytes of the window, so that copies change them.
    #[test]
    fn each_copy_of_one_entry_compares_its_generation_before_and_after() {
        let (w, theirs) = window(Access::all());
        let ours = Mapping::create(4096).unwrap();
        ours.bytes().fill(range(0, 8), 7).unwrap();
        let no_table = w
            .inside(Access::READ, |inside| inside.copy((0, Some(0)), ours.bytes(), range(0, 8), 8));
        assert_eq!(no_table, Ok(Err(Failure::Unsupported)));
        let blocks = WindowBlocks::new(Extent::new(1024), 256).unwrap();
        let table = (Arc::clone(w.map()), 1024);
        let w = Arc::into_inner(w).unwrap().with_generations(table, blocks).unwrap();
        theirs.bytes().fill(range(1024 + 8, 1), 1).unwrap();
        let stale = |block, expected, found| {
            let e = StaleGeneration { block, expected, found };
            Err(Failure::Window(WindowFault::StaleGeneration(e)))
        };
        let puts = [(512, 0), (256, 0), (264, 1), (0, 0), (768, 0)];
        let put = w.inside(Access::WRITE, |inside| {
            puts.map(|(at, n)| inside.copy((at, Some(n)), ours.bytes(), range(0, 8), 8))
        });
        let changed = 0x0707_0707;
        let want = [Ok(()), stale(1, 0, 1), Ok(()), stale(0, 0, changed), Ok(())];
        assert_eq!(put, Ok(want));
        let mut got = [0; 16];
        theirs.bytes().read_at(range(1024 + 256, 16), &mut got).unwrap();
        assert_eq!(got, [0, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7], "the first was refused");
        // From block 2 to its generation.
        let gets = [(264, 64), (256, 72), (512, 1024 + 16), (768, 80)];
        let get = w.inside(Access::READ, |inside| {
            gets.map(|(at, to)| {
                let expected = Some(u32::from(at == 264));
                inside.copy((at, expected), theirs.bytes(), range(to, 8), 8)
            })
        });
        assert_eq!(get, Ok([Ok(()), stale(1, 0, 1), stale(2, 0, changed), Ok(())]));
        theirs.bytes().read_at(range(64, 16), &mut got).unwrap();
        assert_eq!(got, [7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(w.gate().unwrap().active(), 0);
    }

    #[test]
    fn copies_during_a_revocation_or_without_the_right_are_no_success() {
        let (w, _theirs) = window(Access::all());
        assert_eq!(w.inside(Access::WRITE, |_| w.gate().unwrap().close()), Err(REVOKED));
        assert_eq!(w.inside(Access::WRITE, |_| panic!("it is closed")), Err::<(), _>(REVOKED));
        let (w, _theirs) = window(Access::all());
        assert_eq!(w.inside(Access::READ, |_| w.retire()), Err(REVOKED));
        assert_eq!(w.gate().unwrap().active(), 0);
        for (granted, needed) in [(Access::READ, Access::WRITE), (Access::WRITE, Access::READ)] {
            let (w, _theirs) = window(granted);
            let refused = w.inside(needed, |_| panic!("without the right"));
            assert_eq!(refused, Err::<(), _>(Failure::Window(WindowFault::Access)));
        }
    }
}
