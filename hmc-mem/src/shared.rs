//! [`SharedBytes`]: a view of bytes that others may write at any moment.
//!
//! It never becomes a slice. Bytes are copied in and out, ranges are checked against the view's own extent each
//! time, and a word that threads or processes share is accessed as an atomic. A value read here is untrusted: copy
//! it out, then validate the copy.

use core::marker::PhantomData;
use core::ptr::NonNull;

use hmc_core::range::{ByteRange, Extent, RangeError, Side};

use crate::flag::Flag;
use crate::length::widen;
use crate::sync::Word64;
use crate::{copy, crc};

/// A wrong use of a view. No byte was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharedError {
    /// The span does not lie within the view.
    Range(RangeError),
    /// The two sides of a copy differ in length.
    Length {
        /// Bytes in the span.
        span: u64,
        /// Bytes in the other side.
        other: u64,
    },
    /// A word must lie at a multiple of its size.
    Misaligned {
        /// The offset asked for.
        offset: u64,
        /// What it must be a multiple of, in bytes.
        align: u64,
    },
    /// The view may only be read.
    ReadOnly,
}

impl core::fmt::Display for SharedError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::Range(ref e) => e.fmt(f),
            Self::Length { span, other } => {
                write!(f, "a span of {span} bytes cannot be copied to or from {other} bytes")
            }
            Self::Misaligned { offset, align } => {
                write!(f, "offset {offset} is not a multiple of {align}")
            }
            Self::ReadOnly => f.write_str("the memory may only be read"),
        }
    }
}

impl core::error::Error for SharedError {}

impl From<RangeError> for SharedError {
    fn from(e: RangeError) -> Self {
        Self::Range(e)
    }
}

/// A view of `extent()` bytes that stay mapped for `'a` and that other threads, processes and devices may read and
/// write.
///
/// Copies of the view refer to the same bytes. All methods may be called by several threads at a time; if two of them
/// write the same bytes, any mixture can result, without undefined behaviour.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    at: NonNull<u8>,
    extent: Extent,
    writable: bool,
    life: PhantomData<&'a ()>,
}

// SAFETY: the view owns nothing and gives no reference to plain bytes. Every access is made by
// instructions opaque to the compiler, by volatile words or by atomics. That the bytes stay mapped for `'a`
// whichever thread asks was vouched for by `new`'s caller, or is so because `'a` is a borrow of them.
unsafe impl Send for SharedBytes<'_> {}
// SAFETY: as for `Send`; a shared view has no state of its own to race on.
unsafe impl Sync for SharedBytes<'_> {}

impl<'a> SharedBytes<'a> {
    /// Returns a view of the `len` bytes at `at`.
    ///
    /// # Safety
    /// For `'a` the `len` bytes at `at` stay mapped, readable and writable without a trap, and `len` is at most
    /// `isize::MAX`. No `&[u8]` or `&mut [u8]` to any of them is used while another party may write through this view.
    /// They are outside of any object that Rust code accesses non-atomically at the same time.
    #[must_use]
    pub const unsafe fn new(at: NonNull<u8>, len: usize) -> Self {
        Self { at, extent: Extent::new(widen(len)), writable: true, life: PhantomData }
    }

