//! The proof of the same user: the acceptor's request, and the value that both ends compute from a secret that only
//! this user can read.
//!
//! The owner computes the hash. This module has the hashed bytes and the comparison of two results.

use crate::limits::MAX_PEERS;
use crate::types::Rank;
use crate::wire::cursor::{Reader, WireError, Writer};
use crate::wire::hello::{Features, HELLO_BYTES, Hello};

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 16;
/// Bytes of what a proof covers, less the dialer's endpoints.
pub const TRANSCRIPT_BYTES: usize = 133;
/// Bytes of a challenge.
pub(crate) const CHALLENGE_BYTES: usize = 52;

const _: () = assert!(1 + HELLO_BYTES + 4 + NONCE_BYTES == TRANSCRIPT_BYTES);
const _: () = assert!(4 + NONCE_BYTES + PROOF_BYTES == CHALLENGE_BYTES);

/// The end that proves itself: a proof of one end is not valid for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end that dialed.
    Dialer,
    /// The end that was dialed.
    Acceptor,
}

/// A keyed hash, to be compared with another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Proof(pub [u8; PROOF_BYTES]);

impl Proof {
    /// Whether both are the same. Takes as long whatever they hold.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        let differ = self.0.iter().zip(&other.0).fold(0, |sum, (a, b)| sum | (a ^ b));
        core::hint::black_box(differ) == 0
    }
}

impl core::fmt::Debug for Proof {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Proof(..)")
    }
}

/// What an acceptor answers to a HELLO that promises a proof: its own proof, and what the dialer's must cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Challenge {
    /// The acceptor's rank.
    pub rank: Rank,
    /// Fresh random bytes.
    pub nonce: [u8; NONCE_BYTES],
    /// The acceptor's proof.
    pub proof: Proof,
}

impl Challenge {
    pub(crate) fn parse(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (at, rank) = (r.at(), r.u32_le()?);
        if rank >= MAX_PEERS {
            return Err(WireError::value(at, "rank", u64::from(rank)));
        }
        let nonce = *r.array()?;
        Ok(Self { rank: Rank(rank), nonce, proof: Proof(*r.array()?) })
    }

    pub(crate) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        out.u32_le(self.rank.0)?;
        out.array(&self.nonce)?;
        out.array(&self.proof.0)
    }
}

/// What a proof covers: who proves, the dialer's HELLO less its features, the acceptor's rank, its nonce. The bytes of the HELLO's endpoints
/// follow.
#[must_use]
pub fn transcript(
    role: Role,
    hello: &Hello<'_>,
    acceptor: Rank,
    nonce: &[u8; NONCE_BYTES],
) -> [u8; TRANSCRIPT_BYTES] {
    let mut bytes = [0; TRANSCRIPT_BYTES];
    let mut out = Writer::new(&mut bytes);
    // All of it fits: the sum is checked above.
    let _ = out.u8(match role {
        Role::Dialer => 1,
        Role::Acceptor => 2,
    });
    // Unknown features are ignored, so they are not covered.
    let _ = out.array(&Hello { features: Features::empty(), ..*hello }.fixed_bytes());
    let _ = out.u32_le(acceptor.0);
    let _ = out.array(nonce);
    bytes
}

#[cfg(test)]
mod tests {
    use super::{Proof, Role, transcript};
    use crate::time::Duration;
    use crate::types::{Incarnation, Rank};
    use crate::wire::hello::{Asked, Endpoints, Features, Hello, HostId};
    use std::collections::HashSet;
    use std::vec::Vec;

    const ASKED: Asked = Asked::new([8; 16], 9, 10);

    fn hello() -> Hello<'static> {
        Hello {
            features: Features::empty(),
            job: 1,
            rank: Rank(2),
            incarnation: Incarnation(3),
            nonce: [4; 16],
            expected: Some(Rank(5)),
            host: HostId([6; 16]),
            heartbeat: Duration::ZERO,
            slots: 7,
            asked: &ASKED,
            proves: true,
            endpoints: Endpoints::EMPTY,
        }
    }

    #[test]
    fn proofs_match_in_every_bit_or_not_at_all() {
        let one = Proof([7; 32]);
        assert!(one.matches(&one));
        for bit in 0..256 {
            let mut other = one;
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!one.matches(&other));
        }
        assert_eq!(std::format!("{one:?}"), "Proof(..)");
    }

    #[test]
    fn every_field_is_covered() {
        let (h, n) = (hello(), [11; 16]);
        let of = |h: &Hello<'_>| transcript(Role::Dialer, h, Rank(5), &n);
        let mut all: Vec<_> = [
            h,
            Hello { job: 0, ..h },
            Hello { rank: Rank(0), ..h },
            Hello { incarnation: Incarnation(0), ..h },
            Hello { nonce: [0; 16], ..h },
            Hello { expected: None, ..h },
            Hello { host: HostId([0; 16]), ..h },
            Hello { slots: 0, ..h },
            Hello { asked: &Asked::new([8; 16], 0, 10), ..h },
            Hello { asked: &Asked::new([0; 16], 9, 10), ..h },
            Hello { asked: &Asked::new([8; 16], 9, 0), ..h },
        ]
        .iter()
        .map(of)
        .collect();
        all.push(transcript(Role::Acceptor, &h, Rank(5), &n));
        all.push(transcript(Role::Dialer, &h, Rank(6), &n));
        all.push(transcript(Role::Dialer, &h, Rank(5), &[0; 16]));
        let distinct: HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), 14);
        assert_eq!(of(&Hello { features: Features::CMA, ..h }), of(&h));
    }
}
