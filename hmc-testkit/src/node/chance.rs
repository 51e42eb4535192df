//! The chance of a simulated process: random bytes that its seed decides.

use std::sync::atomic::{AtomicU64, Ordering};

use hmc_std::internals::session::RandomSource;

/// The distance of its states.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Random bytes by splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug)]
pub(super) struct Chance(AtomicU64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl RandomSource for Chance {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            for (to, from) in chunk.iter_mut().zip(z.to_le_bytes()) {
                *to = from;
            }
        }
    }
}
