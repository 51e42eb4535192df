//! [`PrivateMemory`] and [`SharedMemory`]: a one-way conversion.
//!
//! Memory that nobody else can reach may be borrowed as a slice. Sharing it with a peer consumes the `PrivateMemory`
//! and returns a `SharedMemory`, which only copies in and out. There is no safe way back: whether a peer is done
//! with the bytes is decided by a fence that this module does not know.

use core::ptr::NonNull;

use hmc_core::range::ByteRange;

use crate::shared::{SharedBytes, SharedError};

/// Something that holds bytes in place until it is dropped.
///
/// # Safety
/// From the first call on, `at` gives the same pointer and `len` the same number, at most `isize::MAX`, for
/// the life of the value, wherever the value is moved. Those bytes are initialised, stay mapped and readable
/// (and writable, if `is_writable` says so) until the value is dropped, and no safe function of the type gives a reference to them.
pub unsafe trait MemoryBacking {
    /// The first byte. Dangling when `len` is 0.
    fn at(&self) -> NonNull<u8>;
    /// Bytes there are.
    fn len(&self) -> usize;
    /// Whether the bytes may be written.
    fn is_writable(&self) -> bool {
        true
    }
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory that this value alone reaches.
#[derive(Debug)]
pub struct PrivateMemory<B> {
    backing: B,
}

impl<B: MemoryBacking> PrivateMemory<B> {
    /// Takes a backing that nobody else can reach.
    ///
    /// # Safety
    /// Until [`Self::into_shared`] nothing but this value reads or writes the bytes: no view of them
    /// exists or will be made, no other process maps them, and no device writes them. They are writable.
    #[must_use]
    pub const unsafe fn new(backing: B) -> Self {
        Self { backing }
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        let (at, len) = (self.backing.at(), self.backing.len());
        // SAFETY: `MemoryBacking` promises `len` initialised bytes, at most isize::MAX, until `backing` is
        // dropped, which `&self` outlives; `new`'s caller vouched that nobody else writes them, and this
        // type's own writes need `&mut self`. `u8` has no alignment; an empty backing's pointer is not null.
        unsafe { core::slice::from_raw_parts(at.as_ptr(), len) }
    }

    /// The bytes, to write.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let (at, len) = (self.backing.at(), self.backing.len());
        // SAFETY: as in `as_slice`; `&mut self` makes this the only reference.
        unsafe { core::slice::from_raw_parts_mut(at.as_ptr(), len) }
    }

    /// Converts it to shared memory: others may write from here on, so there are no slices any more.
    #[must_use]
    pub fn into_shared(self) -> SharedMemory<B> {
        SharedMemory { backing: self.backing }
    }
}

/// Memory that others may access.
#[derive(Debug)]
pub struct SharedMemory<B> {
    backing: B,
}

impl<B: MemoryBacking> SharedMemory<B> {
    /// A backing that others may reach.
    #[must_use]
    pub const fn new(backing: B) -> Self {
        Self { backing }
    }

    /// The view to copy in and out by.
    #[must_use]
    pub fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: `MemoryBacking` promises mapped, readable bytes, at most isize::MAX, until `backing` is dropped,
        // which the view's lifetime precludes; a view of bytes that are not writable is made read-only
        // below. Slices need `PrivateMemory`, which is gone, or `borrow_private`, whose caller vouches.
        let view = unsafe { SharedBytes::new(self.backing.at(), self.backing.len()) };
        if self.backing.is_writable() { view } else { view.read_only() }
    }

    /// What holds the bytes.
    #[must_use]
    pub const fn backing(&self) -> &B {
        &self.backing
    }

    /// What holds the bytes, to keep.
    #[must_use]
    pub fn into_backing(self) -> B {
        self.backing
    }
}

/// The bytes of a span that is private at the moment: no window covers it, no operation uses it.
///
/// # Errors
/// [`SharedError::Range`] when the span does not lie within the view.
///
/// # Safety
/// For the life of the slice nobody writes the bytes: neither this process through any view, nor another
/// process, nor a device. Every window over them was revoked through a fence (a time-out is none), and every
/// operation on them has ended.
pub unsafe fn borrow_private<'a>(
    bytes: SharedBytes<'a>,
    span: ByteRange,
) -> Result<&'a [u8], SharedError> {
    let (at, len) = bytes.locate(span)?;
    // SAFETY: within a view, whose maker vouched for mapped bytes for `'a`; pages of a mapping are
    // initialised; nobody writes them meanwhile, as this function's caller vouches.
    Ok(unsafe { core::slice::from_raw_parts(at, len) })
}

/// As [`borrow_private`], to write.
///
/// # Errors
/// [`SharedError::Range`]; [`SharedError::ReadOnly`].
///
/// # Safety
/// As for [`borrow_private`], and nobody reads the bytes either.
pub unsafe fn borrow_private_mut<'a>(
    bytes: SharedBytes<'a>,
    span: ByteRange,
) -> Result<&'a mut [u8], SharedError> {
    if !bytes.is_writable() {
        return Err(SharedError::ReadOnly);
    }
    let (at, len) = bytes.locate(span)?;
    // SAFETY: as in `borrow_private`; the view is writable and nobody else uses the bytes, as this
    // function's caller vouches.
    Ok(unsafe { core::slice::from_raw_parts_mut(at, len) })
}
