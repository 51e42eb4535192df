//! Regions: registered memory, and the table of their keys.

use hmc_core::limits::MAX_REGIONS;
use hmc_core::place::Place;
use hmc_core::range::{ByteRange, Extent, Side};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};
use hmc_mem::error::MemError;
use hmc_mem::os::memfd::Mapping;
use hmc_mem::registered::Registered;
#[doc(hidden)]
use hmc_mem::shared::{SharedBytes, SharedError};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::owner::Keep;
use super::stable::StableBytes;
use crate::base::error::{Error, ErrorKind, Limit, Result};
use crate::base::identity;
use crate::base::process::Origin;

/// Refuses a destination that may only be read.
///
/// # Errors
/// `InvalidConfig`.
pub(crate) fn check_writable(bytes: &SharedBytes<'_>) -> Result<()> {
    if bytes.is_writable() { Ok(()) } else { Err(MemError::from(SharedError::ReadOnly).into()) }
}

#[derive(Debug)]
enum Backing {
    /// Pages of a sealed memfd: peers on this host can map them.
    Memfd(Mapping),
    /// The application's own memory.
    Adopted { start: NonNull<u8>, len: usize, keep: Keep },
}

/// What is taken from a region, in order of offsets.
#[derive(Debug, Default)]
struct Taken {
    ranges: Vec<ByteRange>,
    /// The whole region is a buffer, permanently: no range of it becomes private again.
    shared: bool,
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
    /// How many of the strong references are caches.
    cached: AtomicUsize,
    /// Whether a device may know its pages: they cannot be replaced.
    pinned: AtomicBool,
    origin: Origin,
}

// SAFETY: `Adopted.start` is the only member that is not Send by itself. Its bytes are reached only
// through `SharedBytes` copies, and `StableBytes` (or the caller of `adopt_raw`) vouches that they
// may be touched from any thread until the region is gone.
unsafe impl Send for Inner {}
// SAFETY: as above; concurrent copies are what `SharedBytes` is for.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.origin.is_child() {
            // The owner of adopted memory is the parent's, and may wait for threads that are not here.
            if let Backing::Adopted { keep, .. } = &mut self.backing {
                keep.leak();
            }
            return;
        }
        self.table.give_back(self.local.key);
    }
}

/// Memory registered for transfer. Clones are handles of the same memory. The pages are released after the last handle, span, window
/// and operation of it.
#[derive(Clone, Debug)]
pub struct Region(Arc<Inner>);

/// The keys of the regions of one [`Memory`](super::Memory). No other region of the process has one of them.
#[derive(Debug, Default)]
pub struct RegionTable {
    keys: Mutex<Keys>,
}

#[derive(Debug, Default)]
struct Keys {
    /// Places to give out again.
    free: Vec<u16>,
    used: u32,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keys {
    /// A place that was never given out by this table.
    fn place(&mut self) -> Result<u16> {
        let index = u16::try_from(self.used).map_err(|_| {
            let limit = Limit::one_more("registered regions", MAX_REGIONS);
            Error::limited(ErrorKind::Full, limit).with_remedy("drop some")
        })?;
        self.used = self.used.saturating_add(1);
        Ok(index)
    }
}

impl RegionTable {
    /// A key that no other region of the process has or had.
    fn claim(&self) -> Result<RegionKey> {
        let mut keys = lock(&self.keys);
        loop {
            let index = match keys.free.pop() {
                Some(index) => index,
                None => keys.place()?,
            };
            // A place whose generations are used up is never given out again.
            if let Some(generation) = identity::next_generation(index) {
                return Ok(RegionKey { index, generation });
            }
        }
    }

    fn give_back(&self, key: RegionKey) {
        lock(&self.keys).free.push(key.index);
    }

    fn register(self: &Arc<Self>, len: u64, backing: Backing) -> Result<Region> {
        let key = self.claim()?;
        Ok(Region(Arc::new(Inner {
            local: LocalRegion { key, extent: Extent::new(len), place: Place::HOST },
            backing,
            taken: Mutex::default(),
            table: Arc::clone(self),
            cached: AtomicUsize::new(0),
            pinned: AtomicBool::new(false),
            origin: Origin::here()?,
        })))
    }

