//! How a caller that waits drives the link itself: leader and follower.
//!
//! One waiter leads: it takes the link's sockets away from the background thread, serves them,
//! spins a little and then parks on the sockets themselves, so that no thread hop lies between the
//! wire and the one who waits. The others follow: they sleep on the baton until something ended or
//! the lead is free.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration as StdDuration;

use hmc_core::time::{Duration, Instant};
use hmc_mem::baton::Handed;
use rustix::event::{PollFd, PollFlags};

use super::{Link, bump};
use crate::clock;
use crate::transport::ucx::Bell;
use crate::ucx::{RESTLESS, Seat};
use crate::until::{Stop, Until};

/// The longest sleep of a leader between two looks at what it waits for.
pub(super) const LONGEST_NAP_NS: u64 = 50_000_000;

/// Waits in a row that slept longer than they had spun, after which waiters stop to spin.
const FUTILE: u8 = 4;
/// After so many waits without a spin one spins, to learn whether it would help again.
const PROBE: u8 = 16;

/// Whether spinning helps on this link: it is worth its time only where answers come within it. While it goes
/// on in vain it takes a processor, or half of one, from whoever prepares the answer.
#[derive(Debug, Default)]
pub(crate) struct Patience(AtomicU8);

impl Patience {
    /// For how long the next waiter spins.
    fn spin(&self, most: StdDuration) -> StdDuration {
        let naps = self.0.load(Ordering::Relaxed);
        if naps < FUTILE {
            return most;
        }
        let next =
            if naps < FUTILE.saturating_add(PROBE) { naps.saturating_add(1) } else { FUTILE };
        self.0.store(next, Ordering::Relaxed);
        if next == FUTILE { most } else { StdDuration::ZERO }
    }

    /// Learns from a wait that is over; `most` is the longest spin.
    fn learn(&self, tale: Tale, most: StdDuration) {
        match tale {
            Tale::Found => {}
            Tale::Spun => self.0.store(0, Ordering::Relaxed),
            // Some of a nap is the wake-up: a short one might have been spun away.
            Tale::Slept(nap) if nap <= clock::from_std(most) => self.0.store(0, Ordering::Relaxed),
            Tale::Slept(_) => {
                let naps = self.0.load(Ordering::Relaxed);
                if naps < FUTILE {
                    self.0.store(naps.saturating_add(1), Ordering::Relaxed);
                }
            }
        }
    }
}

/// How one wait went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tale {
    /// What it waited for was there at the first look.
    Found,
    /// It came during the spin.
    Spun,
    /// The wait slept; for so long in all.
    Slept(Duration),
}

impl Tale {
    /// Goes round once more without a sleep.
    fn spun(&mut self) {
        if *self == Self::Found {
            *self = Self::Spun;
        }
    }

    fn slept(&mut self, nap: Duration) {
        let before = if let Self::Slept(before) = self { before.as_nanos() } else { 0 };
        *self = Self::Slept(Duration::from_nanos(before.saturating_add(nap.as_nanos())));
    }
}

/// The worker of a UCX link, and what wakes who sleeps on it.
type Ucx = (Arc<Seat>, Arc<Bell>);

/// Which halves of a link a waiter needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// The data plane: an operation is awaited.
    Data,
    /// Both: a message is awaited, which may follow a put.
    Both,
    /// The control connection: a message is awaited that comes there. The data plane as well, unless it has been still: then
    /// the background thread serves it.
    Ctrl,
}

/// So many waits in a row without bytes on the data plane's socket, and the next ones look at it less often.
const STILL: u8 = 8;
/// Of so many looks of a waiter that spins one goes to a data plane that has been still.
pub(super) const RARE: u8 = 8;

/// For how many waits in a row nothing has come on the socket of a link's data plane. A hint.
#[derive(Debug, Default)]
pub(crate) struct Stillness(AtomicU8);

