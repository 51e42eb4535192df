//! Descriptions of memory by keys and ranges, never by addresses: local regions and windows of a peer.
//!
//! A [`LocalRegion`] is memory of this process, registered under a [`RegionKey`]. A [`WindowDesc`] describes a
//! window as its owner advertised it. It is a parsed claim: the owner (or its NIC) checks every access again.
//! [`crate::window`] has the windows themselves.

use crate::place::Place;
use crate::range::{ByteRange, Extent, RangeError, Side};
use crate::types::{Access, MemoryKind};

/// The key of a registered region in its owner's table. A key is never reused: the generation moves
/// on when the index is given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionKey {
    /// Place in the table.
    pub index: u16,
    /// How often that place was given out.
    pub generation: u32,
}

/// A registered region of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRegion {
    /// Its key.
    pub key: RegionKey,
    /// Its size.
    pub extent: Extent,
    /// Where its bytes are.
    pub place: Place,
}

/// A proven range of a local region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalSlice {
    /// The region.
    pub key: RegionKey,
    /// The range within it.
    pub span: ByteRange,
}

/// The name of a window, given by its owner. The low 16 bits are its place in the owner's table for
/// one peer, the others are random: names of windows cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowId(pub u64);

impl WindowId {
    /// A name for the window at `index`, with `entropy` in the upper 48 bits.
    #[must_use]
    pub const fn new(index: u16, entropy: u64) -> Self {
        let [a, b] = index.to_le_bytes();
        let [_, _, c, d, e, f, g, h] = entropy.to_le_bytes();
        Self(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Its place in the owner's table.
    #[must_use]
    pub const fn index(self) -> u16 {
        let [a, b, ..] = self.0.to_le_bytes();
        u16::from_le_bytes([a, b])
    }
}

/// How often the place of a window was exposed. An access under another epoch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Epoch(pub u32);

/// The description of a window, as the peer advertised it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowDesc {
    /// The window's name.
    pub window: WindowId,
    /// The epoch in which the description holds.
    pub epoch: Epoch,
    /// Its size.
    pub extent: Extent,
    /// What this process may do in it.
    pub access: Access,
    /// Where its bytes live.
    pub kind: MemoryKind,
}

/// A range of a peer's window, within the size that the peer claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowSlice {
    /// The window.
    pub window: WindowId,
    /// The epoch of the claim.
    pub epoch: Epoch,
    /// The range within the window.
    pub span: ByteRange,
    /// The generation that each block of the window must have of which the range has bytes ([`crate::blocks`]). Only transports
    /// with [`Caps::GENERATIONS`](crate::types::Caps::GENERATIONS) may be handed one.
    pub expected: Option<u32>,
}

impl LocalRegion {
    /// The range of `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`RangeError`] with `Side::Local` when it exceeds the region.
    #[inline]
    pub const fn slice(&self, offset: u64, len: u64) -> Result<LocalSlice, RangeError> {
        match self.extent.span(Side::Local, offset, len) {
            Ok(span) => Ok(LocalSlice { key: self.key, span }),
            Err(e) => Err(e),
        }
    }
}

impl WindowDesc {
    /// The range of `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`RangeError`] with `Side::Remote` when it exceeds the window.
    #[inline]
    pub const fn slice(&self, offset: u64, len: u64) -> Result<WindowSlice, RangeError> {
        match self.extent.span(Side::Remote, offset, len) {
            Ok(span) => {
                Ok(WindowSlice { window: self.window, epoch: self.epoch, span, expected: None })
            }
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WindowId;

    #[test]
    fn a_window_id_keeps_its_index_and_48_random_bits() {
        let id = WindowId::new(0xBEEF, u64::MAX);
        assert_eq!(id.index(), 0xBEEF);
        assert_eq!(id.0, 0xFFFF_FFFF_FFFF_BEEF);
    }
}
