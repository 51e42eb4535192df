//! How a caller that waits drives the link itself: leader and follower.
//!
//! One waiter leads: it takes the link's sockets away from the background thread, serves them,
//! spins a little and then parks on the sockets themselves, so that no thread hop lies between the
//! wire and the one who waits. The others follow: they sleep on the baton until something ended or
//! the lead is free.

use std::time::Duration as StdDuration;

use hmc_core::time::{Duration, Instant};
use hmc_mem::baton::Handed;
use rustix::event::{PollFd, PollFlags};

use super::Link;
use crate::clock;

/// The longest sleep of a leader between two looks at what it waits for.
const LONGEST_NAP_NS: u64 = 50_000_000;

/// Which halves of a link a waiter needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// The data plane: an operation is awaited.
    Data,
    /// Both: a message is awaited, which may follow a put.
    Both,
}

impl Link {
    /// Drives the link until `look` finds something or the deadline passes. `look` is called without
    /// locks held, often, and must be cheap.
    pub(crate) fn drive<R>(
        &self,
        watch: Watch,
        deadline: Instant,
        mut look: impl FnMut(&Self) -> Option<R>,
    ) -> Option<R> {
        loop {
            if let Some(r) = look(self) {
                return Some(r);
            }
            if let Some(lead) = self.baton.try_lead() {
                self.attend(watch, true);
                let r = self.lead(watch, deadline, &mut look);
                self.attend(watch, false);
                if lead.leave() == Handed::Nobody {
                    self.hand_over();
                }
                return r;
            }
            let follow = self.baton.follow();
            let ticket = follow.ticket();
            if let Some(r) = look(self) {
                return Some(r);
            }
            let left = clock::left(deadline).as_nanos();
            if left == 0 {
                return None;
            }
            follow.wait_for(ticket, Some(StdDuration::from_nanos(left)));
        }
    }

    fn lead<R>(
        &self,
        watch: Watch,
        deadline: Instant,
        look: &mut impl FnMut(&Self) -> Option<R>,
    ) -> Option<R> {
        let mut spin_until = clock::now().after(clock::from_std(self.spin));
        loop {
            let mut busy = self.turn_data(true);
            if watch == Watch::Both {
                busy |= self.turn_ctrl(true);
            }
            if let Some(r) = look(self) {
                return Some(r);
            }
            let now = clock::now();
            if now >= deadline {
                return None;
            }
            if busy {
                spin_until = now.after(clock::from_std(self.spin));
            }
            if busy || now < spin_until || self.data().has_work() {
                std::hint::spin_loop();
                continue;
            }
            self.park(watch, deadline);
        }
    }

    /// Sleeps until a socket is ready, the link dies (its sockets are shut down then), an operation's
    /// deadline comes or ours does. No lock is held.
    fn park(&self, watch: Watch, deadline: Instant) {
        let flags = |read: bool, write: bool| {
            let mut f = PollFlags::empty();
            f.set(PollFlags::IN, read);
            f.set(PollFlags::OUT, write);
            f
        };
        let (read, write, earlier) = {
            let mut data = self.data();
            let i = data.port().interest();
            (i.read, i.write, data.lane().next_deadline())
        };
        // What another thread ends while we sleep (a cancellation) no socket tells of.
        let soon = clock::now().after(Duration::from_nanos(LONGEST_NAP_NS));
        let timeout = clock::timespec(clock::left(deadline.min(earlier).min(soon)));
        let data = self.data_socket().and_then(|s| s.fd());
        let data = data.map(|fd| PollFd::from_borrowed_fd(fd, flags(read, write)));
        let ctrl = if watch == Watch::Both || data.is_none() {
            let (read, write) = self.ctrl().wants();
            self.ctrl_socket().fd().map(|fd| PollFd::from_borrowed_fd(fd, flags(read, write)))
        } else {
            None
        };
        let result = match (ctrl, data) {
            (Some(ctrl), Some(data)) => rustix::event::poll(&mut [ctrl, data], timeout.as_ref()),
            (Some(one), None) | (None, Some(one)) => {
                rustix::event::poll(&mut [one], timeout.as_ref())
            }
            (None, None) => Ok(0),
        };
        // EINTR is one more reason to look again.
        let _ = result;
    }

    /// Takes the sockets from the background thread, or gives them back.
    fn attend(&self, watch: Watch, on: bool) {
        {
            let mut data = self.data();
            data.attend(on);
            self.settle_data(&mut data);
        }
        if watch == Watch::Both || self.data_socket().is_none() {
            let mut ctrl = self.ctrl();
            ctrl.attend(on);
            self.settle_ctrl(&mut ctrl);
        }
    }
}
