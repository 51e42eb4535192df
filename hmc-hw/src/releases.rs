//! Windows that the peer has revoked and that operations of this end still use.
//!
//! One entry for each index that a peer's windows can have, so a peer that revokes quickly and never reads the
//! replies uses no further memory.

use std::collections::VecDeque;

use hmc_core::region::{Epoch, WindowId};

use hmc_core::wire::held;
use hmc_core::wire::message::ControlKind;

/// Keys that a peer can have.
pub(crate) const MAX_KEYS: usize = held::of_message(ControlKind::Endpoint).count();

/// Releases that the peer waits for, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingReleases(VecDeque<(WindowId, Epoch)>);

impl PendingReleases {
    /// One more. Of several at one index the last counts: an owner uses the index again only after the release.
    pub(crate) fn add(&mut self, id: WindowId, epoch: Epoch) {
        if usize::from(id.index()) >= MAX_KEYS {
            // No window can have that name.
            return;
        }
        match self.0.iter_mut().find(|(known, _)| known.index() == id.index()) {
            Some(entry) => *entry = (id, epoch),
            None => self.0.push_back((id, epoch)),
        }
    }

    /// Takes the oldest one that is unused.
    pub(crate) fn take(
        &mut self,
        is_unused: impl Fn(WindowId) -> bool,
    ) -> Option<(WindowId, Epoch)> {
        let at = self.0.iter().position(|(id, _)| is_unused(*id))?;
        self.0.remove(at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The end of the link releases all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_KEYS, PendingReleases};
    use hmc_core::region::{Epoch, WindowId};

    #[test]
    fn an_index_has_one_release_and_it_is_the_latest() {
        let mut releases = PendingReleases::default();
        let indices = u32::try_from(MAX_KEYS).unwrap();
        for n in 0..indices * 40 {
            releases.add(WindowId(u64::from(n % indices) | u64::from(n) << 16), Epoch(n));
            assert!(releases.0.len() <= MAX_KEYS);
        }
        let all: Vec<_> = std::iter::from_fn(|| releases.take(|_| true)).collect();
        assert_eq!(all.len(), MAX_KEYS);
        assert!(all.iter().all(|(_, epoch)| epoch.0 >= indices * 39), "the latest of each");
        releases.add(WindowId(u64::from(indices)), Epoch(1));
        assert!(releases.is_empty());
    }

    #[test]
    fn one_can_be_taken_before_older_ones() {
        let mut releases = PendingReleases::default();
        for n in 0..3 {
            releases.add(WindowId(n), Epoch(7));
        }
        assert_eq!(releases.take(|id| id == WindowId(1)), Some((WindowId(1), Epoch(7))));
        assert_eq!(releases.take(|id| id == WindowId(1)), None);
        assert_eq!(releases.take(|_| true), Some((WindowId(0), Epoch(7))));
        assert!(!releases.is_empty());
        releases.clear();
        assert!(releases.is_empty());
    }
}
