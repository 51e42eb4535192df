//! Registered memory: regions, the private ranges taken from them, and what keeps both alive.
//!
//! A [`Region`] is shared by everything that may touch its pages (operations, windows, peers'
//! requests in progress) and is unmapped when the last of them let go. A [`Span`] is a linear token
//! for a range of it: no two live spans of a region overlap, so the holder may treat the bytes as
//! private. Exposing or transferring a span consumes it; it comes back through a fence.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hmc_core::kinds::MemoryKind;
use hmc_core::limits::MAX_REGIONS;
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};
use hmc_core::span::{Extent, Side, Span as Range};
use hmc_mem::error::MemError;
use hmc_mem::os::memfd::Mapping;
use hmc_mem::shared::SharedBytes;

use crate::error::{Error, ErrorKind, Result};

/// Memory whose address does not change while the value lives, wherever the value is moved.
///
/// # Safety
/// [`StableBytes::as_bytes_ptr`] must always give the same pointer, valid for reads and writes of
/// the same number of bytes until the value is dropped, and nothing else may read or write those
/// bytes through Rust references while the value is registered.
pub unsafe trait StableBytes: Send + Sync + 'static {
    /// Start and size of the bytes.
    fn as_bytes_ptr(&self) -> (*mut u8, usize);
}

/// A heap buffer that can be registered in place, without a staging copy.
#[derive(Debug)]
pub struct HeapBytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer is owned by this value alone; the pointer is not shared with any other owner.
unsafe impl Send for HeapBytes {}
// SAFETY: no method reads or writes the bytes; regions copy by raw pointer under their own rules.
unsafe impl Sync for HeapBytes {}

impl From<Vec<u8>> for HeapBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let whole = Box::leak(bytes.into_boxed_slice());
        Self {
            len: whole.len(),
            start: NonNull::from(whole).cast(),
        }
    }
}

impl Drop for HeapBytes {
    fn drop(&mut self) {
        let whole = NonNull::slice_from_raw_parts(self.start, self.len);
        // SAFETY: `start` and `len` are those of the boxed slice leaked in `from`, and this value
        // is its only owner; a region that held it has let go, so nobody else touches the bytes.
        drop(unsafe { Box::from_raw(whole.as_ptr()) });
    }
}

// SAFETY: the leaked slice never moves and only `drop` frees it; no reference to it exists.
unsafe impl StableBytes for HeapBytes {
    fn as_bytes_ptr(&self) -> (*mut u8, usize) {
        (self.start.as_ptr(), self.len)
    }
}

#[derive(Debug)]
enum Backing {
    /// Pages of a sealed memfd: peers on this host can map them.
    Memfd(Mapping),
    /// The application's own memory.
    Adopted {
        start: NonNull<u8>,
        len: usize,
        _keep: Keep,
    },
}

struct Keep(#[allow(dead_code, reason = "held for its drop")] Option<Box<dyn StableBytes>>);

impl std::fmt::Debug for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keep")
    }
}

/// What is taken from a region, in order of offsets.
#[derive(Debug, Default)]
struct Taken {
    ranges: Vec<Range>,
    /// Some window of the region ever allowed writes (its memfd can no longer be sealed).
    written: bool,
    /// No writable mapping can be made any more.
    sealed: bool,
}

#[derive(Debug)]
struct Inner {
    local: LocalRegion,
    backing: Backing,
    taken: Mutex<Taken>,
    table: Arc<RegionTable>,
    /// How many of the strong references are ports' caches.
    cached: AtomicUsize,
}

// SAFETY: `Adopted.start` is the only member that is not Send by itself. Its bytes are reached only
// through `SharedBytes` copies, and `StableBytes` (or the caller of `adopt_raw`) vouches that they
// may be touched from any thread until the region is gone.
unsafe impl Send for Inner {}
// SAFETY: as above; concurrent copies are what `SharedBytes` is for.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        self.table.give_back(self.local.key);
    }
}

/// Memory registered for transfer. Clones share it; the pages go when the last clone, span, window
/// and operation is gone.
#[derive(Clone, Debug)]
pub struct Region(Arc<Inner>);

