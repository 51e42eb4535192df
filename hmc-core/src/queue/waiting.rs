//! Transfers for which the transport has no space. They wait in the slots of their operations, the oldest first.

use crate::queue::{Hold, QueueError, Transfer, WorkQueue, failure_of};
use crate::slots::{Full, Slot};
use crate::time::Instant;
use crate::transport::{PostErrorKind, Transport, TransportError};
use crate::work::{Failure, Opcode, SlotId};

/// Transfers of one operation that are posted before the next operation that waits has its turn.
const POSTS: usize = 16;

/// How far the transfers of an operation that waits were posted.
enum PostStep {
    /// The transport is full.
    Busy,
    /// The operation has more to be posted.
    More,
    /// The next is a notification, and transfers before it are under way.
    Held,
    /// The operation waits no more.
    Over,
}

impl<T: Transport, X: Hold, S: AsRef<[Slot<X>]> + AsMut<[Slot<X>]>> WorkQueue<T, S, X> {
    /// Begins an operation of the last `parts` transfers that `hold` keeps ([`Hold::transfer`]), and takes `hold`. They wait in
    /// its record until the transport takes them. The operation is done when all of them are, and fails when one of them is refused; with no
    /// parts it is done at once. A put with a tag is posted when all before it are complete, and not at all if one of them failed.
    ///
    /// # Errors
    /// `Full`, and `hold` is as it was.
    pub fn post_list(
        &mut self,
        parts: u32,
        deadline: Instant,
        hold: &mut X,
    ) -> Result<SlotId, QueueError<T::Error>> {
        let op = match self.slots.acquire_unposted(deadline, parts) {
            Ok(op) => op,
            Err(Full { limit }) => return Err(QueueError::Full { limit }),
        };
        self.set_hold(op, hold);
        if parts != 0 {
            self.slots.push_waiting(op.index);
            self.post_waiting();
        }
        Ok(op)
    }

    /// Whether transfers may wait for the transport.
    #[inline]
    pub const fn has_waiting(&self) -> bool {
        self.slots.has_waiting()
    }

    #[inline]
    pub(super) fn set_hold(&mut self, op: SlotId, hold: &mut X) {
        if let Ok(place) = self.slots.hold_mut(op) {
            *place = core::mem::take(hold);
        }
    }

    /// The transfer of an operation waits in its record, if that can keep it.
    #[cold]
    #[inline(never)]
    pub(super) fn wait(&mut self, op: SlotId, t: &Transfer) -> bool {
        let keeps = self.slots.hold_mut(op).is_ok_and(|hold| hold.keep(t));
        keeps && self.slots.put_off(op).is_ok()
    }

    /// The transport did not take the transfer of an operation that was just begun.
    #[cold]
    #[inline(never)]
    pub(super) fn not_taken(
        &mut self,
        op: SlotId,
        t: &Transfer,
        e: T::Error,
        hold: &mut X,
    ) -> Result<SlotId, QueueError<T::Error>> {
        let busy = matches!(e.kind(), PostErrorKind::Busy);
        if busy && self.wait(op, t) {
            return Ok(op);
        }
        // Cannot be stale: it was begun by the caller.
        *hold = self.slots.unpost(op).unwrap_or_default();
        Err(if busy { QueueError::Busy } else { QueueError::Transport(e) })
    }

    /// Posts what waits, as far as the transport takes it. The operations take turns.
    #[cold]
    #[inline(never)]
    pub(super) fn post_waiting(&mut self) {
        // The first of the operations that were held since a transfer was posted.
        let mut held = None;
        // Ends: each turn posts a transfer or takes an operation off the list, or comes to the first one that was held again.
        while let Some(op) = self.slots.first_waiting().filter(|op| held != Some(*op)) {
            match self.post_some(op) {
                PostStep::Busy => return,
                step @ (PostStep::More | PostStep::Held) => {
                    self.slots.pop_waiting();
                    self.slots.push_waiting(op.index);
                    held = if matches!(step, PostStep::Held) { held.or(Some(op)) } else { None };
                }
                PostStep::Over => self.slots.pop_waiting(),
            }
        }
    }

    fn post_some(&mut self, op: SlotId) -> PostStep {
        for _ in 0..POSTS {
            let Ok((left @ 1.., due)) = self.slots.parts(op) else {
                return PostStep::Over;
            };
            let next = self.slots.hold_mut(op).ok().and_then(|hold| hold.transfer(left));
            let Some(t) = next.filter(|t| t.lengths().is_none()) else {
                // Kept wrongly.
                let _ = self.slots.reduce(op, left, Some(Failure::Unsupported));
                return PostStep::Over;
            };
            if matches!(t.opcode, Opcode::PutNotify { .. }) {
                if due != 0 {
                    return PostStep::Held;
                }
                if self.slots.has_failed(op) {
                    let _ = self.slots.reduce(op, left, None);
                    return PostStep::Over;
                }
            }
            let handed = if t.is_nothing() { Ok(()) } else { self.transport.post(&t.work(op)) };
            let failure = match handed.map_err(|e| e.kind()) {
                Ok(()) => None,
                Err(PostErrorKind::Busy) => return PostStep::Busy,
                Err(kind) => Some(failure_of(kind)),
            };
            // None of these can be stale: the operation has parts to be posted.
            let _ = match failure {
                // No part will follow.
                Some(_) => self.slots.reduce(op, left, failure).map(drop),
                None if t.is_nothing() => self.slots.reduce(op, 1, None).map(drop),
                None => self.slots.mark_posted(op, 1),
            };
        }
        PostStep::More
    }
}
