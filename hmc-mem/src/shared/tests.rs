//! Views against plain vectors: every operation, every alignment, the sizes around each kernel's bounds.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

use core::ptr::NonNull;
use std::vec;
use std::vec::Vec;

use hmc_core::range::{ByteRange, Extent, Side};
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use super::{SharedBytes, SharedError};

/// Memory that only views reach while it lives.
struct Arena {
    words: Vec<u64>,
    len: usize,
}

impl Arena {
    fn new(bytes: &[u8]) -> Self {
        let mut arena = Self { words: vec![0; bytes.len().div_ceil(8)], len: bytes.len() };
        let view = arena.view();
        view.write_at(view.extent().whole(), bytes).unwrap();
        arena
    }

    fn view(&mut self) -> SharedBytes<'_> {
        let at = NonNull::new(self.words.as_mut_ptr().cast::<u8>()).unwrap();
        // SAFETY: the vector holds `len` bytes, initialised, and is borrowed mutably for the view's life.
        unsafe { SharedBytes::new(at, self.len) }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let mut all = vec![0; self.len];
        let view = self.view();
        view.read_at(view.extent().whole(), &mut all).unwrap();
        all
    }
}

/// Under Miri also: what a view of a borrow does is what the borrow allows.
#[test]
fn views_of_borrows_reach_what_was_borrowed() {
    let from = pattern(1000, 7);
    let mut to = vec![0; 1000];
    let (source, target) = (SharedBytes::of(&from), SharedBytes::of_mut(&mut to));
    let (part, all) = (whole(3, 400), source.extent().whole());
    assert!(!source.is_writable() && target.is_writable());
    assert_eq!(source.write_at(part, &[0; 400]), Err(SharedError::ReadOnly));
    assert_eq!(target.copy_to(all, &source, all), Err(SharedError::ReadOnly));
    assert_eq!(source.fill(all, 1), Err(SharedError::ReadOnly));
    assert!(source.word(0).is_err(), "a word could be written");
    source.copy_to(part, &target, part).unwrap();
    target.fill(whole(900, 100), 9).unwrap();
    assert_eq!(to[3..403], from[3..403]);
    assert!(to[..3].iter().chain(&to[403..900]).all(|b| *b == 0));
    assert!(to[900..].iter().all(|b| *b == 9));
    let (none, nothing) = (SharedBytes::of(&[]), SharedBytes::of_mut(&mut []));
    none.copy_to(whole(0, 0), &nothing, whole(0, 0)).unwrap();
    assert!(none.span(0, 1).is_err());
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 131 + seed * 17 + (i >> 8)).to_le_bytes()[0]).collect()
}

fn whole(offset: usize, len: usize) -> ByteRange {
    Extent::new(u64::MAX)
        .span(Side::Local, offset.try_into().unwrap(), len.try_into().unwrap())
        .unwrap()
}

/// Every size to 300 and around each bound of the kernels, at alignments of both sides that differ.
#[test]
fn reads_and_writes_hit_their_bytes_and_no_others() {
    let mut sizes: Vec<usize> = (0..=300).collect();
    if cfg!(miri) {
        sizes.retain(|s| *s < 20 || s % 41 == 0);
    } else {
        for bound in [512usize, 4096, 8192, 16384, 65536] {
            sizes.extend(bound - 2..=bound + 2);
            sizes.extend([bound + 63, bound + 64, bound + 65]);
        }
    }
    for len in sizes {
        let aligns: &[(usize, usize)] = if cfg!(miri) {
            &[(0, 0), (3, 5)]
        } else {
            &[(0, 0), (1, 0), (0, 1), (7, 9), (31, 32), (63, 1)]
        };
        for &(shared_at, private_at) in aligns {
            let old = pattern(len + 128, 1);
            let mut arena = Arena::new(&old);
            let source = pattern(len + 64, 2);
            let new = &source[private_at..private_at + len];
            arena.view().write_at(whole(shared_at, len), new).unwrap();
            let mut want = old.clone();
            want[shared_at..shared_at + len].copy_from_slice(new);
            assert_eq!(arena.bytes(), want, "write of {len} at {shared_at}");

            let mut into = vec![0xEE; len + 128];
            arena
                .view()
                .read_at(whole(shared_at, len), &mut into[private_at..private_at + len])
                .unwrap();
            assert!(into[..private_at].iter().all(|b| *b == 0xEE), "guard before, {len}");
            assert_eq!(&into[private_at..private_at + len], new, "read of {len} at {shared_at}");
            assert!(into[private_at + len..].iter().all(|b| *b == 0xEE), "guard after, {len}");
        }
    }
}

