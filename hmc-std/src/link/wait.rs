//! A waiting caller drives the link itself: leader and follower.
//!
//! One waiting thread leads: it takes the link's sockets from the progress thread, polls them, spins briefly, and
//! then parks on the sockets, so no thread switch lies between the wire and the waiting thread. The others follow:
//! they park on the leader lock until an operation completed or there is no leader.

use std::time::Duration as StdDuration;

use hmc_core::time::{Duration, Instant};
use hmc_core::transport::Readiness;
use hmc_mem::leader::Handoff;
use rustix::event::{PollFd, PollFlags};

use super::spin_policy::WaitOutcome;
use super::{Link, WaitScope, increment};
use crate::base::clock;
use crate::base::polling;
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::io::reactor::flags;
use crate::transport::worker::{WORKER_POLL, Worker};

/// The longest sleep of a leader between two looks at what it waits for.
pub(super) const MAX_PARK_NS: u64 = 50_000_000;

/// The same while another thread acts on what it has taken.
pub(super) const ACTING_PARK_NS: u64 = 200_000;

/// A waiter that spins for a message that comes through a ring looks so many times at the ring alone between two polls.
const GLANCES: u8 = 8;

impl Link {
    /// Drives the link until `look` finds something or the wait is over. `look` is called without
    /// locks held, often, and must be cheap.
    pub(crate) fn drive<R>(
        &self,
        watch: WaitScope,
        until: WaitLimit,
        mut look: impl FnMut(&Self) -> Option<R>,
    ) -> Result<R, WaitStopped> {
        let mut timer = until.timer();
        let is_idle = watch != WaitScope::Data && self.is_data_idle();
        let watch = if watch == WaitScope::Ctrl && !is_idle { WaitScope::Both } else { watch };
        loop {
            if let Some(r) = look(self) {
                return Ok(r);
            }
            if !self.clock.runs() {
                // Whoever sets it has to go on first.
                return Err(WaitStopped::Deadline);
            }
            if let Some(lead) = self.leader_lock.try_lead() {
                let worker = self.worker();
                // The background thread keeps a data plane that is idle: to take it and give it back are system calls.
                let mut claims = if is_idle { WaitScope::Ctrl } else { watch };
                self.set_claimed(claims, true);
                let drives = worker.as_ref().filter(|_| self.drives_worker(watch));
                if let Some(worker) = drives {
                    worker.shared.claim();
                }
                let found =
                    self.lead((watch, &mut claims), timer.park_until(), worker.as_ref(), &mut look);
                self.set_claimed(claims, false);
                if let Some(worker) = drives {
                    worker.shared.release();
                }
                if lead.release() == Handoff::None {
                    self.resume_background();
                }
                if let Some(r) = found {
                    return Ok(r);
                }
            } else {
                self.ctrl().wake_peer();
                let follow = self.leader_lock.follow();
                let key = follow.wait_key();
                if watch != WaitScope::Ctrl {
                    self.leave_to_worker();
                }
                if let Some(r) = look(self) {
                    return Ok(r);
                }
                let left = clock::left(timer.park_until()).as_nanos();
                if left != 0 {
                    polling::waits();
                    follow.wait_for(key, Some(StdDuration::from_nanos(left)));
                    continue;
                }
            }
            // Neither lead nor follow: the hook may use this link.
            timer.check()?;
        }
    }

    /// Whether a leader drives the link's worker. Who waits for a message leaves it to the background thread, which lets the peer's puts
    /// land.
    fn drives_worker(&self, watch: WaitScope) -> bool {
        match watch {
            WaitScope::Data => true,
            WaitScope::Both => !self.reactor.serves_data(),
            WaitScope::Ctrl => false,
        }
    }

    /// Whether the background thread serves a data plane that has been idle up to this wait, which counts.
    pub(super) fn is_data_idle(&self) -> bool {
        self.idle_waits.add()
            && self.reactor.serves_data()
            && self.data_socket().is_some_and(|s| s.fd().is_some())
    }

    /// Drives until `look` finds something or the deadline passes.
    fn lead<R>(
        &self,
        (watch, claims): (WaitScope, &mut WaitScope),
        deadline: Instant,
        worker: Option<&Worker>,
        look: &mut impl FnMut(&Self) -> Option<R>,
    ) -> Option<R> {
        let spin = self.spin_policy.spin(self.spin);
        let spin_for = clock::from_std(spin);
        let mut spin_until = clock::now().after(spin_for);
        let mut outcome = WaitOutcome::Found;
        let mut slept_out = false;
        let mut hung_up = false;
        // Of the next looks, those at the ring alone.
        let mut glances: u8 = 0;
        loop {
            if let Some(left) = glances.checked_sub(1)
                && !self.ctrl().has_ring_bytes()
            {
                if let Some(r) = look(self) {
                    self.spin_policy.record(outcome, self.spin);
                    return Some(r);
                }
                glances = left;
                std::hint::spin_loop();
                continue;
            }
            self.data_fairness.yield_to_waiters();
            let mut busy = *claims != WaitScope::Ctrl && self.poll_data(true);
            if watch != WaitScope::Data {
                busy |= self.poll_ctrl(true);
            }
            // Before the look: what is done after it would wake nobody.
            let others_act = !self.follow_ups.is_empty();
            if let Some(r) = look(self) {
                if slept_out {
                    increment(&self.counters.overslept);
                }
                self.spin_policy.record(outcome, self.spin);
                return Some(r);
            }
            slept_out = false;
            let now = clock::now();
            if now >= deadline {
                self.spin_policy.record(outcome, self.spin);
                return None;
            }
            if busy {
                spin_until = now.after(spin_for);
            }
            let has_work = watch != WaitScope::Ctrl && self.data().has_work();
            // Bytes of the peer may follow what came, if that was not what is waited for.
            let follows = *claims != watch && busy && !self.ctrl().receives_by_ring();
            if *claims != watch && (has_work || follows || now >= spin_until && !busy) {
                self.set_claimed(WaitScope::Data, true);
                *claims = watch;
                continue;
            }
            if busy || now < spin_until || has_work {
                outcome.spun();
                let by_ring_alone = *claims == WaitScope::Ctrl && self.ctrl().receives_by_ring();
                glances = if by_ring_alone && !busy { GLANCES } else { 0 };
                std::hint::spin_loop();
                continue;
            }
            if let Some(Worker { shared, waker }) = worker {
                waker.park();
                // What ended before that woke nobody.
                let busy = self.poll_data(true);
                let found = look(self);
                let drives = self.drives_worker(watch);
                let sleeps = !busy && (!drives || shared.can_sleep() || shared.must_poll());
                if found.is_some() || !sleeps {
                    waker.unpark();
                    if found.is_some() {
                        return found;
                    }
                    continue;
                }
            }
            slept_out = self.park((watch, others_act), deadline, worker, &mut hung_up);
            if let Some(worker) = worker {
                worker.waker.unpark();
            }
            outcome.slept(clock::now().since(now));
        }
    }

