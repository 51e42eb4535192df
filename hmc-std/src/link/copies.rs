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