/// One size beyond the bound from which copies pass the caches by, whatever this CPU's cache is.
#[cfg(not(miri))]
#[test]
fn a_copy_larger_than_the_cache_is_right() {
    let len = (80 << 20) + 12_345;
    let from = pattern(len, 3);
    let mut arena = Arena::new(&vec![9; len + 64]);
    let view = arena.view();
    view.write_at(whole(17, len), &from).unwrap();
    let mut back = vec![0; len];
    view.read_at(whole(17, len), &mut back).unwrap();
    assert!(back == from);
    let mut edge = [0; 17];
    view.read_at(whole(0, 17), &mut edge).unwrap();
    assert_eq!(edge, [9; 17]);
    view.read_at(whole(17 + len, 17), &mut edge).unwrap();
    assert_eq!(edge, [9; 17]);
}

#[test]
fn a_wrong_range_length_or_right_changes_nothing() {
    let old = pattern(64, 4);
    let mut arena = Arena::new(&old);
    let view = arena.view();
    for (offset, len) in [(0, 65), (64, 1), (65, 0), (usize::MAX >> 1, 1), (1, 64)] {
        let span = whole(offset, len);
        assert!(matches!(view.fill(span, 1), Err(SharedError::Range(e)) if e.limit == 64));
        assert!(matches!(view.crc32c(span), Err(SharedError::Range(_))));
        assert!(matches!(view.part(span), Err(SharedError::Range(_))));
        assert!(matches!(view.copy_within(span, whole(0, 0)), Err(SharedError::Range(_))));
        assert!(matches!(view.copy_within(whole(0, 0), span), Err(SharedError::Range(_))));
        if len <= 65 {
            assert!(matches!(view.write_at(span, &vec![0; len]), Err(SharedError::Range(_))));
        }
    }
    let short = SharedError::Length { span: 8, other: 7 };
    assert_eq!(view.write_at(whole(0, 8), &[0; 7]), Err(short));
    assert_eq!(view.read_at(whole(0, 8), &mut [0; 7]), Err(short));
    assert_eq!(view.copy_within(whole(0, 8), whole(0, 7)), Err(short));
    let fixed = view.read_only();
    assert_eq!(fixed.write_at(whole(0, 1), &[0]), Err(SharedError::ReadOnly));
    assert_eq!(fixed.fill(whole(0, 1), 0), Err(SharedError::ReadOnly));
    assert_eq!(view.copy_to(whole(0, 1), &fixed, whole(1, 1)), Err(SharedError::ReadOnly));
    assert!(matches!(fixed.flag(0), Err(SharedError::ReadOnly)));
    assert!(matches!(view.flag(4), Err(SharedError::Misaligned { offset: 4, align: 8 })));
    assert!(matches!(view.flag(60), Err(SharedError::Range(_))));
    assert!(matches!(view.flag(u64::MAX - 6), Err(SharedError::Range(_))));
    let part = view.part(whole(8, 16)).unwrap();
    assert!(matches!(part.fill(whole(0, 17), 1), Err(SharedError::Range(e)) if e.limit == 16));
    assert_eq!(arena.bytes(), old);
}

