//! Many threads, random scripts, and the memory that posts and polls need.

use core::alloc::Layout;
use core::cell::Cell;
use std::alloc::{GlobalAlloc, System};

use super::rig::{BYTES, Rig, set};
use crate::abi::*;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: as `System`.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: as `System`.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn posts_and_polls_allocate_nothing_once_they_are_warm() {
    let rig = Rig::new();
    // SAFETY: numbers, for which zero is a value.
    let mut wc: [ibv_wc; 16] = unsafe { core::mem::zeroed() };
    let poll = rig.a.ops().poll_cq.expect("the table has it");
    let mut round = |warm: bool| {
        let before = ALLOCATIONS.with(Cell::get);
        for turn in 0..50u64 {
            for id in 0..3 {
                assert_eq!(rig.a.write(id, &rig.b, (turn as usize, 64)), 0);
            }
            assert_eq!(rig.a.read(3, &rig.b, (turn as usize, 64)), 0);
            // SAFETY: 16 entries may be written.
            assert_eq!(unsafe { poll(rig.a.cq, 16, wc.as_mut_ptr()) }, 4);
        }
        assert!(warm || ALLOCATIONS.with(Cell::get) == before);
    };
    round(true);
    round(false);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn threads_may_make_any_call() {
    let rig = Rig::new();
    set("jitter", 3);
    let (a, b) = (rig.a.addr(0), rig.b.addr(0));
    assert_ne!(a, b);
    let done = std::sync::atomic::AtomicU64::new(0);
    // The ends hold pointers, whose targets any thread may use.
    struct Shared(Rig);
    // SAFETY: the library is what guards its objects.
    unsafe impl Sync for Shared {}
    let rig = Shared(rig);
    let shared = &rig;
    std::thread::scope(|s| {
        for thread in 0..3 {
            let done = &done;
            s.spawn(move || {
                for _ in 0..500 {
                    let Rig { a, b, .. } = &shared.0;
                    if a.write(thread, b, (0, 64)) != 0 {
                        std::thread::yield_now();
                    }
                    let ended = a.ended();
                    assert!(ended.iter().all(|(_, status)| *status == 0));
                    done.fetch_add(ended.len() as u64, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    let rig = rig.0;
    for _ in 0..100 {
        done.fetch_add(rig.a.poll().len() as u64, std::sync::atomic::Ordering::Relaxed);
    }
    assert_eq!(super::rig::calls("write"), done.into_inner());
    assert_eq!(rig.end(), [""; 0]);
}

/// Plays writes and reads of random sizes; what ended in which tick, and the bytes at the end.
fn play(seed: u64) -> (Vec<(u64, u64)>, Vec<u8>) {
    let rig = Rig::new();
    for (name, value) in [("seed", seed), ("jitter", 4), ("order", 2), ("batch", 2)] {
        set(name, value);
    }
    let mut ended = Vec::new();
    let mut number = seed;
    for tick in 0..200 {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (at, len) = ((number >> 40) as usize % 4000, (number >> 20) as u32 % 4000);
        let (from, to) = if number >> 63 == 0 { (&rig.a, &rig.b) } else { (&rig.b, &rig.a) };
        let op = if number >> 62 & 1 == 0 { IBV_WR_RDMA_WRITE } else { IBV_WR_RDMA_READ };
        from.transfer(op, tick, to, (at, len));
        for end in [&rig.a, &rig.b] {
            ended.extend(
                end.ended().iter().map(|(id, status)| (tick, id << 8 | u64::from(*status))),
            );
        }
    }
    for _ in 0..200 {
        rig.a.poll();
        rig.b.poll();
    }
    let bytes = (0..BYTES).map(|at| rig.a.byte(at) ^ rig.b.byte(at) << 4).collect();
    assert_eq!(rig.end(), [""; 0]);
    (ended, bytes)
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 1..20 {
        assert_eq!(play(seed), play(seed));
    }
    assert_ne!(play(1).0, play(2).0);
}
