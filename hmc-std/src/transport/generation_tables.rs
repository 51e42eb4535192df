//! Generations of the blocks of this end's windows, as a target that makes its copies itself compares them.

use hmc_core::blocks::WindowBlocks;
use hmc_core::range::{Extent, Side};
use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::window::WindowFault;
use hmc_core::work::Failure;
use hmc_mem::generations::Generations;

use crate::memory::Region;

/// When generations are compared with the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Before bytes are copied.
    Before,
    /// After bytes of the window were read.
    Read,
    /// After bytes of the window were written.
    Written,
}

#[derive(Debug)]
struct Table {
    id: WindowId,
    epoch: Epoch,
    words: Region,
    blocks: WindowBlocks,
}

/// The tables of the windows towards one peer.
#[derive(Debug, Default)]
pub(crate) struct GenerationTables(Vec<Table>);

impl GenerationTables {
    /// Adds that of a window.
    pub(crate) fn add(&mut self, words: &Region, blocks: WindowBlocks, window: &WindowDesc) {
        let (id, epoch) = (window.window, window.epoch);
        self.0.push(Table { id, epoch, words: words.clone(), blocks });
    }

    /// Removes that of a window, if it has one.
    pub(crate) fn remove(&mut self, id: WindowId, epoch: Epoch) {
        self.0.retain(|t| t.id != id || t.epoch != epoch);
    }

    /// Compares the generations of blocks that have some of the `len` bytes at `offset` of a window.
    ///
    /// # Errors
    /// `Window` if a block has another generation than expected; `Unsupported` if the window has no generations.
    pub(crate) fn check(
        &self,
        when: When,
        (id, epoch): (WindowId, Epoch),
        (offset, len): (u64, u64),
        expected: u32,
    ) -> Result<(), Failure> {
        let table = self.0.iter().find(|t| t.id == id && t.epoch == epoch);
        let table = table.ok_or(Failure::Unsupported)?;
        let words = Generations::new(table.words.bytes(), table.blocks);
        let words = words.map_err(|_| Failure::Unsupported)?;
        let span = Extent::new(u64::MAX).span(Side::Remote, offset, len);
        let span = span.map_err(|e| Failure::Window(WindowFault::OutOfWindow(e)))?;
        let blocks = words.expect(span, expected);
        let checked = match when {
            When::Before => blocks.check(),
            When::Read => blocks.recheck_read(),
            When::Written => blocks.recheck_write(),
        };
        checked.map_err(|e| Failure::Window(WindowFault::StaleGeneration(e)))
    }
}
