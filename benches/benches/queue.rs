//! The work queue over the simulated NIC: one operation, sixteen in flight, a batch.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a measuring program: the macro's items have no docs, and a mistake may end it"
)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hmc_core::queue::{Hold, Transfer, WorkQueue};
use hmc_core::slots::Slot;
use hmc_core::time::Instant;
use hmc_core::work::{CompleteWhen, Opcode};
use hmc_sim::nic::{Bytes, SimNic};
use std::hint::black_box;

fn rig(bytes: Bytes) -> (WorkQueue<SimNic, [Slot; 64]>, Transfer, SimNic) {
    rig_holding(bytes, [Slot::FREE; 64])
}

fn rig_holding<X: Hold>(
    bytes: Bytes,
    slots: [Slot<X>; 64],
) -> (WorkQueue<SimNic, [Slot<X>; 64], X>, Transfer, SimNic) {
    let pair = SimNic::pair_fast(4096, 4096, bytes).unwrap();
    let transfer = Transfer {
        opcode: Opcode::Put,
        when: CompleteWhen::Visible,
        local: pair.local.slice(64, 8).unwrap(),
        remote: pair.remote.slice(128, 8).unwrap(),
    };
    (WorkQueue::new(pair.near, slots), transfer, pair.far)
}

fn queue(c: &mut Criterion) {
    let mut group = c.benchmark_group("lane");
    for (bytes, name) in [(Bytes::Move, "put 8 B"), (Bytes::Skip, "put without the copy")] {
        let (mut queue, t, _far) = rig(bytes);
        group.bench_function(name, |b| {
            b.iter(|| {
                let op = queue.post(black_box(&t), Instant::NEVER).unwrap();
                queue.progress();
                while queue.next_event().is_some() {}
                queue.try_wait(op).unwrap().unwrap()
            });
        });
    }
    let (mut queue, t, _far) = rig(Bytes::Skip);
    group.throughput(Throughput::Elements(16));
    group.bench_function("16 in flight", |b| {
        b.iter(|| {
            let ops: [_; 16] =
                std::array::from_fn(|_| queue.post(black_box(&t), Instant::NEVER).unwrap());
            queue.progress();
            while queue.next_event().is_some() {}
            for op in ops {
                queue.try_wait(op).unwrap().unwrap();
            }
        });
    });
    let (mut queue, t, _far) = rig_holding(Bytes::Skip, [Slot::free(&[][..]); 64]);
    let list = [t; 128];
    group.throughput(Throughput::Elements(128));
    group.bench_function("a batch of 128", |b| {
        b.iter(|| {
            let op = queue.post_list(128, Instant::NEVER, &mut black_box(&list[..])).unwrap();
            queue.progress();
            while queue.next_event().is_some() {}
            queue.try_wait(op).unwrap().unwrap()
        });
    });
    group.finish();
}

criterion_group!(benches, queue);
criterion_main!(benches);
