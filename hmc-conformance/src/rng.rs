//! Seeded chance: the same seed gives the same run on every machine.
//!
//! For tests only: never a source of names, keys or nonces.

/// A generator of pseudo-random numbers (xoshiro256**, seeded through splitmix64; both by Blackman
/// and Vigna, <https://prng.di.unimi.it>).
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    /// The generator of that seed. Every seed is legal.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self { s: [(); 4].map(|()| splitmix(&mut state)) }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.s;
        let out = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c2, d2) = (c ^ a, d ^ b);
        self.s = [a ^ d2, b ^ c2, c2 ^ (b << 17), d2.rotate_left(45)];
        out
    }

    /// A number in `0..limit`; zero when `limit` is zero. The bias is at most `limit / 2^64`.
    pub fn below(&mut self, limit: u64) -> u64 {
        let wide = u128::from(self.next_u64()).wrapping_mul(u128::from(limit)) >> 64;
        u64::try_from(wide).unwrap_or(0)
    }

    /// A place in a list of `len`; zero when it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        usize::try_from(self.below(len)).unwrap_or(0)
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut::<8>();
        for word in words {
            *word = self.next_u64().to_le_bytes();
        }
        for (to, from) in rest.iter_mut().zip(self.next_u64().to_le_bytes()) {
            *to = from;
        }
    }

    /// `len` bytes.
    #[must_use]
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.fill(&mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn the_stream_is_that_of_the_published_generator() {
        // First outputs of xoshiro256** from the state 1, 2, 3, 4.
        let mut rng = Rng { s: [1, 2, 3, 4] };
        let got = [(); 4].map(|()| rng.next_u64());
        assert_eq!(got, [11520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn seeds_repeat_and_differ() {
        assert_eq!(Rng::new(7).bytes(100), Rng::new(7).bytes(100));
        assert_ne!(Rng::new(7).bytes(100), Rng::new(8).bytes(100));
    }

    #[test]
    fn below_stays_below_and_reaches_both_ends() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 5];
        for _ in 0..200 {
            let n = usize::try_from(rng.below(5)).expect("small");
            *seen.get_mut(n).expect("below 5") = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.below(0), 0);
    }
}
