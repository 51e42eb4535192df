//! Which thread receives a link's completions: a waiting caller, or the session's thread.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hmc_core::time::Instant;
use hmc_mem::watch::{CompletionWatch, Next};

use super::event::EventType;
use super::fault::VerbsFault;
use super::link_queues::LinkQueues;
use super::looks::{Due, Looks};
use crate::host::{Event, Host, Notify, SharedWorker};

/// The completion queues of a link, and which thread takes their completions. May be used by several threads at a time.
///
/// A waiting caller polls the queues. For requests that no caller waits for, the host's thread polls them: as soon as a request completes
/// if a thread is to be notified of it, otherwise each millisecond, so that posting needs no system call.
///
/// `ibv_req_notify_cq` announces completions that are added after the call only. A thread that arms the queues therefore polls them once more
/// before it sleeps. The queues of all NICs of the link are armed together.
pub struct LinkWorker {
    queues: LinkQueues,
    host: Arc<dyn Host>,
    /// The number under which the host watches the channel.
    number: u32,
    /// Only callers look at completions.
    is_manual: bool,
    /// The host's thread watches the channel. A caller that sleeps on it takes it away.
    is_watched: Mutex<bool>,
    /// Who sees to completions.
    watch: CompletionWatch,
    looks: Looks,
    /// The asynchronous event that has ended the link, plus one, and above its 32 bits the index of the NIC; 0 if none has.
    ended_by: AtomicU64,
    notify: Box<dyn Notify>,
}

/// What a worker is made with.
pub(super) struct WorkerOptions<'a> {
    /// The number under which the host watches the channel.
    pub(super) number: u32,
    /// Only callers look at completions.
    pub(super) is_manual: bool,
    /// Counts the links at which the host's thread looks each millisecond.
    pub(super) looked_at: &'a Arc<AtomicUsize>,
}

impl fmt::Debug for LinkWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkWorker").field("number", &self.number).finish_non_exhaustive()
    }
}

impl AsFd for LinkWorker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queues.as_fd()
    }
}

impl LinkWorker {
    /// The worker of a link, watched by the host's thread under `number` unless only callers look at completions.
    ///
    /// # Errors
    /// [`VerbsFault::Watch`].
    pub(super) fn new(
        queues: LinkQueues,
        host: &Arc<dyn Host>,
        options: WorkerOptions<'_>,
        notify: Box<dyn Notify>,
    ) -> Result<Arc<Self>, VerbsFault> {
        let WorkerOptions { number, is_manual, looked_at } = options;
        let worker = Arc::new(Self {
            queues,
            host: Arc::clone(host),
            number,
            is_manual,
            is_watched: Mutex::new(!is_manual),
            watch: CompletionWatch::new(),
            looks: Looks::new(looked_at),
            ended_by: AtomicU64::new(0),
            notify,
        });
        if !is_manual {
            host.watch(number, worker.as_fd())?;
        }
        Ok(worker)
    }

    /// Requests are under way, or none is any more. Called under the lock of the link.
    #[inline]
    pub(super) fn set_busy(&self, is_busy: bool) {
        if is_busy { self.watch.set_busy() } else { self.watch.set_idle() }
    }

    /// Requests have completed.
    #[inline]
    pub(super) fn note_progress(&self) {
        self.looks.note_progress();
    }

    /// Requests a notification for each completion of the requests that are under way: see [`SharedWorker::resume`]. Called under
    /// the lock of the link.
    #[inline]
    pub(super) fn set_awaited(&self) {
        self.watch.set_awaited();
    }

    /// Returns `true` if no caller polls the completions and no notification is requested: at most the host's thread polls, at
    /// intervals.
    #[inline]
    pub(super) fn is_unattended(&self) -> bool {
        self.watch.is_unattended()
    }

    /// Has the link look at its completions soon.
    pub(super) fn wake(&self) {
        self.notify.notify();
    }

    /// Takes the events that are there. Returns whether there was one: the queues are to be looked at then.
    fn take_events(&self) -> bool {
        let any = self.queues.take_events();
        if any {
            // In this order: whoever arms them for all does so later, and it stays so.
            self.arm_for_peer();
            self.watch.disarm();
        }
        any
    }

    /// What the peer sends makes an event from now on, as do failures. What has come before makes none.
    pub(super) fn arm_for_peer(&self) {
        if !self.is_manual {
            // A device that is gone tells by an asynchronous event.
            let _ = self.queues.arm_for_peer();
        }
    }

