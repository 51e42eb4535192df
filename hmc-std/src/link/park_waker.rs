//! The waker of a caller that waits for several links, a thread or a task, and the links that use it.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use rustix::event::EventfdFlags;

use crate::base::error::{Error, Result};
use crate::base::lock::lock;
use crate::callbacks::wakers::Wakers;

/// What wakes a caller that waits for several links.
#[derive(Debug)]
pub(crate) struct ParkWaker {
    /// Its owner sleeps on `fd`, or is about to. Touched by read-modify-writes alone, which stand in one order: a thread that
    /// wakes before the owner parks has done before what it wakes for, and the look after that finds it; one that wakes later
    /// finds the owner parked.
    parked: AtomicBool,
    pub(super) fd: OwnedFd,
    /// Its owner is a task, which has this waker.
    task: Mutex<Option<Waker>>,
}

impl ParkWaker {
    /// # Errors
    /// `SystemLimit` when descriptors are used up.
    pub(crate) fn new() -> Result<Arc<Self>> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| Arc::new(Self { parked: AtomicBool::new(false), fd, task: Mutex::default() }))
            .map_err(|e| Error::io("cannot create an eventfd to wait on", e))
    }

    /// Wakes its owner, if that sleeps: a task by `wakers`.
    pub(crate) fn wake(&self, wakers: &Wakers) {
        if !self.parked.swap(false, Ordering::AcqRel) {
            return;
        }
        let task = lock(&self.task).take();
        if let Some(task) = task {
            wakers.wake(task);
        } else {
            // eventfd(2): fails only when the counter is full, and then the descriptor is readable already.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Its owner is about to sleep: look once more after this.
    pub(super) fn park(&self) {
        self.parked.swap(true, Ordering::AcqRel);
    }

    /// Its owner is the task of `waker`, which is about to be pending: look once more after this.
    pub(crate) fn park_task(&self, waker: &Waker) {
        // Wakers are cloned and dropped without a lock.
        let waker = Some(waker.clone());
        let before = std::mem::replace(&mut *lock(&self.task), waker);
        drop(before);
        self.park();
    }

    /// The task is not pending any more.
    pub(crate) fn unpark_task(&self) {
        self.parked.swap(false, Ordering::AcqRel);
        let task = lock(&self.task).take();
        drop(task);
    }

    /// Returns whether nothing has woken its owner since that parked.
    pub(super) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Acquire)
    }

    /// Its owner is awake.
    pub(super) fn unpark(&self) {
        if !self.parked.swap(false, Ordering::AcqRel) {
            // What has not been written yet ends the next sleep once, for nothing.
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.fd, &mut count);
        }
    }
}

/// The wakers of one link: woken when a message ended or has bytes for borrowed memory, and when the link died.
#[derive(Debug, Default)]
pub(crate) struct WakerList(Mutex<Vec<Arc<ParkWaker>>>);

impl WakerList {
    /// Has `waker` woken from now on: look once more after this.
    pub(crate) fn register(&self, waker: &Arc<ParkWaker>) {
        lock(&self.0).push(Arc::clone(waker));
    }

    /// Has `waker` woken no more.
    pub(crate) fn deregister(&self, waker: &Arc<ParkWaker>) {
        lock(&self.0).retain(|w| !Arc::ptr_eq(w, waker));
    }

    pub(super) fn wake(&self, wakers: &Wakers) {
        for waker in &*lock(&self.0) {
            waker.wake(wakers);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::{ParkWaker, WakerList};
    use crate::callbacks::wakers::Wakers;

    fn is_set(waker: &ParkWaker) -> bool {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&waker.fd, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    #[test]
    fn a_waker_wakes_an_owner_that_sleeps_and_no_other() {
        let wakers = Wakers::closed();
        let waker = ParkWaker::new().expect("a descriptor");
        waker.wake(&wakers);
        assert!(!is_set(&waker) && !waker.is_parked(), "its owner is awake");
        for _ in 0..2 {
            waker.park();
            assert!(!is_set(&waker) && waker.is_parked());
            waker.wake(&wakers);
            assert!(is_set(&waker) && !waker.is_parked());
            waker.wake(&wakers);
            waker.unpark();
            assert!(!is_set(&waker), "its owner was awake before the second call");
        }
        // Nobody woke it.
        waker.park();
        waker.unpark();
        assert!(!is_set(&waker) && !waker.is_parked());
    }

    #[test]
    fn the_wakers_of_a_link_are_called_while_they_are_registered() {
        let (list, all) =
            (WakerList::default(), [(); 3].map(|()| ParkWaker::new().expect("a waker")));
        let woken = || all.each_ref().map(|b| is_set(b));
        all.iter().for_each(|waker| list.register(waker));
        list.deregister(&all[1]);
        all.iter().for_each(|waker| waker.park());
        list.wake(&Wakers::closed());
        assert_eq!(woken(), [true, false, true]);
        list.deregister(&all[0]);
        assert_eq!(all.each_ref().map(Arc::strong_count), [1, 1, 2]);
    }
}
