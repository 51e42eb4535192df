//! Shared buffers: regions that are read and written by copies, at offsets, as the C++ HMC's ConnBuffer.

use super::region::Region;
use crate::base::error::Result;
use hmc_core::range::{ByteRange, Side};
use hmc_mem::error::MemError;
use hmc_mem::shared::SharedBytes;
use std::ptr::NonNull;

/// A registered region that is read and written by copies, at offsets in bytes (the C++ HMC's ConnBuffer).
///
/// The session's own buffer is exposed for reading and writing to every peer that connects. Other buffers ([`Region::share`]) are
/// exposed by range. Several threads, operations and peers may access the same bytes at a time, so the bytes may change at any
/// time: they can be copied, never borrowed. Clones are handles of the same buffer.
#[derive(Clone, Debug)]
pub struct ConnBuffer {
    region: Region,
}

impl Region {
    /// Makes the region a buffer that several threads may access at a time, by offsets: ranges of it are the local ends of transfers,
    /// and are exposed with [`Peer::expose`](crate::Peer::expose). The change is permanent: no span of the region can be taken from
    /// then on. If the region is shared already, returns one more handle.
    ///
    /// # Errors
    /// - `Busy` if a span of it is taken.
    /// - `Forked` in a forked child.
    pub fn share(self) -> Result<ConnBuffer> {
        ConnBuffer::new(self)
    }
}

impl ConnBuffer {
    pub(crate) fn new(region: Region) -> Result<Self> {
        region.make_shared()?;
        Ok(Self { region })
    }

    /// One more handle of a region that is shared already.
    pub(super) fn of_shared(region: &Region) -> Self {
        Self { region: region.clone() }
    }

    /// Checks that this process, and no parent of it, made the buffer.
    ///
    /// # Errors
    /// `Forked`.
    pub fn check_process(&self) -> Result<()> {
        self.region.check_process()
    }

    /// Returns the address of the first byte, for code that shares the memory by other means (arrays, for example). It stays the
    /// same while a handle, a route or a window of the buffer exists. Do not access memory through it if the buffer is empty.
    ///
    /// Peers and operations may write the bytes at any time: never make a Rust reference to them.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.bytes().as_ptr()
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.region.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    fn part(&self, offset: u64, len: usize) -> Result<ByteRange> {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        Ok(self.region.local().extent.span(Side::Local, offset, len)?)
    }

    /// Copies `bytes` to `offset` of the buffer.
    ///
    /// # Errors
    /// `Range` if they exceed the buffer; nothing is written.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let part = self.part(offset, bytes.len())?;
        self.region.checked()?.write_at(part, bytes).map_err(MemError::from)?;
        Ok(())
    }

    /// Copies `out.len()` bytes from `offset` of the buffer to `out`.
    ///
    /// # Errors
    /// `Range` if they exceed the buffer.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let part = self.part(offset, out.len())?;
        self.region.checked()?.read_at(part, out).map_err(MemError::from)?;
        Ok(())
    }

    /// Copies `len` bytes at `from` to `offset` of the buffer, as if through an intermediate buffer: the ranges may overlap, and other
    /// threads and processes may write the bytes meanwhile.
    ///
    /// # Errors
    /// `Range` if they exceed the buffer; nothing is written.
    ///
    /// # Safety
    /// The `len` bytes at `from` can be read without a trap until this returns. No `&mut` to them is used meanwhile.
    pub unsafe fn write_from(&self, offset: u64, from: *const u8, len: usize) -> Result<()> {
        let part = self.part(offset, len)?;
        // SAFETY: the caller's contract; nothing is written through this view.
        let from = unsafe { foreign(from.cast_mut(), len) }.read_only();
        from.copy_to(from.extent().whole(), &self.region.checked()?, part)
            .map_err(MemError::from)?;
        Ok(())
    }

    /// Copies `len` bytes from `offset` of the buffer to `to`, as [`Self::write_from`] does in the other direction.
    ///
    /// # Errors
    /// `Range` if they exceed the buffer; nothing is written.
    ///
    /// # Safety
    /// The `len` bytes at `to` can be written without a trap until this returns. No reference to them is used meanwhile.
    pub unsafe fn read_to(&self, offset: u64, to: *mut u8, len: usize) -> Result<()> {
        let part = self.part(offset, len)?;
        // SAFETY: the caller's contract.
        let to = unsafe { foreign(to, len) };
        self.region.checked()?.copy_to(part, &to, to.extent().whole()).map_err(MemError::from)?;
        Ok(())
    }

    /// Copies `len` bytes from `src_offset` to `dst_offset` within the buffer. The two ranges may
    /// overlap.
    ///
    /// # Errors
    /// `Range` when either exceeds the buffer.
    pub fn copy_within(&self, dst_offset: u64, src_offset: u64, len: u64) -> Result<()> {
        let extent = self.region.local().extent;
        let src = extent.span(Side::Local, src_offset, len)?;
        let dst = extent.span(Side::Local, dst_offset, len)?;
        self.region.checked()?.copy_within(src, dst).map_err(MemError::from)?;
        Ok(())
    }

    /// Sets `len` bytes at `offset` to `value`.
    ///
    /// # Errors
    /// `Range` when they exceed the buffer.
    pub fn fill(&self, offset: u64, len: u64, value: u8) -> Result<()> {
        let part = self.region.local().extent.span(Side::Local, offset, len)?;
        self.region.checked()?.fill(part, value).map_err(MemError::from)?;
        Ok(())
    }

    /// The CRC-32C of `len` bytes at `offset`.
    ///
    /// # Errors
    /// `Range` when they exceed the buffer.
    pub fn crc32c(&self, offset: u64, len: u64) -> Result<u32> {
        let part = self.region.local().extent.span(Side::Local, offset, len)?;
        Ok(self.region.checked()?.crc32c(part).map_err(MemError::from)?)
    }

    /// Reads the aligned 64-bit word at `offset` with acquire ordering. Over a transport that writes in order (shm, loopback), bytes
    /// that were put before the word are visible, too.
    ///
    /// # Errors
    /// `Range` if it exceeds the buffer or `offset` is not a multiple of 8.
    pub fn load_flag(&self, offset: u64) -> Result<u64> {
        Ok(self.region.checked()?.flag(offset).map_err(MemError::from)?.load_acquire())
    }

    /// Writes the aligned 64-bit word at `offset` with release ordering.
    ///
    /// # Errors
    /// `Range` when it exceeds the buffer or `offset` is not a multiple of 8.
    pub fn store_flag(&self, offset: u64, value: u64) -> Result<()> {
        self.region.checked()?.flag(offset).map_err(MemError::from)?.store_release(value);
        Ok(())
    }
}

/// Returns a view of bytes of the caller.
///
/// # Safety
/// The bytes stay mapped while the view is used, and are writable if the caller writes through it. No reference to them is used
/// while another thread or process writes them.
unsafe fn foreign<'a>(at: *mut u8, len: usize) -> SharedBytes<'a> {
    // Without bytes it may be null.
    let at = NonNull::new(at).unwrap_or(NonNull::dangling());
    // SAFETY: the caller's contract.
    unsafe { SharedBytes::new(at, len) }
}
