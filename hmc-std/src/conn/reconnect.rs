//! The incarnations of peers that the membership admits, and the times at which lost peers are dialed again.

use std::sync::atomic::Ordering;

use hmc_core::time::Instant;
use hmc_core::types::Rank;

use crate::base::lock::lock;
use crate::node::membership::{Input, Output};
use crate::state::inner::SessionInner;

impl SessionInner {
    /// Checks and records a change of the peers' incarnations.
    pub(crate) fn update_membership(&self, input: Input) -> Output {
        let output = {
            let mut registry = lock(&self.registry);
            let output = registry.handle(input, self.clock.now());
            let at = registry.next_deadline().as_nanos();
            if at < self.reconnect_at.swap(at, Ordering::AcqRel) {
                // The engine may sleep for longer than that.
                self.reactor.wake();
            }
            output
        };
        if matches!(input, Input::DialFailed { .. }) {
            // Who waited for that dial may dial now.
            self.notify_waiters();
        }
        output
    }

    /// When [`SessionInner::next_reconnect`] may have something to say.
    pub(crate) fn reconnect_at(&self) -> Instant {
        Instant::from_nanos(self.reconnect_at.load(Ordering::Acquire))
    }

    /// A lost peer whose time to be dialed again has come.
    pub(crate) fn next_reconnect(&self, now: Instant) -> Option<Rank> {
        if self.reconnect_at() > now {
            return None;
        }
        match self.update_membership(Input::Tick) {
            Output::Reconnect(rank) => Some(rank),
            _ => None,
        }
    }
}
