//! Regions: their parts, their keys, their pages.

use super::super::stable::{HeapBytes, StableBytes};
use super::{Region, RegionTable};
use crate::base::error::ErrorKind;
use hmc_mem::registered::Registered as _;
use rustix::fs::SealFlags;
use std::sync::Arc;

#[test]
fn spans_never_overlap_and_come_back() {
    let table = Arc::new(RegionTable::default());
    let region = table.allocate(4096).expect("memory");
    let a = region.take(0, 100).expect("free");
    let e = region.take(99, 2).expect_err("taken");
    assert_eq!(e.kind(), ErrorKind::Busy);
    let b = region.take(100, 28).expect("free");
    let both = a.join(b).expect("neighbours");
    assert_eq!(both.len(), 128);
    let (x, y) = both.split_at(64).expect("long enough");
    drop(x);
    assert!(region.take(0, 64).is_ok());
    assert!(region.take(64, 1).is_err());
    drop(y);
    assert!(region.take_all().is_ok());
}

#[test]
fn adopted_memory_is_used_in_place_and_freed_last() {
    let table = Arc::new(RegionTable::default());
    let region = table.adopt(Box::new(HeapBytes::from(vec![7u8; 64]))).expect("memory");
    assert!(!region.is_mappable());
    let mut span = region.take_all().expect("free");
    drop(region);
    span.write_at(8, b"in place").expect("fits");
    assert_eq!(span.as_slice().get(8..16), Some(&b"in place"[..]));
    assert_eq!(span.as_mut_slice().first(), Some(&7));
}

/// What `as_bytes_ptr` gives.
struct Named(usize, usize);

// SAFETY: it is refused, or names no byte.
unsafe impl StableBytes for Named {
    fn as_bytes_ptr(&self) -> (*mut u8, usize) {
        (std::ptr::without_provenance_mut(self.0), self.1)
    }
}

#[test]
fn bytes_that_no_memory_has_are_refused() {
    let table = Arc::new(RegionTable::default());
    for (start, len) in [(0, 1), (0, 1 << 40), (4096, usize::MAX), (4096, 1 << 63)] {
        let e = table.adopt(Box::new(Named(start, len))).expect_err("no such memory");
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{start:#x} {len:#x}");
    }
    for start in [0, 4096] {
        assert!(table.adopt(Box::new(Named(start, 0))).expect("none").is_empty());
    }
}

#[test]
fn a_key_is_never_reused() {
    let table = Arc::new(RegionTable::default());
    let first = table.allocate(16).expect("memory").key();
    let second = table.allocate(16).expect("memory").key();
    assert_eq!(first.index, second.index);
    assert_ne!(first.generation, second.generation);
}

#[test]
fn two_tables_never_give_the_same_key() {
    let tables = [Arc::new(RegionTable::default()), Arc::new(RegionTable::default())];
    let regions: Vec<_> =
        (0..8).flat_map(|_| tables.iter().map(|t| t.allocate(16).expect("memory"))).collect();
    for (i, a) in regions.iter().enumerate() {
        assert!(regions.iter().skip(i.saturating_add(1)).all(|b| a.key() != b.key()));
    }
}

/// What the kernel forbids about the pages of a region.
fn seals(region: &Region) -> SealFlags {
    let fd = region.mapping().expect("pages").fd().expect("a memfd");
    rustix::fs::fcntl_get_seals(fd).expect("a memfd")
}

#[test]
fn pages_that_a_peer_may_write_cannot_be_sealed_and_sealed_ones_stay_so() {
    let table = Arc::new(RegionTable::default());
    let written = table.allocate(64).expect("memory");
    let before = seals(&written);
    assert!(!before.intersects(SealFlags::SEAL | SealFlags::FUTURE_WRITE));
    written.note_writable();
    assert_eq!(seals(&written), before | SealFlags::SEAL, "nor by the peer");
    assert!(!written.seal_writes() && !written.is_write_sealed());
    written.note_writable();
    assert_eq!(seals(&written), before | SealFlags::SEAL);
    let sealed = table.allocate(64).expect("memory");
    for _ in 0..2 {
        assert!(sealed.seal_writes() && sealed.is_write_sealed());
        assert_eq!(seals(&sealed), before | SealFlags::SEAL | SealFlags::FUTURE_WRITE);
    }
    sealed.note_writable();
    assert!(!sealed.seal_writes(), "a window may be written by other ways");
    assert!(sealed.is_write_sealed());
    let adopted = table.adopt(Box::new(HeapBytes::from(vec![0; 64]))).expect("memory");
    assert!(!adopted.seal_writes() && !adopted.is_write_sealed());
}

#[test]
fn a_region_is_only_cached_once_nobody_else_holds_it() {
    let table = Arc::new(RegionTable::default());
    let region = table.allocate(64).expect("memory");
    assert!(!region.is_only_cached());
    region.note_cached(true);
    assert!(region.is_only_cached(), "this one handle is a cache's");
    let other = region.clone();
    assert!(!region.is_only_cached());
    drop(other);
    assert!(region.is_only_cached());
    region.note_cached(false);
    assert!(!region.is_only_cached());
    assert!(!region.is_pinned());
    region.note_pinned();
    assert!(region.is_pinned() && region.clone().is_pinned());
    assert!(region.is_of(&table) && !region.is_of(&Arc::new(RegionTable::default())));
}

#[test]
fn keys_of_regions_that_are_gone_are_given_out_again() {
    let table = Arc::new(RegionTable::default());
    let kept = table.allocate(16).expect("memory");
    for _ in 0..70_000 {
        let region = table.adopt(Box::new(HeapBytes::from(Vec::new()))).expect("a place");
        assert!(region.is_empty() && region.key().index != kept.key().index);
    }
}

#[test]
fn a_region_is_a_shared_buffer_or_has_private_parts() {
    let table = Arc::new(RegionTable::default());
    let region = table.allocate(64).expect("memory");
    let part = region.take(8, 8).expect("free");
    let e = region.clone().share().expect_err("a part is private");
    assert!(e.kind() == ErrorKind::Busy && e.to_string().contains("8 to 16"), "{e}");
    drop(part);
    region.clone().share().expect("all of it is free");
    assert_eq!(region.take(0, 1).expect_err("shared").kind(), ErrorKind::Busy);
}
