//! Transfers that wait: copied together, in chunks of at most 1 MiB.

use hmc_core::blocks::WindowBlocks;
use hmc_core::range::Extent;
use hmc_core::region::{WindowDesc, WindowSlice};
use hmc_core::transport::{DataPlane as _, Registration as _, Target as _, Transport as _};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::window::{StaleGeneration, WindowFault};
use hmc_core::work::{Failure, Opcode};
use hmc_mem::generations::Generations;

use super::{LONG, Pair, copy_pieces, fill, ones, poll, work};
use crate::memory::Region;
use crate::node::inbox::Wanted;

/// Bytes of a block, of which a window has [`BLOCKS`].
const BLOCK: u64 = 64;
const BLOCKS: u64 = 5;

/// A window of blocks of that length, mapped by `near`, whose generations are their numbers.
fn numbered(pair: &mut Pair, block: u64) -> (Region, WindowDesc) {
    let [target, table] =
        [BLOCKS.saturating_mul(block), BLOCKS * 8].map(|n| pair.table.allocate(n).expect("memory"));
    let blocks = WindowBlocks::new(Extent::new(target.len()), block).expect("whole blocks");
    let words = Generations::new(table.bytes(), blocks).expect("a word for each");
    for block in 0..blocks.count() {
        (1..=block).for_each(|n| assert_eq!(words.advance(block), Some(n)));
    }
    assert!(table.seal_writes());
    target.note_writable();
    pair.far.add_memory(&target);
    pair.far.add_memory(&table);
    let (whole, all) = (target.slice(0, target.len()).expect("all of it"), Access::all());
    let window = pair.far.windows().expose(whole, MemoryKind::Cpu, all, 7).expect("a place");
    assert!(pair.far.add_generations(&table, blocks, &window));
    pair.far.open_window(&target, whole, &window).expect("a descriptor");
    pair.settle();
    let mapped = pair.near.mapped_window(window.window).expect("it is mapped");
    assert!(mapped.has_generations());
    (target, window)
}

/// The first byte of each block of a region.
fn firsts(region: &Region) -> Vec<u8> {
    let mut bytes = vec![9; usize::try_from(region.len()).expect("small")];
    region.bytes().read_at(region.local().extent.whole(), &mut bytes).expect("in range");
    bytes.into_iter().step_by(64).collect()
}

#[test]
fn transfers_that_wait_are_copied_together_up_to_the_length_of_a_piece() {
    let mut pair = Pair::new();
    let source = pair.source(LONG);
    fill(&source, 1);
    let (target, window) = pair.target(LONG);
    let half = LONG / 2;
    for (index, len) in [(0, 1), (1, 64), (2, half), (3, half), (4, half)] {
        pair.near.post(&work(index, Opcode::Put, &source, &window, len)).expect("space");
    }
    let mut moved = 1;
    for bytes in [64 + half, 2 * half] {
        assert_eq!(pair.near.bytes_moved(), (moved, 0));
        assert!(pair.near.copy_piece());
        moved += bytes;
    }
    assert_eq!(pair.near.bytes_moved(), (moved, 0));
    assert!(!pair.near.copy_piece() && ones(&target, half));
    // Another direction is another chunk.
    for (index, opcode) in [(5, Opcode::Put), (6, Opcode::Get)] {
        pair.near.post(&work(index, opcode, &source, &window, 8)).expect("space");
    }
    copy_pieces(&mut pair.near, 1);
    assert_eq!(pair.near.bytes_moved(), (moved + 8, 0));
    let lengths = [1, 64, half, half, half, 8, 8].into_iter();
    let all: Vec<_> = (0..).zip(lengths.map(Ok)).collect();
    assert_eq!(poll(&mut pair.near, 8), all);
}

