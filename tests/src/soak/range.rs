//! Ranges of bytes, at random.

use hmc_sim::rng::Rng;

/// Sizes of all magnitudes up to `limit`.
fn size(rng: &mut Rng, limit: u64) -> u64 {
    let bits = u64::from(limit.ilog2());
    let most = 1 << rng.below(bits + 1);
    1 + rng.below(most).min(limit - 1)
}

/// Returns a random offset and length within `len_max`.
pub(super) fn range(rng: &mut Rng, len_max: u64) -> (u64, u64) {
    let len = size(rng, len_max);
    (rng.below(len_max - len + 1), len)
}

/// As an index.
pub(super) fn at(n: u64) -> usize {
    usize::try_from(n).expect("64-bit machines only")
}
