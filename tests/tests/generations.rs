//! Generations of blocks: no transfer that names a stale one is a success with other bytes, over each transport.
//!
//! An owner uses its blocks again and again, while peers get and put by references that are current, stale or wrong. Each 8 bytes
//! of a block say which block they are of, and in which generation they were written.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "tests may panic"
)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use hmc_core::types::Access;
use hmc_sim::rng::Rng;
use hmc_std::memory::HeapBytes;
use hmc_std::{ConnBuffer, ConnType, Error, ErrorKind, Generations, Piece, Remote, Window};
use hmc_tests::env::{number, seed};
use hmc_tests::pair::{Pair, transports};

const BLOCKS: u32 = 8;
/// Blocks that are only got; the others are put to, too.
const GOT: u32 = 6;
/// More than a stream sends together with its frame, no power of two, and long enough to be changed while it is copied.
const BLOCK: u64 = 24_000;
const LABEL: u64 = 7;
/// Set in what peers put.
const PUT: u64 = 1 << 63;
/// Getting threads.
const GETTERS: u64 = 2;

fn stamp(block: u32, generation: u32) -> u64 {
    u64::from(block) << 32 | u64::from(generation)
}

/// A block full of one word.
fn full(word: u64) -> Vec<u8> {
    word.to_le_bytes().repeat(BLOCK as usize / 8)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("8 bytes")))
}

/// The blocks of an owner, and what it says of them.
struct Cache {
    bytes: ConnBuffer,
    generations: Generations,
    /// The generation of each block whose bytes are complete.
    published: Vec<AtomicU32>,
}

impl Cache {
    /// `in_place`: memory that no peer can map.
    fn new(pair: &Pair, in_place: bool) -> Self {
        let (memory, len) = (pair.receiver().memory(), u64::from(BLOCKS) * BLOCK);
        let region = match in_place {
            true => memory.register(HeapBytes::from(vec![0; len as usize])),
            false => memory.allocate(len),
        };
        let bytes = region.expect("memory").share().expect("all of it is free");
        let generations = memory.generations(len, BLOCK).expect("whole blocks");
        let published = (0..BLOCKS).map(|_| AtomicU32::new(0)).collect();
        let cache = Self { bytes, generations, published };
        (0..BLOCKS).for_each(|block| cache.write(block, 0));
        cache
    }

    fn expose(&self, pair: &Pair, label: u64) -> Window<ConnBuffer> {
        let (all, generations) = (Access::all(), &self.generations);
        let window = pair.b.expose_blocks(&self.bytes, all, label, generations);
        window.expect("a place")
    }

    fn write(&self, block: u32, generation: u32) {
        let at = u64::from(block) * BLOCK;
        self.bytes.write_at(at, &full(stamp(block, generation))).expect("in range");
        self.published[block as usize].store(generation, Ordering::Release);
    }

    fn read(&self, block: u32) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK as usize];
        self.bytes.read_at(u64::from(block) * BLOCK, &mut bytes).expect("in range");
        bytes
    }

    fn current(&self, block: u32) -> u32 {
        self.published[block as usize].load(Ordering::Acquire)
    }

    /// Uses blocks again until `done`. Gives the words that peers had put after that, each with the block's generation.
    fn reuse(&self, rng: &mut Rng, done: &AtomicBool) -> Vec<(u32, u64)> {
        let mut late = Vec::new();
        while !done.load(Ordering::Acquire) {
            let block = rng.below(u64::from(BLOCKS)) as u32;
            let generation = self.generations.advance(block).expect("a block");
            self.write(block, generation);
            if block >= GOT {
                std::thread::yield_now();
                let mut put: Vec<u64> = words(&self.read(block)).filter(|w| w & PUT != 0).collect();
                put.dedup();
                late.extend(put.into_iter().map(|word| (generation, word)));
            }
            (0..rng.below(3000)).for_each(|_| std::hint::spin_loop());
        }
        late
    }
}

/// A reference that a peer has: a range of blocks, and what it expects.
#[derive(Clone, Copy, Debug)]
struct Reference {
    at: u64,
    len: u64,
    expected: u32,
    /// It goes to the window of an exposure that has ended.
    is_old: bool,
}

