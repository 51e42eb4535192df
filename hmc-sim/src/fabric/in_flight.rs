//! A request in flight, and the order in which its bytes move.

use hmc_core::region::LocalSlice;
use hmc_core::work::{Failure, Opcode, WorkRequest};

use crate::access_checker::history::Actor;

/// Number of chunks of a request whose chunks arrive in any order.
const SCATTERED: u64 = 8;

/// The fault that was selected for a request when it was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlannedFault {
    None,
    Lost,
    Doubled,
    Failed,
    /// Completed before its bytes move.
    Early,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// This many bytes were moved; of a scattered request, this many chunks.
    Moving(u64),
    /// The bytes are there, the tag is not. The completion came already, or comes after it.
    Tag { completed: bool },
    /// Its completion is due.
    Completing(Result<u64, Failure>),
    /// Completed once, to be completed again.
    Echo(Result<u64, Failure>),
    /// Never to be completed while both ends live.
    Lost,
}

/// A request that was accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) work: WorkRequest,
    /// Its number among all requests.
    pub(crate) number: u64,
    pub(crate) actor: Actor,
    pub(crate) fault: PlannedFault,
    pub(crate) stage: Stage,
    pub(crate) due_ns: u64,
    /// Start and step (odd) of scattered chunks.
    pub(crate) scatter: Option<(u64, u64)>,
    /// Result of the first check of its whole range by the target's windows.
    pub(crate) target: Option<LocalSlice>,
    /// A rogue NIC completed it before its bytes moved.
    pub(crate) completed_early: bool,
}

/// A request that a rogue NIC runs once more after its completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replay {
    pub(crate) request: InFlight,
    pub(crate) target: LocalSlice,
    pub(crate) due_ns: u64,
}

/// The chunk that moves next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    /// Bytes of the request before it.
    pub(crate) from: u64,
    pub(crate) len: u64,
    /// The value of [`Stage::Moving`] afterwards.
    pub(crate) next: u64,
    /// It is the last chunk.
    pub(crate) last: bool,
}

impl InFlight {
    pub(crate) fn len(&self) -> u64 {
        self.work.local.span.len()
    }

    /// Returns `true` if bytes move to the target.
    pub(crate) fn is_put(&self) -> bool {
        matches!(self.work.opcode, Opcode::Put | Opcode::PutNotify { .. })
    }

    /// The window that it names.
    pub(crate) fn through(&self) -> (u64, u32) {
        (self.work.remote.window.0, self.work.remote.epoch.0)
    }

    /// Returns the next chunk. `piece` is a random number.
    pub(crate) fn chunk(&self, moved: u64, piece: u64) -> Chunk {
        let len = self.len();
        let Some((start, step)) = self.scatter else {
            let rest = len.saturating_sub(moved);
            // At least a quarter of the rest, so that large requests need few steps.
            let chunk = piece.checked_rem(rest).unwrap_or(0).max(rest >> 2).max(1).min(rest);
            let next = moved.saturating_add(chunk);
            return Chunk { from: moved, len: chunk, next, last: chunk == rest };
        };
        // An odd step visits each of the eight chunks once.
        let index = start.wrapping_add(moved.wrapping_mul(step)) & SCATTERED.saturating_sub(1);
        let chunk = len.div_ceil(SCATTERED);
        let from = chunk.saturating_mul(index).min(len);
        let next = moved.saturating_add(1);
        let chunk = chunk.min(len.saturating_sub(from));
        Chunk { from, len: chunk, next, last: next >= SCATTERED }
    }
}

#[cfg(test)]
mod tests {
    use super::{InFlight, PlannedFault, Stage};
    use crate::access_checker::history::Actor;
    use hmc_core::range::Extent;
    use hmc_core::region::{Epoch, LocalSlice, RegionKey, WindowId, WindowSlice};
    use hmc_core::slots::SlotId;
    use hmc_core::work::{CompleteWhen, Opcode, WorkRequest};

    fn request(len: u64, scatter: Option<(u64, u64)>) -> InFlight {
        let span = Extent::new(len).whole();
        let work = WorkRequest {
            op: SlotId { index: 0, generation: 1 },
            opcode: Opcode::Put,
            when: CompleteWhen::Visible,
            local: LocalSlice { key: RegionKey { index: 0, generation: 1 }, span },
            remote: WindowSlice { window: WindowId(1), epoch: Epoch(1), span, expected: None },
        };
        InFlight {
            work,
            number: 1,
            actor: Actor::Owner,
            fault: PlannedFault::None,
            stage: Stage::Moving(0),
            due_ns: 0,
            scatter,
            target: None,
            completed_early: false,
        }
    }

    #[test]
    fn every_order_moves_every_byte_once() {
        let mut rng = crate::rng::Rng::new(11);
        for len in [0, 1, 7, 8, 9, 63, 64, 65, 1000] {
            for n in 0..64u64 {
                let scatter = (n != 0).then(|| (rng.next_u64(), rng.next_u64() | 1));
                let request = request(len, scatter);
                let mut seen = vec![0u8; usize::try_from(len).expect("small")];
                let mut moved = 0;
                loop {
                    let chunk = request.chunk(moved, rng.next_u64());
                    let from = usize::try_from(chunk.from).expect("small");
                    let of = usize::try_from(chunk.len).expect("small");
                    for byte in seen.iter_mut().skip(from).take(of) {
                        *byte = byte.saturating_add(1);
                    }
                    moved = chunk.next;
                    if chunk.last {
                        break;
                    }
                }
                assert!(seen.iter().all(|b| *b == 1), "{len} bytes, {scatter:?}: {seen:?}");
            }
        }
    }
}
