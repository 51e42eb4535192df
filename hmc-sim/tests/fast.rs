//! The fast pair: a post and a poll allocate nothing, and a put is at the target.

#![allow(unsafe_code, reason = "a counting allocator cannot be written without it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use hmc_core::queue::{Transfer, WorkQueue};
use hmc_core::region::LocalRegion;
use hmc_core::slots::Slot;
use hmc_core::time::Instant;
use hmc_core::work::{CompleteWhen, Opcode};
use hmc_sim::nic::{Bytes, FastPair, SimNic};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more, and nobody asks it.
    let _ = COUNT.try_with(|c| c.set(c.get().wrapping_add(1)));
}

// SAFETY: every call is handed to `System` unchanged, which keeps `GlobalAlloc`'s contract;
// counting touches a thread-local `Cell` only and neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps `alloc`'s contract: `layout` has a size other than zero.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller got `ptr` from `alloc` above with this layout, that is from `System`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Puts `rounds` times, and gives the target and its region.
fn rounds(bytes: Bytes, rounds: u32) -> (SimNic, LocalRegion) {
    let pair = SimNic::pair_fast(64, 64, bytes).expect("memory");
    let FastPair { near, far, local, target, remote } = pair;
    assert!(near.write(local, 0, &[7; 64]));
    let mut queue = WorkQueue::new(near, [Slot::FREE; 8]);
    let transfer = Transfer {
        opcode: Opcode::Put,
        when: CompleteWhen::Visible,
        local: local.slice(0, 8).expect("in the region"),
        remote: remote.slice(8, 8).expect("in the window"),
    };
    let before = COUNT.with(Cell::get);
    let start = std::time::Instant::now();
    for _ in 0..rounds {
        let op = queue.post(&transfer, Instant::NEVER).expect("accepted");
        assert_eq!(queue.progress(), 1);
        let outcome = queue.try_wait(op).expect("not taken").expect("known");
        assert!(outcome.fenced && outcome.result == Ok(8));
        while queue.next_event().is_some() {}
    }
    let each = start.elapsed().checked_div(rounds).unwrap_or_default();
    assert_eq!(COUNT.with(Cell::get), before, "post, progress and wait allocate nothing");
    println!("{bytes:?}: put, progress and wait take {each:?}");
    (far, target)
}

#[test]
fn a_fast_put_arrives_without_allocation() {
    let (far, target) = rounds(Bytes::Move, 100_000);
    let mut got = [0; 24];
    assert!(far.read(target, 0, &mut got));
    assert_eq!(got, [[0xCD; 8], [7; 8], [0xCD; 8]].concat()[..]);
}

#[test]
fn a_skipped_put_moves_nothing() {
    let (far, target) = rounds(Bytes::Skip, 100_000);
    let mut got = [0; 64];
    assert!(far.read(target, 0, &mut got));
    assert_eq!(got, [0xCD; 64]);
}
