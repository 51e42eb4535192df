//! Chunks of long transfers that this process copies. Each chunk takes the lock of the link's data half anew, so
//! other callers can post, cancel and take results between two chunks.

use super::Link;
use super::deferred::Deferred;

/// Pieces of up to 1 MiB that are copied before a driver looks at its sockets again.
const PIECES_A_TURN: usize = 4;

impl Link {
    /// Copies what follows the first piece of a poll. What is left is for whoever drives the link: for the caller if it does
    /// (`as_leader`), else for the reactor, since a waiter may sleep. Returns whether an operation ended.
    pub(crate) fn copy_pieces(&self, as_leader: bool, after: &mut Deferred) -> bool {
        for _ in 1..PIECES_A_TURN {
            self.data_fairness.yield_to_waiters();
            let mut data = self.data_fairly();
            let copied = data.copy_piece(after);
            self.update_data_interest(&mut data);
            if !copied {
                break;
            }
        }
        if !as_leader && self.data_fairly().has_work() {
            self.schedule();
        }
        after.finished
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use hmc_core::queue::Transfer;
    use hmc_core::slots::{Outcome, SlotId};
    use hmc_core::time::Instant;
    use hmc_core::types::ConnType;
    use hmc_core::work::{CompleteWhen, Failure, Opcode};

    use crate::link::deferred::Deferred;
    use crate::link::ends::{End, pair};
    use crate::link::op_resources::OpResources;

    const PIECE: u64 = 1 << 20;
    /// One piece more than a poll copies.
    const LEN: u64 = 5 * PIECE;

    /// Two ends, of which one has begun a put of [`LEN`] bytes into memory of the other.
    fn begun() -> ([End; 2], SlotId) {
        let (near, far) = pair(ConnType::Shm);
        let (_, window) = far.expose(LEN);
        near.run_until_idle();
        let region = near.regions.allocate(LEN).expect("memory");
        let local = region.slice(0, LEN).expect("all of it");
        let remote = window.slice(0, LEN).expect("all of it");
        let t = Transfer { opcode: Opcode::Put, when: CompleteWhen::Visible, local, remote };
        let op = near.link.data().post(&t, Instant::NEVER, &mut OpResources::region(region));
        ([near, far], op.expect("posted"))
    }

    fn is_queued(end: &End) -> bool {
        let mut queue = VecDeque::new();
        end.link.reactor.take_queued(&mut queue);
        end.link.unschedule();
        !queue.is_empty()
    }

    fn outcome(end: &End, op: SlotId) -> Option<Outcome> {
        end.link.data().outcome(op).expect("it is there")
    }

    #[test]
    fn a_poll_copies_four_pieces_and_leaves_the_rest_to_the_links_driver() {
        for as_leader in [true, false] {
            let ([near, _far], op) = begun();
            near.link.data().set_claimed(as_leader);
            assert!(!near.link.poll_data(as_leader));
            assert_eq!((near.link.data().has_work(), is_queued(&near)), (true, !as_leader));
            assert_eq!(near.link.data().bytes_moved(), (LEN - PIECE, 0));
            assert!(near.link.poll_data(as_leader), "its last piece ends it");
            assert_eq!((near.link.data().has_work(), is_queued(&near)), (false, false));
            assert_eq!(outcome(&near, op), Some(Outcome { result: Ok(LEN), fenced: true }));
        }
    }

    #[test]
    fn a_poll_that_receives_copies_as_well() {
        let ([near, far], op) = begun();
        let (_, window) = near.expose(1);
        far.run_until_idle();
        near.link.poll_data(true);
        let _ = far.put_notify(&window, 3);
        assert!(near.link.poll_data(true));
        assert_eq!(near.link.inbox().len(), 1, "the tag came in this poll");
        assert_eq!(outcome(&near, op), Some(Outcome { result: Ok(LEN), fenced: true }));
    }

    /// Nobody copies for an operation that has ended: its memory is free.
    #[test]
    fn an_operation_that_is_cancelled_between_two_pieces_is_fenced() {
        let cancelled = Some(Outcome { result: Err(Failure::Cancelled), fenced: true });
        let dead = Some(Outcome { result: Err(Failure::PeerDead), fenced: true });
        for (cancels, expected) in [(true, cancelled), (false, dead)] {
            let ([near, _far], op) = begun();
            near.link.poll_data(true);
            let mut after = Deferred::default();
            if cancels {
                near.link.data().cancel(op).expect("it runs");
            } else {
                near.link.data().close(true, &mut after);
            }
            assert_eq!(outcome(&near, op), expected);
            near.link.poll_data(true);
            assert_eq!(near.link.data().bytes_moved().0, LEN - PIECE);
        }
    }
}
