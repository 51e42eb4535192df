//! A caller that waits for several links at once: it leads the links without a leader, polls their sockets and
//! parks on all of them. Its waker wakes it for progress of other threads.
//!
//! As in `wait`, no thread switch lies between the wire and the waiting thread. The caller never waits for the lead
//! of a link: links with another leader, and those with a shared worker, which the progress thread drives, are left
//! to them.

use hmc_core::time::{Duration, Instant};
use hmc_mem::leader::{Handoff, LeaderGuard};
use rustix::event::{PollFd, PollFlags};

use super::park_waker::ParkWaker;
use super::wait::{ACTING_PARK_NS, MAX_PARK_NS};
use super::{Link, WaitScope, increment};
use crate::base::clock;
use crate::base::polling;
use crate::io::reactor::flags;

/// Of so many looks of a waiter that spins one goes to a data plane that has been idle.
const RARE: u8 = 8;

/// A link that is waited for.
struct WaitEntry<'a> {
    link: &'a Link,
    lead: Option<LeaderGuard<'a>>,
    /// The data plane has been idle up to now.
    is_idle: bool,
    /// Of the next polls, those that pass over the data plane.
    passes: u8,
}

impl WaitEntry<'_> {
    /// Takes the lead, if it is free and worth having.
    fn try_lead(&mut self) {
        if self.lead.is_none() && !self.link.has_worker() {
            self.lead = self.link.leader_lock.try_lead();
            if self.lead.is_some() {
                self.is_idle = self.link.is_data_idle();
                self.link.set_claimed(WaitScope::Both, true);
            }
        }
    }

    /// Serves the link's sockets, of a data plane that has been idle rarely while nothing happens. Whether anything happened.
    fn poll(&mut self) -> bool {
        let mut busy = self.passes == 0 && self.link.poll_data(true);
        busy |= self.link.poll_ctrl(true);
        busy |= self.link.data().has_work();
        let passes_over = self.is_idle && !busy;
        self.passes = if passes_over { self.passes.checked_sub(1).unwrap_or(RARE - 1) } else { 0 };
        busy
    }
}

impl Drop for WaitEntry<'_> {
    fn drop(&mut self) {
        if let Some(lead) = self.lead.take() {
            self.link.set_claimed(WaitScope::Both, false);
            if lead.release() == Handoff::None {
                self.link.resume_background();
            }
        }
    }
}

/// Links that one caller waits for. The lead of each goes with the value.
pub(crate) struct WaitSet<'a> {
    waker: &'a ParkWaker,
    held: Vec<WaitEntry<'a>>,
    parked: bool,
    slept_out: bool,
    /// At the last poll another thread acted on what it had taken.
    others_act: bool,
}

impl<'a> WaitSet<'a> {
    /// None yet. `waker` must be registered with all links whose events matter.
    pub(crate) fn new(waker: &'a ParkWaker) -> Self {
        Self { waker, held: Vec::new(), parked: false, slept_out: false, others_act: false }
    }

    /// Waits for this one too, from the next poll on.
    pub(crate) fn add(&mut self, link: &'a Link) {
        if !self.held.iter().any(|h| std::ptr::eq(h.link, link)) {
            self.held.push(WaitEntry { link, lead: None, is_idle: false, passes: 0 });
        }
    }

    /// Serves the links that it leads. Whether anything happened: look, and come again at once.
    pub(crate) fn poll(&mut self) -> bool {
        let mut busy = false;
        for held in &mut self.held {
            held.try_lead();
            if held.lead.is_some() {
                busy |= held.poll();
            }
        }
        self.slept_out &= !busy;
        let led = self.held.iter().filter(|held| held.lead.is_some());
        self.others_act = led.map(|held| &held.link.follow_ups).any(|acting| !acting.is_empty());
        busy
    }

    /// Nothing was found. Sleeps until there may be something: a socket is ready, the waker wakes, or `pause` or `deadline`
    /// is over. The first call after something happened returns at once, since the waker may have been called before it parked.
    /// Returns whether it slept.
    pub(crate) fn park(&mut self, deadline: Instant, pause: Duration) -> bool {
        self.held.iter_mut().for_each(|held| held.passes = 0);
        if !self.parked {
            self.parked = true;
            self.waker.park();
            return false;
        }
        self.slept_out = self.sleep(deadline, pause);
        if !self.slept_out {
            self.unpark();
        }
        true
    }

    /// Something was found, or there is no time to sleep.
    pub(crate) fn unpark(&mut self) {
        if std::mem::take(&mut self.parked) {
            self.waker.unpark();
        }
    }

    /// Counts a park that ended by its time although there was something, which neither a socket nor the waker reported.
    pub(crate) fn note_missed_wakeup(&mut self) {
        if std::mem::take(&mut self.slept_out)
            && self.waker.is_parked()
            && let Some(held) = self.held.first()
        {
            increment(&held.link.counters.overslept);
        }
    }

