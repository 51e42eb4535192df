//! Private ranks: numbers beyond all ranks, for peers that this session cannot distinguish by their ranks.
//!
//! Programs of the C++ HMC distinguish peers by address and port. Each end assigns ranks to its links, and both
//! ends may use the same number. This session gives such a peer its own number, which is never sent and never
//! reused. A lost peer of this kind is not reconnected.

use hmc_core::limits::{MAX_PEERS, MAX_PRIVATE_PEERS};
use hmc_core::types::Rank;

use crate::base::error::{Error, ErrorKind, Limit};

/// The first of them.
pub(crate) const FIRST_PRIVATE: u32 = MAX_PEERS;

/// The first rank that stands for numbers beyond all ranks.
const FIRST_FOLDED: u32 = 2048;

/// How many ranks stand for them: a prime, so that neighbours and multiples of a power of two have different ones.
const FOLDED: u32 = 1021;

/// Returns the rank of a process to which its program assigned `number`, which may be any number in programs of the C++ HMC. A number
/// below 4096 is the rank itself; all others share the 1021 ranks from 2048 on. Both ends of a connection compute the same rank.
#[must_use]
pub const fn rank_of(number: u32) -> u32 {
    if number < MAX_PEERS { number } else { FIRST_FOLDED.saturating_add(number % FOLDED) }
}

/// Whether a rank is a private one.
pub(crate) const fn is_private(rank: Rank) -> bool {
    rank.0 >= FIRST_PRIVATE
}

pub(crate) fn too_many() -> Error {
    let limit = Limit::one_more("peers with ranks that others have", MAX_PRIVATE_PEERS);
    Error::limited(ErrorKind::Full, limit).with_remedy("disconnect some")
}
