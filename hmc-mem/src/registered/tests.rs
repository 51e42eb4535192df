//! Tests of the tables of handles, over handles that count.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hmc_core::place::Place;
use hmc_core::range::Extent;
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};

use super::{CachedHandle, MemoryCache, Registered};
use crate::shared::SharedBytes;

/// A handle of 64 bytes that nobody accesses.
#[derive(Clone, Debug)]
struct Handle {
    key: RegionKey,
    cached: Arc<AtomicUsize>,
}

impl Handle {
    fn new(index: u16, generation: u32) -> Self {
        Self { key: RegionKey { index, generation }, cached: Arc::default() }
    }

    fn slice(&self, len: u64) -> LocalSlice {
        LocalSlice { key: self.key, span: Extent::new(len).whole() }
    }
}

// SAFETY: it has no bytes.
unsafe impl Registered for Handle {
    fn local(&self) -> LocalRegion {
        LocalRegion { key: self.key, extent: Extent::new(64), place: Place::HOST }
    }

    unsafe fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: no byte is accessed.
        unsafe { SharedBytes::new(std::ptr::NonNull::dangling(), 0) }
    }

    fn note_pinned(&self) {}

    fn note_cached(&self, is_cached: bool) {
        match is_cached {
            true => self.cached.fetch_add(1, Ordering::Relaxed),
            false => self.cached.fetch_sub(1, Ordering::Relaxed),
        };
    }

    fn is_only_cached(&self) -> bool {
        Arc::strong_count(&self.cached) <= self.cached.load(Ordering::Relaxed)
    }
}

fn keys(handles: &[CachedHandle<Handle>]) -> Vec<RegionKey> {
    handles.iter().map(|handle| handle.key).collect()
}

#[test]
fn an_entry_has_the_memory_that_was_added_last() {
    let mut cache = MemoryCache::default();
    let (first, second) = (Handle::new(3, 1), Handle::new(5, 1));
    let (old, kept) = (first.key, second.key);
    for memory in [&second, &first, &first] {
        cache.add(memory);
    }
    assert_eq!(cache.get(old).map(|m| m.key), Some(old));
    assert_eq!(cache.get(kept).map(|m| m.key), Some(kept));
    assert!(cache.get(RegionKey { generation: 2, ..old }).is_none());
    assert!(cache.get(RegionKey { index: 40_000, ..old }).is_none());
    assert!(cache.resolve(second.slice(64)).is_some());
    assert!(cache.resolve(second.slice(65)).is_none(), "a byte behind it");
    // It counts once, however often it was added.
    assert!(!first.is_only_cached());
    drop(first);
    let swept = cache.sweep();
    assert_eq!(keys(&swept), [old]);
    assert!(cache.get(old).is_none() && cache.get(kept).is_some());
    drop(swept);
    assert!(cache.sweep().is_empty());
    let next = Handle::new(3, 2);
    cache.add(&next);
    assert!(cache.get(old).is_none() && cache.get(next.key).is_some());
}

/// The other cache has to find it unused as well, before the first one's handle is dropped.
#[test]
fn memory_that_two_caches_hold_leaves_both_at_once() {
    let (mut one, mut other) = (MemoryCache::default(), MemoryCache::default());
    let memory = Handle::new(0, 1);
    let (key, cached) = (memory.key, Arc::downgrade(&memory.cached));
    one.add(&memory);
    other.add(&memory);
    assert!(one.sweep().is_empty() && other.sweep().is_empty(), "the application has a handle");
    drop(memory);
    let swept = (one.sweep(), other.sweep());
    assert_eq!((keys(&swept.0), keys(&swept.1)), (vec![key], vec![key]));
    drop(swept);
    assert!(cached.upgrade().is_none(), "no handle is left");
}

#[test]
fn a_cache_that_is_cleared_or_dropped_holds_nothing() {
    let memory = Handle::new(0, 1);
    let mut cache = MemoryCache::default();
    cache.add(&memory);
    let all = cache.clear();
    assert_eq!(keys(&all), [memory.key]);
    assert!(cache.get(memory.key).is_none());
    drop(all);
    assert!(!memory.is_only_cached(), "no cache has it");
    cache.add(&memory);
    drop(cache);
    assert!(!memory.is_only_cached(), "no cache has it");
}

/// The cache drops the old handle, which counts as a cache's no more.
#[test]
fn memory_whose_entry_other_memory_takes_is_not_cached() {
    let (first, second) = (Handle::new(0, 1), Handle::new(0, 2));
    let mut cache = MemoryCache::default();
    cache.add(&first);
    cache.add(&second);
    assert!(cache.get(first.key).is_none() && !first.is_only_cached());
    assert_eq!(first.cached.load(Ordering::Relaxed), 0);
}
