//! Inputs without a fuzzer: a small generator of random numbers, and mutations of inputs that exist.

/// Random numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of that seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed of this run: `HMC_TEST_SEED`, else the given one. Printed, so that a failure replays.
    pub fn announced(default: u64) -> Self {
        let seed = std::env::var_os("HMC_TEST_SEED").map_or(default, |given| {
            let number = given.to_str().and_then(|s| s.parse().ok());
            number.unwrap_or_else(|| {
                panic!("HMC_TEST_SEED={given:?}: give a whole number, or unset it")
            })
        });
        println!("seed = {seed}");
        Self::new(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 for 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next_u64() % n as u64) as usize }
    }
}

/// A new input from those that exist: a copy with one to four changes, or fresh bytes.
pub fn input(corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    if corpus.is_empty() || rng.below(16) == 0 {
        let n = rng.below(80);
        return (0..n).map(|_| rng.next_u64() as u8).collect();
    }
    let mut bytes = corpus[rng.below(corpus.len())].clone();
    for _ in 0..=rng.below(4) {
        change(&mut bytes, corpus, rng);
    }
    bytes.truncate(4096);
    bytes
}

fn change(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.below(bytes.len() + 1);
    let left = bytes.len() - at;
    match rng.below(9) {
        0 if left > 0 => bytes[at] ^= 1 << rng.below(8),
        1 if left > 0 => bytes[at] = rng.next_u64() as u8,
        2 if left > 0 => bytes[at] = [0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF][rng.below(7)],
        3 if left > 0 => bytes[at] = bytes[at].wrapping_add([1, 0xFF][rng.below(2)]),
        4 => {
            // A number at a limit, in two, four or eight bytes.
            let n: u64 =
                [0, 1, 0xFF, 0xFFFF, 1 << 20, u64::from(u32::MAX), 1 << 63, u64::MAX][rng.below(8)];
            let width = [2, 4, 8][rng.below(3)].min(left);
            bytes[at..at + width].copy_from_slice(&n.to_le_bytes()[..width]);
        }
        5 => {
            let n = rng.below(left.min(16) + 1);
            bytes.drain(at..at + n);
        }
        6 => {
            let n = rng.below(left.min(32) + 1);
            let again = bytes[at..at + n].to_vec();
            bytes.splice(at..at, again);
        }
        7 => {
            let n = rng.below(8);
            bytes.splice(at..at, (0..n).map(|_| rng.next_u64() as u8).collect::<Vec<_>>());
        }
        _ => {
            let other = &corpus[rng.below(corpus.len())];
            let from = rng.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
    }
}