impl Stillness {
    /// Something came.
    pub(super) fn end(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// One more wait begins. Whether there have been enough.
    fn lasts(&self) -> bool {
        let waits = self.0.load(Ordering::Relaxed);
        if waits < STILL {
            self.0.store(waits.saturating_add(1), Ordering::Relaxed);
        }
        waits >= STILL
    }
}

impl Link {
    /// Drives the link until `look` finds something or the wait is over. `look` is called without
    /// locks held, often, and must be cheap.
    pub(crate) fn drive<R>(
        &self,
        watch: Watch,
        until: Until,
        mut look: impl FnMut(&Self) -> Option<R>,
    ) -> Result<R, Stop> {
        let mut vigil = until.vigil();
        let is_still = watch != Watch::Data && self.is_still();
        let watch = if watch == Watch::Ctrl && !is_still { Watch::Both } else { watch };
        loop {
            if let Some(r) = look(self) {
                return Ok(r);
            }
            #[cfg(feature = "testing")]
            if clock::virtual_time::is_on() {
                // The thread of a driven session never waits: it drives the others, too.
                return Err(Stop::Deadline);
            }
            if let Some(lead) = self.baton.try_lead() {
                let ucx = self.ucx();
                self.attend(watch, true);
                // Whoever waits for a message leaves the worker to the background thread, which lets the peer's puts
                // land.
                let drives = ucx.as_ref().filter(|_| watch == Watch::Data);
                if let Some((seat, _)) = drives {
                    seat.attend(true);
                }
                let found =
                    self.lead((watch, is_still), vigil.nap_until(), ucx.as_ref(), &mut look);
                self.attend(watch, false);
                if let Some((seat, _)) = drives {
                    seat.attend(false);
                }
                if lead.leave() == Handed::Nobody {
                    self.hand_over();
                }
                if let Some(r) = found {
                    return Ok(r);
                }
            } else {
                let follow = self.baton.follow();
                let ticket = follow.ticket();
                if let Some(r) = look(self) {
                    return Ok(r);
                }
                let left = clock::left(vigil.nap_until()).as_nanos();
                if left != 0 {
                    follow.wait_for(ticket, Some(StdDuration::from_nanos(left)));
                    continue;
                }
            }
            // Neither lead nor follow: the hook may use this link.
            vigil.check()?;
        }
    }

    /// Whether the background thread serves a data plane that has been still up to this wait, which counts.
    pub(super) fn is_still(&self) -> bool {
        self.stillness.lasts()
            && self.driver.serves_data()
            && self.data_socket().is_some_and(|s| s.fd().is_some())
    }

    /// Drives until `look` finds something or the deadline passes.
    fn lead<R>(
        &self,
        (watch, is_still): (Watch, bool),
        deadline: Instant,
        ucx: Option<&Ucx>,
        look: &mut impl FnMut(&Self) -> Option<R>,
    ) -> Option<R> {
        let spin = self.patience.spin(self.spin);
        let spin_for = clock::from_std(spin);
        let mut spin_until = clock::now().after(spin_for);
        let mut tale = Tale::Found;
        let mut slept_out = false;
        let mut hung_up = false;
        // Of the next looks, those that pass over the data plane.
        let mut passes: u8 = 0;
        loop {
            self.turns.give_way();
            let looks_at_data = watch != Watch::Ctrl && passes == 0;
            let mut busy = looks_at_data && self.turn_data(true);
            if watch != Watch::Data {
                busy |= self.turn_ctrl(true);
            }
            if let Some(r) = look(self) {
                if slept_out {
                    bump(&self.counters.overslept);
                }
                self.patience.learn(tale, self.spin);
                return Some(r);
            }
            slept_out = false;
            let now = clock::now();
            if now >= deadline {
                self.patience.learn(tale, self.spin);
                return None;
            }
            if busy {
                spin_until = now.after(spin_for);
            }
            let has_work = watch != Watch::Ctrl && self.data().has_work();
            if busy || now < spin_until || has_work {
                tale.spun();
                let passes_over = is_still && !busy && !has_work;
                passes = if passes_over { passes.checked_sub(1).unwrap_or(RARE - 1) } else { 0 };
                std::hint::spin_loop();
                continue;
            }
            passes = 0;
            if let Some((seat, bell)) = ucx {
                bell.park();
                // What ended before that rang nobody.
                let busy = self.turn_data(true);
                let found = look(self);
                let sleeps =
                    !busy && (watch != Watch::Data || seat.can_sleep() || seat.is_restless());
                if found.is_some() || !sleeps {
                    bell.unpark();
                    if found.is_some() {
                        return found;
                    }
                    continue;
                }
            }
            slept_out = self.park(watch, deadline, ucx, &mut hung_up);
            if let Some((_, bell)) = ucx {
                bell.unpark();
            }
            tale.slept(clock::now().since(now));
        }
    }

