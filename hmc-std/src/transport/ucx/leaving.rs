//! Windows that one end takes back: the other says when nothing of its uses them any more.

use hmc_core::region::{Epoch, WindowId};
use hmc_core::window::WindowState;

use super::UcxPort;

impl UcxPort {
    /// The peer takes a window back. Whether nothing of ours uses it.
    pub(crate) fn forget_remote(&mut self, id: WindowId, epoch: Epoch) -> bool {
        let left = self.ucx.as_mut().is_none_or(|u| u.remove_window(id));
        if !left {
            // One that is used has a place.
            self.leaving.add(id, epoch);
        }
        left
    }

    /// Whether windows are to be left.
    pub(crate) fn leaves(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// A window of the peer's that nothing of ours uses any more since it was taken back.
    pub(crate) fn take_left(&mut self) -> Option<(WindowId, Epoch)> {
        let ucx = self.ucx.as_ref()?;
        self.leaving.take_if(|id| ucx.is_window_unused(id))
    }

    /// The peer uses a window of ours no more.
    pub(crate) fn note_left(&mut self, id: WindowId, epoch: Epoch) {
        let revoked =
            self.windows().entry(id, epoch).is_ok_and(|e| e.state() != WindowState::Exposed);
        if revoked && !self.left.contains(&(id, epoch)) {
            self.left.push((id, epoch));
        }
    }

    /// Whether the peer said that it uses a window no more, or cannot: its messages are kept out since the window was
    /// shut.
    pub(crate) fn has_left(&self, id: WindowId, epoch: Epoch) -> bool {
        self.left.contains(&(id, epoch)) || self.door.peer_uses_am()
    }

    /// The place of a window is free again.
    pub(crate) fn forget_left(&mut self, id: WindowId, epoch: Epoch) {
        self.left.retain(|l| *l != (id, epoch));
    }
}
