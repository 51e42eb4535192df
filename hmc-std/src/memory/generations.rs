//! Generations of the blocks of exposed memory.

use hmc_core::blocks::WindowBlocks;
use hmc_core::limits::MAX_BLOCKS;
use hmc_core::range::{Extent, RangeError, Side};
use hmc_mem::error::MemError;
use hmc_mem::generations::Generations as Words;

use super::{Memory, Region};
use crate::base::error::{Error, Result};

/// A generation for each block of exposed memory: 1 to 65,536 blocks of equal length. [`Memory::generations`] makes the table, and
/// [`Peer::expose_blocks`] exposes windows with it. Clones are handles of the same table; several threads may call all methods at a
/// time.
///
/// It serves an owner that reuses blocks (a cache, for example) and hands out references to them: a reference names the block's
/// generation, and a transfer that expects it ([`Request::expect`], [`Piece::expect`]) is refused after the owner has advanced the
/// generation.
///
/// - The owner calls [`Generations::advance`] before it writes the block's next bytes, and hands out references to the new
///   generation once all of them are written.
/// - A get that succeeds has only bytes that the block had in the expected generation. The generation is compared before and
///   after the bytes are read, by the owner's library (TCP, UCX, RDMA, and memory that is not mapped) or by the peer's (memory
///   that is mapped there).
/// - A put that succeeds has written its bytes before the owner advanced the generation: whatever the owner writes into the block
///   later replaces them.
/// - A put that is under way while the owner advances the generation fails, but bytes of it may be written after
///   [`Generations::advance`] has returned: at most the piece under way, of up to 1 MiB. If peers put into the blocks, the owner
///   has to wait for these puts before it reuses a block: for a message of the peer that its put has ended, or for the revocation of
///   the window ([`Window::revoke`]), which is a fence. Blocks that peers only get need no wait.
///
/// A generation has 32 bits, starts at 0 and wraps: a reference that is 2^32 advances old is taken for a current one.
///
/// [`Peer::expose_blocks`]: crate::Peer::expose_blocks
/// [`Request::expect`]: crate::Request::expect
/// [`Piece::expect`]: crate::Piece::expect
/// [`Window::revoke`]: crate::Window::revoke
#[derive(Clone, Debug)]
pub struct Generations {
    table: Region,
    blocks: WindowBlocks,
}

impl Memory {
    /// Makes the table of generations for windows of `len` bytes in blocks of `block_len` bytes. All generations are 0.
    ///
    /// # Errors
    /// `InvalidConfig` unless the window is 1 to 65,536 whole blocks; `Full` if too many regions are registered; `NoSpace`.
    pub fn generations(&self, len: u64, block_len: u64) -> Result<Generations> {
        let blocks = WindowBlocks::new(Extent::new(len), block_len).ok_or_else(|| {
            Error::config(format!(
                "a window of {len} bytes is not 1 to {MAX_BLOCKS} whole blocks of {block_len} bytes"
            ))
        })?;
        let table = self.allocate(blocks.table().len())?;
        // Peers map it for reading only; where that cannot be had they do not map it.
        table.seal_writes();
        Ok(Generations { table, blocks })
    }
}

impl Generations {
    /// Returns the number of blocks.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.blocks.count()
    }

    /// Always `false`: there is at least one block.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the length of a block in bytes.
    #[must_use]
    pub const fn block_len(&self) -> u64 {
        self.blocks.block_bytes()
    }

    /// Returns the generation of a block.
    ///
    /// # Errors
    /// `Range` if there is no such block; `Forked`.
    pub fn get(&self, block: u32) -> Result<u32> {
        self.words()?.get(block).ok_or_else(|| self.no_block(block))
    }

    /// Advances the generation of a block, and returns the new one. Takes no lock and makes no system call. What this thread
    /// stores after the call is visible to others only after the new generation is (a sequentially consistent fence).
    ///
    /// # Errors
    /// `Range` if there is no such block; `Forked`.
    pub fn advance(&self, block: u32) -> Result<u32> {
        self.words()?.advance(block).ok_or_else(|| self.no_block(block))
    }

    fn words(&self) -> Result<Words<'_>> {
        Ok(Words::new(self.table.checked()?, self.blocks).map_err(MemError::from)?)
    }

    #[cold]
    fn no_block(&self, block: u32) -> Error {
        let (offset, limit) = (block.into(), self.len().into());
        let range = RangeError { side: Side::Local, offset, len: 1, limit };
        Error::out_of_range(format!("block {block}"), range)
    }

    pub(crate) const fn table(&self) -> &Region {
        &self.table
    }

    pub(crate) const fn blocks(&self) -> &WindowBlocks {
        &self.blocks
    }
}