    /// Whether a whole park passed without anything.
    fn sleep(&self, deadline: Instant, pause: Duration) -> bool {
        let most = if self.others_act { ACTING_PARK_NS } else { MAX_PARK_NS };
        let pause = pause.min(Duration::from_nanos(most));
        let soon = clock::now().after(pause);
        let mut fds = Vec::with_capacity(self.held.len().saturating_mul(2).saturating_add(1));
        fds.push(PollFd::new(&self.waker.fd, PollFlags::IN));
        for held in self.held.iter().filter(|h| h.lead.is_some()) {
            let (data, is_down) = {
                let mut data = held.link.data();
                (data.plane().interest().connection, data.plane().close_reason().is_some())
            };
            let Some(ctrl) = held.link.park_ctrl() else { return false };
            let ctrl = flags(ctrl);
            // Whose end was seen would wake at once, time and again.
            if let Some(fd) = held.link.ctrl_socket().fd().filter(|_| !ctrl.is_empty()) {
                fds.push(PollFd::from_borrowed_fd(fd, ctrl));
            }
            // One that has ended would wake at once, time and again.
            if let Some(fd) = held.link.data_socket().filter(|_| !is_down).and_then(|s| s.fd()) {
                fds.push(PollFd::from_borrowed_fd(fd, flags(data)));
            }
        }
        let timeout = clock::timespec(clock::left(deadline.min(soon)));
        // EINTR is one more reason to look again.
        polling::waits();
        let nothing = rustix::event::poll(&mut fds, timeout.as_ref()) == Ok(0);
        nothing && !self.others_act && soon <= deadline
    }
}

