//! Generations of the blocks of exposed memory.

use pyo3::prelude::*;

use crate::data::DropDeferred;
use crate::errors::OrRaise;

/// A generation for each block of memory that is exposed with ``Peer.expose(..., generations=)``, from ``Session.generations``.
///
/// For an owner that uses its blocks again (a cache): it calls ``advance(block)`` before it writes a block's next bytes, and hands
/// out the new generation when they are written. A transfer that expects another one (``expect=``, or the fourth number of a copy
/// of a list) raises ``Revoked`` (kind ``"stale_epoch"``): a get never returns other bytes than those of the expected
/// generation. A put that is under way meanwhile raises, too, but some of its bytes may be written into the block after ``advance``
/// has returned.
///
/// >>> import hmc
/// >>> with hmc.Session(rank=0, buffer_size=0) as s:
/// ...     peer, cache, blocks = s.loopback(), s.allocate(64), s.generations(64, 16)
/// ...     window = peer.expose(cache, label=3, generations=blocks)
/// ...     n = cache.write(b"the first bytes.", offset=16)
/// ...     found, first = bytearray(16), blocks[1]
/// ...     peer.get(found, 16, window=peer.window(3), expect=first)
/// ...     now = blocks.advance(1)
/// ...     try:
/// ...         peer.get(found, 16, window=peer.window(3), expect=first)
/// ...     except hmc.Revoked as e:
/// ...         found, now, e.kind
/// (bytearray(b'the first bytes.'), 1, 'stale_epoch')
#[pyclass(module = "hmc._hmc", frozen)]
pub(crate) struct Generations {
    pub(crate) inner: hmc_std::Generations,
    _deferred: DropDeferred,
}

impl Generations {
    pub(crate) fn new(inner: hmc_std::Generations) -> Self {
        Self { inner, _deferred: DropDeferred }
    }
}

#[pymethods]
impl Generations {
    /// Bytes of each block.
    #[getter]
    fn block_size(&self) -> u64 {
        self.inner.block_len()
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.inner.len()).unwrap_or(usize::MAX)
    }

    /// The generation of a block.
    ///
    /// Raises ``OutOfRange`` if there is no such block.
    fn __getitem__(&self, py: Python<'_>, block: u32) -> PyResult<u32> {
        self.inner.get(block).or_raise(py)
    }

    /// Advances the generation of a block, and returns the new one. Bytes that are written after the call belong to it.
    ///
    /// Raises ``OutOfRange`` if there is no such block.
    fn advance(&self, py: Python<'_>, block: u32) -> PyResult<u32> {
        self.inner.advance(block).or_raise(py)
    }

    fn __repr__(&self) -> String {
        format!("<hmc.Generations: {} blocks of {} bytes>", self.inner.len(), self.block_size())
    }
}
