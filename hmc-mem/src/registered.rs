//! Registered memory, as transports use it: a handle, and tables of the handles that a transport keeps.

use core::fmt::Debug;
use core::ops::Deref;

use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};

use crate::shared::SharedBytes;

/// A handle of registered memory. Clones are handles of the same memory.
///
/// # Safety
/// Until the last handle is dropped, the bytes that [`Self::bytes`] returns keep their address and are valid for reads
/// and writes from any thread and by devices. The application's bytes among them are accessed by copies only, never
/// through references.
pub unsafe trait Registered: Clone + Debug + Send + Sync + 'static {
    /// Returns its key, its length and its kind.
    fn local(&self) -> LocalRegion;

    /// Returns its bytes.
    ///
    /// # Safety
    /// They are accessed only where the application has lent them: to its requests and by its windows.
    unsafe fn bytes(&self) -> SharedBytes<'_>;

    /// A device may know the pages from now on: they are not replaced any more.
    fn note_pinned(&self);

    /// One handle more, or fewer, is a cache's.
    fn note_cached(&self, is_cached: bool);

    /// Returns `true` if all handles are those of caches.
    fn is_only_cached(&self) -> bool;
}

/// A handle that a cache owns. Until it is dropped, it counts as the cache's.
#[derive(Debug)]
pub struct CachedHandle<M: Registered>(M);

impl<M: Registered> CachedHandle<M> {
    /// Returns another handle of `memory`.
    pub fn new(memory: &M) -> Self {
        memory.note_cached(true);
        Self(memory.clone())
    }
}

impl<M: Registered> Deref for CachedHandle<M> {
    type Target = M;

    #[inline]
    fn deref(&self) -> &M {
        &self.0
    }
}

impl<M: Registered> Drop for CachedHandle<M> {
    fn drop(&mut self) {
        self.0.note_cached(false);
    }
}

/// A table from region keys to memory. Each data plane has its own, so that peers share no lock. An entry has the
/// newest generation of its key.
#[derive(Debug)]
pub struct MemoryCache<M: Registered> {
    entries: Vec<Option<CachedHandle<M>>>,
}

impl<M: Registered> Default for MemoryCache<M> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<M: Registered> MemoryCache<M> {
    /// Adds `memory` unless the table has it. Allocates only for a new index.
    pub fn add(&mut self, memory: &M) {
        let key = memory.local().key;
        let index = usize::from(key.index);
        if index >= self.entries.len() {
            self.entries.resize_with(index.saturating_add(1), || None);
        }
        if let Some(entry) = self.entries.get_mut(index)
            && entry.as_ref().is_none_or(|m| m.local().key != key)
        {
            *entry = Some(CachedHandle::new(memory));
        }
    }

    /// Returns the memory of a key, or `None` if it was not added or was replaced.
    #[inline]
    #[must_use]
    pub fn get(&self, key: RegionKey) -> Option<&M> {
        let entry = self.entries.get(usize::from(key.index))?.as_deref();
        entry.filter(|m| m.local().key == key)
    }

    /// Returns the memory of a slice, or `None` if the table lacks it or the slice exceeds it.
    #[inline]
    #[must_use]
    pub fn resolve(&self, slice: LocalSlice) -> Option<&M> {
        self.get(slice.key).filter(|m| m.local().extent.contains(slice.span))
    }

    /// Removes and returns memory that only caches own. Drop the result without holding a lock, because a drop can run
    /// code of the application.
    #[must_use]
    pub fn sweep(&mut self) -> Vec<CachedHandle<M>> {
        let is_unused = |entry: &&mut Option<CachedHandle<M>>| {
            entry.as_ref().is_some_and(|memory| memory.is_only_cached())
        };
        self.entries.iter_mut().filter(is_unused).filter_map(Option::take).collect()
    }

    /// Removes and returns all memory. Drop the result without holding a lock.
    #[must_use]
    pub fn clear(&mut self) -> Vec<CachedHandle<M>> {
        self.entries.drain(..).flatten().collect()
    }
}

#[cfg(test)]
mod tests;
