//! Windows of the peer.

use hmc_core::range::{ByteRange, Side};
use hmc_core::region::{Epoch, WindowId, WindowSlice};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::work::{Failure, Opcode};

use super::conn_info::WindowKey;
use super::fault::VerbsFault;
use crate::releases::{MAX_KEYS, PendingReleases};

#[derive(Debug)]
struct RemoteEntry {
    key: WindowKey,
    /// The peer revokes it: nothing new is posted.
    is_revoked: bool,
}

/// The windows of one peer, by their indices.
#[derive(Debug, Default)]
pub(super) struct RemoteTable {
    entries: Vec<Option<RemoteEntry>>,
    /// Windows that the peer revokes while requests of this end use them: it waits for word of each.
    releases: PendingReleases,
}

impl RemoteTable {
    /// Adds a window that the peer has described.
    ///
    /// # Errors
    /// [`VerbsFault::UnknownWindow`].
    pub(super) fn add(&mut self, key: WindowKey) -> Result<(), VerbsFault> {
        let index = usize::from(key.window.window.index());
        if index >= MAX_KEYS {
            return Err(VerbsFault::UnknownWindow { index, limit: MAX_KEYS });
        }
        if index >= self.entries.len() {
            self.entries.resize_with(index.saturating_add(1), || None);
        }
        if let Some(entry) = self.entries.get_mut(index) {
            *entry = Some(RemoteEntry { key, is_revoked: false });
        }
        Ok(())
    }

    /// Checks an access as the peer's NIC will, since a refusal there ends the connection. Returns where the window's range begins in
    /// the peer's memory, and its key.
    #[inline]
    pub(super) fn resolve(
        &self,
        opcode: Opcode,
        remote: WindowSlice,
    ) -> Result<(u64, u32), Failure> {
        let entry = self.entries.get(usize::from(remote.window.index())).and_then(Option::as_ref);
        let Some(RemoteEntry { key, is_revoked }) =
            entry.filter(|entry| entry.key.window.window == remote.window)
        else {
            return Err(Failure::Window(WindowFault::Unknown));
        };
        let window = &key.window;
        if window.epoch != remote.epoch {
            return Err(Failure::Window(WindowFault::StaleEpoch));
        }
        if *is_revoked {
            return Err(Failure::Window(WindowFault::Revoked));
        }
        let needed = if opcode == Opcode::Get { Access::READ } else { Access::WRITE };
        if !window.access.contains(needed) {
            return Err(Failure::Window(WindowFault::Access));
        }
        let span: ByteRange = window
            .extent
            .span(Side::Remote, remote.span.offset(), remote.span.len())
            .map_err(|e| Failure::Window(WindowFault::OutOfWindow(e)))?;
        Ok((span.address(key.base), key.rkey))
    }

    /// The peer revokes a window. `is_used`: requests of this end name it, and the peer is to be told when none does.
    pub(super) fn revoke(&mut self, id: WindowId, epoch: Epoch, is_used: bool) {
        if let Some(Some(entry)) = self.entries.get_mut(usize::from(id.index()))
            && entry.key.window.window == id
        {
            entry.is_revoked = true;
        }
        if is_used {
            self.releases.add(id, epoch);
        }
    }

    /// Returns `true` if the peer revokes that window.
    pub(super) fn is_revoked(&self, id: WindowId) -> bool {
        let entry = self.entries.get(usize::from(id.index())).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.key.window.window == id && entry.is_revoked)
    }

    /// Returns `true` if the peer waits for word of windows.
    pub(super) fn has_releases(&self) -> bool {
        !self.releases.is_empty()
    }

    /// Takes the oldest revoked window that is unused.
    pub(super) fn take_release(
        &mut self,
        is_used: impl Fn(WindowId) -> bool,
    ) -> Option<(WindowId, Epoch)> {
        self.releases.take(|id| !is_used(id))
    }

    /// The link is over.
    pub(super) fn clear(&mut self) {
        self.releases.clear();
    }
}
