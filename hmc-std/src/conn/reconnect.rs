//! The lives of the peers as the registry judges them, and when a lost one is dialed again.

use std::sync::atomic::Ordering;

use hmc_core::time::Instant;
use hmc_core::types::Rank;

use crate::base::clock;
use crate::base::lock::lock;
use crate::node::membership::{Input, Output};
use crate::state::inner::SessionInner;

impl SessionInner {
    /// Judges and records a change of the peers' lives.
    pub(crate) fn decide(&self, input: Input) -> Output {
        let output = {
            let mut registry = lock(&self.registry);
            let output = registry.handle(input, clock::now());
            let at = registry.next_deadline().as_nanos();
            if at < self.redial_at.swap(at, Ordering::AcqRel) {
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

    /// When [`SessionInner::due_redial`] may have something to say.
    pub(crate) fn redial_at(&self) -> Instant {
        Instant::from_nanos(self.redial_at.load(Ordering::Acquire))
    }

    /// A lost peer whose time to be dialed again has come.
    pub(crate) fn due_redial(&self, now: Instant) -> Option<Rank> {
        if self.redial_at() > now {
            return None;
        }
        match self.decide(Input::Tick) {
            Output::Reconnect(rank) => Some(rank),
            _ => None,
        }
    }
}
