//! One request on its way, and the order in which its bytes move.

use hmc_core::region::LocalSlice;
use hmc_core::work::{Failure, Opcode, WorkRequest};

use crate::detector::history::Who;

/// Pieces of a request whose pieces land in any order.
const SCATTERED: u64 = 8;

/// Which misfortune a request was dealt when it was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Kept,
    Lost,
    Doubled,
    Failed,
    /// Completed before its bytes move.
    Early,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// This many bytes were moved; of a scattered request, this many pieces.
    Moving(u64),
    /// The bytes are there, the tag is not. The completion came already, or comes after it.
    Tag { completed: bool },
    /// To be completed.
    Completing(Result<u64, Failure>),
    /// Completed once, to be completed again.
    Echo(Result<u64, Failure>),
    /// Never to be completed while both ends live.
    Lost,
}

/// A request that was accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) work: WorkRequest,
    /// Its number among all requests.
    pub(crate) ticket: u64,
    pub(crate) who: Who,
    pub(crate) fate: Fate,
    pub(crate) stage: Stage,
    pub(crate) due_ns: u64,
    /// Where scattered pieces begin, and how far apart they follow each other (odd).
    pub(crate) scatter: Option<(u64, u64)>,
    /// What the target's windows said about its whole range when they were first asked.
    pub(crate) target: Option<LocalSlice>,
    /// A rogue NIC has completed it already.
    pub(crate) told: bool,
}

/// A request that a rogue NIC runs once more after its completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ghost {
    pub(crate) flight: Flight,
    pub(crate) target: LocalSlice,
    pub(crate) due_ns: u64,
}

/// What moves next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Bytes of the request before it.
    pub(crate) from: u64,
    pub(crate) len: u64,
    /// What [`Stage::Moving`] says afterwards.
    pub(crate) next: u64,
    /// Nothing is left behind it.
    pub(crate) last: bool,
}

impl Flight {
    pub(crate) fn len(&self) -> u64 {
        self.work.local.span.len()
    }

    /// Bytes go from here to there.
    pub(crate) fn is_put(&self) -> bool {
        matches!(self.work.opcode, Opcode::Put | Opcode::PutNotify { .. })
    }

    /// The window that it names.
    pub(crate) fn through(&self) -> (u64, u32) {
        (self.work.remote.window.0, self.work.remote.epoch.0)
    }

    /// The next piece. `piece` is its share of chance.
    pub(crate) fn part(&self, moved: u64, piece: u64) -> Part {
        let len = self.len();
        let Some((start, step)) = self.scatter else {
            let rest = len.saturating_sub(moved);
            // At least a quarter of the rest, so that large requests need few steps.
            let part = piece.checked_rem(rest).unwrap_or(0).max(rest >> 2).max(1).min(rest);
            let next = moved.saturating_add(part);
            return Part { from: moved, len: part, next, last: part == rest };
        };
        // An odd step visits each of the eight pieces once.
        let index = start.wrapping_add(moved.wrapping_mul(step)) & SCATTERED.saturating_sub(1);
        let chunk = len.div_ceil(SCATTERED);
        let from = chunk.saturating_mul(index).min(len);
        let next = moved.saturating_add(1);
        let part = chunk.min(len.saturating_sub(from));
        Part { from, len: part, next, last: next >= SCATTERED }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, Flight, Stage};
    use crate::detector::history::Who;
    use hmc_core::range::Extent;
    use hmc_core::region::{Epoch, LocalSlice, RegionKey, WindowId, WindowSlice};
    use hmc_core::slots::SlotId;
    use hmc_core::work::{CompleteWhen, Opcode, WorkRequest};

    fn flight(len: u64, scatter: Option<(u64, u64)>) -> Flight {
        let span = Extent::new(len).whole();
        let work = WorkRequest {
            op: SlotId { index: 0, generation: 1 },
            opcode: Opcode::Put,
            when: CompleteWhen::Visible,
            local: LocalSlice { key: RegionKey { index: 0, generation: 1 }, span },
            remote: WindowSlice { window: WindowId(1), epoch: Epoch(1), span },
        };
        Flight {
            work,
            ticket: 1,
            who: Who::Owner,
            fate: Fate::Kept,
            stage: Stage::Moving(0),
            due_ns: 0,
            scatter,
            target: None,
            told: false,
        }
    }

    #[test]
    fn every_order_moves_every_byte_once() {
        let mut rng = crate::rng::Rng::new(11);
        for len in [0, 1, 7, 8, 9, 63, 64, 65, 1000] {
            for n in 0..64u64 {
                let scatter = (n != 0).then(|| (rng.next_u64(), rng.next_u64() | 1));
                let flight = flight(len, scatter);
                let mut seen = vec![0u8; usize::try_from(len).expect("small")];
                let mut moved = 0;
                loop {
                    let part = flight.part(moved, rng.next_u64());
                    let from = usize::try_from(part.from).expect("small");
                    let of = usize::try_from(part.len).expect("small");
                    for byte in seen.iter_mut().skip(from).take(of) {
                        *byte = byte.saturating_add(1);
                    }
                    moved = part.next;
                    if part.last {
                        break;
                    }
                }
                assert!(seen.iter().all(|b| *b == 1), "{len} bytes, {scatter:?}: {seen:?}");
            }
        }
    }
}
