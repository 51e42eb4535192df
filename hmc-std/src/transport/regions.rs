//! Keys to memory: each port's own table, so that no lock is shared between peers.

use hmc_core::region::{LocalSlice, RegionKey};
use hmc_mem::os::memfd::Mapping;
use hmc_mem::shared::SharedBytes;

use crate::memory::Region;

/// The regions that one data plane has met. A place holds the newest generation of its key.
///
/// Regions that only such caches hold are released by [`Self::sweep`], so a data plane keeps its regions here and nowhere else.
#[derive(Debug, Default)]
pub struct RegionCache {
    places: Vec<Option<Region>>,
}

impl RegionCache {
    /// Makes `region` known. Allocates only when a new index appears.
    pub fn learn(&mut self, region: &Region) {
        let index = usize::from(region.key().index);
        if index >= self.places.len() {
            self.places.resize_with(index.saturating_add(1), || None);
        }
        if let Some(place) = self.places.get_mut(index)
            && place.as_ref().is_none_or(|r| r.key() != region.key())
        {
            if let Some(old) = place.take() {
                old.note_cached(false);
            }
            *place = Some(region.clone());
            region.note_cached(true);
        }
    }

    /// The region of that key, if it was learned and not replaced.
    #[inline]
    #[must_use]
    pub fn get(&self, key: RegionKey) -> Option<&Region> {
        self.places.get(usize::from(key.index))?.as_ref().filter(|r| r.key() == key)
    }

    /// The region of a slice, if the slice lies within it.
    #[inline]
    #[must_use]
    pub fn resolve(&self, slice: LocalSlice) -> Option<&Region> {
        self.get(slice.key).filter(|r| r.local().extent.contains(slice.span))
    }

    /// The bytes of the region of a slice, if the slice lies within it.
    #[inline]
    #[must_use]
    pub fn bytes_of(&self, slice: LocalSlice) -> Option<SharedBytes<'_>> {
        self.resolve(slice).map(Region::bytes)
    }

    /// Forgets regions that only caches still hold, so that their memory is freed. They are to be dropped without a lock: the
    /// owner of the memory may be the application's.
    #[must_use]
    pub fn sweep(&mut self) -> Vec<Region> {
        let mut swept = Vec::new();
        for place in &mut self.places {
            if place.as_ref().is_some_and(Region::is_only_cached)
                && let Some(region) = place.take()
            {
                region.note_cached(false);
                swept.push(region);
            }
        }
        swept
    }

    /// Forgets all, which are to be dropped as those of [`Self::sweep`].
    #[must_use]
    pub fn clear(&mut self) -> Vec<Region> {
        let all: Vec<Region> = self.places.drain(..).flatten().collect();
        all.iter().for_each(|region| region.note_cached(false));
        all
    }
}

/// The pages of a region, whose descriptor a peer can be given; `None` for memory that was registered in place.
#[must_use]
pub fn pages_of(region: &Region) -> Option<&Mapping> {
    region.mapping()
}

impl Drop for RegionCache {
    fn drop(&mut self) {
        drop(self.clear());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hmc_core::region::RegionKey;

    use super::RegionCache;
    use crate::memory::RegionTable;

    #[test]
    fn a_place_has_the_region_that_was_learned_last() {
        let table = Arc::new(RegionTable::default());
        let mut cache = RegionCache::default();
        let (first, second) =
            (table.allocate(64).expect("memory"), table.allocate(64).expect("memory"));
        let (old, kept) = (first.key(), second.key());
        for region in [&second, &first, &first] {
            cache.learn(region);
        }
        assert_eq!(cache.get(old).map(|r| r.key()), Some(old));
        assert_eq!(cache.get(kept).map(|r| r.key()), Some(kept));
        assert!(
            cache.get(RegionKey { generation: old.generation.wrapping_add(1), ..old }).is_none()
        );
        assert!(cache.get(RegionKey { index: 40_000, ..old }).is_none());
        let whole = second.slice(0, 64).expect("all of it");
        assert!(cache.resolve(whole).is_some());
        let longer = table.allocate(65).expect("memory").slice(0, 65).expect("all of it");
        let beyond = hmc_core::region::LocalSlice { key: kept, ..longer };
        assert!(cache.resolve(beyond).is_none(), "a byte behind it");
        // It counts once, however often it was learned.
        assert!(!first.is_only_cached());
        drop(first);
        let swept = cache.sweep();
        assert_eq!(swept.iter().map(|r| r.key()).collect::<Vec<_>>(), [old]);
        assert!(cache.get(old).is_none() && cache.get(kept).is_some());
        drop(swept);
        let next = table.allocate(64).expect("memory");
        assert_eq!((next.key().index, cache.sweep().len()), (old.index, 0));
        cache.learn(&next);
        assert!(cache.get(old).is_none() && cache.get(next.key()).is_some());
    }

    #[test]
    fn a_cache_that_is_cleared_or_dropped_holds_nothing() {
        let table = Arc::new(RegionTable::default());
        let region = table.allocate(64).expect("memory");
        let mut cache = RegionCache::default();
        cache.learn(&region);
        let all = cache.clear();
        assert_eq!(all.iter().map(|r| r.key()).collect::<Vec<_>>(), [region.key()]);
        assert!(cache.get(region.key()).is_none());
        drop(all);
        assert!(!region.is_only_cached(), "no cache has it");
        cache.learn(&region);
        drop(cache);
        assert!(!region.is_only_cached(), "no cache has it");
    }

    /// The cache lets the old region go, which counts as a cache's no more.
    #[test]
    fn a_region_whose_place_another_one_takes_is_not_cached() {
        let (one, other) = (Arc::new(RegionTable::default()), Arc::new(RegionTable::default()));
        let (first, second) =
            (one.allocate(64).expect("memory"), other.allocate(64).expect("memory"));
        assert_eq!(first.key().index, second.key().index);
        let mut cache = RegionCache::default();
        cache.learn(&first);
        cache.learn(&second);
        assert!(cache.get(first.key()).is_none() && !first.is_only_cached());
    }
}
