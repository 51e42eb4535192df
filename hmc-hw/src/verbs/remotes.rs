//! Windows of the peer.

use hmc_core::range::{ByteRange, Side};
use hmc_core::region::{Epoch, WindowDesc, WindowId, WindowSlice};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::work::{Failure, Opcode};

use super::conn_info::WindowKey;
use super::fault::VerbsFault;
use super::window_parts::{part_count, part_of};
use crate::releases::{MAX_KEYS, PendingReleases};

/// By which key a window is reached.
#[derive(Debug)]
enum RemoteKeys {
    /// The peer sends them later.
    Pending,
    /// All of it, by all queue pairs.
    One(u32),
    /// All of it, by each queue pair.
    Lanes(Box<[u32]>),
    /// Each part, by each of so many queue pairs.
    Each(Box<[u32]>, usize),
}

#[derive(Debug)]
struct RemoteEntry {
    window: WindowDesc,
    /// Where it begins in its owner's address space.
    base: u64,
    keys: RemoteKeys,
    /// The peer revokes it: nothing new is posted.
    is_revoked: bool,
}

impl RemoteEntry {
    /// Returns the key for an access at that offset, by the queue pair of that index.
    #[inline]
    fn key(&self, lane: usize, offset: u64) -> Option<u32> {
        if let RemoteKeys::One(key) = &self.keys {
            return Some(*key);
        }
        self.key_of(lane, offset)
    }

    /// As [`Self::key`], if there is no key or there are several.
    fn key_of(&self, lane: usize, offset: u64) -> Option<u32> {
        match &self.keys {
            RemoteKeys::Pending => None,
            RemoteKeys::One(key) => Some(*key),
            RemoteKeys::Lanes(keys) => keys.get(lane).copied(),
            RemoteKeys::Each(keys, lanes) => {
                let part = usize::try_from(part_of(self.window.extent.len(), offset)).ok()?;
                keys.chunks(*lanes).nth(part)?.get(lane).copied()
            }
        }
    }
}

/// Returns `true` if `epoch` came before `other`. The epochs of an index count up, and around.
fn is_before(epoch: Epoch, other: Epoch) -> bool {
    other.0.wrapping_sub(epoch.0).cast_signed() > 0
}

/// The windows of one peer, by their indices.
#[derive(Debug, Default)]
pub(super) struct RemoteTable {
    entries: Vec<Option<RemoteEntry>>,
    /// Windows that the peer revokes while requests of this end use them: it waits for word of each.
    releases: PendingReleases,
}

impl RemoteTable {
    /// Adds a window that the peer has described, or the keys to one, for a link of so many queue pairs.
    ///
    /// # Errors
    /// [`VerbsFault::UnknownWindow`], [`VerbsFault::Keys`].
    pub(super) fn add(&mut self, key: WindowKey, lanes: usize) -> Result<(), VerbsFault> {
        let WindowKey { window, base, keys } = key;
        let index = usize::from(window.window.index());
        if index >= MAX_KEYS {
            return Err(VerbsFault::UnknownWindow { index, limit: MAX_KEYS });
        }
        if index >= self.entries.len() {
            self.entries.resize_with(index.saturating_add(1), || None);
        }
        let wanted =
            part_count(window.extent.len()).saturating_mul(u64::try_from(lanes).unwrap_or(0));
        let keys = match keys[..] {
            [] => RemoteKeys::Pending,
            [key] => RemoteKeys::One(key),
            _ if keys.len() == lanes => RemoteKeys::Lanes(keys.into()),
            _ if u64::try_from(keys.len()) == Ok(wanted) => RemoteKeys::Each(keys.into(), lanes),
            _ => return Err(VerbsFault::Keys { count: keys.len(), wanted }),
        };
        if let Some(entry) = self.entries.get_mut(index) {
            let name = (window.window, window.epoch);
            // What was there before: the thread that sends keys later may be behind the one that has exposed the next window.
            if entry.as_ref().is_some_and(|now| is_before(name.1, now.window.epoch)) {
                return Ok(());
            }
            let old = entry.as_ref().filter(|old| (old.window.window, old.window.epoch) == name);
            // Keys that come late do not undo that it is revoked.
            let is_revoked = old.is_some_and(|old| old.is_revoked);
            // The threads that send that there will be keys, and the keys, may pass each other.
            let has_keys = old.is_some_and(|old| !matches!(old.keys, RemoteKeys::Pending));
            if !(has_keys && matches!(keys, RemoteKeys::Pending)) {
                *entry = Some(RemoteEntry { window, base, keys, is_revoked });
            }
        }
        Ok(())
    }

    #[inline]
    fn find(&self, id: WindowId) -> Option<&RemoteEntry> {
        let entry = self.entries.get(usize::from(id.index())).and_then(Option::as_ref);
        entry.filter(|entry| entry.window.window == id)
    }

    /// Checks an access as the peer's NIC will, since a refusal there ends the connection. Returns where the window's range begins in
    /// the peer's memory, and the key for the queue pair of that index; `None` if the peer has not sent it yet.
    #[inline]
    pub(super) fn resolve(
        &self,
        opcode: Opcode,
        remote: WindowSlice,
        lane: usize,
    ) -> Result<Option<(u64, u32)>, Failure> {
        let Some(entry) = self.find(remote.window) else {
            return Err(Failure::Window(WindowFault::Unknown));
        };
        let window = &entry.window;
        if window.epoch != remote.epoch {
            return Err(Failure::Window(WindowFault::StaleEpoch));
        }
        if entry.is_revoked {
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
        let key = entry.key(lane, span.offset());
        Ok(key.map(|key| (span.address(entry.base), key)))
    }

    /// Returns the key for an access at an address of a window's memory, by the queue pair of that index.
    pub(super) fn key_at(&self, id: WindowId, address: u64, lane: usize) -> Option<u32> {
        let entry = self.find(id)?;
        entry.key(lane, address.saturating_sub(entry.base))
    }

    /// The peer revokes a window. `is_used`: requests of this end name it, and the peer is to be told when none does.
    pub(super) fn revoke(&mut self, id: WindowId, epoch: Epoch, is_used: bool) {
        if let Some(Some(entry)) = self.entries.get_mut(usize::from(id.index()))
            && entry.window.window == id
        {
            entry.is_revoked = true;
        }
        if is_used {
            self.releases.add(id, epoch);
        }
    }

    /// Returns `true` if the peer revokes that window.
    pub(super) fn is_revoked(&self, id: WindowId) -> bool {
        self.find(id).is_some_and(|entry| entry.is_revoked)
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