#[test]
fn a_flag_lies_at_its_offset() {
    let mut arena = Arena::new(&[0; 32]);
    arena.view().flag(16).unwrap().store_release(0x0102_0304_0506_0708);
    assert_eq!(arena.view().flag(16).unwrap().load_acquire(), 0x0102_0304_0506_0708);
    let want = [vec![0; 16], 0x0102_0304_0506_0708u64.to_ne_bytes().to_vec(), vec![0; 8]].concat();
    assert_eq!(arena.bytes(), want);
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    Fill(usize, usize, u8),
    Within(usize, usize, usize),
    Across(usize, usize, usize),
    Sum(usize, usize),
}

const SIZE: usize = if cfg!(miri) { 400 } else { 20_000 };

fn steps() -> impl Strategy<Value = Step> {
    let at = 0..SIZE;
    let len = prop_oneof![4 => 0..300usize, 1 => 0..SIZE];
    prop_oneof![
        (at.clone(), proptest::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(at, b)| Step::Write(at, b)),
        (at.clone(), len.clone(), any::<u8>()).prop_map(|(at, n, b)| Step::Fill(at, n, b)),
        (at.clone(), at.clone(), len.clone()).prop_map(|(a, b, n)| Step::Within(a, b, n)),
        // Overlaps by a few bytes, both ways.
        (at.clone(), 0..200usize, len.clone(), any::<bool>()).prop_map(|(a, d, n, up)| if up {
            Step::Within(a, a + d, n)
        } else {
            Step::Within(a + d, a, n)
        }),
        (at.clone(), at.clone(), len.clone()).prop_map(|(a, b, n)| Step::Across(a, b, n)),
        (at, len).prop_map(|(at, n)| Step::Sum(at, n)),
        Just(Step::Sum(0, SIZE)),
    ]
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        cases: if cfg!(miri) { 6 } else { 400 }, failure_persistence: None, ..Default::default()
    })]
    #[test]
    fn scripts_agree_with_plain_vectors(script in proptest::collection::vec(steps(), 0..12)) {
        let mut model = pattern(SIZE, 5);
        let mut other = pattern(SIZE, 6);
        let (mut arena, mut side) = (Arena::new(&model), Arena::new(&other));
        for step in script {
            match step {
                Step::Write(at, bytes) => {
                    let fits = at + bytes.len() <= SIZE;
                    assert_eq!(arena.view().write_at(whole(at, bytes.len()), &bytes).is_ok(), fits);
                    if fits {
                        model[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                }
                Step::Fill(at, len, byte) => {
                    let fits = at + len <= SIZE;
                    assert_eq!(arena.view().fill(whole(at, len), byte).is_ok(), fits);
                    if fits {
                        model[at..at + len].fill(byte);
                    }
                }
                Step::Within(from, to, len) => {
                    let fits = from + len <= SIZE && to + len <= SIZE;
                    assert_eq!(arena.view().copy_within(whole(from, len), whole(to, len)).is_ok(), fits);
                    if fits {
                        model.copy_within(from..from + len, to);
                    }
                }
                Step::Across(from, to, len) => {
                    let fits = from + len <= SIZE && to + len <= SIZE;
                    let (a, b) = (arena.view(), side.view());
                    assert_eq!(a.copy_to(whole(from, len), &b, whole(to, len)).is_ok(), fits);
                    if fits {
                        other[to..to + len].copy_from_slice(&model[from..from + len]);
                    }
                }
                Step::Sum(at, len) => {
                    let view = arena.view();
                    if at + len > SIZE {
                        assert!(view.crc32c(whole(at, len)).is_err());
                    } else {
                        let sum = view.crc32c(whole(at, len)).unwrap();
                        let head = view.crc32c(whole(at, len / 2)).unwrap();
                        let rest = whole(at + len / 2, len - len / 2);
                        assert_eq!(view.crc32c_more(head, rest).unwrap(), sum);
                        let copy = {
                            let mut copy = Arena::new(&model[at..at + len]);
                            copy.view().crc32c(whole(0, len)).unwrap()
                        };
                        assert_eq!(copy, sum);
                    }
                }
            }
        }
        assert_eq!(arena.bytes(), model);
        assert_eq!(side.bytes(), other);
    }
}