/// The keys of a communicator's regions.
#[derive(Debug, Default)]
pub(crate) struct RegionTable {
    keys: Mutex<Keys>,
}

#[derive(Debug, Default)]
struct Keys {
    free: Vec<RegionKey>,
    used: u32,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RegionTable {
    fn claim(&self) -> Result<RegionKey> {
        let mut keys = lock(&self.keys);
        if let Some(key) = keys.free.pop() {
            return Ok(key);
        }
        let index = u16::try_from(keys.used).map_err(|_| {
            Error::new(
                ErrorKind::Full,
                format!("{MAX_REGIONS} regions are registered, which is the limit; drop some"),
            )
        })?;
        keys.used = keys.used.saturating_add(1);
        Ok(RegionKey {
            index,
            generation: 1,
        })
    }

    fn give_back(&self, key: RegionKey) {
        // A place whose generation is used up is never given out again.
        if let Some(generation) = key.generation.checked_add(1) {
            lock(&self.keys).free.push(RegionKey {
                index: key.index,
                generation,
            });
        }
    }

    fn register(self: &Arc<Self>, len: u64, backing: Backing) -> Result<Region> {
        let key = self.claim()?;
        Ok(Region(Arc::new(Inner {
            local: LocalRegion {
                key,
                extent: Extent::new(len),
                kind: MemoryKind::Cpu,
            },
            backing,
            taken: Mutex::default(),
            table: Arc::clone(self),
            cached: AtomicUsize::new(0),
        })))
    }

    /// A new region of `len` zeroed bytes that peers of this host can map.
    pub(crate) fn allocate(self: &Arc<Self>, len: u64) -> Result<Region> {
        self.register(len, Backing::Memfd(Mapping::create(len)?))
    }

    /// The bytes of `owner`, in place.
    pub(crate) fn adopt(self: &Arc<Self>, owner: Box<dyn StableBytes>) -> Result<Region> {
        let (start, len) = owner.as_bytes_ptr();
        let start = NonNull::new(start).unwrap_or(NonNull::dangling());
        let bytes = u64::try_from(len).unwrap_or(u64::MAX);
        self.register(
            bytes,
            Backing::Adopted {
                start,
                len,
                _keep: Keep(Some(owner)),
            },
        )
    }

    /// `len` bytes at `start`, in place.
    ///
    /// # Safety
    /// The bytes stay valid for reads and writes from any thread, and are not touched through Rust
    /// references, until the returned region and everything made from it is gone.
    pub(crate) unsafe fn adopt_raw(
        self: &Arc<Self>,
        start: NonNull<u8>,
        len: usize,
    ) -> Result<Region> {
        let bytes = u64::try_from(len).unwrap_or(u64::MAX);
        self.register(
            bytes,
            Backing::Adopted {
                start,
                len,
                _keep: Keep(None),
            },
        )
    }
}

impl Region {
    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.local.extent.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.local.extent.is_empty()
    }

