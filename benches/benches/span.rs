//! Spans: the check of an offset and a length, and the cuts.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a measuring program: the macro's items have no docs, and a mistake may end it"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use hmc_core::range::{Extent, Side};
use std::hint::black_box;

fn span(c: &mut Criterion) {
    let mut group = c.benchmark_group("span");
    let extent = Extent::new(1 << 30);
    group.bench_function("accept", |b| {
        b.iter(|| extent.span(Side::Local, black_box(4096), black_box(64)).unwrap());
    });
    group.bench_function("refuse", |b| {
        b.iter(|| extent.span(Side::Remote, black_box(1 << 30), black_box(64)).unwrap_err());
    });
    let whole = extent.whole();
    group.bench_function("take and sub", |b| {
        b.iter(|| {
            let (head, _) = black_box(whole).split_at_most(black_box(1 << 20));
            head.sub(Side::Local, black_box(4096), black_box(64)).unwrap()
        });
    });
    group.finish();
}

criterion_group!(benches, span);
criterion_main!(benches);
