//! Reading and writing bytes in order, and the error that names the wrong byte.
//!
//! A [`Reader`] never panics and never copies: its results borrow from its input. The name of each call states the
//! byte order.

use crate::range::RangeError;
use crate::types::VERSION;

/// What was wrong with a frame, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError {
    /// The first byte of the offending field, counted from the first byte of the frame's header.
    pub at: u32,
    /// What was wrong with it.
    pub kind: WireErrorKind,
}

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireErrorKind {
    /// The frame ends before the field does.
    Truncated {
        /// Bytes that are missing.
        missing: u32,
    },
    /// Bytes follow the last field.
    Trailing {
        /// How many.
        extra: u32,
    },
    /// A length exceeds its limit. Nothing was read or allocated for it.
    TooLong {
        /// The length that the peer claimed.
        len: u32,
        /// The limit.
        limit: u32,
    },
    /// The storage to write into is too small.
    NoSpace {
        /// Bytes that are missing.
        missing: u32,
    },
    /// No frame type has this number.
    UnknownType(u16),
    /// The frame type does not know these flags.
    UnknownFlags(u16),
    /// No message or data frame has this kind.
    UnknownKind(u8),
    /// The HELLO is not one of HMC's.
    Magic([u8; 4]),
    /// The peer speaks another version.
    Version {
        /// The version it speaks.
        theirs: u16,
    },
    /// The peer insists on something that this version does not know.
    Mandatory {
        /// The unknown flags.
        unknown: u16,
    },
    /// A field has a value that is not allowed.
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A range that does not lie within what it is said to be part of.
    Range(RangeError),
}

impl WireError {
    /// An error at byte `at`.
    #[cold]
    #[inline(never)]
    pub(crate) const fn new(at: u32, kind: WireErrorKind) -> Self {
        Self { at, kind }
    }

    /// A field with a value that is not allowed.
    #[cold]
    #[inline(never)]
    pub(crate) const fn value(at: u32, field: &'static str, value: u64) -> Self {
        Self { at, kind: WireErrorKind::Value { field, value } }
    }
}

impl core::fmt::Display for WireErrorKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated { missing } => write!(f, "{missing} bytes are missing"),
            Self::Trailing { extra } => write!(f, "{extra} bytes too many"),
            Self::TooLong { len, limit } => {
                write!(f, "a length of {len} bytes exceeds the limit of {limit}")
            }
            Self::NoSpace { missing } => write!(f, "the buffer is {missing} bytes too small"),
            Self::UnknownType(n) => write!(f, "unknown frame type {n}"),
            Self::UnknownFlags(n) => write!(f, "unknown flags {n:#06x}"),
            Self::UnknownKind(n) => write!(f, "unknown kind {n}"),
            Self::Magic(m) => write!(f, "not an HMC hello (it starts with {m:02x?})"),
            Self::Version { theirs } => {
                write!(f, "the peer speaks version {theirs}, this end version {VERSION}")
            }
            Self::Mandatory { unknown } => {
                write!(f, "the peer requires unknown abilities {unknown:#06x}")
            }
            Self::Value { field, value } => write!(f, "{field} must not be {value:#x}"),
            Self::Range(e) => write!(f, "{e}"),
        }
    }
}

impl core::fmt::Display for WireError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "byte {}: {}", self.at, self.kind)
    }
}

impl core::error::Error for WireError {}

/// `n` as a `usize`. Targets of HMC have at least 32-bit addresses; on a smaller one the answer is
/// larger than any buffer, so that nothing is found there.
#[inline]
pub(crate) fn to_usize(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// `n` as a `u32`; lengths above it are above every limit anyway.
#[inline]
pub(crate) fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Reads fields in order.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    at: u32,
}

impl<'a> Reader<'a> {
    /// A reader of `bytes`, the first of which is byte `at` of its frame.
    #[must_use]
    #[inline]
    pub const fn new(bytes: &'a [u8], at: u32) -> Self {
        Self { rest: bytes, at }
    }

    /// The byte of the frame that comes next.
    #[must_use]
    #[inline]
    pub const fn at(&self) -> u32 {
        self.at
    }

    /// What was not read yet.
    #[must_use]
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[cold]
    #[inline(never)]
    fn short(&self, want: usize) -> WireError {
        let missing = to_u32(want.saturating_sub(self.rest.len()));
        WireError { at: self.at, kind: WireErrorKind::Truncated { missing } }
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// `Truncated` when there are fewer; nothing is consumed.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], WireError> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.rest = rest;
                self.at = self.at.saturating_add(to_u32(N));
                Ok(head)
            }
            None => Err(self.short(N)),
        }
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// `Truncated` when there are fewer; nothing is consumed.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        match self.rest.split_at_checked(n) {
            Some((head, rest)) => {
                self.rest = rest;
                self.at = self.at.saturating_add(to_u32(n));
                Ok(head)
            }
            None => Err(self.short(n)),
        }
    }

    /// One byte.
    ///
    /// # Errors
    /// `Truncated` at the end.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, WireError> {
        let [n] = *self.array::<1>()?;
        Ok(n)
    }

    /// Two bytes, little-endian.
    ///
    /// # Errors
    /// `Truncated` when there are fewer.
    #[inline]
    pub fn u16_le(&mut self) -> Result<u16, WireError> {
        self.array().map(|b| u16::from_le_bytes(*b))
    }

    /// Four bytes, little-endian.
    ///
    /// # Errors
    /// `Truncated` when there are fewer.
    #[inline]
    pub fn u32_le(&mut self) -> Result<u32, WireError> {
        self.array().map(|b| u32::from_le_bytes(*b))
    }

    /// Eight bytes, little-endian.
    ///
    /// # Errors
    /// `Truncated` when there are fewer.
    #[inline]
    pub fn u64_le(&mut self) -> Result<u64, WireError> {
        self.array().map(|b| u64::from_le_bytes(*b))
    }

    /// Says that the frame ends here.
    ///
    /// # Errors
    /// `Trailing` when it does not.
    #[inline]
    pub fn end(&self) -> Result<(), WireError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let extra = to_u32(self.rest.len());
        Err(WireError::new(self.at, WireErrorKind::Trailing { extra }))
    }
}

