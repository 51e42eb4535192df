//! The worked embedding (`examples/embedded`) as a static Linux program without libc and `std`.
//!
//! Stands for a board's firmware: `_start` is the reset vector, the exit status the only output.
//! Status 0: the walkthrough passed. 1: it failed. 2: a panic. [`sys`] is in the role of a board support package.
#![no_std]
#![no_main]

#[path = "../../nopanic/src/memory.rs"]
mod memory;
mod sys;

use core::cell::UnsafeCell;
use embedded::board::Storage;

/// All memory that the core works on: none of it is on a heap, and none grows.
struct Static(UnsafeCell<Storage>);

// SAFETY: the program has one thread and no signal handler; `main` is the only user and runs once.
unsafe impl Sync for Static {}

static STORAGE: Static = Static(UnsafeCell::new(Storage::new()));

/// Called once by `sys`'s entry, on the stack that the system gave.
fn main() -> i32 {
    // SAFETY: `main` is called once, so this is the only reference ever made to the storage.
    let storage = unsafe { &mut *STORAGE.0.get() };
    match embedded::run(storage) {
        Ok(report) if report.bytes > 0 && report.beats > 0 => 0,
        Ok(_) | Err(_) => 1,
    }
}