    /// Sleeps until a socket is ready, the link dies (its sockets are shut down then), an operation's
    /// deadline comes or ours does. No lock is held. Whether a whole park passed without anything. `hung_up` is for later
    /// calls: the control connection has ended, and tells no more. `others_act`: on what they took; it sleeps for a short time only.
    fn park(
        &self,
        (watch, others_act): (WaitScope, bool),
        deadline: Instant,
        worker: Option<&Worker>,
        hung_up: &mut bool,
    ) -> bool {
        let (wanted, earlier, is_down) = {
            let mut data = self.data();
            let wanted = data.plane().interest().connection;
            (wanted, data.queue().next_deadline(), data.plane().close_reason().is_some())
        };
        // What another thread ends while we sleep (a cancellation) no socket tells of.
        let restless = worker.is_some_and(|w| w.shared.must_poll());
        let pause = if restless {
            WORKER_POLL
        } else {
            Duration::from_nanos(if others_act { ACTING_PARK_NS } else { MAX_PARK_NS })
        };
        let soon = clock::now().after(pause);
        let timeout = clock::timespec(clock::left(deadline.min(earlier).min(soon)));
        // One that has ended would wake at once, time and again.
        let data = self
            .data_socket()
            .filter(|_| !is_down && watch != WaitScope::Ctrl)
            .and_then(|s| s.fd());
        let data = data.map(|fd| PollFd::from_borrowed_fd(fd, flags(wanted)));
        // For data alone: a link that dies ends its control connection, which shows whatever is asked for.
        let ctrl_flags = if watch != WaitScope::Data || data.is_none() {
            let Some(wanted) = self.park_ctrl() else { return false };
            flags(wanted)
        } else {
            PollFlags::empty()
        };
        let ctrl = self.ctrl_socket().fd().filter(|_| !ctrl_flags.is_empty() || !*hung_up);
        let ctrl = ctrl.map(|fd| PollFd::from_borrowed_fd(fd, ctrl_flags));
        let has_ctrl = ctrl.is_some();
        let shared = worker.filter(|_| self.drives_worker(watch) && !restless);
        let shared = shared.map(|w| PollFd::from_borrowed_fd(w.shared.as_fd(), PollFlags::IN));
        let waker = worker.map(|w| PollFd::new(&w.waker, PollFlags::IN));
        let mut fds: heapless::Vec<PollFd<'_>, 4> = heapless::Vec::new();
        fds.extend([ctrl, data, shared, waker].into_iter().flatten());
        polling::waits();
        // EINTR is one more reason to look again.
        let nothing = rustix::event::poll(&mut fds, timeout.as_ref()) == Ok(0);
        let ctrl = fds.first().filter(|_| has_ctrl);
        *hung_up |= ctrl.is_some_and(|c| c.revents().contains(PollFlags::HUP));
        nothing && !restless && !others_act && soon <= deadline.min(earlier)
    }

    /// What is to be waited for on the control connection's socket by a leader that is about to sleep; `None` if bytes have come.
    pub(super) fn park_ctrl(&self) -> Option<Readiness> {
        let mut ctrl = self.ctrl();
        let wanted = ctrl.park();
        self.update_ctrl_interest(&mut ctrl);
        wanted
    }

    /// Takes the sockets from the background thread, or gives them back.
    pub(super) fn set_claimed(&self, watch: WaitScope, on: bool) {
        // What stopped for a full inbox under this lead goes on, if there is space: nobody else tells it to.
        if watch != WaitScope::Ctrl {
            let resume = {
                let mut data = self.data();
                data.set_claimed(on);
                self.update_data_interest(&mut data);
                !on && data.is_paused()
            };
            if resume {
                self.poll_data(false);
            }
        }
        if watch != WaitScope::Data || self.data_socket().is_none() {
            let resume = {
                let mut ctrl = self.ctrl();
                ctrl.set_claimed(on);
                self.update_ctrl_interest(&mut ctrl);
                !on && (ctrl.machine.is_paused() || !ctrl.sleep())
            };
            if resume {
                self.poll_ctrl(false);
            }
        }
    }
}

#[cfg(test)]
mod tests;