impl Reference {
    /// One of a block, mutated in most cases.
    fn new(rng: &mut Rng, cache: &Cache, blocks: (u32, u32)) -> Self {
        let block = blocks.0 + rng.below(u64::from(blocks.1 - blocks.0)) as u32;
        let (from, words) = (rng.below(BLOCK / 8), BLOCK / 8);
        let mut r = Self {
            at: u64::from(block) * BLOCK + from * 8,
            len: 8 * (1 + rng.below(words - from)),
            expected: cache.current(block),
            is_old: false,
        };
        match rng.below(10) {
            0 | 1 => r.expected = r.expected.wrapping_sub(1 + rng.below(3) as u32),
            2 => r.expected ^= 1 << 31,
            // Of another block.
            3 => r.at = rng.below(u64::from(blocks.1)) * BLOCK,
            // Into the next one.
            4 => r.len += BLOCK,
            // Of all.
            5 => (r.at, r.len) = (0, u64::from(BLOCKS) * BLOCK),
            // Beyond the window.
            6 => r.at += u64::from(BLOCKS) * BLOCK,
            7 => r.is_old = true,
            _ => {}
        }
        r
    }

    /// Whether the owner has written all bytes of the generation that it expects, so that they can be known: else the owner has
    /// advanced a block to it and is writing, and has handed out no reference to it.
    fn is_published(&self, cache: &Cache) -> bool {
        let blocks = self.at / BLOCK..=(self.at + self.len - 1) / BLOCK;
        blocks
            .into_iter()
            .all(|n| n < u64::from(BLOCKS) && cache.current(n as u32) >= self.expected)
    }

    /// Whether `bytes`, which were got, are those that it means.
    fn is_met(&self, bytes: &[u8]) -> bool {
        let block = |n: usize| ((self.at + 8 * n as u64) / BLOCK) as u32;
        let is_put = |n, word| block(n) >= GOT && word & PUT != 0;
        words(bytes)
            .enumerate()
            .all(|(n, word)| word == stamp(block(n), self.expected) || is_put(n, word))
    }
}

/// Whether that is how a transfer by such a reference may end.
fn is_refusal(r: &[Reference], e: &Error) -> bool {
    let beyond = r.iter().any(|r| r.at + r.len > u64::from(BLOCKS) * BLOCK);
    match e.kind() {
        ErrorKind::StaleEpoch if !r[0].is_old => {
            // It says of which block.
            e.stale_block().is_some_and(|s| s.expected != s.found && s.block < BLOCKS)
        }
        ErrorKind::Range => beyond,
        // The last of them: the session of the window is another one, and has not the memory here.
        ErrorKind::StaleEpoch
        | ErrorKind::Revoked
        | ErrorKind::NotFound
        | ErrorKind::PeerDead
        | ErrorKind::InvalidConfig => r[0].is_old,
        _ => false,
    }
}

/// Successes and refusals.
#[derive(Default)]
struct Counts([AtomicU64; 2]);

impl Counts {
    fn add(&self, is_done: bool) {
        self.0[usize::from(!is_done)].fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> [u64; 2] {
        [0, 1].map(|n| self.0[n].load(Ordering::Relaxed))
    }
}

/// Gets by `count` references, alone or in lists. Panics if one is a success with other bytes.
fn get(rng: &mut Rng, scene: &Scene<'_>, local: &ConnBuffer, count: u64) {
    let Scene { cache, remote, old, ends } = scene;
    for _ in 0..count {
        let many = if rng.below(4) == 0 { 1 + rng.below(4) } else { 1 };
        let mut all: Vec<_> = (0..many).map(|_| Reference::new(rng, cache, (0, GOT))).collect();
        // A list goes to one window.
        let is_old = all[0].is_old;
        all.iter_mut().for_each(|r| r.is_old = is_old);
        let published: Vec<bool> = all.iter().map(|r| r.is_published(cache)).collect();
        let from = if is_old { old } else { remote };
        let many = all.len();
        let mut bytes = vec![0; all[0].len as usize];
        let ended = if many == 1 && rng.below(2) == 0 {
            from.get(all[0].at, &mut bytes[..]).expect(all[0].expected).wait().map(drop)
        } else {
            let place = |n: usize| n as u64 * u64::from(BLOCKS) * BLOCK;
            let piece = |(n, r): (usize, &Reference)| {
                let range = local.range(place(n), r.len).expect("in range");
                Piece::new(range, r.at).expect(r.expected)
            };
            let pieces: Vec<_> = all.iter().enumerate().map(piece).collect();
            let ended = match rng.below(2) {
                0 => from.get_list(&pieces).wait().map(drop),
                _ => from.get_list(&pieces).prepare().and_then(|p| p.again().wait().map(drop)),
            };
            if ended.is_ok() {
                for (n, r) in all.iter().enumerate() {
                    bytes.resize(r.len as usize, 0);
                    local.read_at(place(n), &mut bytes).expect("in range");
                    let is_met = !published[n] || r.is_met(&bytes);
                    assert!(is_met, "piece {n} of {all:?} is a success with other bytes");
                }
                bytes.resize(all[0].len as usize, 0);
                local.read_at(0, &mut bytes).expect("in range");
            }
            ended
        };
        ends.add(ended.is_ok());
        match ended {
            Ok(()) => {
                let is_met = !published[0] || all[0].is_met(&bytes);
                assert!(is_met, "{all:?} is a success with other bytes");
                assert!(!is_old, "{all:?} is a success in a window that has ended");
            }
            Err(e) => assert!(is_refusal(&all, &e), "{all:?}: {e}"),
        }
    }
}

/// Puts by `count` references. Gives, by the number that each put, what it expected and whether it was a success.
fn put(rng: &mut Rng, scene: &Scene<'_>, count: u64) -> Vec<(u32, bool)> {
    let Scene { cache, remote, old, ends } = scene;
    let mut put = Vec::new();
    for n in 0..count {
        let r = Reference::new(rng, cache, (GOT, BLOCKS));
        // Blocks that are got have the owner's words alone.
        let r = if r.at < u64::from(GOT) * BLOCK { Reference { is_old: true, ..r } } else { r };
        let bytes = (PUT | n).to_le_bytes().repeat(r.len as usize / 8);
        let into = if r.is_old { old } else { remote };
        let ended = into.put(r.at, &bytes[..]).expect(r.expected).wait();
        ends.add(ended.is_ok());
        put.push((r.expected, ended.is_ok()));
        match ended {
            Ok(_) => assert!(!r.is_old, "{r:?} is a success in a window that has ended"),
            Err(e) => assert!(is_refusal(&[r], &e), "{r:?}: {e}"),
        }
    }
    put
}

/// Where transfers go.
struct Scene<'a> {
    cache: &'a Cache,
    remote: &'a Remote,
    /// A window that has ended.
    old: &'a Remote,
    ends: &'a Counts,
}

