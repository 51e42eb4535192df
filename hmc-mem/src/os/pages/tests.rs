//! What failed calls leave: no hole where views are, no page of others unmapped.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "tests may panic")]

use super::{
    HUGE_PAGE, MappedPages, Patches, anonymous, finish_replace, is_too_little, put_over, zeros,
};
use crate::error::{MemError, MemLimit};
use crate::length::widen;
use crate::os::fork::tests::in_child;
use crate::os::limits::page_size;
use crate::os::mapped::map;
use crate::os::memfd::Mapping;
use hmc_core::types::Access;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGES: usize = 4;

fn page() -> usize {
    usize::try_from(page_size()).expect("memory")
}

/// Whether all of at most 512 pages are mapped.
fn is_mapped(at: *mut u8, len: usize) -> bool {
    let mut vec = [0u8; 512];
    assert!(len.div_ceil(page()) <= vec.len());
    // SAFETY: mincore(2) writes one byte for each page, and fails with ENOMEM for a hole.
    unsafe { libc::mincore(at.cast(), len, vec.as_mut_ptr()) == 0 }
}

fn pages_of(byte: u8, n: usize) -> MappedPages {
    let pins = anonymous(widen(n * page())).expect("memory");
    // SAFETY: the pages are this test's own.
    unsafe { pins.at.as_ptr().write_bytes(byte, pins.len) };
    pins
}

