//! Names and results of operations.

use std::fmt;

use hmc_core::kinds::Rank;
#[cfg(hmc_mutants)]
use hmc_core::mutant::{self, Mutant};
use hmc_core::slots;

use crate::error::{Error, ErrorKind};
use crate::memory::Span;

/// One life of one link, of one session of this process: nothing else ever has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkId {
    /// The session, by [`crate::identity::next`].
    pub(crate) session: u64,
    /// Counted by the session.
    pub(crate) serial: u32,
    pub(crate) peer: Rank,
}

impl LinkId {
    /// Whether an operation of that link is one of this link's.
    #[inline]
    pub(crate) fn is(self, named: Self) -> bool {
        #[cfg(hmc_mutants)]
        if mutant::is(Mutant::ForeignOperations) {
            return self.serial == named.serial && self.peer == named.peer;
        }
        self == named
    }
}

/// The name of an operation that was posted and not yet waited for.
///
/// It names one life of one link: after the peer died and came back, old names answer `PeerDead`. For every other session it
/// is `Stale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId {
    pub(crate) link: LinkId,
    pub(crate) op: slots::OpId,
}

impl OpId {
    /// The peer of the operation.
    #[must_use]
    pub fn peer(self) -> Rank {
        self.link.peer
    }

    /// Why that session has no link of this operation.
    #[cold]
    pub(crate) fn has_no_link(self, session: u64) -> Error {
        let error = if self.link.session == session {
            Error::peer_dead(self.peer(), "its link was replaced")
        } else {
            let what = "the operation belongs to another session; wait for it there";
            Error::new(ErrorKind::Stale, what)
        };
        error.with_op(self)
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}.{}.{}", self.link.serial, self.op.index, self.op.generation)
    }
}

/// A failed operation that owned a span.
#[derive(Debug)]
pub struct OpError {
    /// Why it failed.
    pub error: Error,
    /// The span, when no transport will touch it any more. `None` when it has not reached its fence:
    /// the range then stays `Busy` in its region until it has.
    pub span: Option<Span>,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        if self.span.is_none() {
            f.write_str("; its memory is held until the transport lets go of it")?;
        }
        Ok(())
    }
}

impl std::error::Error for OpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<OpError> for Error {
    fn from(e: OpError) -> Self {
        e.error
    }
}
