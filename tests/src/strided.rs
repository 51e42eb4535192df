//! Random lists of runs, compared with plain vectors and with the lists of their blocks.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "tests may panic"
)]

use hmc_std::{Piece, Remote, Session};

use crate::pair::{Pair, pattern};

const MIB: u64 = 1 << 20;
/// Bytes of the buffer of each session.
pub const BUFFER: u64 = 8 * MIB;
/// What is sent lies in the first half of a session's buffer, and what is received in the second: one session may be both.
pub const HALF: u64 = BUFFER / 2;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Blocks at equal distances.
#[derive(Clone, Copy, Debug)]
struct Run {
    here: u64,
    /// In the second half of the window.
    there: u64,
    len: u64,
    times: u32,
    here_stride: u64,
    there_stride: u64,
}

impl Run {
    /// Offset here, offset in the half of the window, and length of each block.
    fn blocks(self) -> impl Iterator<Item = (u64, u64, u64)> {
        (0..u64::from(self.times)).map(move |n| {
            (self.here + n * self.here_stride, self.there + n * self.there_stride, self.len)
        })
    }
}

/// Runs whose blocks do not overlap in the window, where they may only follow each other.
fn runs(random: &mut Random) -> Vec<Run> {
    let (mut all, mut end) = (Vec::new(), 0);
    for _ in 0..1 + random.below(8) {
        let longest = [16, 512, 5000, 150_000][random.below(4) as usize];
        let (len, times) = (random.below(longest), random.below(40) as u32);
        let here_stride = [0, len, len + random.below(100), len / 2][random.below(4) as usize];
        let there_stride = len + [0, random.below(100)][random.below(2) as usize];
        let here = random.below(1000);
        let whole = |stride| u64::from(times).saturating_sub(1) * stride + len;
        if here + whole(here_stride) > HALF || end + whole(there_stride) > HALF {
            continue;
        }
        all.push(Run { here, there: end, len, times, here_stride, there_stride });
        end += whole(there_stride) + [0, random.below(100)][random.below(2) as usize];
    }
    all
}

/// The second half of a session's buffer, or with 0 the first.
///
/// # Panics
/// When the buffer is shorter.
#[must_use]
pub fn read(session: &Session, at: u64) -> Vec<u8> {
    let mut out = vec![0; HALF as usize];
    session.buffer().read_at(at, &mut out).expect("in range");
    out
}

/// Puts and gets lists of one piece: blocks that lie apart on either side, blocks that are adjacent on both, a single block and none.
/// `puts` and `gets` count the transfers that the transport has begun: one for each block, and one for adjacent blocks.
///
/// # Panics
/// If a list takes another number of transfers, or fails.
pub fn count_transfers(
    remote: &Remote,
    block: Piece<'_>,
    puts: impl Fn() -> u64,
    gets: impl Fn() -> u64,
) {
    for (strided, transfers) in [
        (block.repeat(700, 16, 24), 700),
        (block.repeat(700, 8, 24), 700),
        (block.repeat(700, 16, 8), 700),
        (block.repeat(700, 0, 8), 700),
        (block.repeat(700, 8, 8), 1),
        (block.repeat(1, 9, 9), 1),
        (block.repeat(0, 16, 24), 0),
    ] {
        let before = puts();
        remote.put_list(&[strided]).wait().expect("a living peer");
        assert_eq!(puts() - before, transfers, "{strided:?}");
        let before = gets();
        remote.get_list(&[strided]).wait().expect("a living peer");
        assert_eq!(gets() - before, transfers, "{strided:?}");
    }
}

/// Puts and gets so many random lists, whose number is their seed, between two sessions with buffers of [`BUFFER`].
///
/// # Panics
/// When a byte is another one than in plain vectors.
pub fn compare_lists(pair: &Pair, lists: u64) {
    let remote = pair.a.buffer().expect("it exposes a buffer");
    for seed in 0..lists {
        let runs = runs(&mut Random(seed));
        compare(pair, &remote, seed, &runs);
    }
}

fn compare(pair: &Pair, remote: &Remote, seed: u64, runs: &[Run]) {
    let (near, far) = (pair.sender(), pair.receiver());
    let what = format!("{:?}, seed {seed}: {runs:?}", pair.a.explain().conn);
    let piece = |here, there, len| {
        Piece::new(near.buffer().range(here, len).expect("in range"), HALF + there)
    };
    let strided: Vec<Piece<'_>> = runs
        .iter()
        .map(|r| piece(r.here, r.there, r.len).repeat(r.times, r.here_stride, r.there_stride))
        .collect();
    let blocks = || runs.iter().flat_map(|r| r.blocks());
    let sent = pattern(HALF, seed + 1);
    near.buffer().write_at(0, &sent).expect("in range");
    far.buffer().fill(HALF, HALF, 0xEE).expect("in range");
    // In plain vectors.
    let (mut there, mut bytes) = (vec![0xEE; HALF as usize], 0);
    for (from, to, len) in blocks() {
        let [from, to, n] = [from, to, len].map(|n| n as usize);
        there[to..to + n].copy_from_slice(&sent[from..from + n]);
        bytes += len;
    }
    let plan = remote.put_list(&strided).prepare().expect("it fits");
    assert_eq!(plan.len(), runs.len(), "{what}");
    let done =
        if seed.is_multiple_of(2) { plan.again().wait() } else { remote.put_list(&strided).wait() };
    assert_eq!(done.expect("a living peer").bytes, bytes, "{what}");
    assert!(read(far, HALF) == there, "{what}");
    // Back, by runs and then each block by itself.
    let expanded: Vec<Piece<'_>> = blocks().map(|(here, at, len)| piece(here, at, len)).collect();
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