impl Drop for WaitSet<'_> {
    fn drop(&mut self) {
        self.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use hmc_core::time::{Duration, Instant};
    use hmc_core::types::ConnType;
    use hmc_core::wire::message::ControlMessage;

    use super::{ParkWaker, RARE, WaitSet};
    use crate::api::session::Session;
    use crate::base::clock;
    use crate::link::ends::{End, INBOX, alone, first_byte, pair};

    const LONG: Duration = Duration::from_millis(1000);

    fn waker() -> Arc<ParkWaker> {
        ParkWaker::new().expect("a waker")
    }

    #[test]
    fn whoever_waits_for_a_link_leads_it_until_the_wait_is_over() {
        let target = Session::builder(1).buffer(4096).tcp("127.0.0.1:0").start().expect("a target");
        let source = Session::builder(0).buffer(4096).start().expect("a source");
        let address = target.info().listeners.remove(0).address().clone();
        let peer = source.connect(&address).rank(1).wait().expect("connected");
        let waker = ParkWaker::new().expect("a waker");
        let (mut first, mut second) = (WaitSet::new(&waker), WaitSet::new(&waker));
        first.add(&peer.link);
        second.add(&peer.link);
        first.poll();
        assert!(peer.link.leader_lock.has_leader());
        // Another one does not wait for the lead.
        second.poll();
        drop(second);
        assert!(peer.link.leader_lock.has_leader(), "the first has it still");
        drop(first);
        assert!(!peer.link.leader_lock.has_leader());
    }

    #[test]
    fn each_link_is_led_once_and_only_if_its_sockets_report_all() {
        let (near, _far) = pair(ConnType::Tcp);
        let (shared, waker) = (alone(2, 2), waker());
        shared.link.has_worker.store(true, Ordering::Relaxed);
        let mut several = WaitSet::new(&waker);
        for link in [&near.link, &shared.link, &near.link] {
            several.add(link);
        }
        assert_eq!(several.held.len(), 2);
        several.poll();
        assert!(near.link.has_leader() && !shared.link.has_leader());
        assert!(near.link.data().is_claimed() && near.link.ctrl().is_claimed());
        drop(several);
        assert!(!near.link.has_leader() && !near.link.data().is_claimed());
    }

    #[test]
    fn a_poll_serves_both_sockets_of_each_link() {
        let ((near, far), (other, _other)) = (pair(ConnType::Tcp), pair(ConnType::Tcp));
        let ((region, window), waker) = (near.expose(1), waker());
        let mut several = WaitSet::new(&waker);
        several.add(&near.link);
        several.add(&other.link);
        assert!(!several.poll());
        far.put(&window, 9);
        assert!(several.poll(), "the data plane");
        assert_eq!(first_byte(&region), 9);
        assert!(!several.poll());
        far.link.send(&ControlMessage::Tag(1)).expect("sent");
        assert!(several.poll(), "the control connection");
        assert_eq!(near.link.inbox().len(), 1);
        assert!(!several.poll());
        // What stopped for a full inbox has work as soon as there is space.
        for tag in 0..INBOX.0 + 1 {
            far.put_notify(&window, u64::try_from(tag).expect("small"));
        }
        assert!(several.poll());
        assert!(!several.poll(), "the inbox is full");
        near.link.inbox().drop_all();
        several.poll();
        assert_eq!(near.link.inbox().len(), 2);
    }

    #[test]
    fn a_still_data_plane_is_looked_at_rarely_while_nothing_happens() {
        let (near, far) = pair(ConnType::Tcp);
        let ((region, window), waker) = (near.expose(1), waker());
        let polls_until = |several: &mut WaitSet<'_>, byte| {
            far.put(&window, byte);
            (1_u8..).find(|_| {
                several.poll();
                first_byte(&region) == byte
            })
        };
        while !near.link.idle_waits.add() {}
        let mut several = WaitSet::new(&waker);
        several.add(&near.link);
        assert!(!several.poll());
        assert_eq!(polls_until(&mut several, 1), Some(RARE));
        assert_eq!(polls_until(&mut several, 2), Some(1), "something happened in the last poll");
        assert!(!several.poll());
        far.link.send(&ControlMessage::Tag(1)).expect("sent");
        assert!(several.poll());
        assert_eq!(polls_until(&mut several, 3), Some(1), "a message came in the last poll");
        assert!(!several.poll());
        // Before a sleep nothing is passed over.
        several.park(Instant::NEVER, LONG);
        assert_eq!(polls_until(&mut several, 4), Some(1));
        drop(several);
        // It is not idle any more.
        let mut several = WaitSet::new(&waker);
        several.add(&near.link);
        assert!(!several.poll());
        assert_eq!(polls_until(&mut several, 5), Some(1));
    }

    fn overslept(end: &End) -> u64 {
        end.link.counters.overslept.load(Ordering::Relaxed)
    }

    #[test]
    fn a_sleep_ends_with_a_socket_the_waker_or_its_time() {
        let (near, far) = pair(ConnType::Tcp);
        let ((_region, window), waker) = (near.expose(1), waker());
        near.link.park_wakers.register(&waker);
        let mut several = WaitSet::new(&waker);
        several.add(&near.link);
        let short = Duration::from_millis(5);
        let wakes: [&dyn Fn(); 3] = [
            &|| near.link.park_wakers.wake(&near.link.wakers),
            &|| _ = far.put(&window, 1),
            &|| far.link.send(&ControlMessage::Tag(1)).expect("sent"),
        ];
        for wake in wakes {
            while several.poll() {}
            several.park(Instant::NEVER, LONG);
            assert!(waker.is_parked(), "the first call only says that it will sleep");
            wake();
            several.park(Instant::NEVER, LONG);
            assert!(!several.parked && !several.slept_out && !waker.is_parked());
        }
        assert_eq!(overslept(&near), 0);
        near.link.inbox().drop_all();
        // Its time: the park's, or the deadline's.
        for (deadline, pause, slept_out) in
            [(Instant::NEVER, short, true), (clock::now().after(short), LONG, false)]
        {
            while several.poll() {}
            several.park(deadline, pause);
            assert!(several.parked);
            several.park(deadline, pause);
            assert_eq!((several.slept_out, several.parked), (slept_out, slept_out));
            several.unpark();
            assert!(!waker.is_parked());
            several.slept_out = false;
        }
    }

    #[test]
    fn only_a_whole_park_that_nothing_ended_is_overslept() {
        let (near, far) = pair(ConnType::Tcp);
        let waker = waker();
        let mut several = WaitSet::new(&waker);
        several.add(&near.link);
        let sleep = |several: &mut WaitSet<'_>| {
            while several.poll() {}
            several.park(Instant::NEVER, Duration::from_millis(1));
            several.park(Instant::NEVER, Duration::from_millis(1));
        };
        several.note_missed_wakeup();
        assert_eq!(overslept(&near), 0, "it has not slept");
        sleep(&mut several);
        several.note_missed_wakeup();
        assert_eq!(overslept(&near), 1);
        several.note_missed_wakeup();
        assert_eq!(overslept(&near), 1, "counted once");
        // What came after it was no event of the park.
        sleep(&mut several);
        far.link.send(&ControlMessage::Tag(1)).expect("sent");
        assert!(several.poll());
        several.note_missed_wakeup();
        assert_eq!(overslept(&near), 1);
        // Another thread acts on what it took: it reports that later.
        let follow_up = near.link.follow_ups.begin();
        let begun = std::time::Instant::now();
        sleep(&mut several);
        let long = Duration::from_millis(20_000);
        several.park(Instant::NEVER, long);
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
        several.note_missed_wakeup();
        assert_eq!(overslept(&near), 1);
        drop(follow_up);
        // The waker was called since.
        sleep(&mut several);
        near.link.park_wakers.register(&waker);
        near.link.park_wakers.wake(&near.link.wakers);
        several.note_missed_wakeup();
        assert_eq!(overslept(&near), 1);
    }
}
