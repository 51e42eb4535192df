//! The eight bytes before every control message, exactly as the C++ HMC sends them (`CtrlMsgHeader`: type u16,
//! flags u16, length u32, little-endian).
//!
//! A header is validated before its payload is received: unknown types and flags, and lengths above the limit,
//! close the connection at once.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::FRAME_HEADER_BYTES;
use crate::wire::cursor::{WireError, WireErrorKind, Writer, to_usize};

/// Type number of integers (`CTRL_INT`).
pub const TYPE_INT: u16 = 1;
/// Type number of opaque bytes (`CTRL_STRUCT`).
pub const TYPE_STRUCT: u16 = 2;
/// Flag of the HELLO of the C++ HMC.
pub const FLAG_HELLO: u16 = 0x8000;
/// Flags of every frame that only the native protocol has. A C++ peer rejects them.
pub const FLAGS_NATIVE: u16 = 0xC000;

/// The header as it lies on the wire.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    ty: U16,
    flags: U16,
    len: U32,
}

/// What a frame carries, as far as its header tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// A user's integer: 4 bytes (i32) or 8 bytes (u64, a tag).
    Int,
    /// A user's opaque bytes.
    Struct,
    /// The HELLO of the C++ HMC: 4 bytes of rank.
    HelloV1,
    /// A message of the native dialect; its first payload byte is the message's kind.
    Native,
}

impl FrameKind {
    const fn wire(self) -> (u16, u16) {
        match self {
            Self::Int => (TYPE_INT, 0),
            Self::Struct => (TYPE_STRUCT, 0),
            Self::HelloV1 => (TYPE_STRUCT, FLAG_HELLO),
            Self::Native => (TYPE_STRUCT, FLAGS_NATIVE),
        }
    }
}

/// A header that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    kind: FrameKind,
    len: u32,
}

impl Header {
    /// A header for `len` bytes of payload.
    #[must_use]
    #[inline]
    pub const fn new(kind: FrameKind, len: u32) -> Self {
        Self { kind, len }
    }

    /// What the frame carries.
    #[must_use]
    #[inline]
    pub const fn kind(self) -> FrameKind {
        self.kind
    }

    /// Bytes of payload that follow.
    #[must_use]
    #[inline]
    pub const fn len(self) -> u32 {
        self.len
    }

    /// Whether no payload follows.
    #[must_use]
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Bytes of the whole frame, header included.
    #[must_use]
    #[inline]
    pub fn frame_bytes(self) -> usize {
        FRAME_HEADER_BYTES.saturating_add(to_usize(self.len))
    }

    /// Reads a header. `limit` is the largest payload that this connection accepts now:
    /// [`crate::limits::MAX_HELLO_BYTES`] until the handshake is finished, then [`crate::limits::MAX_FRAME_BYTES`].
    ///
    /// # Errors
    /// `UnknownType`, `UnknownFlags`, `TooLong`, or `Value` for a length that the kind cannot have.
    /// No payload may be read after an error.
    #[inline]
    pub fn parse(bytes: &[u8; FRAME_HEADER_BYTES], limit: u32) -> Result<Self, WireError> {
        let raw: Raw = zerocopy::transmute!(*bytes);
        let len = raw.len.get();
        let kind = match (raw.ty.get(), raw.flags.get()) {
            (TYPE_INT, 0) => FrameKind::Int,
            (TYPE_STRUCT, 0) => FrameKind::Struct,
            (TYPE_STRUCT, FLAG_HELLO) => FrameKind::HelloV1,
            (TYPE_STRUCT, FLAGS_NATIVE) => FrameKind::Native,
            (TYPE_INT | TYPE_STRUCT, flags) => {
                return Err(WireError::new(2, WireErrorKind::UnknownFlags(flags)));
            }
            (ty, _) => return Err(WireError::new(0, WireErrorKind::UnknownType(ty))),
        };
        if len > limit {
            return Err(WireError::new(4, WireErrorKind::TooLong { len, limit }));
        }
        let sound = match kind {
            FrameKind::Int => len == 4 || len == 8,
            FrameKind::Struct => true,
            FrameKind::HelloV1 => len == 4,
            FrameKind::Native => len != 0,
        };
        if !sound {
            return Err(WireError::value(4, "length", u64::from(len)));
        }
        Ok(Self { kind, len })
    }