    /// A new region of `len` zeroed bytes that peers of this host can map.
    pub(crate) fn allocate(self: &Arc<Self>, len: u64) -> Result<Region> {
        self.register(len, Backing::Memfd(Mapping::create(len)?))
    }

    /// As [`RegionTable::allocate`], of pages that are taken when they are touched. No peer maps them.
    pub(crate) fn allocate_lazily(self: &Arc<Self>, len: u64) -> Result<Region> {
        self.register(len, Backing::Memfd(Mapping::builder().commit(false).create(len)?))
    }

    /// The bytes of `owner`, in place.
    ///
    /// # Errors
    /// `Full` if there are too many regions; `InvalidConfig` if no memory has as many bytes there.
    pub fn adopt(self: &Arc<Self>, owner: Box<dyn StableBytes>) -> Result<Region> {
        self.keep(Keep::foreign(owner))
    }

    /// As [`RegionTable::adopt`], of an owner of this library: it is dropped where its memory is let go of.
    pub(crate) fn adopt_own(self: &Arc<Self>, owner: Box<dyn StableBytes>) -> Result<Region> {
        self.keep(Keep::own(owner))
    }

    fn keep(self: &Arc<Self>, keep: Keep) -> Result<Region> {
        let (start, len) = keep.bytes();
        let start = match NonNull::new(start) {
            Some(start) if isize::try_from(len).is_ok() => start,
            _ if len == 0 => NonNull::dangling(),
            _ => {
                let what = format!("{len} bytes at {start:p}: no memory has as many there");
                return Err(Error::config(what));
            }
        };
        let bytes = u64::try_from(len).unwrap_or(u64::MAX);
        self.register(bytes, Backing::Adopted { start, len, keep })
    }

    /// `len` bytes at `start`, in place.
    ///
    /// # Safety
    /// Of the bytes what [`StableBytes`] asks for, until the returned region and everything made from it is gone.
    pub(crate) unsafe fn adopt_raw(
        self: &Arc<Self>,
        start: NonNull<u8>,
        len: usize,
    ) -> Result<Region> {
        let bytes = u64::try_from(len).unwrap_or(u64::MAX);
        self.register(bytes, Backing::Adopted { start, len, keep: Keep::nobody() })
    }
}

// SAFETY: whoever registered the memory vouched for its bytes until the region is gone, which each handle keeps. A span that is
// lent is not accessed through references.
unsafe impl Registered for Region {
    #[inline]
    fn local(&self) -> LocalRegion {
        self.0.local
    }

    unsafe fn bytes(&self) -> SharedBytes<'_> {
        Self::bytes(self)
    }

    fn note_pinned(&self) {
        self.0.pinned.store(true, Ordering::Release);
    }

    fn note_cached(&self, is_cached: bool) {
        if is_cached {
            self.0.cached.fetch_add(1, Ordering::AcqRel);
        } else {
            self.0.cached.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn is_only_cached(&self) -> bool {
        Arc::strong_count(&self.0) <= self.0.cached.load(Ordering::Acquire)
    }
}

impl Region {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.local.extent.len()
    }

    /// Returns `true` if the region has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.local.extent.is_empty()
    }

    /// Returns where the memory is: its device, and its class.
    #[must_use]
    pub fn place(&self) -> Place {
        self.0.local.place
    }

    /// Returns `true` if peers on this host can map the region: HMC allocated it, and it was not registered in place.
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

    pub(crate) fn check_process(&self) -> Result<()> {
        self.0.origin.check()
    }

    /// The bytes, for calls of the application: none in a forked child.
    pub(crate) fn checked(&self) -> Result<SharedBytes<'_>> {
        self.check_process()?;
        Ok(self.bytes())
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

