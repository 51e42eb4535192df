//! Pieces that this process copies, without the lock of the link's data half: other callers post and take results meanwhile.

use super::Link;
use super::deferred::Deferred;
use crate::transport::mapped_copy::{MappedCopy, copy};

/// Pieces of up to 1 MiB that are copied before a driver looks at its sockets again.
const PIECES_A_TURN: usize = 4;

impl Link {
    /// Copies `first`, which was taken from the data half, and what follows it, for one turn. What is left is for whoever drives the
    /// link: for the caller if it does (`as_leader`), else for the reactor, since a waiter may sleep. Returns whether an operation ended.
    pub(crate) fn copy_pieces(
        &self,
        first: MappedCopy,
        as_leader: bool,
        after: &mut Deferred,
    ) -> bool {
        let mut next = Some(first);
        for left in (0..PIECES_A_TURN).rev() {
            let Some(piece) = next.take() else { break };
            let result = copy(&piece);
            // Before the operation ends: whoever waits for it may want its memory back.
            drop(piece);
            let mut data = self.data_in_turn();
            data.finish_copy(result, after);
            self.settle_data(&mut data);
            if left != 0 {
                next = data.take_copy();
            }
            if next.is_none() && !as_leader && data.has_work() {
                drop(data);
                self.enqueue();
            }
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
    use crate::transport::mapped_copy::MappedCopy;

    /// One piece more than a turn copies.
    const LEN: u64 = 5 << 20;

    /// Two ends, of which one has begun a put of [`LEN`] bytes into memory of the other, and its first piece.
    fn begun() -> ([End; 2], SlotId, MappedCopy) {
        let (near, far) = pair(ConnType::Shm);
        let (_, window) = far.expose(LEN);
        near.settle();
        let region = near.regions.allocate(LEN).expect("memory");
        let local = region.slice(0, LEN).expect("all of it");
        let remote = window.slice(0, LEN).expect("all of it");
        let t = Transfer { opcode: Opcode::Put, when: CompleteWhen::Visible, local, remote };
        let mut data = near.link.data();
        let op = data.post(&t, Instant::NEVER, &mut OpResources::region(region)).expect("posted");
        let piece = data.take_copy().expect("a piece");
        drop(data);
        ([near, far], op, piece)
    }

    fn is_queued(end: &End) -> bool {
        let mut queue = VecDeque::new();
        end.link.reactor.take_queued(&mut queue);
        end.link.dequeue();
        !queue.is_empty()
    }

    #[test]
    fn what_a_turn_leaves_is_for_whoever_drives_the_link() {
        for as_leader in [true, false] {
            let ([near, _far], op, piece) = begun();
            let outcome = || near.link.data().outcome(op).expect("it is there");
            let states = || {
                let mut data = near.link.data();
                (data.has_work(), data.is_copying())
            };
            assert_eq!((states(), is_queued(&near)), ((false, true), false));
            assert!(!near.link.poll_data(false), "another thread does the copy");
            assert!(!is_queued(&near) && outcome().is_none());
            let mut after = Deferred::default();
            assert!(!near.link.copy_pieces(piece, as_leader, &mut after));
            assert_eq!((states(), is_queued(&near)), ((true, false), !as_leader));
            assert_eq!(near.link.data().bytes_moved(), (LEN - (1 << 20), 0));
            assert!(near.link.poll_data(as_leader), "its last piece ends it");
            assert_eq!((states(), is_queued(&near)), ((false, false), false));
            assert_eq!(outcome(), Some(Outcome { result: Ok(LEN), fenced: true }));
        }
    }

    /// One that receives something takes a piece, too, and gives it back.
    #[test]
    fn a_turn_that_receives_copies_as_well() {
        let ([near, far], op, piece) = begun();
        let (_, window) = near.expose(1);
        far.settle();
        near.link.copy_pieces(piece, true, &mut Deferred::default());
        let _ = far.put_notify(&window, 3);
        assert!(near.link.poll_data(true));
        assert_eq!(near.link.inbox().len(), 1, "the tag came in this turn");
        let seen = near.link.data().outcome(op).expect("it is there");
        assert_eq!(seen, Some(Outcome { result: Ok(LEN), fenced: true }));
    }

    /// The piece uses the memory of an operation that has ended by then.
    #[test]
    fn the_end_of_a_link_waits_for_the_piece_that_is_copied() {
        let ([near, _far], op, piece) = begun();
        let mut after = Deferred::default();
        near.link.data().die(false, &mut after);
        let outcome = |fenced| Some(Outcome { result: Err(Failure::PeerDead), fenced });
        let seen = || near.link.data().outcome(op).expect("it is there");
        assert_eq!(seen(), outcome(false));
        assert!(!near.link.data().is_harmless());
        near.link.copy_pieces(piece, false, &mut after);
        assert_eq!(seen(), outcome(true));
        assert!(near.link.data().is_harmless() && !is_queued(&near));
    }
}
