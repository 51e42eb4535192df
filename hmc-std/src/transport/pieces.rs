//! Transfers that are copied chunk by chunk, in the order in which they were posted.

use std::collections::VecDeque;

use hmc_core::limits::MAX_CHUNK_BYTES;
use hmc_core::region::{LocalSlice, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::work::{Failure, WorkRequest};

use super::stream::reserve_once;

#[derive(Clone, Copy, Debug)]
struct Transfer {
    work: WorkRequest,
    /// What is not copied yet.
    left: (LocalSlice, WindowSlice),
    /// A piece was copied. A transfer without bytes has one piece, too, so that its window is checked.
    is_begun: bool,
}

impl Transfer {
    /// The next piece, and what follows it.
    fn split(&self) -> ((LocalSlice, WindowSlice), (LocalSlice, WindowSlice)) {
        let (local, remote) = self.left;
        let (ours, ours_left) = local.span.split_at_most(MAX_CHUNK_BYTES);
        let (theirs, theirs_left) = remote.span.split_at_most(MAX_CHUNK_BYTES);
        let slices = |ours, theirs| {
            (LocalSlice { span: ours, ..local }, WindowSlice { span: theirs, ..remote })
        };
        (slices(ours, theirs), slices(ours_left, theirs_left))
    }

    fn is_copied(&self) -> bool {
        self.is_begun && self.left.0.span.is_empty()
    }
}

/// The transfers of a link that are not over.
#[derive(Debug, Default)]
pub(crate) struct Pieces(VecDeque<Transfer>);

impl Pieces {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of that operation is not over.
    pub(crate) fn has(&self, op: SlotId) -> bool {
        self.0.iter().any(|t| t.work.op == op)
    }

    /// Takes a transfer of which nothing is copied yet.
    pub(crate) fn push(&mut self, work: &WorkRequest) {
        reserve_once(&mut self.0);
        self.0.push_back(Transfer {
            work: *work,
            left: (work.local, work.remote),
            is_begun: false,
        });
    }

    /// Takes a transfer of one piece whose bytes are in place.
    pub(crate) fn push_copied(&mut self, work: &WorkRequest) {
        self.push(work);
        if let Some(transfer) = self.0.back_mut() {
            transfer.left = transfer.split().1;
            transfer.is_begun = true;
        }
    }

    /// The next piece, with the transfer that it belongs to.
    pub(crate) fn next(&self) -> Option<(WorkRequest, LocalSlice, WindowSlice)> {
        let transfer = self.0.front().filter(|t| !t.is_copied())?;
        let ((local, remote), _) = transfer.split();
        Some((transfer.work, local, remote))
    }

    /// The next piece was copied, or was not: its transfer goes then.
    pub(crate) fn advance(&mut self, result: Result<(), Failure>) {
        match (result, self.0.front_mut()) {
            (Ok(()), Some(transfer)) => {
                transfer.left = transfer.split().1;
                transfer.is_begun = true;
            }
            _ => drop(self.pop()),
        }
    }

    /// The oldest transfer, if all its bytes are in place.
    pub(crate) fn copied(&self) -> Option<WorkRequest> {
        self.0.front().filter(|t| t.is_copied()).map(|t| t.work)
    }

    /// Whether a piece of the oldest transfer was copied.
    pub(crate) fn is_begun(&self) -> bool {
        self.0.front().is_some_and(|t| t.is_begun)
    }

    /// Removes the oldest transfer.
    pub(crate) fn pop(&mut self) -> Option<WorkRequest> {
        self.0.pop_front().map(|t| t.work)
    }

    /// Withdraws the transfers of an operation. Returns how many they were.
    pub(crate) fn cancel(&mut self, op: SlotId) -> usize {
        let before = self.0.len();
        self.0.retain(|t| t.work.op != op);
        before.saturating_sub(self.0.len())
    }

    /// Lets go of all transfers; of each, `end` is told.
    pub(crate) fn close(&mut self, mut end: impl FnMut(SlotId)) {
        for gone in self.0.drain(..) {
            end(gone.work.op);
        }
    }
}
