//! This end as the initiator: the puts and gets that it posts.

use crate::types::Caps;
use crate::work::{Completion, SlotId, WorkRequest};

/// Why a request was not accepted, by what a caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PostErrorKind {
    /// The queue is full: progress, then post again. Nothing was accepted.
    Busy,
    /// The peer has exited; nothing can be posted.
    Disconnected,
    /// This transport cannot do it at all.
    Unsupported,
    /// The request names memory that the transport does not know.
    UnknownRegion,
    /// The machine failed.
    Other,
}

/// An error of a transport.
pub trait TransportError: core::fmt::Debug {
    /// What a caller can do about it.
    fn kind(&self) -> PostErrorKind;
}

impl TransportError for PostErrorKind {
    fn kind(&self) -> PostErrorKind {
        *self
    }
}

/// What `cancel` achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelOutcome {
    /// All requests of the operation were withdrawn: none of them will touch memory again and no
    /// further completion for it follows. This is a fence.
    Withdrawn,
    /// They run on; their completions follow. This is no fence.
    Running,
}

/// Moves bytes between local memory and the windows of one peer.
///
/// Rules, checked for every implementation by `hmc_conformance::transport`:
///
/// - `post` and `poll` never block and never allocate.
/// - A refused `post` has no effect. An accepted one gets exactly one completion, unless `cancel`
///   answers `Withdrawn` for its operation.
/// - With `CompleteWhen::Visible` the completion of a put means that the target can read the bytes.
/// - Requests are unordered, except that a notify follows its own bytes.
/// - Memory of a request is not touched after its completion.
/// - After the peer is gone every accepted request completes (with `Failure::PeerDead` unless it
///   was done), and `post` answers `Disconnected`.
pub trait Transport {
    /// Why a request was refused.
    type Error: TransportError;

    /// What this transport can do.
    fn caps(&self) -> Caps;

    /// Accepts one request.
    ///
    /// # Errors
    /// Nothing was accepted; `kind()` says what to do.
    fn post(&mut self, work: &WorkRequest) -> Result<(), Self::Error>;

    /// Makes progress and writes up to `out.len()` completions to the front of `out`.
    /// Returns how many.
    fn poll(&mut self, out: &mut [Completion]) -> usize;

    /// Tries to withdraw all requests of an operation.
    fn cancel(&mut self, op: SlotId) -> CancelOutcome;
}

impl<T: Transport + ?Sized> Transport for &mut T {
    type Error = T::Error;

    fn caps(&self) -> Caps {
        (**self).caps()
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), Self::Error> {
        (**self).post(work)
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        (**self).poll(out)
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        (**self).cancel(op)
    }
}