/// Transfers by `count` references while the owner uses its blocks again.
fn race(pair: &Pair, scene: &Scene<'_>, rng: &mut Rng, count: u64) {
    let mut rngs: Vec<Rng> = (0..2 + GETTERS).map(|_| Rng::new(rng.below(u64::MAX))).collect();
    let (done, failed) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let (mut late, mut outcomes) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let (mut owner, mut putter) = (rngs.pop().expect("one"), rngs.pop().expect("one"));
        let owner = scope.spawn({
            let done = &done;
            move || scene.cache.reuse(&mut owner, done)
        });
        let putter = scope.spawn(move || put(&mut putter, scene, count / 4));
        let getters: Vec<_> = rngs
            .drain(..)
            .map(|mut rng| {
                let len = 4 * u64::from(BLOCKS) * BLOCK + BLOCK;
                let local = pair.sender().memory().allocate(len).expect("memory");
                let local = local.share().expect("all of it is free");
                scope.spawn(move || get(&mut rng, scene, &local, (count - count / 4) / GETTERS))
            })
            .collect();
        let ended: Vec<_> = getters.into_iter().map(|t| t.join().err()).collect();
        match putter.join() {
            Ok(put) => outcomes = put,
            Err(e) => failed.lock().expect("no panic").push(e),
        }
        done.store(true, Ordering::Release);
        failed.lock().expect("no panic").extend(ended.into_iter().flatten());
        late = owner.join().expect("no panic");
    });
    if let Some(panic) = failed.into_inner().expect("no panic").pop() {
        std::panic::resume_unwind(panic);
    }
    for (generation, word) in late {
        let (expected, is_done) = outcomes[(word & !PUT) as usize];
        let is_late = is_done && expected != generation;
        assert!(!is_late, "a put that expected {expected} is a success in generation {generation}");
    }
}

fn references(conn: ConnType, in_place: bool, count: u64, rng: &mut Rng) {
    const LIVES: u64 = 4;
    let ends = Counts::default();
    let mut before: Option<(Pair, Remote)> = None;
    for _ in 0..LIVES {
        let pair = Pair::new(conn, 0);
        let cache = Cache::new(&pair, in_place);
        let window = cache.expose(&pair, LABEL);
        let remote = pair.a.window(LABEL).wait().expect("it is exposed");
        let old = match before.take() {
            // Its owner was started again.
            Some((_, remote)) if conn != ConnType::Loopback => remote,
            _ => {
                let window = cache.expose(&pair, LABEL + 1);
                let old = pair.a.window(LABEL + 1).wait().expect("it is exposed");
                window.revoke().wait().expect("nobody is inside");
                old
            }
        };
        let scene = Scene { cache: &cache, remote: &remote, old: &old, ends: &ends };
        race(&pair, &scene, rng, count / LIVES);
        window.revoke().wait().expect("nobody is inside");
        let mut pair = pair;
        if conn != ConnType::Loopback {
            drop(pair.sessions.remove(0));
        }
        before = Some((pair, remote));
    }
    let [done, refused] = ends.get();
    println!("{conn:?}, in place {in_place}: {done} successes, {refused} refusals, 0 stale");
    assert!(done > count / 40 && refused > count / 4, "{done} successes, {refused} refusals");
}

