//! The wire: a message out, a message in, a data frame each way, the framer on a full buffer.
#![allow(
    missing_docs,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a measuring program: the macro's items have no docs, and a mistake may end it"
)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hmc_core::ctrl::framer::{Framer, Next};
use hmc_core::limits::MAX_FRAME_BYTES;
use hmc_core::time::Instant;
use hmc_core::wire::cursor::Writer;
use hmc_core::wire::data::{DataFrame, DataKind};
use hmc_core::wire::message::{ControlMessage, tag_frame};
use std::hint::black_box;

fn wire(c: &mut Criterion) {
    let mut group = c.benchmark_group("wire");
    let body = [7u8; 64];
    let mut out = [0u8; 256];
    group.bench_function("emit a struct of 64 B", |b| {
        b.iter(|| {
            black_box(ControlMessage::Struct(&body)).emit(&mut Writer::new(&mut out)).unwrap()
        });
    });
    group.bench_function("emit a tag frame", |b| b.iter(|| tag_frame(black_box(42))));

    let frame = DataFrame::new(DataKind::Write, 7);
    let bytes = frame.emit();
    group.bench_function("emit a data frame", |b| b.iter(|| black_box(&frame).emit()));
    group.bench_function("parse a data frame", |b| {
        b.iter(|| DataFrame::parse(black_box(&bytes)).unwrap());
    });

    let tags: Vec<u8> = (0..64).flat_map(tag_frame).collect();
    let mut framer = Framer::new(vec![0u8; 4096]);
    group.throughput(Throughput::Elements(64));
    group.bench_function("frame and parse 64 tags", |b| {
        b.iter(|| {
            assert_eq!(framer.push(black_box(&tags), Instant::ZERO), tags.len());
            let mut found = 0;
            while let Ok(Next::Frame(header, payload)) = framer.next(MAX_FRAME_BYTES) {
                black_box(ControlMessage::parse(header, payload).unwrap());
                found += 1;
            }
            assert_eq!(found, 64);
        });
    });
    group.finish();
}

criterion_group!(benches, wire);
criterion_main!(benches);
