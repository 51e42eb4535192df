//! How fast the copies of hmc-mem are against libc's `memcpy`, by size.
//!
//! `cargo run --release -p hmc-mem --example copy_speed [-- MAX_MIB [OFFSET]]`; OFFSET, the destination's place in
//! its page against the source's, is 0 unless said (64 is the worst for a forward copy: each load then looks like
//! one of a store just made). Both run interleaved on the same two
//! buffers; each line is the median over the rounds, in ns per copy, and ours/memcpy by speed (above 1: we
//! are faster). The bounds in `copy/x86_64.rs` come from this table.
#![allow(
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a measuring program: floats for the report, panics on a mistake"
)]

use std::hint::black_box;
use std::time::Instant;

use hmc_mem::copy::copy;

type Copy = fn(*mut u8, *const u8, usize);

fn ours(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: `main` passes two live buffers of at least `len` bytes that nobody else uses.
    unsafe { copy(dst, src, len) };
}

fn memcpy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: as in `ours`. `black_box` keeps the length unknown, so that it is a call.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, black_box(len)) };
}

fn time(f: Copy, dst: *mut u8, src: *const u8, len: usize, times: u32) -> f64 {
    let begun = Instant::now();
    for _ in 0..times {
        f(black_box(dst), black_box(src), black_box(len));
    }
    begun.elapsed().as_nanos() as f64 / f64::from(times)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let max_mib: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(256);
    let max = max_mib << 20;
    let offset: usize = std::env::args().nth(2).and_then(|a| a.parse().ok()).unwrap_or(0);
    let src = vec![1u8; max + 4096];
    let mut dst = vec![2u8; max + 4096 + offset];
    let (s, d) = (src.as_ptr(), dst.as_mut_ptr().wrapping_add(offset));
    println!("{:>12} {:>12} {:>12} {:>8}", "bytes", "ours ns", "memcpy ns", "ratio");
    let small =
        [8usize, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072];
    let large =
        (0..40).map(|i| if i % 2 == 0 { 4096usize << (i / 2) } else { 6144usize << (i / 2) });
    for len in small.into_iter().chain(large).take_while(|len| *len <= max) {
        let times = u32::try_from((4 << 20) / len).unwrap_or(1).clamp(1, 20_000);
        let rounds = if len >= 32 << 20 { 15 } else { 41 };
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let order: [(Copy, bool); 2] = if round % 2 == 0 {
                [(ours, true), (memcpy, false)]
            } else {
                [(memcpy, false), (ours, true)]
            };
            for (f, is_ours) in order {
                let ns = time(f, d, s, len, times);
                if is_ours { a.push(ns) } else { b.push(ns) }
            }
        }
        let (a, b) = (median(a), median(b));
        println!("{len:>12} {a:>12.1} {b:>12.1} {:>8.3}", b / a);
    }
}
