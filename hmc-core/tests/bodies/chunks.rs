//! Cutting: the pieces of a pair of ranges are the pair, in order, on both sides, within the limits.

use super::script::Script;
use super::subject::Subject;
use core::num::{NonZeroU32, NonZeroU64};
use hmc_core::chunks::{Chunks, RangePair};
use hmc_core::place::Place;
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalRegion, RegionKey, WindowDesc, WindowId};
use hmc_core::types::{Access, MemoryKind};

/// Pieces that are looked at one by one; a pair may have 2^64 of them.
const LOOKED_AT: usize = 300;

/// A local length, a remote length, where they begin, and how to cut.
pub fn chunks(bytes: &[u8], subject: Subject) {
    let mut s = Script::new(bytes);
    let (here, there) = (s.number(), s.number());
    let (from_here, from_there) = (s.number(), s.number());
    let key = RegionKey { index: 1, generation: 1 };
    let local = LocalRegion { key, extent: Extent::new(u64::MAX), place: Place::HOST };
    let remote = WindowDesc {
        window: WindowId(9),
        epoch: Epoch(2),
        extent: Extent::new(u64::MAX),
        access: Access::all(),
        kind: MemoryKind::Cpu,
    };
    let fits = |from: u64, len: u64| from.checked_add(len).is_some();
    let (a, b) = (local.slice(from_here, here), remote.slice(from_there, there));
    assert_eq!((a.is_ok(), b.is_ok()), (fits(from_here, here), fits(from_there, there)));
    let (Ok(a), Ok(b)) = (a, b) else { return };
    let pair = RangePair::new(a, b);
    assert_eq!(pair.is_ok(), here == there);
    let Ok(pair) = pair else { return };
    assert_eq!((pair.len(), pair.is_empty()), (here, here == 0));

    let (first, second) = pair.split_at_most(s.number());
    assert_eq!(first.len().checked_add(second.len()), Some(here));
    assert_eq!(first.local().span.join(second.local().span), Some(a.span));
    assert_eq!(first.remote().span.join(second.remote().span), Some(b.span));

    let max = NonZeroU64::new(s.number()).unwrap_or(NonZeroU64::MIN);
    look(pair, pair.chunks(max), max.get(), subject);
    let count = NonZeroU32::new(s.number() as u32).unwrap_or(NonZeroU32::MIN);
    let align = NonZeroU64::new(s.number()).unwrap_or(NonZeroU64::MIN);
    let stripes = pair.stripes(count, align);
    assert!(
        stripes.remaining_chunks() <= u64::from(count.get()),
        "more stripes than were asked for"
    );
    let even = here.div_ceil(u64::from(count.get()));
    let widest = even.checked_next_multiple_of(align.get()).unwrap_or(u64::MAX).max(1);
    look(pair, stripes, widest, subject);
}

/// The pieces, one after the other. The broken cutter loses a last piece that is short.
fn look(pair: RangePair, cut: Chunks, max: u64, subject: Subject) {
    let pieces = pair.len().div_ceil(max);
    assert_eq!(cut.remaining_chunks(), pieces);
    let lost = |p: &RangePair| subject == Subject::Broken && p.len() < max && pieces > 1;
    let mut at = 0u64;
    for piece in cut.filter(|p| !lost(p)).take(LOOKED_AT) {
        assert!(!piece.is_empty() && piece.len() <= max);
        let (l, r) = (piece.local(), piece.remote());
        assert_eq!((l.key, r.window, r.epoch), (pair.local().key, WindowId(9), Epoch(2)));
        assert_eq!(l.span.len(), r.span.len());
        assert_eq!(l.span.offset(), pair.local().span.offset() + at);
        assert_eq!(r.span.offset(), pair.remote().span.offset() + at);
        at += piece.len();
    }
    if pieces <= LOOKED_AT as u64 {
        assert_eq!(at, pair.len(), "the pieces are the whole");
    }
}
