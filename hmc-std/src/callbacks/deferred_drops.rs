//! Drops owners of user memory, which are code of the application, on the thread that calls the session's wakers,
//! and not where a link releases their memory.
//!
//! A thread that polls a link, or releases its resources, keeps a [`DeferDrops`] meanwhile. Owners dropped in this
//! time, also under a lock, are collected and passed on at its end. If the application drops a handle itself, the
//! owner is dropped within that drop.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::callbacks::wakers::Wakers;
use crate::memory::stable::Foreign;

thread_local! {
    /// `None`: this thread collects nothing.
    static DEFERRED: RefCell<Option<Vec<Foreign>>> = const { RefCell::new(None) };
}

/// Until it is dropped, owners that this thread would drop are collected. The first one of several hands them over, so it is
/// to be made before any lock is taken.
#[derive(Debug)]
#[must_use]
pub(crate) struct DeferDrops<'a> {
    /// `None`: another one collects already.
    to: Option<&'a Arc<Wakers>>,
    /// It belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl<'a> DeferDrops<'a> {
    pub(crate) fn to(wakers: &'a Arc<Wakers>) -> Self {
        let is_first = DEFERRED.try_with(|deferred| {
            let mut deferred = deferred.borrow_mut();
            let is_first = deferred.is_none();
            // No space is made for what seldom comes.
            deferred.get_or_insert_with(Vec::new);
            is_first
        });
        Self { to: is_first.unwrap_or(false).then_some(wakers), _here: PhantomData }
    }
}

impl Drop for DeferDrops<'_> {
    fn drop(&mut self) {
        let Some(wakers) = self.to else { return };
        let all = DEFERRED.try_with(RefCell::take).ok().flatten().unwrap_or_default();
        if !all.is_empty() {
            wakers.drop_owners(all);
        }
    }
}

/// Puts an owner aside for whoever collects on this thread, or drops it if nobody does.
pub(crate) fn put(owner: Foreign) {
    let mut owner = Some(owner);
    let _ = DEFERRED.try_with(|deferred| {
        if let Some(all) = deferred.borrow_mut().as_mut() {
            all.extend(owner.take());
        }
    });
    // After the look: it may let go of other memory.
    drop(owner);
}

#[cfg(test)]
mod tests {
    use super::{DeferDrops, put};
    use crate::base::clock;
    use crate::base::wait_limit::WaitLimit;
    use crate::callbacks::wakers::Wakers;
    use crate::memory::StableBytes;
    use hmc_core::time::Duration;
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{ThreadId, current};

    /// Says where it is dropped.
    struct DropReporter(Mutex<Sender<ThreadId>>, bool);

    // SAFETY: there are no bytes.
    unsafe impl StableBytes for DropReporter {
        fn as_bytes_ptr(&self) -> (*mut u8, usize) {
            (std::ptr::null_mut(), 0)
        }
    }

    impl Drop for DropReporter {
        fn drop(&mut self) {
            let sent = self.0.lock().map(|sender| sender.send(current().id()));
            assert!(!self.1, "an owner of the test panics");
            drop(sent);
        }
    }

    fn reporter(sender: &Sender<ThreadId>, panics: bool) -> Box<DropReporter> {
        Box::new(DropReporter(Mutex::new(sender.clone()), panics))
    }

    #[test]
    fn the_first_who_collects_hands_over_to_the_thread_of_the_wakers() {
        let (sender, reported) = channel();
        let (mine, others) = (Wakers::closed(), Wakers::closed());
        put(reporter(&sender, false));
        assert_eq!(reported.try_recv(), Ok(current().id()), "nobody collects");
        let first = DeferDrops::to(&mine);
        {
            let _second = DeferDrops::to(&others);
            put(reporter(&sender, true));
        }
        put(reporter(&sender, false));
        assert!(reported.try_recv().is_err(), "before the end of the poll");
        drop(first);
        let until = WaitLimit::time(clock::now().after(Duration::from_millis(20_000)));
        assert!(mine.wait_for_owners(until, Ok(())).is_ok());
        let by: Vec<_> = reported.try_iter().collect();
        assert!(by.len() == 2 && !by.contains(&current().id()), "{by:?}");
        assert_eq!((mine.panics(), others.panics()), (1, 0));
        // That thread has ended, as the session has: there is another one.
        drop(DeferDrops::to(&mine));
        mine.drop_owners(vec![reporter(&sender, false)]);
        assert!(mine.wait_for_owners(until, Ok(())).is_ok());
        assert_eq!(reported.try_iter().count(), 1);
    }

    #[test]
    fn without_a_thread_owners_are_dropped_where_they_come_up() {
        let (sender, reported) = channel();
        let wakers = Wakers::new(true);
        let first = DeferDrops::to(&wakers);
        put(reporter(&sender, true));
        assert!(reported.try_recv().is_err());
        drop(first);
        assert_eq!(reported.try_recv(), Ok(current().id()));
        assert_eq!(wakers.panics(), 1);
        assert!(wakers.wait_for_owners(WaitLimit::time(clock::now()), Ok(())).is_ok());
    }
}
