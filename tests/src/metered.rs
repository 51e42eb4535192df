//! An allocator that counts, for each thread, what is allocated and not freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

/// Bytes that this thread has allocated and not freed. Always 0 unless [`Metered`] is the `#[global_allocator]`.
#[must_use]
pub fn live() -> i64 {
    LIVE.with(Cell::get)
}

fn add(bytes: usize) {
    LIVE.with(|live| live.set(live.get().wrapping_add(bytes as i64)));
}

fn sub(bytes: usize) {
    LIVE.with(|live| live.set(live.get().wrapping_sub(bytes as i64)));
}

/// The system's allocator, counted by thread. Declare it as the `#[global_allocator]` of a program.
#[derive(Debug)]
pub struct Metered;

// SAFETY: every call is passed on to `System` as it is; counting touches a cell of the thread, which is made without an
// allocation and never dropped.
unsafe impl GlobalAlloc for Metered {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc`, which are `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        sub(layout.size());
        // SAFETY: `at` came from `System` by this allocator, with that layout, as the caller vouches.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        sub(layout.size());
        // SAFETY: as for `dealloc`; the new size is the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}
