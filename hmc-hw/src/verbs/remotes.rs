//! Windows of the peer.

use hmc_core::range::{ByteRange, Extent, Side};
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

/// What requests need of a window that one key reaches.
#[derive(Clone, Copy, Debug)]
struct OpenWindow {
    window: WindowId,
    epoch: Epoch,
    extent: Extent,
    base: u64,
    key: u32,
    /// None of a window that is revoked.
    access: Access,
}

impl OpenWindow {
    const NONE: Self = Self {
        window: WindowId(0),
        epoch: Epoch(0),
        extent: Extent::new(0),
        base: 0,
        key: 0,
        access: Access::empty(),
    };

    /// Returns what [`RemoteTable::resolve`] does; `None` if it is another window, or the access is refused.
    #[inline(always)]
    fn at(&self, needed: Access, remote: &WindowSlice) -> Option<(u64, u32)> {
        let is_within = self.window == remote.window
            && self.epoch == remote.epoch
            && self.access.contains(needed)
            && self.extent.contains(remote.span);
        is_within.then(|| (remote.span.address(self.base), self.key))
    }
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
#[derive(Debug)]
pub(super) struct RemoteTable {
    entries: Vec<Option<RemoteEntry>>,
    /// That of the last request, until it changes.
    last: OpenWindow,
    /// Windows that the peer revokes while requests of this end use them: it waits for word of each.
    releases: PendingReleases,
}

impl RemoteTable {
    pub(super) fn new() -> Self {
        let releases = PendingReleases::default();
        Self { entries: Vec::new(), last: OpenWindow::NONE, releases }
    }

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
                self.last = OpenWindow::NONE;
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

    /// As [`Self::resolve`], of a request that needs these rights; `None` also if the access is refused.
    #[inline(always)]
    pub(super) fn look_up(
        &mut self,
        needed: Access,
        remote: &WindowSlice,
        lane: usize,
    ) -> Option<(u64, u32)> {
        self.last.at(needed, remote).or_else(|| self.look_up_other(needed, remote, lane))
    }

    /// As [`Self::look_up`], of a window that is not the last.
    #[inline(never)]
    fn look_up_other(
        &mut self,
        needed: Access,
        remote: &WindowSlice,
        lane: usize,
    ) -> Option<(u64, u32)> {
        let entry = self.find(remote.window).filter(|entry| !entry.is_revoked)?;
        let (base, WindowDesc { window, epoch, extent, access, .. }) = (entry.base, entry.window);
        let key = entry.key(lane, remote.span.offset())?;
        let open = OpenWindow { window, epoch, extent, base, key, access };
        if let RemoteKeys::One(_) = entry.keys {
            self.last = open;
        }
        open.at(needed, remote)
    }

    /// Checks an access as the peer's NIC will, since a refusal there ends the connection. Returns where the window's range begins in
    /// the peer's memory, and the key for the queue pair of that index; `None` if the peer has not sent it yet.
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
            self.last = OpenWindow::NONE;
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

#[cfg(test)]
mod tests {
    use hmc_core::range::Extent;
    use hmc_core::types::MemoryKind;

    use super::*;

    fn window(epoch: u32, access: Access) -> WindowDesc {
        let (extent, kind) = (Extent::new(64), MemoryKind::Cpu);
        WindowDesc { window: WindowId::new(0, 1), epoch: Epoch(epoch), extent, access, kind }
    }

    /// What the last request had is as good as the table: whatever changes there, both say the same.
    #[test]
    fn the_last_window_is_looked_up_as_any() {
        let mut table = RemoteTable::new();
        let [all, read_only] = [Access::all(), Access::READ];
        let [first, next, renewed] =
            [(1, all), (2, read_only), (3, all)].map(|(epoch, access)| window(epoch, access));
        let slices =
            |window: &WindowDesc| [(0, 8), (56, 8)].map(|(at, len)| window.slice(at, len).unwrap());
        let assert_same = |table: &mut RemoteTable, open: &[&WindowDesc]| {
            for described in [&first, &next, &renewed] {
                for (slice, needed) in
                    slices(described).into_iter().zip([Access::READ, Access::WRITE])
                {
                    let opcode = if needed == Access::READ { Opcode::Get } else { Opcode::Put };
                    let resolved = table.resolve(opcode, slice, 0).ok().flatten();
                    let is_open = open.contains(&described) && described.access.contains(needed);
                    assert_eq!(resolved.is_some(), is_open, "{described:?}");
                    // Twice: the second is that of the last request.
                    for _ in 0..2 {
                        assert_eq!(table.look_up(needed, &slice, 0), resolved, "{described:?}");
                    }
                }
            }
        };
        assert_same(&mut table, &[]);
        for (described, key) in [(&first, 7), (&next, 8), (&renewed, 9)] {
            table.add(WindowKey { window: *described, base: 1 << 20, keys: vec![key] }, 1).unwrap();
            assert_same(&mut table, &[described]);
        }
        // One that is longer than what the peer exposes, by a window of that name.
        let longer = WindowDesc { extent: Extent::new(128), ..renewed }.slice(60, 8).unwrap();
        assert_eq!(table.look_up(Access::WRITE, &longer, 0), None);
        table.revoke(renewed.window, renewed.epoch, false);
        assert_same(&mut table, &[]);
    }
}
