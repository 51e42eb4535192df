//! What rendezvous needs of its link: puts, windows, messages to the peer, and texts of errors.

use std::collections::VecDeque;

use hmc_core::region::{LocalSlice, WindowDesc, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::types::Rank;
use hmc_core::work::Failure;
use hmc_mem::shared::SharedBytes;

use super::note::Note;
use crate::base::error::Error;
use crate::memory::Region;
use crate::transport::data_plane::Fence;

/// What became of notes that were to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoteOutcome {
    /// They were sent.
    Sent,
    /// The peer reads too slowly: they are to be sent when there is space.
    Later,
    /// The control connection has ended.
    Over,
}

/// The link of a rendezvous state. Its calls are short and do not wait.
pub(super) trait Host {
    /// Posts a put; `None` when there is no space now: something that runs makes some.
    fn post(
        &mut self,
        region: &Region,
        local: LocalSlice,
        remote: WindowSlice,
    ) -> Result<Option<SlotId>, Failure>;

    /// Copies into the peer's memory, if that is mapped. Whether it did.
    fn write_now(&mut self, bytes: &SharedBytes<'_>, target: WindowSlice) -> bool;

    /// Takes the end of a put that has passed its fence, if it has.
    fn take_end(&mut self, op: SlotId) -> Option<Result<(), Failure>>;

    /// Withdraws puts. Their ends come as others do.
    fn cancel(&mut self, ops: impl Iterator<Item = SlotId>);

    /// Takes a window back. `None` when its fence has passed.
    fn revoke(&mut self, window: &WindowDesc) -> Option<Fence>;

    /// Closes a window, of which the peer is not told. `None` when its fence has passed, so that [`Self::reopen`] may follow.
    fn close(&mut self, window: &WindowDesc) -> Option<Fence>;

    /// Opens a window that was closed, for `len` bytes from `offset` of it. Whether it did.
    fn reopen(&mut self, window: &WindowDesc, part: (u64, u64)) -> bool;

    /// Whether the receiver of a direct message counts the bytes that are put, at either end of the link.
    fn counts_puts(&self) -> bool;

    /// Counts the bytes that the peer puts into an open window: they are to be `len`.
    fn count_puts(&mut self, window: &WindowDesc, len: u64);

    /// Whether that many were put.
    fn are_all_put(&mut self, window: &WindowDesc) -> bool;

    /// Whether the peer is out of a window that was taken back, which is gone then.
    fn has_passed(&mut self, fence: &Fence, window: &WindowDesc) -> bool;

    /// Sends the first notes of the list, and removes them.
    fn send(&mut self, notes: &mut VecDeque<Note>) -> NoteOutcome;

    /// The peer.
    fn peer(&self) -> Rank;

    /// The error for using the link when it is over.
    fn gone(&self) -> Error;

    /// What to add to the error of a receive in vain.
    fn full_inbox(&self) -> &'static str;

    /// What to add to the error of a send in vain.
    fn full_outcomes(&self) -> &'static str;
}
