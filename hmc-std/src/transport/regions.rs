//! Keys of memory: each data plane's own table, so peers share no lock.

use std::ops::{Deref, DerefMut};

use hmc_core::region::LocalSlice;
use hmc_mem::os::memfd::Mapping;
use hmc_mem::registered::MemoryCache;
use hmc_mem::shared::SharedBytes;

use crate::memory::Region;
use crate::transport::released::Released;

/// The regions that one data plane has met. An entry holds the newest generation of its key.
///
/// Regions that only such caches hold are released by [`Self::release`], so a data plane keeps its regions here and nowhere
/// else.
#[derive(Debug, Default)]
pub struct RegionCache(MemoryCache<Region>);

impl RegionCache {
    /// The bytes of the region of a slice, if the slice lies within it.
    #[inline]
    #[must_use]
    pub fn bytes_of(&self, slice: LocalSlice) -> Option<SharedBytes<'_>> {
        self.resolve(slice).map(Region::bytes)
    }

    /// Moves regions that only caches hold to `released`; with `all`, every region.
    pub fn release(&mut self, all: bool, released: &mut Released) {
        let regions = if all { self.clear() } else { self.sweep() };
        if !regions.is_empty() {
            released.push(regions);
        }
    }
}

impl Deref for RegionCache {
    type Target = MemoryCache<Region>;

    #[inline]
    fn deref(&self) -> &MemoryCache<Region> {
        &self.0
    }
}

impl DerefMut for RegionCache {
    #[inline]
    fn deref_mut(&mut self) -> &mut MemoryCache<Region> {
        &mut self.0
    }
}

/// The pages of a region, whose descriptor a peer can be given; `None` for memory that was registered in place.
#[must_use]
pub fn pages_of(region: &Region) -> Option<&Mapping> {
    region.mapping()
}
