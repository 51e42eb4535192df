//! An allocator that counts what all threads of its process ask for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, counted. Declare it as the `#[global_allocator]` of a program.
#[derive(Debug)]
pub struct Counting(AtomicU64);

impl Counting {
    /// None so far.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Allocations and re-allocations since the program started.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Default for Counting {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: every call is passed on to `System` as it is; counting touches an atomic only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc`, which are `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System` by this allocator, with that layout, as the caller vouches.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.0.fetch_add(1, Ordering::SeqCst);
        // SAFETY: as for `dealloc`; the new size is the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}
