//! Who hears of a link's completions: a caller that waits, or the session's thread.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::event::EventType;
use super::fault::VerbsFault;
use super::objects::CompletionQueue;
use crate::host::{Event, Host, Notify, SharedWorker};

/// The completion queue of a link, and who sleeps on it.
///
/// An event tells of completions that were added after the queue was armed, and of no others: whoever arms it looks at it once more
/// before it sleeps.
pub struct LinkWorker {
    cq: Arc<CompletionQueue>,
    host: Arc<dyn Host>,
    /// The number under which the host watches the channel.
    number: u32,
    /// Only callers look at completions.
    is_manual: bool,
    /// Callers that wait and look at completions themselves.
    claims: AtomicUsize,
    /// The next completion makes an event.
    is_armed: AtomicBool,
    /// The asynchronous event that has ended the link, plus one; 0 if none has.
    ended_by: AtomicU64,
    notify: Box<dyn Notify>,
}

impl fmt::Debug for LinkWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkWorker").field("number", &self.number).finish_non_exhaustive()
    }
}

impl AsFd for LinkWorker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.cq.as_fd()
    }
}

impl LinkWorker {
    /// The worker of a link, watched by the host's thread under `number` unless only callers look at completions.
    ///
    /// # Errors
    /// [`VerbsFault::Watch`].
    pub(super) fn new(
        cq: &Arc<CompletionQueue>,
        host: &Arc<dyn Host>,
        number: u32,
        is_manual: bool,
        notify: Box<dyn Notify>,
    ) -> Result<Arc<Self>, VerbsFault> {
        let worker = Arc::new(Self {
            cq: Arc::clone(cq),
            host: Arc::clone(host),
            number,
            is_manual,
            claims: AtomicUsize::new(0),
            is_armed: AtomicBool::new(false),
            ended_by: AtomicU64::new(0),
            notify,
        });
        if !is_manual {
            host.watch(number, worker.as_fd())?;
        }
        Ok(worker)
    }

    /// Arms the queue, unless it is armed. Returns `true` if it was: nothing has come since then that an event does not tell of.
    fn arm(&self) -> bool {
        if self.cq.take_events() {
            self.is_armed.store(false, Ordering::Release);
        }
        let was_armed = self.is_armed.swap(true, Ordering::AcqRel);
        // An error: the device is gone, which an asynchronous event tells.
        was_armed || self.cq.arm().is_err()
    }

    /// An asynchronous event has ended the link, whoever looks at its completions. Only the first counts.
    pub(super) fn end(&self, event: EventType) {
        let ended_by = u64::from(event.0).saturating_add(1);
        let _ = self.ended_by.compare_exchange(0, ended_by, Ordering::AcqRel, Ordering::Relaxed);
        self.notify.notify();
    }

    /// Returns the asynchronous event that has ended the link.
    #[inline]
    pub(super) fn ended_by(&self) -> Option<EventType> {
        let number = self.ended_by.load(Ordering::Acquire).checked_sub(1)?;
        Some(EventType(u32::try_from(number).unwrap_or(u32::MAX)))
    }

    /// The descriptor is readable: has the link look at its completions.
    pub(super) fn service(&self) {
        if self.is_manual || self.claims.load(Ordering::Acquire) != 0 {
            return;
        }
        let _ = self.arm();
        self.notify.notify();
    }
}

impl SharedWorker for LinkWorker {
    /// A caller that waits looks at completions from now on: the host's thread does not.
    fn claim(&self) {
        if !self.is_manual && self.claims.fetch_add(1, Ordering::AcqRel) == 0 {
            self.host.unwatch(self.as_fd());
        }
    }

    /// That caller waits no more.
    fn release(&self) {
        if !self.is_manual && self.claims.fetch_sub(1, Ordering::AcqRel) == 1 {
            if let Err(e) = self.host.watch(self.number, self.as_fd()) {
                self.host.report(Event::NotWatched(e));
            }
            self.service();
        }
    }

    /// Requests were posted that no caller waits for: has the link look at their completions.
    fn resume(&self) {
        if !self.is_manual && !self.arm() {
            self.notify.notify();
        }
    }

    /// Returns `true` if a caller can sleep on the descriptor. After `false` it looks at the completions and asks again.
    fn can_sleep(&self) -> bool {
        self.arm()
    }

    /// A channel can always be slept on.
    fn must_poll(&self) -> bool {
        false
    }
}

impl Drop for LinkWorker {
    fn drop(&mut self) {
        // In a forked child it is the parent's, whose descriptors the child shares: the parent goes on watching.
        if !self.is_manual && !self.cq.is_inherited() {
            self.host.unwatch(self.as_fd());
        }
    }
}
