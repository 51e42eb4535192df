//! Windows that are exposed to the peer.

use std::sync::Arc;

use hmc_core::region::{Epoch, WindowId};

use crate::ucx::memory::Memory;

/// Until when the peer may use a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Revoked: the peer may still access it.
    Closed,
    /// The peer has said that it uses the window no more.
    Released,
}

#[derive(Debug)]
struct ExposedWindow {
    name: (WindowId, Epoch),
    state: State,
    /// Its registration. A window without bytes has none.
    memory: Option<Arc<Memory>>,
}

/// The windows that are exposed to one peer, by their indices.
#[derive(Debug, Default)]
pub(super) struct ExposedWindows(Vec<Option<ExposedWindow>>);

impl ExposedWindows {
    /// Adds a window.
    pub(super) fn open(&mut self, id: WindowId, epoch: Epoch, memory: Option<Arc<Memory>>) {
        let index = usize::from(id.index());
        if index >= self.0.len() {
            self.0.resize_with(index.saturating_add(1), || None);
        }
        if let Some(entry) = self.0.get_mut(index) {
            *entry = Some(ExposedWindow { name: (id, epoch), state: State::Open, memory });
        }
    }

    fn find(&mut self, id: WindowId, epoch: Epoch) -> Option<&mut ExposedWindow> {
        let entry = self.0.get_mut(usize::from(id.index()))?.as_mut();
        entry.filter(|window| window.name == (id, epoch))
    }

    /// A window is revoked.
    pub(super) fn close(&mut self, id: WindowId, epoch: Epoch) {
        if let Some(window) = self.find(id, epoch).filter(|window| window.state == State::Open) {
            window.state = State::Closed;
        }
    }

    /// The peer says that it uses a revoked window no more.
    pub(super) fn release(&mut self, id: WindowId, epoch: Epoch) {
        if let Some(window) = self.find(id, epoch).filter(|window| window.state == State::Closed) {
            window.state = State::Released;
        }
    }

    /// Whether the peer has said so.
    pub(super) fn is_released(&self, id: WindowId, epoch: Epoch) -> bool {
        let entry = self.0.get(usize::from(id.index())).and_then(Option::as_ref);
        entry.is_some_and(|window| window.name == (id, epoch) && window.state == State::Released)
    }

    /// Removes a window.
    pub(super) fn forget(&mut self, id: WindowId, epoch: Epoch) {
        if let Some(entry) = self.0.get_mut(usize::from(id.index()))
            && entry.as_ref().is_some_and(|window| window.name == (id, epoch))
        {
            *entry = None;
        }
    }

    /// Whether any has a registration.
    pub(super) fn has_memory(&self) -> bool {
        self.0.iter().flatten().any(|window| window.memory.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::ExposedWindows;
    use hmc_core::region::{Epoch, WindowId};

    #[test]
    fn only_a_revoked_window_is_released_and_by_its_name() {
        let (id, epoch) = (WindowId::new(2, 77 << 16), Epoch(5));
        let mut exposed = ExposedWindows::default();
        exposed.release(id, epoch);
        exposed.open(id, epoch, None);
        exposed.release(id, epoch);
        assert!(!exposed.is_released(id, epoch), "it is not revoked");
        exposed.close(id, epoch);
        for other in [
            (WindowId::new(2, 78 << 16), epoch),
            (id, Epoch(4)),
            (WindowId::new(3, 77 << 16), epoch),
        ] {
            exposed.release(other.0, other.1);
            exposed.forget(other.0, other.1);
        }
        assert!(!exposed.is_released(id, epoch), "other names");
        exposed.release(id, epoch);
        // A second revocation changes nothing.
        exposed.close(id, epoch);
        assert!(exposed.is_released(id, epoch));
        assert!(
            !exposed.is_released(id, Epoch(4))
                && !exposed.is_released(WindowId::new(9, 77 << 16), epoch)
        );
        exposed.forget(id, epoch);
        assert!(!exposed.is_released(id, epoch) && !exposed.has_memory());
    }
}
