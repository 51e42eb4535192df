//! Pieces of a list of copies.

use hmc_std::{Error, ErrorKind, Piece as StdPiece};
use pyo3::prelude::*;

use crate::ends::Ends;
use crate::errors::refuse;

/// One copy of a list, or many at equal distances: for ``Peer.prepare_put`` and ``Peer.prepare_get``.
///
/// ``count`` blocks of ``nbytes`` bytes. Block ``k`` begins at ``local + k * local_stride`` of the memory here, and at ``remote + k *
/// remote_stride`` of the window: strides are in bytes, as NumPy's, from the first byte of a block to the first byte of the next, but not
/// negative. Blocks overlap if a stride is less than ``nbytes``; with 0 they are the same bytes; with ``nbytes`` they have no gaps,
/// and are moved as one if that is so on both sides. A list takes as much memory and time to check for a piece of millions of blocks as
/// for a piece of one.
///
/// With ``expect``, each block of the window's ``Generations`` of which the piece has bytes must have that generation.
///
/// Raises ``InvalidArgument`` for a negative stride.
///
/// Two columns of a matrix of six, into rows of a matrix there:
///
/// >>> import hmc
/// >>> with hmc.Session(rank=0, buffer_size=4096) as s:
/// ...     columns = hmc.Piece(2, 100, 2, count=3, local_stride=6, remote_stride=4)
/// ...     s.loopback().prepare_put([columns], b"abcdefghijklmnopqr").run()
/// ...     columns, s.buffer.read(10, 100)
/// (hmc.Piece(2, 100, 2, count=3, local_stride=6, remote_stride=4), bytearray(b'cd\x00\x00ij\x00\x00op'))
#[pyclass(module = "hmc._hmc", frozen, eq, hash, from_py_object)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Piece {
    /// Where the first block begins in the memory here.
    #[pyo3(get)]
    local: u64,
    /// Where the first block begins in the window.
    #[pyo3(get)]
    remote: u64,
    /// Bytes of each block.
    #[pyo3(get)]
    nbytes: u64,
    /// How many blocks.
    #[pyo3(get)]
    count: u32,
    /// Bytes from a block here to the next.
    #[pyo3(get)]
    local_stride: u64,
    /// Bytes from a block in the window to the next.
    #[pyo3(get)]
    remote_stride: u64,
    /// The generation of the window's blocks.
    #[pyo3(get)]
    expect: Option<u32>,
}

#[pymethods]
impl Piece {
    #[new]
    #[pyo3(signature = (local, remote, nbytes, *, count = 1, local_stride = 0, remote_stride = 0, expect = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn new(
        py: Python<'_>,
        local: u64,
        remote: u64,
        nbytes: u64,
        count: u32,
        local_stride: i64,
        remote_stride: i64,
        expect: Option<u32>,
    ) -> PyResult<Self> {
        let stride = |name: &str, given: i64| {
            u64::try_from(given).map_err(|_| {
                let what = format!(
                    "{name}={given}: strides are not negative; begin with the block of the lowest \
                     address on both sides, or list the blocks one by one"
                );
                refuse(py, ErrorKind::InvalidConfig, what)
            })
        };
        let local_stride = stride("local_stride", local_stride)?;
        let remote_stride = stride("remote_stride", remote_stride)?;
        Ok(Self { local, remote, nbytes, count, local_stride, remote_stride, expect })
    }

    fn __repr__(&self) -> String {
        let Self { local, remote, nbytes, count, local_stride, remote_stride, expect } = self;
        let mut text = format!("hmc.Piece({local}, {remote}, {nbytes}");
        if *count != 1 {
            let strides = format!(
                ", count={count}, local_stride={local_stride}, remote_stride={remote_stride}"
            );
            text.push_str(&strides);
        }
        if let Some(generation) = expect {
            text.push_str(&format!(", expect={generation}"));
        }
        text.push(')');
        text
    }
}

/// What a list has: numbers of one copy, or a piece.
#[derive(FromPyObject)]
pub(crate) enum Item {
    #[pyo3(transparent, annotation = "(local, remote, nbytes)")]
    Plain((u64, u64, u64)),
    #[pyo3(transparent, annotation = "(local, remote, nbytes, generation)")]
    Expecting((u64, u64, u64, u32)),
    #[pyo3(transparent, annotation = "Piece")]
    Piece(Piece),
}

impl Item {
    /// The piece between both ends.
    pub(crate) fn of<'m>(&self, ends: &'m Ends) -> Result<StdPiece<'m>, Error> {
        match *self {
            Self::Plain((here, there, len)) => Ok(StdPiece::new(ends.part(here, len)?, there)),
            Self::Expecting((here, there, len, generation)) => {
                Ok(StdPiece::new(ends.part(here, len)?, there).expect(generation))
            }
            Self::Piece(p) => {
                let piece = StdPiece::new(ends.part(p.local, p.nbytes)?, p.remote);
                let piece = piece.repeat(p.count, p.local_stride, p.remote_stride);
                Ok(p.expect.map_or(piece, |generation| piece.expect(generation)))
            }
        }
    }
}
