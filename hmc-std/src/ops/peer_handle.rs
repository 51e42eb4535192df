//! A handle of one peer.

use std::sync::Arc;

use hmc_core::region::WindowDesc;
use hmc_core::types::{ConnType, Rank};

use crate::base::error::{Error, ErrorKind, Result};
use crate::link::{Link, LinkState};
use crate::state::inner::SessionInner;

/// A connected peer. Clones are handles of the same connection; all methods may be called by several threads at a time.
///
/// Transfers go to its windows: [`Peer::buffer`], [`Peer::window`]. A handle belongs to one incarnation of the peer: after its end
/// every call fails with `PeerDead`, even if the peer has reconnected. [`Session::peer`](crate::Session::peer) returns a new handle
/// then.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) link: Arc<Link>,
    pub(crate) shared: Arc<SessionInner>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.shared.origin.is_child() {
            // Sockets, mappings and objects of vendors' libraries are the parent's: in a child neither count reaches zero.
            std::mem::forget((Arc::clone(&self.link), Arc::clone(&self.shared)));
        }
    }
}

/// Two handles are equal if they belong to the same session and the same incarnation of a peer.
impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.link, &other.link)
    }
}

impl Eq for Peer {}

impl Peer {
    /// Returns the peer's rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.link.peer
    }

    /// Returns `true` if the link can be used.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shared.check_process().is_ok() && self.link.state() == LinkState::Ready
    }

    /// The transport that moves the bytes, as told by itself.
    pub(crate) fn conn(&self) -> Option<ConnType> {
        // In a forked child nobody may hold the lock any more.
        if self.shared.origin.is_child() { None } else { self.link.data().plane().kind() }
    }

    pub(crate) fn default_remote(&self) -> Result<WindowDesc> {
        self.shared.check_process()?;
        self.link.data().default_remote().ok_or_else(|| self.no_buffer())
    }

    pub(crate) fn no_buffer(&self) -> Error {
        if self.link.state() == LinkState::Dead {
            return self.link.gone();
        }
        Error::new(ErrorKind::NotFound, "the peer exposes no buffer").with_peer(self.rank())
    }
}
