//! What operations keep alive, and what a turn sets free.

use std::sync::Arc;

use hmc_core::queue::Transfer;

use crate::aside::Collects;
use crate::memory::{Region, Span};
use crate::wakers::{Notice, Wakers};

/// What one operation keeps alive until its fence.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    pub(crate) region: Option<Region>,
    pub(crate) span: Option<Span>,
    pub(crate) list: Option<Arc<[Transfer]>>,
    pub(crate) fed: usize,
    pub(crate) waker: Option<Notice>,
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
    /// Made when the first is kept: most turns free nothing, and to clear its room costs more than its instructions
    /// (docs/PERFORMANCE.md, "Vector units").
    holds: Option<heapless::Vec<Hold, AFTER>>,
    pub(crate) finished: bool,
    /// One that ended found that the peer's process has ended.
    pub(crate) peer_dead: bool,
    pub(crate) delivered: bool,
    /// Something came on the data plane's socket.
    pub(crate) came: bool,
}

impl Aftermath {
    pub(crate) fn is_full(&self) -> bool {
        self.holds.as_ref().is_some_and(heapless::Vec::is_full)
    }

    /// Takes it along. Not to be called when it is full.
    pub(super) fn keep(&mut self, hold: Hold) {
        if !hold.is_empty() {
            let kept = self.holds.get_or_insert_with(heapless::Vec::new).push(hold);
            debug_assert!(kept.is_ok(), "who keeps looks whether there is room");
        }
    }

    /// Wakes and drops what was kept.
    pub(crate) fn release(&mut self, wakers: &Arc<Wakers>) {
        let Some(holds) = &mut self.holds else { return };
        let _aside = Collects::to(wakers);
        for place in &mut *holds {
            // In place: their room is not worth moving.
            let mut hold = std::mem::take(place);
            let notice = hold.waker.take();
            drop(hold);
            match notice {
                Some(Notice::Own(waker)) => waker.wake(),
                Some(Notice::User(waker)) => wakers.wake(waker),
                None => {}
            }
        }
        holds.clear();
    }
}
