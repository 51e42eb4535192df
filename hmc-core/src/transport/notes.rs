//! Messages that the data planes of the two ends exchange on the control connection.

use super::note::Note;
use super::target::Target;
use crate::region::{Epoch, WindowId};

/// Exchange with the counterpart.
pub trait Notes: Target {
    /// Returns what the counterpart needs to reach this end, written to `buf`; the link sends it once, when it opens.
    ///
    /// # Errors
    /// This end cannot be reached.
    fn greeting<'a>(&mut self, buf: &'a mut [u8]) -> Result<Option<Note<'a>>, Self::Fault> {
        let _ = buf;
        Ok(None)
    }

    /// The counterpart sent a note. One of a kind that this transport does not have is passed over.
    ///
    /// # Errors
    /// The note cannot be used: the link ends.
    fn receive_note(&mut self, note: Note<'_>) -> Result<(), Self::Fault> {
        let _ = note;
        Ok(())
    }

    /// Returns what the counterpart is to receive beside the greeting and the notes of windows, written to `buf`, once. The link
    /// sends it; it asks after each note that came, and when [`Self::has_notes`].
    fn next_note<'a>(&mut self, buf: &'a mut [u8]) -> Option<Note<'a>> {
        let _ = buf;
        None
    }

    /// Whether [`Self::next_note`] returns a note though none of the counterpart's came. The link asks with each poll.
    fn has_notes(&self) -> bool {
        false
    }

    /// Whether revoked windows of the peer are still used by requests in flight.
    fn has_releases(&self) -> bool {
        false
    }

    /// Returns a revoked window of the peer that no request uses, once; the link then sends the release ack.
    fn next_release(&mut self) -> Option<(WindowId, Epoch)> {
        None
    }

    /// The peer uses a revoked window of this end no more.
    fn receive_release(&mut self, id: WindowId, epoch: Epoch) {
        let _ = (id, epoch);
    }
}
