//! Memory of this end that is registered for one link.

use std::ptr::NonNull;
use std::sync::Arc;

use hmc_core::range::{ByteRange, Extent};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};
use hmc_mem::registered::{CachedHandle, Registered};

use super::fault::VerbsFault;
use super::objects::{MemoryRegion, ProtectionDomain};

/// A region that the devices know.
#[derive(Debug)]
struct LocalEntry {
    key: RegionKey,
    extent: Extent,
    base: u64,
    /// On the first NIC.
    lkey: u32,
    /// In the order of the link's NICs.
    regions: Vec<Arc<MemoryRegion>>,
}

/// The regions that requests of this end may name, by their indices.
#[derive(Debug, Default)]
pub(super) struct LocalTable(Vec<Option<LocalEntry>>);

/// Registers a part of memory with these rights.
///
/// # Errors
/// [`VerbsFault`].
pub(super) fn register(
    pd: &Arc<ProtectionDomain>,
    memory: &impl Registered,
    part: ByteRange,
    access: u32,
) -> Result<(MemoryRegion, u64), VerbsFault> {
    memory.note_pinned();
    // SAFETY: requests and windows of the application name what the device accesses.
    let bytes = unsafe { memory.bytes() };
    let part = bytes.part(part).map_err(VerbsFault::Memory)?;
    let start = NonNull::new(part.as_ptr()).unwrap_or(NonNull::dangling());
    // It came from the region's length, which is one of memory.
    let len = usize::try_from(part.extent().len()).unwrap_or(0);
    let base = u64::try_from(start.as_ptr().expose_provenance()).unwrap_or(0);
    let access = i32::try_from(access).unwrap_or(0);
    let keep = Box::new(CachedHandle::new(memory));
    // SAFETY: the range lies within the memory, of which `keep` is a handle: its bytes stay valid, and are accessed by copies only
    // (`Registered`).
    let region = unsafe { MemoryRegion::register(pd, start, len, access, keep) }?;
    Ok((region, base))
}

impl LocalTable {
    #[inline]
    fn get(&self, key: RegionKey) -> Option<&LocalEntry> {
        // Its index is that of the place.
        let entry = self.0.get(usize::from(key.index))?.as_ref()?;
        (entry.key.generation == key.generation).then_some(entry)
    }

    /// Returns the address of a slice, and its key on the first NIC; `None` if its memory is not registered, or the slice exceeds it.
    #[inline]
    pub(super) fn resolve(&self, slice: LocalSlice) -> Option<(u64, u32)> {
        let entry = self.get(slice.key).filter(|entry| entry.extent.contains(slice.span))?;
        Some((slice.span.address(entry.base), entry.lkey))
    }

    /// Returns the key of memory on the NIC of that index.
    pub(super) fn key_on(&self, key: RegionKey, nic: usize) -> Option<u32> {
        self.get(key)?.regions.get(nic).map(|region| region.lkey())
    }

    /// Adds the regions of all of that memory, which begins at `base`, on each NIC. Returns those that were in their place.
    pub(super) fn add(
        &mut self,
        memory: LocalRegion,
        regions: Vec<Arc<MemoryRegion>>,
        base: u64,
    ) -> Vec<Arc<MemoryRegion>> {
        let LocalRegion { key, extent, .. } = memory;
        let index = usize::from(key.index);
        if index >= self.0.len() {
            self.0.resize_with(index.saturating_add(1), || None);
        }
        let lkey = regions.first().map_or(0, |region| region.lkey());
        let entry = LocalEntry { key, extent, base, lkey, regions };
        let old = self.0.get_mut(index).and_then(|place| place.replace(entry));
        old.map(|old| old.regions).unwrap_or_default()
    }

    /// Removes those for which `is_used` returns `false`.
    pub(super) fn evict(&mut self, is_used: impl Fn(RegionKey) -> bool) -> Vec<Arc<MemoryRegion>> {
        let unused = |entry: &&mut Option<LocalEntry>| {
            entry.as_ref().is_some_and(|entry| !is_used(entry.key))
        };
        let taken = self.0.iter_mut().filter(unused).filter_map(Option::take);
        taken.flat_map(|entry| entry.regions).collect()
    }
}
