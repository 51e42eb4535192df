//! Keys to memory: each port's own table, so that no lock is shared between peers.

use hmc_core::region::{LocalSlice, RegionKey};

use crate::memory::Region;

/// The regions that one port has met. A place holds the newest generation of its key.
#[derive(Debug, Default)]
pub(crate) struct RegionCache {
    places: Vec<Option<Region>>,
}

impl RegionCache {
    /// Makes `region` known. Allocates only when a new index appears.
    pub(crate) fn learn(&mut self, region: &Region) {
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
    pub(crate) fn get(&self, key: RegionKey) -> Option<&Region> {
        self.places.get(usize::from(key.index))?.as_ref().filter(|r| r.key() == key)
    }

    /// The region of a slice, if the slice lies within it.
    #[inline]
    pub(crate) fn resolve(&self, slice: LocalSlice) -> Option<&Region> {
        self.get(slice.key).filter(|r| r.local().extent.contains(slice.span))
    }

    /// Forgets regions that only caches still hold, so that their memory is freed. They are to be dropped without a lock: the
    /// owner of the memory may be the application's.
    #[must_use]
    pub(crate) fn sweep(&mut self) -> Vec<Region> {
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
    pub(crate) fn clear(&mut self) -> Vec<Region> {
        let all: Vec<Region> = self.places.drain(..).flatten().collect();
        all.iter().for_each(|region| region.note_cached(false));
        all
    }
}

impl Drop for RegionCache {
    fn drop(&mut self) {
        drop(self.clear());
    }
}