    /// Marks a range as taken and returns it.
    ///
    /// # Errors
    /// As [`Region::take`].
    pub(super) fn claim(&self, offset: u64, len: u64) -> Result<ByteRange> {
        self.check_process()?;
        let range = self.0.local.extent.span(Side::Local, offset, len)?;
        let mut taken = lock(&self.0.taken);
        if taken.shared {
            return Err(Error::new(
                ErrorKind::Busy,
                "the region is a shared buffer: no part of it can be private",
            )
            .with_remedy("use another region"));
        }
        if let Some(other) = taken.ranges.iter().find(|r| r.overlaps(range)) {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "bytes {} to {} of the region are in use: {} to {} are held by a span, a \
                     window or an operation",
                    range.offset(),
                    range.end(),
                    other.offset(),
                    other.end()
                ),
            )
            .with_remedy("wait for it or revoke it"));
        }
        taken.ranges.push(range);
        Ok(range)
    }

    /// Makes the region a buffer that several may access at a time. Operations and windows may use it after the last handle
    /// of the application is gone, so it never becomes private again.
    pub(super) fn make_shared(&self) -> Result<()> {
        self.check_process()?;
        let mut taken = lock(&self.0.taken);
        if let Some(r) = taken.ranges.first() {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "bytes {} to {} of the region are held by a span, a window or an operation; the whole of it must be \
                     free to be shared",
                    r.offset(),
                    r.end()
                ),
            ));
        }
        taken.shared = true;
        Ok(())
    }

    /// Whether its key is one of that table.
    pub(crate) fn is_of(&self, table: &Arc<RegionTable>) -> bool {
        Arc::ptr_eq(&self.0.table, table)
    }

    /// Replaces a taken range by its two parts.
    pub(super) fn split_claim(&self, whole: ByteRange, parts: (ByteRange, ByteRange)) {
        let mut taken = lock(&self.0.taken);
        if let Some(i) = taken.ranges.iter().position(|r| *r == whole) {
            taken.ranges.splice(i..=i, [parts.0, parts.1]);
        }
    }

    /// Replaces two taken ranges by what they are together.
    pub(super) fn join_claims(&self, parts: (ByteRange, ByteRange), whole: ByteRange) {
        let mut taken = lock(&self.0.taken);
        taken.ranges.retain(|r| *r != parts.1);
        if let Some(r) = taken.ranges.iter_mut().find(|r| **r == parts.0) {
            *r = whole;
        }
    }

    /// Gives a taken range back.
    pub(super) fn release(&self, range: ByteRange) {
        let mut taken = lock(&self.0.taken);
        if let Some(at) = taken.ranges.iter().position(|r| *r == range) {
            taken.ranges.remove(at);
        }
    }

    /// Whether a device may know the pages.
    pub(crate) fn is_pinned(&self) -> bool {
        self.0.pinned.load(Ordering::Acquire)
    }

    /// Notes that a peer may write.
    pub(crate) fn note_writable(&self) {
        let mut taken = lock(&self.0.taken);
        let sealed = taken.sealed;
        if !taken.written {
            taken.written = true;
            // Nobody who gets the descriptor may add a seal that would take the pages from us.
            if let Some(Err(e)) =
                self.mapping().filter(|_| !sealed && !self.is_empty()).map(Mapping::seal_seals)
            {
                tracing::warn!(error = %e, "a region's seals could not be closed");
            }
        }
    }

    /// Makes sure that no peer can map the pages for writing. `false` when one may have done so
    /// already, or the pages cannot be sealed.
    pub(crate) fn seal_writes(&self) -> bool {
        let mut taken = lock(&self.0.taken);
        if taken.written {
            return false;
        }
        if !taken.sealed {
            taken.sealed = self.mapping().is_some_and(|m| m.seal_future_write().is_ok());
        }
        taken.sealed
    }

    /// Whether the pages can no longer be mapped for writing.
    pub(crate) fn is_write_sealed(&self) -> bool {
        lock(&self.0.taken).sealed
    }
}

#[cfg(test)]
mod tests;
