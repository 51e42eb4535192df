//! Chunks and stripes against wide arithmetic: in order, disjoint, covering exactly.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

mod data_support;

use core::num::{NonZeroU32, NonZeroU64};

use data_support::{local, remote};
use hmc_core::chunks::{Chunks, LengthMismatch, RangePair};
use proptest::prelude::*;

fn pair(local_at: u64, remote_at: u64, len: u64) -> RangePair {
    RangePair::new(
        local(local_at + len).slice(local_at, len).unwrap(),
        remote(remote_at + len).slice(remote_at, len).unwrap(),
    )
    .unwrap()
}

/// Walks all pieces and returns their lengths.
fn walk(whole: RangePair, pieces: Chunks) -> Vec<u64> {
    let announced = pieces.remaining_chunks();
    assert_eq!(pieces.size_hint(), (announced as usize, Some(announced as usize)));
    let mut at: u128 = 0;
    let mut lens = Vec::new();
    for piece in pieces {
        assert!(!piece.is_empty());
        assert_eq!(piece.local().span.len(), piece.remote().span.len());
        assert_eq!(piece.local().key, whole.local().key);
        assert_eq!(
            (piece.remote().window, piece.remote().epoch),
            (whole.remote().window, whole.remote().epoch)
        );
        let here = u128::from(whole.local().span.offset()) + at;
        let there = u128::from(whole.remote().span.offset()) + at;
        assert_eq!(u128::from(piece.local().span.offset()), here);
        assert_eq!(u128::from(piece.remote().span.offset()), there);
        at += u128::from(piece.len());
        lens.push(piece.len());
    }
    assert_eq!(at, u128::from(whole.len()), "covered exactly");
    assert_eq!(lens.len() as u64, announced);
    lens
}

fn nz(n: u64) -> NonZeroU64 {
    NonZeroU64::new(n).unwrap()
}

#[test]
fn every_small_case() {
    for len in 0..40u64 {
        let whole = pair(3, 5, len);
        for max in 1..42u64 {
            let lens = walk(whole, whole.chunks(nz(max)));
            let (last, full) = lens.split_last().map_or((None, &[][..]), |(l, f)| (Some(*l), f));
            assert!(full.iter().all(|n| *n == max), "only the last piece may be short");
            assert!(last.is_none_or(|n| n <= max));
        }
        for count in 1..10u32 {
            for align in 1..9u64 {
                let lens = walk(whole, whole.stripes(NonZeroU32::new(count).unwrap(), nz(align)));
                assert!(lens.len() <= count as usize);
                for cut in lens.iter().take(lens.len().saturating_sub(1)) {
                    assert_eq!(cut % align, 0, "cuts lie at multiples of {align}");
                }
                let even = len.div_ceil(u64::from(count)) + align - 1;
                assert!(lens.iter().all(|n| *n <= even), "no stripe is longer than it must be");
            }
        }
    }
}

#[test]
fn lengths_at_the_end_of_64_bits_do_not_wrap() {
    let whole = pair(0, 0, u64::MAX);
    assert_eq!(walk(whole, whole.chunks(nz(u64::MAX))), [u64::MAX]);
    assert_eq!(walk(whole, whole.chunks(nz(u64::MAX - 1))), [u64::MAX - 1, 1]);
    let half = 1 << 63;
    assert_eq!(walk(whole, whole.stripes(NonZeroU32::new(2).unwrap(), nz(1))), [half, half - 1]);
    // The next multiple of the alignment does not fit 64 bits.
    assert_eq!(walk(whole, whole.stripes(NonZeroU32::MIN, nz(1 << 40))), [u64::MAX]);
}

#[test]
fn unequal_ranges_are_refused_with_both_lengths() {
    let refused = RangePair::new(local(9).slice(0, 4).unwrap(), remote(9).slice(0, 5).unwrap());
    assert_eq!(refused, Err(LengthMismatch { local: 4, remote: 5 }));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("4 bytes") && text.contains('5'), "{text}");
}

proptest! {
    #[test]
    fn large_pairs_are_covered_exactly(
        local_at in 0..u64::from(u32::MAX),
        remote_at in 0..u64::from(u32::MAX),
        len in 0..u64::MAX / 4,
        cuts in 1..500u64,
        align in prop_oneof![Just(1u64), Just(64), Just(4096)],
    ) {
        let whole = pair(local_at, remote_at, len);
        walk(whole, whole.chunks(nz(len / cuts + 1)));
        let count = NonZeroU32::new(cuts as u32).unwrap();
        let lens = walk(whole, whole.stripes(count, nz(align)));
        prop_assert!(lens.len() <= cuts as usize);
    }
}
