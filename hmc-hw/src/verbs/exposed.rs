//! Windows that are exposed to the peer.

use hmc_core::region::{Epoch, WindowId};
use hmc_core::time::{Duration, Instant};

use super::objects::MemoryRegion;

/// How long a revoked window stays open to what the peer has posted already. Accesses that come later end the connection, so this is
/// as long as a live process may be kept from running: less than the silence after which the peer counts as dead.
pub(super) const GRACE: Duration = Duration::from_millis(1000);

/// A window of this end.
#[derive(Debug)]
struct ExposedWindow {
    name: (WindowId, Epoch),
    /// Its registration: of its bytes alone, with its rights. A window without bytes has none, nor one that nobody can access any more.
    region: Option<MemoryRegion>,
    /// When it was revoked.
    revoked: Option<Instant>,
}

/// The windows that are exposed to one peer, by their indices.
#[derive(Debug, Default)]
pub(super) struct ExposedWindows(Vec<Option<ExposedWindow>>);

impl ExposedWindows {
    /// Adds a window. Returns the registration of the one that was in its place.
    pub(super) fn open(
        &mut self,
        id: WindowId,
        epoch: Epoch,
        region: Option<MemoryRegion>,
    ) -> Option<MemoryRegion> {
        let index = usize::from(id.index());
        if index >= self.0.len() {
            self.0.resize_with(index.saturating_add(1), || None);
        }
        let window = ExposedWindow { name: (id, epoch), region, revoked: None };
        self.0.get_mut(index)?.replace(window)?.region
    }

    fn find(&mut self, id: WindowId, epoch: Epoch) -> Option<&mut ExposedWindow> {
        let entry = self.0.get_mut(usize::from(id.index()))?.as_mut();
        entry.filter(|window| window.name == (id, epoch))
    }

    /// A window is revoked: it is closed when the peer has said that it uses it no more, or [`GRACE`] later.
    pub(super) fn revoke(&mut self, id: WindowId, epoch: Epoch, now: Instant) {
        if let Some(window) = self.find(id, epoch) {
            window.revoked.get_or_insert(now);
        }
    }

    /// The peer says that it uses a revoked window no more. Returns its registration, whose end is the fence.
    pub(super) fn release(&mut self, id: WindowId, epoch: Epoch) -> Option<MemoryRegion> {
        self.find(id, epoch).filter(|window| window.revoked.is_some())?.region.take()
    }

    /// Returns the registrations of windows that were revoked [`GRACE`] ago.
    pub(super) fn expired(&mut self, now: Instant) -> impl Iterator<Item = MemoryRegion> + '_ {
        self.0.iter_mut().flatten().filter_map(move |window| {
            let is_over = window.revoked.is_some_and(|since| now.since(since) >= GRACE);
            if is_over { window.region.take() } else { None }
        })
    }

    /// Returns `true` if some window was revoked and can still be accessed.
    pub(super) fn has_revoked(&self) -> bool {
        self.0.iter().flatten().any(|window| window.revoked.is_some() && window.region.is_some())
    }

    /// Returns `true` if nobody can access that window any more.
    pub(super) fn is_closed(&self, id: WindowId, epoch: Epoch) -> bool {
        let entry = self.0.get(usize::from(id.index())).and_then(Option::as_ref);
        entry.is_none_or(|window| window.name != (id, epoch) || window.region.is_none())
    }

    /// Removes a window. Returns its registration, if it has one.
    pub(super) fn forget(&mut self, id: WindowId, epoch: Epoch) -> Option<MemoryRegion> {
        let entry = self.0.get_mut(usize::from(id.index()))?;
        entry.take_if(|window| window.name == (id, epoch))?.region
    }

    /// Removes all registrations.
    pub(super) fn close_all(&mut self) -> Vec<MemoryRegion> {
        self.0.iter_mut().flatten().filter_map(|window| window.region.take()).collect()
    }

    /// Returns `true` if any has a registration.
    pub(super) fn has_memory(&self) -> bool {
        self.0.iter().flatten().any(|window| window.region.is_some())
    }
}
