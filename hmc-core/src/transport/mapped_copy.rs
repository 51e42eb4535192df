//! Copies between memory of this end and windows of the peer that are mapped here.

use crate::range::ByteRange;
use crate::region::WindowSlice;
use crate::work::Opcode;

/// A piece of a request, of at most 1 MiB, that the host copies. The handles keep both ends of it mapped.
#[derive(Clone, Debug)]
pub struct MappedCopy<W, M> {
    /// The mapped window.
    pub window: W,
    /// The memory of this end.
    pub memory: M,
    /// The direction.
    pub opcode: Opcode,
    /// What is copied, within `memory`.
    pub local: ByteRange,
    /// What is copied, within the window. Its epoch has been compared with the window's.
    pub remote: WindowSlice,
    /// Bytes of the whole request, of which this is a piece.
    pub whole: u64,
}
