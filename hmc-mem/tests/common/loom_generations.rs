//! Models of generations of blocks.

use super::{Ordering, Word64, check_cases};
use hmc_mem::generations::{advance, after_writes, load_after, load_before};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

/// A block of two words and its generation, which is 0, as are the words.
struct Block {
    generation: Word64,
    bytes: [AtomicU64; 2],
}

impl Block {
    fn new() -> Arc<Self> {
        let bytes = [AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Self { generation: Word64::new(0), bytes })
    }

    fn load(&self) -> u64 {
        self.generation.atomic().load(Ordering::Relaxed)
    }

    fn read(&self) -> [u64; 2] {
        [&self.bytes[1], &self.bytes[0]].map(|b| b.load(Ordering::Relaxed))
    }

    fn fill(&self, with: u64) {
        self.bytes.iter().for_each(|b| b.store(with, Ordering::Relaxed));
    }

    /// The bytes, if the generation was 0 before and after they were read.
    fn get(&self) -> Option<[u64; 2]> {
        if load_before(|| self.load()) != 0 {
            return None;
        }
        let bytes = self.read();
        (load_after(|| self.load()) == 0).then_some(bytes)
    }
}

/// A get that found the expected generation before and after has no byte of the next one.
#[test]
fn generation_of_a_get_has_its_bytes() {
    check_cases(&["refused", "done"], |cases| {
        let block = Block::new();
        let owner = Arc::clone(&block);
        let t = thread::spawn(move || {
            assert_eq!(advance(&owner.generation), 1);
            owner.fill(7);
        });
        let got = block.get();
        cases.seen(if got.is_some() { "done" } else { "refused" });
        assert!(matches!(got, None | Some([0, 0])));
        t.join().unwrap();
    });
}

/// A put that found the expected generation before and after has written all its bytes before the owner goes on.
#[test]
fn generation_of_a_put_that_succeeds_ends_before_the_next() {
    check_cases(&["refused before", "refused after", "done"], |cases| {
        let block = Block::new();
        let putter = Arc::clone(&block);
        let t = thread::spawn(move || {
            if load_before(|| putter.load()) != 0 {
                return "refused before";
            }
            putter.fill(7);
            after_writes();
            if load_after(|| putter.load()) == 0 { "done" } else { "refused after" }
        });
        advance(&block.generation);
        let seen = block.read();
        let end = t.join().unwrap();
        cases.seen(end);
        if end == "done" {
            assert_eq!(seen, [7, 7], "its bytes were written before the block was reused");
        }
    });
}

/// Control: a get that does not look again.
#[test]
#[should_panic]
fn control_generation_of_a_get_without_the_second_look() {
    check_cases(&[], |_| {
        let block = Block::new();
        let owner = Arc::clone(&block);
        let t = thread::spawn(move || {
            advance(&owner.generation);
            owner.fill(7);
        });
        if load_before(|| block.load()) == 0 {
            assert_eq!(block.read(), [0, 0]);
        }
        t.join().unwrap();
    });
}

/// Control: an owner whose new bytes may come before the new generation.
#[test]
#[should_panic]
fn control_generation_without_the_fence_of_its_owner() {
    check_cases(&[], |_| {
        let block = Block::new();
        let owner = Arc::clone(&block);
        let t = thread::spawn(move || {
            owner.generation.atomic().fetch_add(1, Ordering::Relaxed);
            owner.fill(7);
        });
        assert!(matches!(block.get(), None | Some([0, 0])));
        t.join().unwrap();
    });
}

/// Control: a put whose second look may come before its bytes.
#[test]
#[should_panic]
fn control_generation_of_a_put_without_the_fence() {
    check_cases(&[], |_| {
        let block = Block::new();
        let putter = Arc::clone(&block);
        let t = thread::spawn(move || {
            putter.fill(7);
            load_after(|| putter.load()) == 0
        });
        advance(&block.generation);
        let seen = block.read();
        assert!(!t.join().unwrap() || seen == [7, 7]);
    });
}
