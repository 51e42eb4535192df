//! Release acks (REVOKED) to be sent: windows that the peer revoked and this end no longer uses.
//!
//! One entry for each index of a window, so a peer that revokes quickly and never reads the replies uses no further
//! memory.

use std::collections::VecDeque;

use hmc_core::region::{Epoch, WindowId};
use hmc_core::wire::held;
use hmc_core::wire::message::ControlKind;

/// How many there can be.
const PLACES: usize = held::of_message(ControlKind::Revoke).count();

/// Release acks that are not sent yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingReleases {
    windows: VecDeque<(WindowId, Epoch)>,
}

impl PendingReleases {
    /// One more. Of several at one place the last counts: an owner who waits for the ack uses the place only after it.
    /// `false`: no window can have that name.
    pub(crate) fn add(&mut self, id: WindowId, epoch: Epoch) -> bool {
        if usize::from(id.index()) >= PLACES {
            return false;
        }
        match self.windows.iter_mut().find(|(known, _)| known.index() == id.index()) {
            Some(place) => *place = (id, epoch),
            None => self.windows.push_back((id, epoch)),
        }
        true
    }

    /// The next one, which is sent now.
    pub(crate) fn take(&mut self) -> Option<(WindowId, Epoch)> {
        self.windows.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{PLACES, PendingReleases};
    use hmc_core::region::{Epoch, WindowId};

    #[test]
    fn a_place_has_one_answer_and_it_is_the_latest() {
        let mut releases = PendingReleases::default();
        for n in 0..10_000u32 {
            let place = u64::from(n) % u64::try_from(PLACES).expect("small");
            assert!(releases.add(WindowId(place | u64::from(n) << 16), Epoch(n)));
            assert!(releases.windows.len() <= PLACES);
        }
        let taken: Vec<_> = std::iter::from_fn(|| releases.take()).collect();
        assert_eq!(taken.len(), PLACES);
        assert!(taken.iter().all(|(_, epoch)| epoch.0 >= 10_000 - 256), "the latest of each");
        assert!(!releases.add(WindowId(u64::try_from(PLACES).expect("small")), Epoch(1)));
    }
}
