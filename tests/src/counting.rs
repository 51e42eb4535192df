//! An allocator that counts what all threads of its process ask for, and each of them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

thread_local! {
    /// Allocations and re-allocations of this thread. Without a destructor: it is there until the thread's end.
    static HERE: Cell<u64> = const { Cell::new(0) };
    /// Whether this is the program's first thread, once it has asked.
    static IS_FIRST: Cell<Option<bool>> = const { Cell::new(None) };
}

fn is_first_thread() -> bool {
    let ask = || rustix::thread::gettid() == rustix::process::getpid();
    let is_first = IS_FIRST.get().unwrap_or_else(ask);
    IS_FIRST.set(Some(is_first));
    is_first
}

/// The system's allocator, counted. Declare it as the `#[global_allocator]` of a program.
#[derive(Debug)]
pub struct Counting {
    calls: AtomicU64,
    /// Of these, those of the program's first thread.
    first_calls: AtomicU64,
    live: AtomicUsize,
}

impl Counting {
    /// None so far.
    #[must_use]
    pub const fn new() -> Self {
        let [calls, first_calls] = [const { AtomicU64::new(0) }; 2];
        Self { calls, first_calls, live: AtomicUsize::new(0) }
    }

    /// Allocations and re-allocations since the program started.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Those of all threads but the program's first: the harness of a test has that, and allocates on it after the test has begun.
    ///
    /// # Panics
    /// In the first thread, whose allocations it leaves out.
    #[must_use]
    pub fn count_of_test(&self) -> u64 {
        assert!(!is_first_thread(), "a test has a thread of its own");
        self.calls.load(Ordering::SeqCst) - self.first_calls.load(Ordering::SeqCst)
    }

    /// Those of the thread that asks.
    #[must_use]
    pub fn count_here(&self) -> u64 {
        HERE.get()
    }

    fn add(&self) {
        if is_first_thread() {
            self.first_calls.fetch_add(1, Ordering::SeqCst);
        }
        self.calls.fetch_add(1, Ordering::SeqCst);
        HERE.set(HERE.get().wrapping_add(1));
    }

    /// Bytes that are allocated now.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}

impl Default for Counting {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: every call is passed on to `System` as it is; counting touches an atomic and a number of the thread only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.add();
        self.live.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc`, which are `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        self.live.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `at` came from `System` by this allocator, with that layout, as the caller vouches.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.add();
        self.live.fetch_add(size.wrapping_sub(layout.size()), Ordering::Relaxed);
        // SAFETY: as for `dealloc`; the new size is the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}