fn all_are(at: *mut u8, len: usize, byte: u8) -> bool {
    // SAFETY: the caller knows that they are mapped, and nobody writes them.
    is_mapped(at, len) && unsafe { std::slice::from_raw_parts(at, len) }.iter().all(|b| *b == byte)
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no mremap(2) to an address and no fork(2)")]
fn a_move_that_fails_at_once_leaves_the_old_pages() {
    let (old, fresh) = (pages_of(1, PAGES), pages_of(2, PAGES));
    // SAFETY: the pages of `old` are this test's own; the call is said to have failed without a change.
    let moved = unsafe { finish_replace(fresh, old.at.as_ptr(), Err(Errno::NOMEM)) };
    assert_eq!(moved, Err(Errno::NOMEM));
    assert!(all_are(old.at.as_ptr(), old.len, 1));
}

/// In a child, where no other thread maps anything into the hole before it is filled.
#[test]
#[cfg_attr(miri, ignore = "Miri has no mremap(2) to an address and no fork(2)")]
fn a_move_that_fails_after_it_has_unmapped_leaves_no_hole() {
    for (first, n) in [(0, PAGES), (1, 2), (PAGES - 1, 1)] {
        let status = in_child(|| {
            let (old, fresh) = (pages_of(1, PAGES), pages_of(2, n));
            let (at, len) = (old.at.as_ptr().wrapping_add(first * page()), n * page());
            // SAFETY: within `old`: what mremap(2) of an old kernel does before it fails.
            unsafe { rustix::mm::munmap(at.cast(), len) }.expect("memory");
            let planted = !is_mapped(at, len);
            // SAFETY: the range was the test's own a moment ago, and there is no other thread.
            let moved = unsafe { finish_replace(fresh, at, Err(Errno::NOMEM)) };
            let whole = is_mapped(old.at.as_ptr(), old.len);
            planted && moved == Ok(()) && whole && all_are(at, len, 2)
        });
        assert_eq!(status, 0, "{status:#x}");
    }
}

/// What this kernel does where mappings run out: mremap(2) needs up to three more than it gives back.
#[test]
#[cfg_attr(miri, ignore = "Miri has no mremap(2) to an address and no fork(2)")]
fn no_hole_is_left_at_the_limit_of_mappings() {
    for odd in [false, true] {
        let status = in_child(|| {
            let old = pages_of(1, PAGES);
            let (at, len) = (old.at.as_ptr().wrapping_add(page()), 2 * page());
            let mut last: [*mut u8; 16] = [std::ptr::null_mut(); 16];
            let mut made = 0usize;
            // Whoever maps one alone changes where the limit is met: even and odd.
            let one = odd.then(|| zeros(page()));
            // Two pages with different rights are two mappings.
            while let Ok(two) = zeros(2 * page()) {
                let none = rustix::mm::MprotectFlags::empty();
                // SAFETY: a page of this test's own, which nobody touches.
                if unsafe { rustix::mm::mprotect(two.at.as_ptr().cast(), page(), none) }.is_err() {
                    break;
                }
                last[made % 16] = two.at.as_ptr();
                made += 1;
                std::mem::forget(two);
            }
            let mut refused = 0;
            for two in last {
                let fresh = zeros(len);
                if let Ok(fresh) = fresh {
                    // SAFETY: the pages are this test's own.
                    unsafe { fresh.at.as_ptr().write_bytes(2, len) };
                    // SAFETY: within `old`, and there is no other thread.
                    let moved = unsafe { put_over(fresh, at) };
                    let byte = if moved.is_ok() { 2 } else { 1 };
                    if !is_mapped(old.at.as_ptr(), old.len) || !all_are(at, len, byte) {
                        return false;
                    }
                    if moved.is_ok() {
                        drop(one);
                        return made > 16 && refused > 0;
                    }
                    refused += 1;
                }
                // SAFETY: two pages that the loop above left mapped, and that nobody uses.
                unsafe { rustix::mm::munmap(two.cast(), 2 * page()) }.expect("memory");
            }
            false
        });
        assert_eq!(status, 0, "odd: {odd}, {status:#x}");
    }
}

/// A socket can be asked to be mapped and refuses, after the kernel has unmapped what was at the address.
#[test]
#[cfg_attr(miri, ignore = "Miri has no mmap(2) of descriptors")]
fn a_mapping_that_fails_unmaps_nothing_of_other_threads() {
    let (socket, _other) = UnixStream::pair().expect("memory");
    let len = PAGES * page();
    let over = AtomicBool::new(false);
    let lost = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut lost = 0;
            while !over.load(Ordering::Relaxed) {
                // As long as what a failed call may leave.
                let mine = zeros(len).expect("memory");
                lost += (0..20).filter(|_| !is_mapped(mine.at.as_ptr(), page())).count();
            }
            lost
        });
        for _ in 0..100_000 {
            let access = Access::READ | Access::WRITE;
            assert!(map(socket.as_fd(), widen(len), 0, access, false).is_err());
        }
        over.store(true, Ordering::Relaxed);
        watch.join().expect("no panic")
    });
    assert_eq!(lost, 0, "pages of another thread were gone");
}

#[test]
fn one_that_fails_takes_nothing_from_one_that_came_meanwhile() {
    let patches = Patches::new(0);
    assert_eq!(patches.note(|| Err(())), Err(()));
    assert!(patches.are_none());
    let failed = patches.note(|| {
        assert_eq!(patches.note(|| Ok::<(), ()>(())), Ok(()));
        Err(())
    });
    assert_eq!(failed, Err(()));
    assert!(!patches.are_none());
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no fork(2)")]
fn a_limit_of_address_space_is_named() {
    let status = in_child(|| {
        let mut limit = getrlimit(Resource::As);
        limit.current = Some(1 << 20);
        setrlimit(Resource::As, limit).is_ok()
            && matches!(
                Mapping::create(1 << 20),
                Err(MemError::NoSpace { need, have: 0, limit: MemLimit::AddressSpace })
                    if need == 1 << 20
            )
    });
    assert_eq!(status, 0);
}

#[test]
fn a_region_and_one_huge_page_have_to_fit() {
    for need in [0, 1, 5 << 30] {
        let least = need + HUGE_PAGE;
        assert_eq!([least - 1, least].map(|left| is_too_little(left, need)), [true, false]);
    }
    assert!(!is_too_little(u64::MAX, u64::MAX), "as much as there can be");
}
