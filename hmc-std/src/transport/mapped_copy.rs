//! Pieces that are copied into mapped windows of a peer, and out of them.

use std::sync::Arc;

use hmc_core::range::ByteRange;
use hmc_core::region::WindowSlice;
use hmc_core::work::{Failure, Opcode};
use hmc_mem::os::mapped_window::MappedWindow;

use crate::memory::Region;

/// A piece of a request; its handles keep the region and the window mapped.
pub type MappedCopy = hmc_core::transport::MappedCopy<Arc<MappedWindow>, Region>;

/// Copies a piece inside the window's gate.
///
/// # Errors
/// `Window`: the window was closed, or its owner's process has ended.
pub fn copy(piece: &MappedCopy) -> Result<(), Failure> {
    let MappedCopy { window, memory, opcode, local, remote, whole } = piece;
    copy_between(window, memory, *opcode, *local, *remote, *whole)
}

/// As [`copy`].
#[inline]
pub(crate) fn copy_between(
    window: &MappedWindow,
    region: &Region,
    opcode: Opcode,
    local: ByteRange,
    remote: WindowSlice,
    whole: u64,
) -> Result<(), Failure> {
    let (at, bytes) = (remote.span.offset(), region.bytes());
    match opcode {
        Opcode::Get => window.read(at, bytes, local, whole),
        Opcode::Put | Opcode::PutNotify { .. } => window.write(at, bytes, local, whole),
    }
}
