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
    resolved: Resolved,
    /// In the order of the link's NICs.
    regions: Vec<Arc<MemoryRegion>>,
}

/// What requests need of a region.
#[derive(Clone, Copy, Debug)]
struct Resolved {
    key: RegionKey,
    extent: Extent,
    base: u64,
    /// On the first NIC.
    lkey: u32,
}

impl Resolved {
    /// Returns the address of a slice of it, and its key; `None` if the slice is of another region, or exceeds it.
    #[inline(always)]
    fn at(&self, slice: &LocalSlice) -> Option<(u64, u32)> {
        let is_within = self.key == slice.key && self.extent.contains(slice.span);
        is_within.then(|| (slice.span.address(self.base), self.lkey))
    }
}

/// The regions that requests of this end may name, by their indices.
#[derive(Debug, Default)]
pub(super) struct LocalTable {
    entries: Vec<Option<LocalEntry>>,
    /// Of the last request, as long as it is registered: most requests of a link name one region.
    last: Option<Resolved>,
}

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
    fn get(&self, key: RegionKey) -> Option<&LocalEntry> {
        // Its index is that of the place.
        let entry = self.entries.get(usize::from(key.index))?.as_ref()?;
        (entry.resolved.key == key).then_some(entry)
    }

    /// Returns the address of a slice, and its key on the first NIC; `None` if its memory is not registered, or the slice exceeds it.
    #[inline(always)]
    pub(super) fn resolve(&mut self, slice: &LocalSlice) -> Option<(u64, u32)> {
        self.last.and_then(|last| last.at(slice)).or_else(|| self.resolve_other(slice))
    }

    /// As [`Self::resolve`], of a region that is not the last.
    #[inline(never)]
    fn resolve_other(&mut self, slice: &LocalSlice) -> Option<(u64, u32)> {
        let resolved = self.get(slice.key)?.resolved;
        self.last = Some(resolved);
        resolved.at(slice)
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
        self.last = None;
        let LocalRegion { key, extent, .. } = memory;
        let index = usize::from(key.index);
        if index >= self.entries.len() {
            self.entries.resize_with(index.saturating_add(1), || None);
        }
        let lkey = regions.first().map_or(0, |region| region.lkey());
        let entry = LocalEntry { resolved: Resolved { key, extent, base, lkey }, regions };
        let old = self.entries.get_mut(index).and_then(|place| place.replace(entry));
        old.map(|old| old.regions).unwrap_or_default()
    }

    /// Removes those for which `is_used` returns `false`.
    pub(super) fn evict(&mut self, is_used: impl Fn(RegionKey) -> bool) -> Vec<Arc<MemoryRegion>> {
        self.last = None;
        let unused = |entry: &&mut Option<LocalEntry>| {
            entry.as_ref().is_some_and(|entry| !is_used(entry.resolved.key))
        };
        let taken = self.entries.iter_mut().filter(unused).filter_map(Option::take);
        taken.flat_map(|entry| entry.regions).collect()
    }
}

#[cfg(test)]
mod tests {
    use hmc_core::place::Place;

    use super::*;

    /// A region is found as long as it is in the table, whether the last request named it or not, and none is found for a slice that exceeds it.
    #[test]
    fn the_last_region_is_resolved_as_any() {
        let region = |generation| {
            let key = RegionKey { index: 3, generation };
            LocalRegion { key, extent: Extent::new(64), place: Place::HOST }
        };
        let [old, new] = [1, 2].map(region);
        let [of_old, of_new] = [old, new].map(|region| region.slice(8, 8).unwrap());
        let mut table = LocalTable::default();
        let resolve = |table: &mut LocalTable, slice| [(); 2].map(|()| table.resolve(&slice));
        assert_eq!(resolve(&mut table, of_old), [None; 2]);
        for (region, base) in [(old, 1 << 20), (new, 2 << 20)] {
            assert!(table.add(region, Vec::new(), base).is_empty());
            let at = |is_it: bool| [is_it.then_some((base + 8, 0)); 2];
            for _ in 0..2 {
                assert_eq!(resolve(&mut table, of_old), at(region == old));
                assert_eq!(resolve(&mut table, of_new), at(region == new));
            }
        }
        let longer = LocalRegion { extent: Extent::new(128), ..new }.slice(60, 8).unwrap();
        assert_eq!(resolve(&mut table, longer), [None; 2]);
        assert!(table.evict(|key| key == new.key).is_empty());
        assert_eq!(resolve(&mut table, of_new), [Some(((2 << 20) + 8, 0)); 2]);
        assert!(table.evict(|_| false).is_empty());
        assert_eq!(resolve(&mut table, of_new), [None; 2]);
    }
}
