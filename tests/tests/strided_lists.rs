//! Pieces of many blocks: a list of them moves what the list of their blocks moves, over each transport.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "tests may panic"
)]

use hmc_std::{ConnType, Error, ErrorKind, Piece, Session};
use hmc_tests::pair::{Pair, pattern, transports};

const MIB: u64 = 1 << 20;
const BUFFER: u64 = 8 * MIB;
/// What is sent lies in the first half of a session's buffer, and what is received in the second: one session may be both.
const HALF: u64 = BUFFER / 2;
const LISTS: u64 = 40;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Offset here, offset in the half of the window, length, and then how often and at which distances.
#[derive(Clone, Copy, Debug)]
struct Run(u64, u64, u64, u32, u64, u64);

/// Runs whose blocks do not overlap in the window, where they may only follow each other.
fn runs(random: &mut Random) -> Vec<Run> {
    let (mut all, mut end) = (Vec::new(), 0);
    for _ in 0..1 + random.below(8) {
        let longest = [16, 512, 5000, 150_000][random.below(4) as usize];
        let (len, times) = (random.below(longest), random.below(40));
        let here_stride = [0, len, len + random.below(100), len / 2][random.below(4) as usize];
        let there_stride = len + [0, random.below(100)][random.below(2) as usize];
        let here = random.below(1000);
        let whole = |stride| times.saturating_sub(1) * stride + len;
        if here + whole(here_stride) > HALF || end + whole(there_stride) > HALF {
            continue;
        }
        all.push(Run(here, end, len, times as u32, here_stride, there_stride));
        end += whole(there_stride) + [0, random.below(100)][random.below(2) as usize];
    }
    all
}

fn read(session: &Session, at: u64) -> Vec<u8> {
    let mut out = vec![0; HALF as usize];
    session.buffer().read_at(at, &mut out).expect("in range");
    out
}

#[test]
fn a_list_of_runs_moves_what_its_blocks_would() {
    for conn in transports() {
        let pair = Pair::new(conn, BUFFER);
        let (near, far) = (pair.sender(), pair.receiver());
        let remote = pair.a.buffer().expect("it exposes a buffer");
        for seed in 0..LISTS {
            let runs = runs(&mut Random(seed));
            let strided: Vec<Piece<'_>> = runs
                .iter()
                .map(|&Run(here, at, len, times, here_stride, there_stride)| {
                    let range = near.buffer().range(here, len).expect("in range");
                    Piece::new(range, HALF + at).repeat(times, here_stride, there_stride)
                })
                .collect();
            let sent = pattern(HALF, seed + 1);
            near.buffer().write_at(0, &sent).expect("in range");
            far.buffer().fill(HALF, HALF, 0xEE).expect("in range");
            // In plain vectors.
            let (mut there, mut bytes) = (vec![0xEE; HALF as usize], 0);
            let blocks = || {
                runs.iter()
                    .flat_map(|r| (0..u64::from(r.3)).map(|n| (r.0 + n * r.4, r.1 + n * r.5, r.2)))
            };
            for (from, to, len) in blocks() {
                let [from, to, n] = [from, to, len].map(|n| n as usize);
                there[to..to + n].copy_from_slice(&sent[from..from + n]);
                bytes += len;
            }
            let what = format!("{conn:?}, seed {seed}: {runs:?}");
            let plan = remote.put_list(&strided).prepare().expect("it fits");
            assert_eq!(plan.len(), runs.len(), "{what}");
            let done =
                if seed % 2 == 0 { plan.again().wait() } else { remote.put_list(&strided).wait() };
            assert_eq!(done.expect("a living peer").bytes, bytes, "{what}");
            assert!(read(far, HALF) == there, "{what}");
            // Back, by runs and then each block by itself.
            let expanded: Vec<Piece<'_>> = blocks()
                .map(|(here, at, len)| {
                    let range = near.buffer().range(here, len).expect("in range");
                    Piece::new(range, HALF + at)
                })
                .collect();
            let mut here = vec![0x11; HALF as usize];
            for (from, _, len) in blocks() {
                // Where blocks overlap here, each has the same bytes for the same places.
                let place = from as usize..(from + len) as usize;
                here[place.clone()].copy_from_slice(&sent[place]);
            }
            for pieces in [&strided, &expanded] {
                near.buffer().fill(0, HALF, 0x11).expect("in range");
                let done = remote.get_list(pieces).wait().expect("a living peer");
                assert_eq!(done.bytes, bytes, "{what}");
                assert!(read(near, 0) == here, "{what}, {} pieces", pieces.len());
            }
        }
    }
}

/// Nothing is written before the last block of the last piece is known to fit.
#[test]
fn the_piece_that_does_not_fit_is_named_and_nothing_is_written() {
    for conn in transports() {
        let pair = Pair::new(conn, BUFFER);
        let (near, far) = (pair.sender(), pair.receiver());
        let remote = pair.a.buffer().expect("it exposes a buffer");
        near.buffer().fill(0, HALF, 1).expect("in range");
        far.buffer().fill(HALF, HALF, 0xEE).expect("in range");
        let piece = Piece::new(near.buffer().range(0, 8).expect("in range"), HALF);
        let good = piece.repeat(8, 8, 16);
        let fits = (BUFFER - 8) / 1024;
        let bad = [
            piece.repeat(u32::MAX, 8, 8),
            piece.repeat(2, 8, u64::MAX),
            piece.repeat(3, u64::MAX / 2, 8),
            piece.repeat(fits as u32 + 2, 1024, 0),
            piece.repeat(1 + (HALF / 1024) as u32, 0, 1024),
        ];
        for bad in bad {
            let e: Error = remote.put_list(&[good, good, bad]).wait().expect_err("it does not fit");
            assert_eq!(e.kind(), ErrorKind::Range, "{conn:?}: {e}");
            assert!(e.range().is_some() && e.to_string().contains("piece 2: "), "{conn:?}: {e}");
            let e = remote.get_list(&[bad, good]).prepare().expect_err("it does not fit");
            assert!(e.to_string().contains("piece 0: "), "{conn:?}: {e}");
        }
        if conn != ConnType::Loopback {
            assert!(read(far, HALF).iter().all(|b| *b == 0xEE), "{conn:?}");
        }
        let all =
            [piece.repeat(fits as u32 + 1, 1024, 0), piece.repeat((HALF / 1024) as u32, 0, 1024)];
        remote.put_list(&all).wait().expect("all of it fits");
        remote.put_list(&[piece.repeat(0, 8, 8)]).notify(5).wait().expect("nothing but a tag");
    }
}