/// Writes fields in order into storage of the caller's.
#[derive(Debug)]
pub struct Writer<'a> {
    rest: &'a mut [u8],
    written: u32,
}

impl<'a> Writer<'a> {
    /// A writer to the start of `storage`.
    #[must_use]
    #[inline]
    pub const fn new(storage: &'a mut [u8]) -> Self {
        Self { rest: storage, written: 0 }
    }

    /// Bytes written so far.
    #[must_use]
    #[inline]
    pub const fn written(&self) -> u32 {
        self.written
    }

    /// Bytes that still fit.
    #[must_use]
    #[inline]
    pub const fn space(&self) -> usize {
        self.rest.len()
    }

    #[cold]
    #[inline(never)]
    fn full(&self, want: usize) -> WireError {
        let missing = to_u32(want.saturating_sub(self.rest.len()));
        WireError { at: self.written, kind: WireErrorKind::NoSpace { missing } }
    }

    /// Writes `bytes`.
    ///
    /// # Errors
    /// `NoSpace` when they do not fit; nothing is written.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let n = bytes.len();
        if n > self.rest.len() {
            return Err(self.full(n));
        }
        // The slice is put back below: either part of the split is all that remains in use.
        let all = core::mem::take(&mut self.rest);
        if let Some((head, rest)) = all.split_at_mut_checked(n) {
            head.copy_from_slice(bytes);
            self.rest = rest;
            self.written = self.written.saturating_add(to_u32(n));
        }
        Ok(())
    }

    /// Writes `N` bytes.
    ///
    /// # Errors
    /// `NoSpace` when they do not fit; nothing is written.
    #[inline]
    pub fn array<const N: usize>(&mut self, bytes: &[u8; N]) -> Result<(), WireError> {
        self.bytes(bytes)
    }

    /// Writes one byte.
    ///
    /// # Errors
    /// `NoSpace` at the end of the storage.
    #[inline]
    pub fn u8(&mut self, n: u8) -> Result<(), WireError> {
        self.array(&[n])
    }

    /// Writes two bytes, little-endian.
    ///
    /// # Errors
    /// `NoSpace` when they do not fit.
    #[inline]
    pub fn u16_le(&mut self, n: u16) -> Result<(), WireError> {
        self.array(&n.to_le_bytes())
    }

    /// Writes four bytes, little-endian.
    ///
    /// # Errors
    /// `NoSpace` when they do not fit.
    #[inline]
    pub fn u32_le(&mut self, n: u32) -> Result<(), WireError> {
        self.array(&n.to_le_bytes())
    }

    /// Writes eight bytes, little-endian.
    ///
    /// # Errors
    /// `NoSpace` when they do not fit.
    #[inline]
    pub fn u64_le(&mut self, n: u64) -> Result<(), WireError> {
        self.array(&n.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::{Reader, WireErrorKind, Writer};

    #[test]
    fn what_is_written_is_read() {
        let mut storage = [0u8; 18];
        let mut w = Writer::new(&mut storage);
        w.u8(1).unwrap();
        w.u16_le(0x0203).unwrap();
        w.u32_le(0x0405_0607).unwrap();
        w.u64_le(0x0809_0A0B_0C0D_0E0F).unwrap();
        w.bytes(b"xyz").unwrap();
        assert_eq!((w.written(), w.space()), (18, 0));
        assert_eq!(storage, *b"\x01\x03\x02\x07\x06\x05\x04\x0f\x0e\x0d\x0c\x0b\x0a\x09\x08xyz");
        let mut r = Reader::new(&storage, 0);
        assert_eq!(r.u8(), Ok(1));
        assert_eq!(r.u16_le(), Ok(0x0203));
        assert_eq!(r.u32_le(), Ok(0x0405_0607));
        assert_eq!(r.u64_le(), Ok(0x0809_0A0B_0C0D_0E0F));
        assert_eq!(r.bytes(3), Ok(&b"xyz"[..]));
        assert_eq!(r.end(), Ok(()));
    }

    #[test]
    fn an_error_names_the_byte_and_consumes_nothing() {
        let mut r = Reader::new(&[1, 2, 3], 8);
        r.u8().unwrap();
        let e = r.u32_le().unwrap_err();
        assert_eq!((e.at, e.kind), (9, WireErrorKind::Truncated { missing: 2 }));
        let e = r.end().unwrap_err();
        assert_eq!((e.at, e.kind), (9, WireErrorKind::Trailing { extra: 2 }));
        assert_eq!(r.u16_le(), Ok(0x0302));
        let mut small = [0u8; 3];
        let mut w = Writer::new(&mut small);
        w.u16_le(7).unwrap();
        let e = w.u32_le(9).unwrap_err();
        assert_eq!((e.at, e.kind), (2, WireErrorKind::NoSpace { missing: 3 }));
        assert_eq!(w.space(), 1);
    }
}