    /// Where the bytes live.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.0.local.kind
    }

    /// Whether peers on this host can map it (it was allocated here, not adopted).
    #[must_use]
    pub fn is_mappable(&self) -> bool {
        matches!(self.0.backing, Backing::Memfd(_))
    }

    pub(crate) fn local(&self) -> LocalRegion {
        self.0.local
    }

    pub(crate) fn key(&self) -> RegionKey {
        self.0.local.key
    }

    pub(crate) fn slice(&self, offset: u64, len: u64) -> Result<LocalSlice> {
        Ok(self.0.local.slice(offset, len)?)
    }

    pub(crate) fn mapping(&self) -> Option<&Mapping> {
        match &self.0.backing {
            Backing::Memfd(m) => Some(m),
            Backing::Adopted { .. } => None,
        }
    }

    /// The bytes, for copies in and out.
    pub(crate) fn bytes(&self) -> SharedBytes<'_> {
        match &self.0.backing {
            Backing::Memfd(m) => m.bytes(),
            Backing::Adopted { start, len, .. } => {
                // SAFETY: whoever registered the memory vouched that `start` is valid for the
                // region's size, and the keeper (or the caller of `adopt_raw`) holds it for at
                // least as long as this region, which the result borrows.
                unsafe { SharedBytes::new(*start, *len) }
            }
        }
    }

    /// Takes `len` bytes at `offset` as a private span.
    ///
    /// # Errors
    /// `Range` when they exceed the region; `Busy` when part of them is taken already: by another
    /// span, a window, or an operation that has not reached its fence.
    pub fn take(&self, offset: u64, len: u64) -> Result<Span> {
        let range = self.0.local.extent.span(Side::Local, offset, len)?;
        let mut taken = lock(&self.0.taken);
        if let Some(other) = taken.ranges.iter().find(|r| r.overlaps(range)) {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "bytes {} to {} of the region are in use: {} to {} are held by a span, a \
                     window or an operation; wait for it or revoke it",
                    range.offset(),
                    range.end(),
                    other.offset(),
                    other.end()
                ),
            ));
        }
        let at = taken
            .ranges
            .partition_point(|r| r.offset() < range.offset());
        taken.ranges.insert(at, range);
        Ok(Span {
            region: self.clone(),
            range,
        })
    }

    /// Takes the whole region as a private span.
    ///
    /// # Errors
    /// As [`Region::take`].
    pub fn take_all(&self) -> Result<Span> {
        self.take(0, self.len())
    }

    fn release(&self, range: Range) {
        let mut taken = lock(&self.0.taken);
        if let Some(at) = taken.ranges.iter().position(|r| *r == range) {
            taken.ranges.remove(at);
        }
    }

    pub(crate) fn note_cached(&self, on: bool) {
        if on {
            self.0.cached.fetch_add(1, Ordering::AcqRel);
        } else {
            self.0.cached.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether nobody but ports' caches holds the region.
    pub(crate) fn is_only_cached(&self) -> bool {
        Arc::strong_count(&self.0) <= self.0.cached.load(Ordering::Acquire)
    }

    /// Notes that a peer may write.
    pub(crate) fn note_writable(&self) {
        lock(&self.0.taken).written = true;
    }

    /// Makes sure that no peer can map the pages for writing. `false` when one may have done so
    /// already, or the pages cannot be sealed.
    pub(crate) fn seal_writes(&self) -> bool {
        let mut taken = lock(&self.0.taken);
        if taken.written {
            return false;
        }
        if !taken.sealed {
            taken.sealed = self
                .mapping()
                .is_some_and(|m| m.seal_future_write().is_ok());
        }
        taken.sealed
    }

    /// Whether the pages can no longer be mapped for writing.
    pub(crate) fn is_write_sealed(&self) -> bool {
        lock(&self.0.taken).sealed
    }
}

/// A private range of a region: a linear token, neither `Clone` nor `Copy`.
///
/// While it lives nobody else can take, expose or transfer any of its bytes. Dropping it gives the
/// range back to the region.
#[derive(Debug)]
pub struct Span {
    region: Region,
    range: Range,
}

impl Drop for Span {
    fn drop(&mut self) {
        self.region.release(self.range);
    }
}

impl Span {
    /// Bytes in the range.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.range.len()
    }

    /// Whether the range is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// First byte, counted from the start of the region.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.range.offset()
    }

    /// The region it was taken from.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn slice(&self) -> LocalSlice {
        LocalSlice {
            key: self.region.key(),
            span: self.range,
        }
    }

    fn part(&self, offset: u64, len: usize) -> Result<Range> {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        Ok(self.range.sub(Side::Local, offset, len)?)
    }

    /// Copies `out.len()` bytes at `offset` out.
    ///
    /// # Errors
    /// `Range` when they exceed the span.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let part = self.part(offset, out.len())?;
        self.region
            .bytes()
            .read_at(part, out)
            .map_err(MemError::from)?;
        Ok(())
    }

    /// Copies `bytes` in at `offset`.
    ///
    /// # Errors
    /// `Range` when they exceed the span.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let part = self.part(offset, bytes.len())?;
        self.region
            .bytes()
            .write_at(part, bytes)
            .map_err(MemError::from)?;
        Ok(())
    }

    /// Sets every byte to `value`.
    pub fn fill(&mut self, value: u8) {
        // A span lies within its region, so this cannot fail.
        let _ = self.region.bytes().fill(self.range, value);
    }

    /// The CRC-32C of the bytes.
    #[must_use]
    pub fn crc32c(&self) -> u32 {
        self.region.bytes().crc32c(self.range).unwrap_or(0)
    }

    /// The bytes. No transfer or window can touch them while this span is private.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        let (start, len) = self.raw();
        // SAFETY: the range lies within the region, which `self` keeps mapped and initialised
        // (fresh memfd pages are zero; adopted memory was vouched for). No other span overlaps it
        // and a span in a window or an operation is owned by that, so nobody writes it meanwhile.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// The bytes, writable. No transfer or window can touch them while this span is private.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let (start, len) = self.raw();
        // SAFETY: as in `as_slice`; `&mut self` excludes every other borrow of the same range.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    fn raw(&self) -> (*mut u8, usize) {
        if self.range.is_empty() {
            return (NonNull::dangling().as_ptr(), 0);
        }
        let offset = usize::try_from(self.range.offset()).unwrap_or(usize::MAX);
        let start = self.region.bytes().as_ptr().wrapping_add(offset);
        (start, usize::try_from(self.range.len()).unwrap_or(0))
    }

    /// Cuts after `at` bytes.
    ///
    /// # Errors
    /// The span unchanged, when it is shorter.
    pub fn split_at(self, at: u64) -> std::result::Result<(Self, Self), Self> {
        let Some((a, b)) = self.range.split_at(at) else {
            return Err(self);
        };
        let (region, whole) = self.into_parts();
        {
            let mut taken = lock(&region.0.taken);
            if let Some(i) = taken.ranges.iter().position(|r| *r == whole) {
                taken.ranges.splice(i..=i, [a, b]);
            }
        }
        Ok((
            Self {
                region: region.clone(),
                range: a,
            },
            Self { region, range: b },
        ))
    }

    /// Joins two neighbours of one region.
    ///
    /// # Errors
    /// Both unchanged, when `other` does not start where this one ends.
    pub fn join(self, other: Self) -> std::result::Result<Self, (Self, Self)> {
        if self.region.key() != other.region.key() {
            return Err((self, other));
        }
        let Some(both) = self.range.join(other.range) else {
            return Err((self, other));
        };
        let (region, first) = self.into_parts();
        let (_, second) = other.into_parts();
        {
            let mut taken = lock(&region.0.taken);
            taken.ranges.retain(|r| *r != second);
            if let Some(r) = taken.ranges.iter_mut().find(|r| **r == first) {
                *r = both;
            }
        }
        Ok(Self {
            region,
            range: both,
        })
    }

    /// The parts, without giving the range back: it lives on under another token.
    fn into_parts(self) -> (Region, Range) {
        let me = std::mem::ManuallyDrop::new(self);
        // SAFETY: `me` is never dropped or used again, so the region is moved out exactly once; the
        // reference it is read through is valid and aligned.
        let region = unsafe { std::ptr::read(&raw const me.region) };
        (region, me.range)
    }
}

