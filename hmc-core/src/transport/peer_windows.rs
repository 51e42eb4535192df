//! Windows of the peer: mapped, or accessed by messages.

use crate::region::{Epoch, LocalSlice, WindowId, WindowSlice};
use crate::work::{Opcode, Transfer};

/// The peer's windows.
pub trait PeerWindows {
    /// The host's handle of a window whose pages are mapped here. Copies through it need no data plane.
    type Mapped;

    /// Returns a window of the peer if its pages are mapped here.
    fn mapped(&self, id: WindowId, epoch: Epoch) -> Option<&Self::Mapped> {
        let _ = (id, epoch);
        None
    }

    /// Returns the puts and gets that went through [`Self::Mapped`].
    fn mapped_counts(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Whether it is known if the window, whose owner can pass its pages, is mapped here or not.
    fn is_settled(&self, id: WindowId, epoch: Epoch) -> bool {
        let _ = (id, epoch);
        true
    }

    /// The peer revokes a window: later requests for it are refused. Returns whether no request in flight uses it; if one does,
    /// `Notes::next_release` returns the window once none does.
    fn remove_window(&mut self, id: WindowId, epoch: Epoch) -> bool;

    /// Does a whole small transfer in the call, without a completion. Returns `false` if it must be posted, even if it fails then.
    fn try_transfer(&mut self, opcode: Opcode, local: LocalSlice, remote: WindowSlice) -> bool {
        let _ = (opcode, local, remote);
        false
    }

    /// Does all small transfers of a list in the call. Returns `false` if all of them must be posted: some may have been done, and
    /// are done again.
    fn try_transfer_list(&mut self, list: &[Transfer]) -> bool {
        let _ = list;
        false
    }
}