    /// Sleeps until a socket is ready, the link dies (its sockets are shut down then), an operation's
    /// deadline comes or ours does. No lock is held. Whether a whole nap passed without anything. `hung_up` is for later
    /// calls: the control connection has ended, and tells no more.
    fn park(&self, watch: Watch, deadline: Instant, ucx: Option<&Ucx>, hung_up: &mut bool) -> bool {
        let (wanted, earlier, is_down) = {
            let mut data = self.data();
            let wanted = data.port().interest().wanted;
            (wanted, data.lane().next_deadline(), data.port().down().is_some())
        };
        // What another thread ends while we sleep (a cancellation) no socket tells of.
        let restless = ucx.is_some_and(|(seat, _)| seat.is_restless());
        let nap = if restless { RESTLESS } else { Duration::from_nanos(LONGEST_NAP_NS) };
        let soon = clock::now().after(nap);
        let timeout = clock::timespec(clock::left(deadline.min(earlier).min(soon)));
        // One that has ended would wake at once, time and again.
        let data =
            self.data_socket().filter(|_| !is_down && watch != Watch::Ctrl).and_then(|s| s.fd());
        let data = data.map(|fd| PollFd::from_borrowed_fd(fd, wanted.flags()));
        // For data alone: a link that dies ends its control connection, which shows whatever is asked for.
        let flags = if watch != Watch::Data || data.is_none() {
            self.ctrl().wants().flags()
        } else {
            PollFlags::empty()
        };
        let ctrl = self.ctrl_socket().fd().filter(|_| !flags.is_empty() || !*hung_up);
        let ctrl = ctrl.map(|fd| PollFd::from_borrowed_fd(fd, flags));
        let has_ctrl = ctrl.is_some();
        let worker =
            ucx.filter(|_| watch == Watch::Data && !restless).map(|(seat, _)| seat.worker());
        let worker = worker.map(|w| PollFd::new(w, PollFlags::IN));
        let bell = ucx.map(|(_, bell)| PollFd::new(bell, PollFlags::IN));
        let mut fds: heapless::Vec<PollFd<'_>, 4> = heapless::Vec::new();
        fds.extend([ctrl, data, worker, bell].into_iter().flatten());
        // EINTR is one more reason to look again.
        let nothing = rustix::event::poll(&mut fds, timeout.as_ref()) == Ok(0);
        let ctrl = fds.first().filter(|_| has_ctrl);
        *hung_up |= ctrl.is_some_and(|c| c.revents().contains(PollFlags::HUP));
        nothing && !restless && soon <= deadline.min(earlier)
    }

    /// Takes the sockets from the background thread, or gives them back.
    pub(super) fn attend(&self, watch: Watch, on: bool) {
        // What stopped for a full inbox under this lead goes on, if there is room: nobody else tells it to.
        if watch != Watch::Ctrl {
            let resume = {
                let mut data = self.data();
                data.attend(on);
                self.settle_data(&mut data);
                !on && data.is_paused()
            };
            if resume {
                self.turn_data(false);
            }
        }
        if watch != Watch::Data || self.data_socket().is_none() {
            let resume = {
                let mut ctrl = self.ctrl();
                ctrl.attend(on);
                self.settle_ctrl(&mut ctrl);
                !on && ctrl.is_paused()
            };
            if resume {
                self.turn_ctrl(false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FUTILE, PROBE, Patience, Tale};
    use hmc_core::time::Duration;
    use std::time::Duration as StdDuration;

    const MOST: StdDuration = StdDuration::from_micros(20);
    const LONG: Tale = Tale::Slept(Duration::from_millis(5));

    fn tired() -> Patience {
        let p = Patience::default();
        for _ in 0..FUTILE {
            assert_eq!(p.spin(MOST), MOST);
            p.learn(LONG, MOST);
        }
        p
    }

    #[test]
    fn waiters_stop_to_spin_where_it_is_in_vain_and_try_again_now_and_then() {
        let p = tired();
        for _ in 0..3 {
            for _ in 0..PROBE {
                assert_eq!(p.spin(MOST), StdDuration::ZERO);
                p.learn(LONG, MOST);
            }
            assert_eq!(p.spin(MOST), MOST, "a probe");
            p.learn(LONG, MOST);
        }
    }

    #[test]
    fn they_spin_again_as_soon_as_it_helps_or_would_have() {
        let p = tired();
        assert_eq!(p.spin(MOST), StdDuration::ZERO);
        p.learn(Tale::Slept(Duration::from_nanos(15_000)), MOST);
        assert_eq!(p.spin(MOST), MOST, "the nap was shorter than the spin");
        let p = tired();
        p.learn(Tale::Spun, MOST);
        assert_eq!(p.spin(MOST), MOST);
        let p = tired();
        p.learn(Tale::Found, MOST);
        assert_eq!(p.spin(MOST), StdDuration::ZERO, "nothing was spun for");
    }

    #[test]
    fn a_wait_of_many_naps_is_one_wait() {
        let p = Patience::default();
        let mut tale = Tale::Found;
        tale.spun();
        assert_eq!(tale, Tale::Spun);
        for _ in 0..2 * FUTILE {
            tale.slept(Duration::from_nanos(15_000));
            tale.spun();
        }
        assert_eq!(tale, Tale::Slept(Duration::from_nanos(2 * u64::from(FUTILE) * 15_000)));
        for _ in 1..FUTILE {
            p.learn(tale, MOST);
            assert_eq!(p.spin(MOST), MOST, "too few waits");
        }
        p.learn(tale, MOST);
        assert_eq!(p.spin(MOST), StdDuration::ZERO);
    }
}