    /// The header's bytes.
    #[must_use]
    #[inline]
    pub const fn to_bytes(self) -> [u8; FRAME_HEADER_BYTES] {
        let (ty, flags) = self.kind.wire();
        let [a, b] = ty.to_le_bytes();
        let [c, d] = flags.to_le_bytes();
        let [e, f, g, h] = self.len.to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// Writes the header.
    ///
    /// # Errors
    /// `NoSpace`.
    #[inline]
    pub fn emit(self, out: &mut Writer<'_>) -> Result<(), WireError> {
        out.array(&self.to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::{FrameKind, Header};
    use crate::limits::MAX_FRAME_BYTES;
    use crate::wire::cursor::WireErrorKind;

    fn kind_of(bytes: [u8; 8], limit: u32) -> WireErrorKind {
        Header::parse(&bytes, limit).unwrap_err().kind
    }

    #[test]
    fn the_bytes_are_those_of_the_cxx_hmc() {
        assert_eq!(Header::new(FrameKind::Int, 8).to_bytes(), [1, 0, 0, 0, 8, 0, 0, 0]);
        assert_eq!(Header::new(FrameKind::HelloV1, 4).to_bytes(), [2, 0, 0, 0x80, 4, 0, 0, 0]);
        assert_eq!(Header::new(FrameKind::Struct, 113).to_bytes(), [2, 0, 0, 0, 113, 0, 0, 0]);
        assert_eq!(Header::new(FrameKind::Native, 1).to_bytes(), [2, 0, 0, 0xC0, 1, 0, 0, 0]);
    }

    #[test]
    fn every_type_and_flag_word_is_checked_on_the_header_alone() {
        let mut good = 0;
        for ty in 0..=u16::MAX {
            for flags in [0u16, 1, 0x4000, 0x8000, 0x8001, 0xC000, 0xC001, 0xFFFF] {
                let [a, b] = ty.to_le_bytes();
                let [c, d] = flags.to_le_bytes();
                match Header::parse(&[a, b, c, d, 4, 0, 0, 0], MAX_FRAME_BYTES) {
                    Ok(h) => {
                        good += 1;
                        assert_eq!(h.to_bytes(), [a, b, c, d, 4, 0, 0, 0]);
                    }
                    Err(e) if ty == 1 || ty == 2 => {
                        assert_eq!((e.at, e.kind), (2, WireErrorKind::UnknownFlags(flags)));
                    }
                    Err(e) => assert_eq!((e.at, e.kind), (0, WireErrorKind::UnknownType(ty))),
                }
            }
        }
        assert_eq!(good, 4);
    }

    #[test]
    fn four_gibibytes_are_refused_on_the_header() {
        assert_eq!(
            kind_of([2, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF], MAX_FRAME_BYTES),
            WireErrorKind::TooLong { len: u32::MAX, limit: MAX_FRAME_BYTES }
        );
        assert!(Header::parse(&[2, 0, 0, 0, 0, 0, 16, 0], MAX_FRAME_BYTES).is_ok());
        assert!(Header::parse(&[2, 0, 0, 0, 1, 0, 16, 0], MAX_FRAME_BYTES).is_err());
    }

    #[test]
    fn fixed_lengths_are_checked_on_the_header() {
        for len in 0..=16u8 {
            let ok = |ty, flags| Header::parse(&[ty, 0, 0, flags, len, 0, 0, 0], 16).is_ok();
            assert_eq!(ok(1, 0), len == 4 || len == 8);
            assert_eq!(ok(2, 0x80), len == 4);
            assert_eq!(ok(2, 0xC0), len != 0);
            assert!(ok(2, 0));
        }
    }
}
