//! Owners of registered memory.

pub use super::stable::{HeapBytes, StableBytes};
use crate::callbacks::deferred_drops;

/// What keeps adopted memory.
pub(super) struct Keep {
    /// `None`: the caller that registered the memory guarantees that it lasts.
    owner: Option<Box<dyn StableBytes>>,
    /// The owner is the application's.
    is_foreign: bool,
}

impl Keep {
    /// An owner of the application.
    pub(super) fn foreign(owner: Box<dyn StableBytes>) -> Self {
        Self { owner: Some(owner), is_foreign: true }
    }

    /// An owner of this library, which is dropped where its memory is let go of.
    pub(super) fn own(owner: Box<dyn StableBytes>) -> Self {
        Self { owner: Some(owner), is_foreign: false }
    }

    /// No owner.
    pub(super) fn nobody() -> Self {
        Self { owner: None, is_foreign: false }
    }

    pub(super) fn bytes(&self) -> (*mut u8, usize) {
        self.owner.as_ref().map_or((std::ptr::null_mut(), 0), |owner| owner.as_bytes_ptr())
    }

    /// The owner is never dropped: it is another process's.
    pub(super) fn leak(&mut self) {
        std::mem::forget(self.owner.take());
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take().filter(|_| self.is_foreign) {
            deferred_drops::put(owner);
        }
    }
}

impl std::fmt::Debug for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keep")
    }
}
