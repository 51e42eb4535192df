//! What operations keep alive, and what a turn sets free.

use std::sync::Arc;
use std::task::Waker;

use hmc_core::lane::Transfer;

use crate::memory::{Region, Span};

/// What one operation keeps alive until its fence.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    pub(crate) region: Option<Region>,
    pub(crate) span: Option<Span>,
    pub(crate) list: Option<Arc<[Transfer]>>,
    pub(crate) fed: usize,
    pub(crate) waker: Option<Waker>,
}

impl Hold {
    fn is_empty(&self) -> bool {
        self.region.is_none() && self.span.is_none() && self.list.is_none() && self.waker.is_none()
    }
}

const AFTER: usize = 8;

/// What a turn set free: woken and dropped after the lock is released, since both run foreign code.
#[derive(Debug, Default)]
pub(crate) struct Aftermath {
    holds: [Hold; AFTER],
    used: usize,
    pub(crate) finished: bool,
    pub(crate) delivered: bool,
}

impl Aftermath {
    pub(crate) fn is_full(&self) -> bool {
        self.used == AFTER
    }

    pub(super) fn keep(&mut self, hold: Hold) {
        if hold.is_empty() {
            return;
        }
        if let Some(place) = self.holds.get_mut(self.used) {
            *place = hold;
            self.used = self.used.saturating_add(1);
        }
    }

    pub(crate) fn release(self) {
        for hold in self.holds.into_iter().take(self.used) {
            if let Some(w) = hold.waker {
                w.wake();
            }
        }
    }
}
