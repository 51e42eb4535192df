//! Resources that a poll releases after it unlocked the link.

use std::sync::Arc;

use super::op_resources::OpResources;
use crate::callbacks::deferred_drops::DeferDrops;
use crate::callbacks::wakers::Wakers;

const MAX_DEFERRED: usize = 8;

/// What a poll released: woken and dropped after the lock is released, since both run foreign code.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// Made when the first is kept: most polls release nothing, and to clear its space costs more than its instructions
    /// (docs/PERFORMANCE.md, "Vector units").
    holds: Option<heapless::Vec<OpResources, MAX_DEFERRED>>,
    pub(crate) finished: bool,
    /// One that ended found that the peer's process has ended.
    pub(crate) peer_dead: bool,
    pub(crate) delivered: bool,
    /// Something came on the data plane's socket.
    pub(crate) came: bool,
}

impl Deferred {
    pub(crate) fn is_full(&self) -> bool {
        self.holds.as_ref().is_some_and(heapless::Vec::is_full)
    }

    /// Takes it along. Not to be called when it is full.
    pub(super) fn keep(&mut self, hold: OpResources) {
        if !hold.is_empty() {
            let kept = self.holds.get_or_insert_with(heapless::Vec::new).push(hold);
            debug_assert!(kept.is_ok(), "who keeps looks whether there is space");
        }
    }

    /// Wakes and drops what was kept.
    pub(crate) fn release(&mut self, wakers: &Arc<Wakers>) {
        let Some(holds) = &mut self.holds else { return };
        let _aside = DeferDrops::to(wakers);
        for place in &mut *holds {
            // In place: their space is not worth moving.
            let mut hold = std::mem::take(place);
            let notice = hold.waker.take();
            drop(hold);
            if let Some(notice) = notice {
                wakers.notify(notice);
            }
        }
        holds.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use super::{Deferred, MAX_DEFERRED};
    use crate::callbacks::wakers::{Notice, Wakers};
    use crate::io::eventfd::EventfdWaker;
    use crate::link::op_resources::OpResources;
    use crate::link::transfer_list::TransferList;
    use crate::memory::RegionTable;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn whatever_an_operation_holds_is_taken_along() {
        let region = Arc::new(RegionTable::default()).allocate(1).expect("memory");
        let span = Arc::new(RegionTable::default()).allocate(1).expect("memory").take_all();
        let waker = Some(Notice::User(Waker::noop().clone()));
        let holds = [
            OpResources::region(region),
            OpResources::span(span.expect("a span")),
            OpResources::list(Arc::new(TransferList::empty())),
            OpResources::waker(waker),
        ];
        let kept = |after: &Deferred| after.holds.as_ref().map_or(0, |h| h.len());
        for hold in holds {
            let mut after = Deferred::default();
            after.keep(OpResources::default());
            assert_eq!(kept(&after), 0, "there is nothing to let go of");
            after.keep(hold);
            assert_eq!(kept(&after), 1);
            after.release(&Wakers::closed());
            assert_eq!(kept(&after), 0);
        }
    }

    #[test]
    fn what_was_kept_is_woken_and_dropped_when_it_is_released() {
        let mut after = Deferred::default();
        let list = Arc::new(TransferList::empty());
        let waker = EventfdWaker::new().expect("a descriptor");
        for n in 0..MAX_DEFERRED {
            assert!(!after.is_full(), "{n} are kept");
            let waker = (n == 0).then(|| Notice::Own(Arc::clone(&waker)));
            let mut hold = OpResources::list(Arc::clone(&list));
            hold.waker = waker;
            after.keep(hold);
        }
        assert!(after.is_full());
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let woken = || poll(&mut [PollFd::new(&waker, PollFlags::IN)], Some(&now)) == Ok(1);
        assert!(!woken());
        after.release(&Wakers::closed());
        assert!(woken() && !after.is_full());
        assert_eq!((Arc::strong_count(&list), Arc::strong_count(&waker)), (1, 1));
    }
}
