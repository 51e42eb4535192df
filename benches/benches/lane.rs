//! The lane over the simulated NIC: one operation, sixteen in flight, a batch.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a measuring program: the macro's items have no docs, and a mistake may end it"
)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hmc_core::lane::{Lane, Transfer};
use hmc_core::slots::Slot;
use hmc_core::time::Instant;
use hmc_core::work::{CompleteWhen, Opcode};
use hmc_sim::nic::{Bytes, SimNic};
use std::hint::black_box;

fn rig(bytes: Bytes) -> (Lane<SimNic, [Slot; 64]>, Transfer, SimNic) {
    let pair = SimNic::pair_fast(4096, 4096, bytes).unwrap();
    let transfer = Transfer {
        opcode: Opcode::Put,
        when: CompleteWhen::Visible,
        local: pair.local.slice(64, 8).unwrap(),
        remote: pair.remote.slice(128, 8).unwrap(),
    };
    (Lane::new(pair.near, [Slot::FREE; 64]), transfer, pair.far)
}

fn lane(c: &mut Criterion) {
    let mut group = c.benchmark_group("lane");
    for (bytes, name) in [(Bytes::Move, "put 8 B"), (Bytes::Skip, "put without the copy")] {
        let (mut lane, t, _far) = rig(bytes);
        group.bench_function(name, |b| {
            b.iter(|| {
                let op = lane.post(black_box(&t), Instant::NEVER).unwrap();
                lane.progress();
                while lane.next_event().is_some() {}
                lane.try_wait(op).unwrap().unwrap()
            });
        });
    }
    let (mut lane, t, _far) = rig(Bytes::Skip);
    group.throughput(Throughput::Elements(16));
    group.bench_function("16 in flight", |b| {
        b.iter(|| {
            let ops: [_; 16] =
                std::array::from_fn(|_| lane.post(black_box(&t), Instant::NEVER).unwrap());
            lane.progress();
            while lane.next_event().is_some() {}
            for op in ops {
                lane.try_wait(op).unwrap().unwrap();
            }
        });
    });
    let (mut lane, t, _far) = rig(Bytes::Skip);
    let list = [t; 128];
    group.throughput(Throughput::Elements(128));
    group.bench_function("a batch of 128", |b| {
        b.iter(|| {
            let op = lane.begin_batch(128, Instant::NEVER).unwrap();
            assert_eq!(lane.feed(op, black_box(&list)).unwrap(), 128);
            lane.progress();
            while lane.next_event().is_some() {}
            lane.try_wait(op).unwrap().unwrap()
        });
    });
    group.finish();
}

criterion_group!(benches, lane);
criterion_main!(benches);