    /// Returns a read-only view of borrowed bytes, which do not change during the borrow.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        let extent = Extent::new(widen(bytes.len()));
        let life = PhantomData;
        // A slice's address is never null, and the view is not writable.
        let at = match NonNull::new(bytes.as_ptr().cast_mut()) {
            Some(at) => at,
            None => NonNull::dangling(),
        };
        Self { at, extent, writable: false, life }
    }

    /// Returns a view of exclusively borrowed bytes. During the borrow only copies of this view access them.
    #[must_use]
    pub const fn of_mut(bytes: &'a mut [u8]) -> Self {
        let extent = Extent::new(widen(bytes.len()));
        let life = PhantomData;
        // As above, never null.
        let at = match NonNull::new(bytes.as_mut_ptr()) {
            Some(at) => at,
            None => NonNull::dangling(),
        };
        Self { at, extent, writable: true, life }
    }

    /// Returns the same view without the right to write.
    #[must_use]
    pub const fn read_only(mut self) -> Self {
        self.writable = false;
        self
    }

    /// Returns `true` if the view may be written.
    #[must_use]
    pub const fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns the size of the view, in bytes.
    #[must_use]
    #[inline]
    pub const fn extent(&self) -> Extent {
        self.extent
    }

    /// Returns the address of the first byte, for system calls and device libraries. The caller must justify each use.
    #[must_use]
    #[inline]
    pub const fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Checks a range of this view, in bytes.
    ///
    /// # Errors
    /// [`SharedError::Range`] if the range does not lie within the view.
    #[inline]
    pub fn span(&self, offset: u64, len: u64) -> Result<ByteRange, SharedError> {
        Ok(self.extent.span(Side::Local, offset, len)?)
    }

    /// Returns the view of a part.
    ///
    /// # Errors
    /// [`SharedError::Range`] if the span does not lie within the view.
    pub fn part(&self, span: ByteRange) -> Result<Self, SharedError> {
        let (at, _) = self.locate(span)?;
        // Never null: it lies within a view, or one past its end.
        let at = NonNull::new(at).unwrap_or(self.at);
        Ok(Self { at, extent: Extent::new(span.len()), ..*self })
    }

    /// The address and length of a span that was proven against this view or against another.
    #[inline(always)]
    pub(crate) fn locate(&self, span: ByteRange) -> Result<(*mut u8, usize), SharedError> {
        // The span may have been proven against a larger extent.
        self.extent.span(Side::Local, span.offset(), span.len())?;
        // Cannot fail: it is at most the view's length, which came as a usize.
        let len = usize::try_from(span.len()).unwrap_or(usize::MAX);
        Ok((span.pointer(self.at.as_ptr()), len))
    }

    #[inline(always)]
    fn locate_mut(&self, span: ByteRange) -> Result<(*mut u8, usize), SharedError> {
        if self.writable { self.locate(span) } else { Err(SharedError::ReadOnly) }
    }

    /// Copies the bytes of `span` into `into`, which has the same length.
    ///
    /// # Errors
    /// [`SharedError::Range`] and [`SharedError::Length`]; nothing was copied.
    #[inline]
    pub fn read_at(&self, span: ByteRange, into: &mut [u8]) -> Result<(), SharedError> {
        let (src, len) = self.locate(span)?;
        if into.len() != len {
            return Err(length(span, into.len()));
        }
        // SAFETY: `src` has `len` readable bytes by `new`'s contract and `locate`; `into` has as many
        // writable ones; a `&mut [u8]` overlaps neither memory that only views reach nor what is borrowed for `'a`.
        unsafe { copy::copy(into.as_mut_ptr(), src, len) };
        Ok(())
    }

    /// Copies `from` over the bytes of `span`, which has the same length.
    ///
    /// # Errors
    /// [`SharedError::Range`], [`SharedError::Length`], [`SharedError::ReadOnly`]; nothing was written.
    #[inline]
    pub fn write_at(&self, span: ByteRange, from: &[u8]) -> Result<(), SharedError> {
        let (dst, len) = self.locate_mut(span)?;
        if from.len() != len {
            return Err(length(span, from.len()));
        }
        // SAFETY: `dst` has `len` writable bytes by `new`'s contract and `locate_mut`; `from` has as many
        // readable ones; a `&[u8]` overlaps neither memory that only views reach nor what is borrowed exclusively.
        unsafe { copy::copy(dst, from.as_ptr(), len) };
        Ok(())
    }

    /// Copies the bytes of `span` to `to_span` of another view, which has the same length. Both may be views of the
    /// same memory; overlapping ranges are copied as if through an intermediate buffer.
    ///
    /// # Errors
    /// [`SharedError::Range`], [`SharedError::Length`], [`SharedError::ReadOnly`]; no byte was written.
    #[inline]
    pub fn copy_to(
        &self,
        span: ByteRange,
        to: &SharedBytes<'_>,
        to_span: ByteRange,
    ) -> Result<(), SharedError> {
        let (src, len) = self.locate(span)?;
        let (dst, to_len) = to.locate_mut(to_span)?;
        if len != to_len {
            return Err(length(span, to_len));
        }
        // SAFETY: both ranges are readable and writable for `len` bytes by the two views' contracts;
        // `copy_overlapping` allows any overlap.
        unsafe { copy::copy_overlapping(dst, src, len) };
        Ok(())
    }

    /// Copies like [`Self::copy_to`], as one piece of a transfer of `whole` bytes: a long transfer bypasses the caches.
    /// Ranges that overlap are copied by [`Self::copy_to`].
    ///
    /// # Errors
    /// Those of [`Self::copy_to`].
    #[inline(always)]
    pub fn copy_piece_to(
        &self,
        span: ByteRange,
        to: &SharedBytes<'_>,
        to_span: ByteRange,
        whole: u64,
    ) -> Result<(), SharedError> {
        let (src, len) = self.locate(span)?;
        let (dst, to_len) = to.locate_mut(to_span)?;
        if len != to_len || dst.addr().abs_diff(src.addr()) < len {
            return self.copy_to(span, to, to_span);
        }
        // SAFETY: both ranges are readable and writable for `len` bytes by the two views' contracts,
        // and as just checked they do not overlap.
        unsafe { copy::copy_piece(dst, src, len, whole) };
        Ok(())
    }

    /// Copies the bytes of `from` to `to`, which has the same length, within the view. Overlapping ranges are copied as
    /// if through an intermediate buffer.
    ///
    /// # Errors
    /// Those of [`Self::copy_to`].
    pub fn copy_within(&self, from: ByteRange, to: ByteRange) -> Result<(), SharedError> {
        self.copy_to(from, self, to)
    }

    /// Sets every byte of `span` to `byte`.
    ///
    /// # Errors
    /// [`SharedError::Range`], [`SharedError::ReadOnly`]; nothing was written.
    pub fn fill(&self, span: ByteRange, byte: u8) -> Result<(), SharedError> {
        let (dst, len) = self.locate_mut(span)?;
        // SAFETY: `dst` has `len` writable bytes by `new`'s contract and `locate_mut`.
        unsafe { copy::fill(dst, byte, len) };
        Ok(())
    }

    /// Returns the CRC-32C (Castagnoli) of the bytes of `span`. Each byte is read once.
    ///
    /// # Errors
    /// [`SharedError::Range`].
    pub fn crc32c(&self, span: ByteRange) -> Result<u32, SharedError> {
        self.crc32c_more(0, span)
    }

    /// Returns the CRC-32C of earlier bytes, whose CRC-32C is `crc`, followed by the bytes of `span`.
    ///
    /// # Errors
    /// [`SharedError::Range`].
    pub fn crc32c_more(&self, crc: u32, span: ByteRange) -> Result<u32, SharedError> {
        let (src, len) = self.locate(span)?;
        // SAFETY: `src` has `len` readable bytes by `new`'s contract and `locate`.
        Ok(unsafe { crc::append(crc, src, len) })
    }

    /// Returns the 64-bit word at `offset`. Others may access it, atomically or by copies.
    ///
    /// # Errors
    /// [`SharedError::Range`]; [`SharedError::Misaligned`] if the address is not a multiple of 8;
    /// [`SharedError::ReadOnly`], because an atomic can be written.
    #[inline]
    pub fn word(&self, offset: u64) -> Result<&'a Word64, SharedError> {
        let (at, _) = self.locate_mut(self.span(offset, 8)?)?;
        let at = at.cast::<u64>();
        match NonNull::new(at) {
            // SAFETY: aligned as just checked; readable and writable for `'a` by `new`'s contract. Who
            // else accesses these bytes in this process does so through views: by atomics, or by copies
            // that no Rust access can race with, as they are opaque to the compiler.
            Some(at) if at.is_aligned() => Ok(unsafe { Word64::from_raw(at) }),
            _ => Err(SharedError::Misaligned { offset, align: 8 }),
        }
    }

    /// Returns the value of the 64-bit word at `offset`, which others may be changing: one load, without an order. The view may be for
    /// reading only.
    ///
    /// # Errors
    /// [`SharedError::Range`]; [`SharedError::Misaligned`] when the address is not a multiple of 8.
    #[inline]
    pub fn load_u64(&self, offset: u64) -> Result<u64, SharedError> {
        let (at, _) = self.locate(self.span(offset, 8)?)?;
        let at = at.cast::<u64>();
        if !at.is_aligned() {
            return Err(SharedError::Misaligned { offset, align: 8 });
        }
        // SAFETY: aligned as just checked; readable by `new`'s contract, and every value is a `u64`. Who changes these bytes
        // meanwhile does so by atomics or by copies that are opaque to the compiler.
        Ok(unsafe { at.read_volatile() })
    }

    /// Returns the atomic at `offset`. See [`Self::word`].
    ///
    /// # Errors
    /// Those of [`Self::word`].
    #[inline]
    pub fn atomic_u64(&self, offset: u64) -> Result<&'a crate::sync::AtomicU64, SharedError> {
        Ok(self.word(offset)?.atomic())
    }

    /// Returns the [`Flag`] at `offset`.
    ///
    /// # Errors
    /// Those of [`Self::word`].
    #[inline]
    pub fn flag(&self, offset: u64) -> Result<Flag<'a>, SharedError> {
        Ok(Flag::new(self.atomic_u64(offset)?))
    }
}

#[cold]
#[inline(never)]
fn length(span: ByteRange, other: usize) -> SharedError {
    SharedError::Length { span: span.len(), other: widen(other) }
}

#[cfg(all(test, not(loom)))]
mod tests;
