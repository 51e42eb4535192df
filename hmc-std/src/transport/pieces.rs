//! Transfers that are copied piece by piece, in the order in which they were posted. One piece is out at a time; a thread may copy
//! it without the link's lock.

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
    /// A piece of it was handed out: one of no bytes is copied, too, so that its window is judged.
    is_begun: bool,
    is_cancelled: bool,
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
}

/// The transfers of a link that are not over.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    transfers: VecDeque<Transfer>,
    /// A piece of the oldest transfer is being copied.
    is_out: bool,
}

impl Pieces {
    pub(crate) fn len(&self) -> usize {
        self.transfers.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.transfers.is_empty()
    }

    /// Whether a piece is being copied.
    pub(crate) fn is_out(&self) -> bool {
        self.is_out
    }

    /// Whether one of that operation is not over.
    pub(crate) fn has(&self, op: SlotId) -> bool {
        self.transfers.iter().any(|t| t.work.op == op)
    }

    /// Takes a transfer of which nothing is copied yet.
    pub(crate) fn push(&mut self, work: &WorkRequest) {
        reserve_once(&mut self.transfers);
        let left = (work.local, work.remote);
        let transfer = Transfer { work: *work, left, is_begun: false, is_cancelled: false };
        self.transfers.push_back(transfer);
    }

    /// Takes a transfer of one piece whose bytes are in place.
    pub(crate) fn push_copied(&mut self, work: &WorkRequest) {
        self.push(work);
        if let Some(transfer) = self.transfers.back_mut() {
            transfer.left = transfer.split().1;
            transfer.is_begun = true;
        }
    }

    /// The next piece, if none is out, with the transfer that it belongs to.
    pub(crate) fn next(&self) -> Option<(&WorkRequest, LocalSlice, WindowSlice)> {
        let transfer = self.transfers.front().filter(|_| !self.is_out)?;
        let ((local, remote), _) = transfer.split();
        let is_next = !transfer.is_begun || !local.span.is_empty();
        is_next.then_some((&transfer.work, local, remote))
    }

    /// Hands the next piece out.
    pub(crate) fn take(&mut self) {
        if let Some(transfer) = self.transfers.front_mut() {
            transfer.is_begun = true;
            self.is_out = true;
        }
    }

    /// The piece that was out was copied, or was not. Returns its bytes; an operation that is over with it is told to `end`.
    pub(crate) fn put_back(
        &mut self,
        result: Result<(), Failure>,
        end: impl FnOnce(SlotId, Failure),
    ) -> u64 {
        let Some(transfer) = self.transfers.front_mut().filter(|_| self.is_out) else { return 0 };
        self.is_out = false;
        let ((piece, _), left) = transfer.split();
        transfer.left = left;
        let op = transfer.work.op;
        let cancelled = if transfer.is_cancelled { Err(Failure::Cancelled) } else { Ok(()) };
        if let Err(why) = result.and(cancelled) {
            self.transfers.pop_front();
            end(op, why);
        }
        if result.is_ok() { piece.span.len() } else { 0 }
    }

    /// The oldest transfer, if all its bytes are in place.
    pub(crate) fn copied(&self) -> Option<WorkRequest> {
        let transfer = self.transfers.front().filter(|_| !self.is_out)?;
        (transfer.is_begun && transfer.left.0.span.is_empty()).then_some(transfer.work)
    }

    /// Lets go of the oldest transfer.
    pub(crate) fn pop(&mut self) {
        self.transfers.pop_front();
    }

    /// Withdraws the transfers of an operation. Returns how many they were; the one of the piece that is out ends with it.
    pub(crate) fn cancel(&mut self, op: SlotId) -> usize {
        let before = self.transfers.len();
        let mut is_out = self.is_out;
        self.transfers.retain_mut(|t| {
            let is_first = std::mem::take(&mut is_out);
            t.is_cancelled |= is_first && t.work.op == op;
            is_first || t.work.op != op
        });
        before.saturating_sub(self.transfers.len())
    }

    /// Lets go of all transfers but that of the piece that is out.
    pub(crate) fn close(&mut self, mut end: impl FnMut(SlotId)) {
        for gone in self.transfers.drain(usize::from(self.is_out)..) {
            end(gone.work.op);
        }
    }
}