fn all_references(count: u64) {
    let mut rng = Rng::new(seed(1));
    let count = number("HMC_TEST_REFERENCES", count);
    for conn in transports() {
        references(conn, false, count, &mut rng);
        if conn == ConnType::Shm {
            references(conn, true, count, &mut rng);
        }
    }
}

#[test]
fn no_stale_reference_is_a_success() {
    all_references(8_000);
}

#[test]
#[ignore = "a million references over each transport, some minutes; see docs/TESTING.md, By hand"]
fn no_stale_reference_of_a_million_is_a_success() {
    all_references(1_000_000);
}

/// What a put that is refused may not do, what names none, and what cannot be exposed.
#[test]
fn a_reference_is_refused_before_its_bytes_move_if_it_can_be() {
    for conn in transports() {
        let pair = Pair::new(conn, 1 << 20);
        let cache = Cache::new(&pair, false);
        let _window = cache.expose(&pair, LABEL);
        let remote = pair.a.window(LABEL).wait().expect("it is exposed");
        assert_eq!(cache.generations.advance(3).expect("a block"), 1);
        assert_eq!([2, 3].map(|n| cache.generations.get(n).expect("a block")), [0, 1]);
        let e = cache.generations.advance(BLOCKS).expect_err("there is no such block");
        assert_eq!((e.kind(), cache.generations.len()), (ErrorKind::Range, BLOCKS));
        let bytes = [9; 100];
        let e = remote.put(3 * BLOCK, &bytes[..]).expect(0).notify(5).wait().expect_err("stale");
        let stale = e.stale_block().expect("a block");
        assert_eq!((stale.block, stale.expected, stale.found), (3, 0, 1), "{conn:?}: {e}");
        assert!(e.to_string().contains("block 3 of the window has generation 1, not 0"), "{e}");
        assert_eq!(cache.read(3), full(stamp(3, 0)), "{conn:?}: nothing was written");
        remote.put(3 * BLOCK, &bytes[..]).expect(1).notify(6).wait().expect("it is not stale");
        assert_eq!(pair.b.recv(hmc_std::want::Notify).wait().expect("a tag"), 6, "{conn:?}");
        assert_eq!(cache.read(3)[..100], bytes, "{conn:?}");
        // One piece of a list: the others may have been written.
        let local = pair.sender().buffer();
        let piece = |block: u64| Piece::new(local.range(0, 100).expect("in range"), block * BLOCK);
        let e = remote.put_list(&[piece(2).expect(0), piece(3).expect(0), piece(4)]).wait();
        assert_eq!(e.expect_err("stale").stale_block().map(|s| s.block), Some(3), "{conn:?}");
        remote.put_list(&[piece(2).expect(0), piece(3).expect(1), piece(4)]).wait().expect("met");
        // Of windows without generations.
        let block = cache.bytes.range(0, BLOCK).expect("in range");
        let plain = pair.b.expose(block, Access::all(), LABEL + 2);
        let _plain = plain.expect("a place");
        let plain = pair.a.window(LABEL + 2).wait().expect("it is exposed");
        plain.put(0, &bytes[..]).wait().expect("it expects nothing");
        let e = plain.put(0, &bytes[..]).expect(0).wait().expect_err("there is none");
        assert_eq!(e.kind(), ErrorKind::Unsupported, "{conn:?}: {e}");
        let all = cache.bytes.clone();
        let short = pair.receiver().memory().generations(BLOCK, BLOCK).expect("one block");
        let span = pair.receiver().memory().allocate(2 * BLOCK).expect("memory");
        let span = span.take(0, 2 * BLOCK).expect("free");
        let (e, span) = pair.b.expose_blocks(span, Access::all(), 9, &short).expect_err("short");
        assert_eq!((e.kind(), span.len()), (ErrorKind::InvalidConfig, 2 * BLOCK), "{e}");
        let e = pair.b.expose_blocks(&all, Access::all(), 9, &short);
        assert_eq!(e.expect_err("short").kind(), ErrorKind::InvalidConfig);
        let memory = pair.receiver().memory();
        let e = memory.generations(BLOCK * 65_537, BLOCK).expect_err("too many");
        assert_eq!(e.kind(), ErrorKind::InvalidConfig);
    }
}
