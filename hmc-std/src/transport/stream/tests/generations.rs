//! Requests that name a generation: compared before bytes are stored or read, and after the last of them.

#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "tests may panic")]

use std::io::Write as _;

use hmc_core::blocks::WindowBlocks;
use hmc_core::range::Extent;
use hmc_core::region::{WindowDesc, WindowSlice};
use hmc_core::transport::{PostErrorKind, Progress as _, Target as _, Transport as _};
use hmc_core::window::{StaleGeneration, WindowFault};
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::work::{Failure, Opcode};
use hmc_mem::generations::Generations;

use super::{Bench, asked, bytes, fill, work};
use crate::memory::Region;

/// A window of two blocks, filled with 1, and the words of their generations.
fn blocks(bench: &mut Bench, len: u64) -> (Region, WindowDesc, Region, WindowBlocks) {
    let region = bench.region(2 * len);
    fill(&region, 1);
    let (window, table) = (bench.window(&region), bench.region(16));
    let blocks = WindowBlocks::new(Extent::new(2 * len), len).expect("two");
    assert!(bench.plane.add_generations(&table, blocks, &window));
    (region, window, table, blocks)
}

fn expecting(frame: DataFrame, generation: u32) -> DataFrame {
    let mut frame = frame;
    frame.expect(generation);
    frame
}

fn stale(block: u32, expected: u32, found: u32) -> Option<Failure> {
    let e = StaleGeneration { block, expected, found };
    Some(Failure::Window(WindowFault::StaleGeneration(e)))
}

#[test]
fn a_put_is_compared_before_each_part_and_after_the_last() {
    let mut bench = Bench::new(false, true, 1);
    let (region, window, table, blocks) = blocks(&mut bench, 32);
    let words = Generations::new(table.bytes(), blocks).expect("two words");
    let put = expecting(asked(DataKind::Write, 0, &window, 16), 0);
    bench.send(&put, &[2; 16]);
    bench.plane.poll_peer(true);
    assert_eq!(bench.kinds(), [(DataKind::Ack, 0)]);
    // Half of its bytes have come.
    bench.send(&DataFrame { seq: 1, ..put }, &[3; 8]);
    bench.plane.poll_peer(true);
    assert_eq!(words.advance(0), Some(1));
    (&bench.peer).write_all(&[3; 8]).expect("space");
    bench.plane.poll_peer(true);
    let whys: Vec<_> = bench.frames().iter().map(|f| (f.seq, f.why())).collect();
    assert_eq!(whys, [(1, stale(0, 0, 1))]);
    assert_eq!(bytes(&region)[..16], [[3; 8], [2; 8]].concat());
    // In two frames, the first of which is stale once the second has come.
    let mut bench = Bench::local();
    let (region, window, table, blocks) = self::blocks(&mut bench, 32);
    let words = Generations::new(table.bytes(), blocks).expect("two words");
    let whole = expecting(asked(DataKind::Write, 0, &window, 64), 0);
    let first = DataFrame { len: 32, flags: DataFlags::EXPECT, ..whole };
    bench.send(&first, &[5; 32]);
    bench.plane.poll_peer(true);
    assert_eq!(words.advance(0), Some(1));
    bench.send(&DataFrame { len: 32, offset: 32, ..whole }, &[6; 32]);
    bench.plane.poll_peer(true);
    let whys: Vec<_> = bench.frames().iter().map(|f| (f.seq, f.why())).collect();
    assert_eq!(whys, [(0, stale(0, 0, 1))]);
    assert_eq!(bytes(&region), [[5; 32], [6; 32]].concat(), "it failed after its bytes");
    // Stale from the start.
    bench.send(&DataFrame { seq: 1, ..whole }, &[7; 64]);
    bench.plane.poll_peer(true);
    let whys: Vec<_> = bench.frames().iter().map(|f| (f.seq, f.why())).collect();
    assert_eq!(whys, [(1, stale(0, 0, 1))]);
    assert!(!bytes(&region).contains(&7));
}

#[test]
fn a_reply_ends_with_a_comparison() {
    const MIB: u64 = 1 << 20;
    let mut bench = Bench::local();
    let (_region, window, table, blocks) = blocks(&mut bench, MIB);
    let words = Generations::new(table.bytes(), blocks).expect("two words");
    let get = |seq, total| expecting(asked(DataKind::Read, seq, &window, total), 0);
    bench.send(&get(0, 16), &[]);
    bench.plane.poll_peer(true);
    let sent: Vec<_> = bench.frames().iter().map(|f| (f.kind, f.len, f.flags)).collect();
    let data = |len, flags| (DataKind::ReadData, len, flags);
    assert_eq!(sent, [data(16, DataFlags::empty()), data(0, DataFlags::LAST)]);
    // One frame of more than the socket takes: some of it is read after the block was used again.
    bench.send(&get(1, MIB), &[]);
    bench.plane.poll_peer(true);
    assert_eq!(words.advance(0), Some(1));
    let frames = bench.frames();
    assert!(frames.len() > 1 && frames.iter().all(|f| !f.flags.contains(DataFlags::LAST)));
    assert_eq!(frames.last().and_then(DataFrame::why), stale(0, 0, 1));
    bench.send(&get(2, MIB + 1), &[]);
    bench.plane.poll_peer(true);
    let whys: Vec<_> = bench.frames().iter().map(|f| (f.seq, f.why())).collect();
    assert_eq!(whys, [(2, stale(0, 0, 1))], "stale from the start");
}

#[test]
fn a_window_without_generations_refuses_who_names_one() {
    let mut bench = Bench::local();
    let (_region, window, ..) = blocks(&mut bench, 32);
    bench.plane.forget_window(window.window, window.epoch);
    bench.send(&expecting(asked(DataKind::Write, 0, &window, 16), 0), &[2; 16]);
    bench.send(&expecting(asked(DataKind::Read, 1, &window, 16), 0), &[]);
    bench.plane.poll_peer(true);
    let whys: Vec<_> = bench.frames().iter().map(|f| (f.seq, f.why())).collect();
    assert_eq!(whys, [0, 1].map(|seq| (seq, Some(Failure::Unsupported))));
}

#[test]
fn a_peer_without_the_feature_is_asked_for_no_generation() {
    let mut bench = Bench::local();
    let region = bench.region(32);
    let mut expects = work(0, Opcode::Get, &region);
    expects.remote = WindowSlice { expected: Some(0), ..expects.remote };
    assert_eq!(bench.plane.post(&expects), Ok(()));
    bench.plane.has_generations = false;
    assert_eq!(bench.plane.post(&expects), Err(PostErrorKind::Unsupported));
    let blocks = WindowBlocks::new(Extent::new(32), 16).expect("two");
    let window = bench.window(&region);
    assert!(!bench.plane.add_generations(&region, blocks, &window));
    bench.plane.flush();
    let frames = bench.frames();
    assert_eq!(frames.iter().map(DataFrame::generation).collect::<Vec<_>>(), [Some(0)]);
}