    /// The queues are armed from now on: what has come before it makes no event, and is to be looked at. Returns `false` if a device is
    /// gone, which an asynchronous event tells.
    fn arm_queue(&self) -> bool {
        self.queues.arm()
    }

    /// Has the host's thread see to the requests under way, unless somebody does. Returns `true` if the link was told to look at them.
    fn go_on(&self) -> bool {
        let is_new = match self.watch.next() {
            Next::Nothing => false,
            Next::Arm => self.arm_queue(),
            Next::Look => {
                self.looks.begin(self.host.now());
                true
            }
        };
        if is_new {
            self.notify.notify();
        }
        is_new
    }

    /// The host's thread watches the channel, or does not. What was there for a caller that has slept is taken first.
    fn set_watched(&self, on: bool) {
        let mut is_watched = self.is_watched.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *is_watched, on) == on {
            return;
        }
        if !on {
            self.host.unwatch(self.as_fd());
            return;
        }
        let any = self.take_events();
        if let Err(e) = self.host.watch(self.number, self.as_fd()) {
            self.host.report(Event::NotWatched(e));
        }
        if any {
            self.notify.notify();
        }
    }

    /// An asynchronous event of the NIC of that index has ended the link, whoever looks at its completions. Only the first counts.
    pub(super) fn end(&self, nic: usize, event: EventType) {
        let nic = u64::try_from(nic).unwrap_or(0) << 32;
        let ended_by = (nic | u64::from(event.0)).saturating_add(1);
        let _ = self.ended_by.compare_exchange(0, ended_by, Ordering::AcqRel, Ordering::Relaxed);
        self.notify.notify();
    }

    /// Returns the asynchronous event that has ended the link, and the index of its NIC.
    #[inline]
    pub(super) fn ended_by(&self) -> Option<(usize, EventType)> {
        let number = self.ended_by.load(Ordering::Acquire).checked_sub(1)?;
        let nic = usize::try_from(number >> 32).unwrap_or(0);
        Some((nic, EventType(u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX))))
    }

    /// The descriptor is readable: has the link look at its completions. A caller that waits is woken by that if it sleeps.
    pub(super) fn service(&self) {
        if !self.is_manual {
            let _ = self.take_events();
            let _ = self.go_on();
            self.notify.notify();
        }
    }

    /// A millisecond is over: has the link look at completions that nobody waits for.
    pub(super) fn look(&self, now: Instant) {
        match self.looks.due(now) {
            Due::Nothing => {}
            Due::Look if !self.watch.is_claimed() && self.watch.is_busy() => self.notify.notify(),
            due => {
                self.looks.end();
                self.watch.end_looks();
                if due == Due::Sleep && self.watch.is_busy() {
                    self.watch.set_awaited();
                }
                // Others may have been posted just now.
                let is_told = self.go_on();
                if due == Due::Sleep && !is_told {
                    // The queue may be armed already, and what was posted last have no completion before a poll posts its flush.
                    self.notify.notify();
                }
            }
        }
    }
}

impl SharedWorker for LinkWorker {
    /// A waiting caller takes the completions from now on.
    fn claim(&self) {
        self.watch.claim();
    }

    /// The caller stops waiting: the host's thread takes the completions of requests under way.
    fn release(&self) {
        if self.watch.release() && !self.is_manual {
            self.set_watched(true);
            let _ = self.go_on();
        }
    }

    /// Requests were posted that no caller waits for: the host's thread takes their completions.
    fn resume(&self) {
        if !self.is_manual {
            let _ = self.go_on();
        }
    }

    /// A thread sleeps until one of the requests has completed: the host's thread wakes for it.
    fn wake_on_completion(&self) {
        if !self.is_manual {
            self.set_awaited();
            let _ = self.go_on();
        }
    }

    /// Arms the queues. Returns `true` if a caller can sleep on the descriptor; after `false` it polls the completions and calls again.
    fn can_sleep(&self) -> bool {
        if !self.is_manual {
            self.set_watched(false);
        }
        let _ = self.take_events();
        self.watch.arm() || !self.arm_queue()
    }

    /// Returns `false`: a completion channel can always be armed.
    fn must_poll(&self) -> bool {
        false
    }
}

impl Drop for LinkWorker {
    fn drop(&mut self) {
        // In a forked child it is the parent's, whose descriptors the child shares: the parent goes on watching.
        if !self.is_manual && !self.queues.is_inherited() {
            self.host.unwatch(self.as_fd());
        }
    }
}