/// One registered region with offset-addressed copies in and out: the seeds' ConnBuffer.
///
/// The whole buffer is exposed for reading and writing to every peer that connects, so its bytes may
/// change at any time. Copies are safe against that; there is no way to borrow them.
#[derive(Clone, Debug)]
pub struct ConnBuffer {
    region: Region,
    /// Keeps the range from being taken as a private span.
    _claim: Arc<Span>,
}

impl ConnBuffer {
    pub(crate) fn new(region: Region) -> Result<Self> {
        let claim = Arc::new(region.take_all()?);
        Ok(Self {
            region,
            _claim: claim,
        })
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

    fn part(&self, offset: u64, len: usize) -> Result<Range> {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        Ok(self.region.local().extent.span(Side::Local, offset, len)?)
    }

    /// Copies `bytes` in at `offset`.
    ///
    /// # Errors
    /// `Range` when they exceed the buffer; nothing is written then.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let part = self.part(offset, bytes.len())?;
        self.region
            .bytes()
            .write_at(part, bytes)
            .map_err(MemError::from)?;
        Ok(())
    }

    /// Copies `out.len()` bytes at `offset` out.
    ///
    /// # Errors
    /// `Range` when they exceed the buffer.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let part = self.part(offset, out.len())?;
        self.region
            .bytes()
            .read_at(part, out)
            .map_err(MemError::from)?;
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
        self.region
            .bytes()
            .copy_within(src, dst)
            .map_err(MemError::from)?;
        Ok(())
    }

    /// Sets `len` bytes at `offset` to `value`.
    ///
    /// # Errors
    /// `Range` when they exceed the buffer.
    pub fn fill(&self, offset: u64, len: u64, value: u8) -> Result<()> {
        let part = self.region.local().extent.span(Side::Local, offset, len)?;
        self.region
            .bytes()
            .fill(part, value)
            .map_err(MemError::from)?;
        Ok(())
    }

    /// The CRC-32C of `len` bytes at `offset`.
    ///
    /// # Errors
    /// `Range` when they exceed the buffer.
    pub fn crc32c(&self, offset: u64, len: u64) -> Result<u32> {
        let part = self.region.local().extent.span(Side::Local, offset, len)?;
        Ok(self.region.bytes().crc32c(part).map_err(MemError::from)?)
    }

    /// Reads the aligned 64-bit word at `offset` with acquire ordering: bytes put before a word that
    /// this call sees are visible too, where the transport writes in order (shm, loopback).
    ///
    /// # Errors
    /// `Range` when it exceeds the buffer or `offset` is not a multiple of 8.
    pub fn load_flag(&self, offset: u64) -> Result<u64> {
        Ok(self
            .region
            .bytes()
            .flag(offset)
            .map_err(MemError::from)?
            .load_acquire())
    }

    /// Writes the aligned 64-bit word at `offset` with release ordering.
    ///
    /// # Errors
    /// `Range` when it exceeds the buffer or `offset` is not a multiple of 8.
    pub fn store_flag(&self, offset: u64, value: u64) -> Result<()> {
        self.region
            .bytes()
            .flag(offset)
            .map_err(MemError::from)?
            .store_release(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{HeapBytes, RegionTable};
    use crate::error::ErrorKind;
    use std::sync::Arc;

    #[test]
    fn spans_never_overlap_and_come_back() {
        let table = Arc::new(RegionTable::default());
        let region = table.allocate(4096).expect("memory");
        let a = region.take(0, 100).expect("free");
        let e = region.take(99, 2).expect_err("taken");
        assert_eq!(e.kind(), ErrorKind::Busy);
        let b = region.take(100, 28).expect("free");
        let both = a.join(b).expect("neighbours");
        assert_eq!(both.len(), 128);
        let (x, y) = both.split_at(64).expect("long enough");
        drop(x);
        assert!(region.take(0, 64).is_ok());
        assert!(region.take(64, 1).is_err());
        drop(y);
        assert!(region.take_all().is_ok());
    }

    #[test]
    fn adopted_memory_is_used_in_place_and_freed_last() {
        let table = Arc::new(RegionTable::default());
        let region = table
            .adopt(Box::new(HeapBytes::from(vec![7u8; 64])))
            .expect("memory");
        assert!(!region.is_mappable());
        let mut span = region.take_all().expect("free");
        drop(region);
        span.write_at(8, b"in place").expect("fits");
        assert_eq!(span.as_slice().get(8..16), Some(&b"in place"[..]));
        assert_eq!(span.as_mut_slice().first(), Some(&7));
    }

    #[test]
    fn a_key_is_never_reused() {
        let table = Arc::new(RegionTable::default());
        let first = table.allocate(16).expect("memory").key();
        let second = table.allocate(16).expect("memory").key();
        assert_eq!(first.index, second.index);
        assert_ne!(first.generation, second.generation);
    }
}