/// A transfer that is refused may have been copied before that.
#[test]
fn refused_transfers_count_for_the_length_of_a_chunk() {
    let mut pair = Pair::new();
    let (source, half) = (pair.source(LONG), LONG / 2);
    let (_target, window) = numbered(&mut pair, half);
    pair.near.post(&work(0, Opcode::Put, &source, &window, 1)).expect("space");
    for index in 1..=4 {
        let mut put = work(index, Opcode::Put, &source, &window, half);
        put.remote.expected = Some(9);
        pair.near.post(&put).expect("space");
    }
    for ended in [1, 3, 5] {
        assert_eq!(pair.near.done.len(), ended);
        pair.near.copy_piece();
    }
    assert_eq!(pair.near.bytes_moved(), (1, 0));
}

/// The pages of a window may be replaced while copies are inside: none of them is a success then.
#[test]
fn transfers_that_are_copied_together_fail_together() {
    let mut pair = Pair::new();
    let source = pair.source(LONG);
    let (_target, window) = pair.target(LONG);
    let put = |index, opcode, len| work(index, opcode, &source, &window, len);
    let puts = [(0, 8), (1, 8), (2, 8), (3, LONG), (4, 8)];
    for (index, len) in puts {
        pair.near.post(&put(index, Opcode::Put, len)).expect("space");
    }
    let tagged = put(5, Opcode::PutNotify { tag: 5 }, 8);
    pair.near.post(&tagged).expect("space");
    pair.near.mapped_window(window.window).expect("it is mapped").retire();
    let revoked = Err(Failure::Window(WindowFault::Revoked));
    let expected: Vec<_> =
        (0..6).map(|index| (index, if index == 0 { Ok(8) } else { revoked })).collect();
    assert_eq!(poll(&mut pair.near, 8), expected);
    assert_eq!(pair.near.bytes_moved(), (8, 0));
    pair.settle();
    assert_eq!(pair.inbox.lock().expect("nobody panics").take(Wanted::Any), None);
}

#[test]
fn a_stale_transfer_amid_others_that_are_copied_together_fails_alone() {
    for opcode in [Opcode::Put, Opcode::Get] {
        let mut pair = Pair::new();
        let (target, window) = numbered(&mut pair, BLOCK);
        let source = pair.source(BLOCKS * BLOCK);
        let (from, into) =
            if opcode == Opcode::Get { (&target, &source) } else { (&source, &target) };
        fill(from, 1);
        let expected = [Some(0), Some(1), Some(1), Some(3), None];
        for ((index, expected), at) in (0..).zip(expected).zip((0..).step_by(64)) {
            let mut one = work(index, opcode, &source, &window, BLOCK);
            one.local = source.slice(at, BLOCK).expect("in range");
            one.remote = WindowSlice { expected, ..window.slice(at, BLOCK).expect("in range") };
            pair.near.post(&one).expect("space");
        }
        assert_eq!(firsts(into), [1, 0, 0, 0, 0], "the first is copied in the call");
        assert!(pair.near.copy_piece() && !pair.near.copy_piece(), "one entry is enough");
        assert_eq!(firsts(into), [1, 1, 0, 1, 1], "{opcode:?}");
        assert_eq!(pair.near.bytes_moved(), (4 * BLOCK, 0));
        let stale = StaleGeneration { block: 2, expected: 1, found: 2 };
        let stale = Err(Failure::Window(WindowFault::StaleGeneration(stale)));
        let ends: Vec<_> = (0..5).map(|n| (n, if n == 2 { stale } else { Ok(BLOCK) })).collect();
        assert_eq!(poll(&mut pair.near, 8), ends, "{opcode:?}");
    }
}

/// As a transfer that is copied alone: the exit of the gate decides first.
#[test]
fn a_stale_transfer_of_a_chunk_that_fails_fails_as_the_others() {
    let mut pair = Pair::new();
    let (_target, window) = numbered(&mut pair, BLOCK);
    let source = pair.source(BLOCK);
    for (index, expected) in [(0, 0), (1, 0), (2, 9)] {
        let mut get = work(index, Opcode::Get, &source, &window, BLOCK);
        get.remote.expected = Some(expected);
        pair.near.post(&get).expect("space");
    }
    pair.near.mapped_window(window.window).expect("it is mapped").retire();
    let revoked = Err(Failure::Window(WindowFault::Revoked));
    assert_eq!(poll(&mut pair.near, 8), [(0, Ok(BLOCK)), (1, revoked), (2, revoked)]);
}
