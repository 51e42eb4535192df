//! Reasons for which an end refuses a connection, and that the other end can act on.

use crate::types::{Incarnation, Rank, VERSION};

/// Bytes of a reason on the wire: a code (u16) and a detail (u64).
pub const REJECT_BYTES: usize = 10;

/// Why a HELLO or ATTACH was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// Another version is spoken here.
    Version {
        /// The one that is.
        ours: u16,
    },
    /// The HELLO requires abilities that are not known here.
    Mandatory {
        /// Those that are not known.
        unknown: u16,
    },
    /// This process belongs to another job.
    WrongJob,
    /// The caller wanted another rank than the one here.
    WrongRank {
        /// The one here.
        ours: Rank,
    },
    /// A live process holds the caller's rank.
    Duplicate,
    /// The caller's incarnation has ended: a later one was seen, or this one was declared dead.
    Stale {
        /// The last life seen.
        seen: Incarnation,
    },
    /// The rank is not one that this session may have as a peer.
    BadRank {
        /// Ranks are below this number.
        limit: u32,
    },
    /// The limit of peers is reached.
    Busy,
    /// No link has that token.
    BadToken,
    /// This process is leaving.
    ShuttingDown,
    /// The caller did not prove that it belongs to the same user.
    NotAuthorised,
    /// This process does not listen at the endpoint that the caller was told to reach.
    WrongEndpoint,
    /// The holder of the caller's rank has exited, and the rank is reserved for it.
    Kept,
    /// A reason of a later version.
    Unknown {
        /// Its code.
        code: u16,
        /// Its detail.
        detail: u64,
    },
}

impl RejectReason {
    /// The code and the detail on the wire.
    #[must_use]
    pub fn to_wire(self) -> (u16, u64) {
        match self {
            Self::Version { ours } => (1, u64::from(ours)),
            Self::Mandatory { unknown } => (2, u64::from(unknown)),
            Self::WrongJob => (3, 0),
            Self::WrongRank { ours } => (4, u64::from(ours.0)),
            Self::Duplicate => (5, 0),
            Self::Stale { seen } => (6, seen.0),
            Self::BadRank { limit } => (7, u64::from(limit)),
            Self::Busy => (8, 0),
            Self::BadToken => (9, 0),
            Self::ShuttingDown => (10, 0),
            Self::NotAuthorised => (11, 0),
            Self::WrongEndpoint => (12, 0),
            Self::Kept => (13, 0),
            Self::Unknown { code, detail } => (code, detail),
        }
    }

    /// The reason that a code and a detail name. A detail that its code cannot have makes it
    /// `Unknown`: a refusal is a refusal.
    #[must_use]
    pub fn from_wire(code: u16, detail: u64) -> Self {
        let unknown = Self::Unknown { code, detail };
        let small = u16::try_from(detail);
        let word = u32::try_from(detail);
        match (code, detail) {
            (1, _) => small.map_or(unknown, |ours| Self::Version { ours }),
            (2, _) => small.map_or(unknown, |unknown| Self::Mandatory { unknown }),
            (3, 0) => Self::WrongJob,
            (4, _) => word.map_or(unknown, |n| Self::WrongRank { ours: Rank(n) }),
            (5, 0) => Self::Duplicate,
            (6, _) => Self::Stale { seen: Incarnation(detail) },
            (7, _) => word.map_or(unknown, |limit| Self::BadRank { limit }),
            (8, 0) => Self::Busy,
            (9, 0) => Self::BadToken,
            (10, 0) => Self::ShuttingDown,
            (11, 0) => Self::NotAuthorised,
            (12, 0) => Self::WrongEndpoint,
            (13, 0) => Self::Kept,
            _ => unknown,
        }
    }
}

impl core::fmt::Display for RejectReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Version { ours } => {
                write!(f, "it speaks version {ours}, this process version {VERSION}")
            }
            Self::Mandatory { unknown } => write!(f, "it does not know abilities {unknown:#06x}"),
            Self::WrongJob => f.write_str("it belongs to another job"),
            Self::WrongRank { ours } => write!(f, "it has rank {ours}"),
            Self::Duplicate => f.write_str("a live process holds this rank"),
            Self::Stale { seen } => {
                write!(f, "this life is over (life {} of the rank was seen)", seen.0)
            }
            Self::BadRank { limit } => {
                write!(f, "the rank must be below {limit} and not the acceptor's own")
            }
            Self::Busy => f.write_str("it cannot take another peer now"),
            Self::BadToken => f.write_str("no link has this token"),
            Self::ShuttingDown => f.write_str("it is leaving"),
            Self::NotAuthorised => {
                f.write_str("this process did not prove that it belongs to the same user")
            }
            Self::WrongEndpoint => {
                f.write_str("it does not listen at the address that this process asked for")
            }
            Self::Kept => f.write_str(
                "the rank is kept for the process that held it, which has ended: for 10 s against processes that proved as \
                 much, and permanently against those that proved less; use another rank, or come again after that",
            ),
            Self::Unknown { code, detail } => write!(f, "reason {code} ({detail})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RejectReason;

    #[test]
    fn every_code_and_detail_survives_the_wire() {
        let mut known = 0;
        for code in 0..=40u16 {
            for detail in [0, 1, 0xFFFF, 0x1_0000, u64::from(u32::MAX), 1 << 32, u64::MAX] {
                let r = RejectReason::from_wire(code, detail);
                assert_eq!(r.to_wire(), (code, detail));
                known += u32::from(!matches!(r, RejectReason::Unknown { .. }));
            }
        }
        assert_eq!(known, 3 + 3 + 1 + 5 + 1 + 7 + 5 + 6);
    }
}
