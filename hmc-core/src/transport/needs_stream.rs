//! A data plane that moves bytes and needs a stream for tags.

use super::data_plane::DataPlane;
use crate::work::WorkRequest;

/// How the peer accesses memory of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAccess {
    /// Not known yet: the counterpart's note has not come. The counterpart may have this end's.
    Unknown,
    /// Through a device, or by messages. The end of this data plane ends it.
    Remote,
    /// If it is a process of this system, by copies of its own, which only its end or its word ends. With the number of the process,
    /// if that means something here.
    Process(Option<u32>),
}

/// A data plane that needs a stream beside it: for the tags of its puts, and to see the end of the peer.
///
/// The layer that has both implements the rest: it has the table of windows, and calls [`Target::close_window`] and
/// [`Target::forget_window`] where the data plane alone would apply a transition to its own. The data plane takes puts with a tag
/// although its capabilities lack [`Caps::NOTIFY`].
///
/// [`Target::close_window`]: super::Target::close_window
/// [`Target::forget_window`]: super::Target::forget_window
/// [`Caps::NOTIFY`]: crate::types::Caps::NOTIFY
pub trait NeedsStream: DataPlane {
    /// Puts with a tag that can be under way whose tags the layer sends.
    const MAX_NOTIFIES: usize;

    /// How the peer accesses memory of this end.
    fn peer_access(&self) -> PeerAccess;

    /// Returns a put whose bytes are visible and whose tag the layer is to send, once. The layer completes it.
    fn take_notify(&mut self) -> Option<WorkRequest>;

    /// Whether nothing that this end has begun is under way, as far as is known without progress.
    fn is_idle(&self) -> bool;

    /// Whether windows are open to the peer, or were and are not forgotten.
    fn has_windows(&self) -> bool;

    /// Whether the data plane is down and refuses each access of the peer by itself, so that the end of the peer's process does not
    /// matter.
    fn is_shut(&self) -> bool;

    /// Whether all that the peer has sent has arrived. The layer asks once the peer sends nothing more. Makes progress for it.
    fn has_drained(&mut self) -> bool;
}
