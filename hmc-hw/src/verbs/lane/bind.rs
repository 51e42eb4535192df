//! Binds of windows to the queue pair of a lane: work requests with an entry in its send queue.

use super::{Lane, LaneFailure};
use crate::verbs::chain::ChainEnd;
use crate::verbs::objects::{MemoryWindow, WindowRange};
use crate::verbs::send_queue::Piece;

impl Lane {
    /// Posts a bind behind all that was pushed. Returns its number; `None` if there is no space.
    ///
    /// # Errors
    /// [`LaneFailure`].
    pub(in crate::verbs) fn bind(
        &mut self,
        window: &mut MemoryWindow,
        range: WindowRange,
    ) -> Result<Option<u64>, Box<LaneFailure>> {
        if !self.has_space() {
            return Ok(None);
        }
        self.post(ChainEnd::Signalled)?;
        let Some(number) = self.queue.push(Piece::Own, 0) else { return Ok(None) };
        window.bind(&self.qp, number, range)?;
        Ok(Some(number))
    }

    /// Returns `true` if the work request of that number has completed.
    pub(in crate::verbs) fn has_completed(&self, number: u64) -> bool {
        number < self.queue.completed()
    }
}
