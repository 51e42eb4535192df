//! One round of a collective: any number of messages to and from other members, moved on together by the caller's thread.
//!
//! Memory is borrowed: the caller copies its bytes itself, piece by piece. While there is nothing to copy, a thread sleeps on all
//! links, and a future leaves them to the session's thread. A round ends when all of its messages have, or with the first that fails: the others are withdrawn then, so that
//! their other ends fail too, and nothing of the caller's memory is touched any more. In every wait it also looks at the
//! members that it exchanges nothing with: the death of one is the end of all.

use std::future::poll_fn;
use std::task::{Context, Poll};

use hmc_core::rndv::AbortReason;
use hmc_core::time::{Duration, Instant};

use super::Members;
use super::call::Call;
use super::flight::{Flight, Message};
use crate::api::peer::Peer;
use crate::base::clock;
use crate::base::config::Progress;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::callbacks::timer::Timer;
use crate::link::spin_policy::WaitOutcome;
use crate::link::wait_set::WaitSet;
use crate::link::{Link, LinkState};

/// For how long a member that failed stays to tell those who come to exchange with it, and that have to answer.
const GRACE_NS: u64 = 1_000_000_000;

/// For how long a member whose partner gave up waits, at the least, for the report of a death that explains it.
const BLAME_NS: u64 = 100_000_000;

/// How often data planes are served by a caller, where no thread does.
const MANUAL_POLL_NS: u64 = 1_000_000;

/// The messages of one round. What has not ended is withdrawn when the value goes.
struct Round<'m, 'a> {
    flights: Vec<Flight<'m, 'a>>,
    /// Those before it have ended.
    first: usize,
}

impl Round<'_, '_> {
    /// Copies what can be copied. Whether all messages have ended.
    fn move_on(&mut self) -> Result<bool> {
        let mut all = true;
        for flight in self.flights.iter_mut().skip(self.first) {
            if flight.over || flight.move_on()? {
                self.first = self.first.saturating_add(usize::from(all));
            } else {
                all = false;
            }
        }
        Ok(all)
    }

    /// What this end waited for when its time was over.
    fn late(&self) -> Error {
        let mut ranks: Vec<u32> =
            self.flights.iter().filter(|f| !f.over).map(|f| f.peer.rank().0).collect();
        ranks.sort_unstable();
        ranks.dedup();
        Error::deadline(format_args!("waiting for ranks {ranks:?}"))
    }

    fn withdraw(&mut self, why: AbortReason) {
        for flight in &mut self.flights {
            flight.withdraw(why);
        }
    }
}

impl Drop for Round<'_, '_> {
    fn drop(&mut self) {
        self.withdraw(AbortReason::Cancelled);
    }
}

impl Call<'_> {
    /// Moves all `messages`, and returns when their receivers have them. Receives should stand before sends: a place that
    /// is there before the offer saves a poll.
    ///
    /// # Errors
    /// The first failure: `PeerDead` when any member died, `Length` when the two ends of a message disagree,
    /// `Cancelled` when a partner failed for reasons of its own, `DeadlineExceeded`, `Closed`, `Full`, `NoSpace`.
    pub(super) async fn exchange<'a>(
        &self,
        messages: impl IntoIterator<Item = Message<'a>>,
    ) -> Result<()> {
        let mut round = Round { flights: Vec::new(), first: 0 };
        let begun = messages.into_iter().try_for_each(|message| {
            let peer = self.members.peer(message.position())?;
            round.flights.push(Flight::begin(peer, message, self.by)?);
            Ok(())
        });
        let links: Vec<&Link> = round.flights.iter().map(|f| &*f.peer.link).collect();
        let moved = match begun {
            Ok(()) => {
                let look = || {
                    self.check()?;
                    Ok(round.move_on()?.then_some(()))
                };
                self.wait(&links, self.by, look).await
            }
            Err(e) => Err(e),
        };
        let Err(e) = moved else { return Ok(()) };
        // Without a peer it is this end's own.
        let own = e.kind() == ErrorKind::DeadlineExceeded && e.peer().is_none();
        let e = if own { round.late() } else { e };
        Err(self.give_up(&mut round, &links, e).await)
    }

    /// This member failed, because of `e`. Ends all messages, so that their partners learn of it, and leaves none behind
    /// for the next group to meet, unless partners take too long. Gives the reason: when a partner gave up because of a
    /// death, that of this end may be told a moment later.
    async fn give_up(&self, round: &mut Round<'_, '_>, links: &[&Link], e: Error) -> Error {
        if e.kind() == ErrorKind::Forked {
            // All of it is the parent's.
            return e;
        }
        let mut e = e;
        let by = clock::now().after(Duration::from_nanos(GRACE_NS));
        // Where it is the time that is over, or a death, all know by themselves.
        if !matches!(e.kind(), ErrorKind::DeadlineExceeded | ErrorKind::PeerDead) {
            let doubtful = e.kind() == ErrorKind::Cancelled;
            let blame =
                clock::now().after(Duration::from_nanos(if doubtful { BLAME_NS } else { 0 }));
            // A task is woken by messages and at the end of its wait: the first is as long as the doubt.
            for until in [blame, by] {
                let told = self.wait(links, until, || {
                    let mut all = true;
                    for flight in &mut round.flights {
                        all &= flight.withdraw_if_matched();
                    }
                    let over = all && clock::now() >= blame;
                    self.check().map(|()| over.then_some(()))
                });
                match told.await {
                    Ok(()) => break,
                    Err(found) if found.kind() == ErrorKind::Forked => return found,
                    Err(found) if found.kind() == ErrorKind::PeerDead => {
                        e = found;
                        break;
                    }
                    Err(_) => {}
                }
            }
        }
        let late = e.kind() == ErrorKind::DeadlineExceeded;
        round.withdraw(if late { AbortReason::DeadlineExceeded } else { AbortReason::Cancelled });
        // What is wrong is known: only answers are waited for.
        let answered = self.wait(links, by, || {
            let all = round.flights.iter().all(Flight::is_forgotten);
            Ok(all.then_some(()))
        });
        match answered.await {
            Err(found) if found.kind() == ErrorKind::Forked => found,
            _ => self.dead().unwrap_or(e),
        }
    }

    /// Waits until `look` finds something, which messages on `links` may bring: looks and sleeps alternately, or is pending.
    async fn wait<R>(
        &self,
        links: &[&Link],
        by: Instant,
        mut look: impl FnMut() -> Result<Option<R>>,
    ) -> Result<R> {
        if self.blocks {
            return self.sleep_until(links, by, look);
        }
        let mut timer = None;
        poll_fn(|cx| self.poll_until(cx, &mut timer, by, &mut look)).await
    }

    /// As a future: it is woken as whoever waits for several links, and at the end of its time.
    fn poll_until<R>(
        &self,
        cx: &Context<'_>,
        timer: &mut Option<Timer>,
        by: Instant,
        look: &mut impl FnMut() -> Result<Option<R>>,
    ) -> Poll<Result<R>> {
        let Members { shared, waker, .. } = self.members;
        shared.check_process()?;
        shared.wakers.start();
        timer.get_or_insert_with(|| Timer::new(&shared.wakers, shared.origin, by)).wake(cx.waker());
        // What comes after this wakes the task.
        waker.park_task(cx.waker());
        let found = match look() {
            Ok(None) if clock::now() < by => return Poll::Pending,
            Ok(None) => Err(Error::deadline("waiting for other members")),
            Ok(Some(found)) => Ok(found),
            Err(e) => Err(e),
        };
        waker.unpark_task();
        Poll::Ready(found)
    }

    /// As a thread, which leads the links.
    fn sleep_until<R>(
        &self,
        links: &[&Link],
        by: Instant,
        mut look: impl FnMut() -> Result<Option<R>>,
    ) -> Result<R> {
        let Members { shared, waker, spin_policy, .. } = self.members;
        let mut led = WaitSet::new(waker);
        links.iter().for_each(|link| led.add(link));
        let manual = shared.config.progress == Progress::Manual;
        let pause = if manual { MANUAL_POLL_NS } else { u64::MAX };
        let short = shared.config.spin;
        let spin = clock::from_std(spin_policy.spin(short));
        let mut outcome = WaitOutcome::Found;
        let mut spin_until = clock::now().after(spin);
        let mut timer = WaitLimit::new(by, shared.config.interrupt).timer();
        loop {
            let mut busy = led.poll();
            if manual {
                // Data planes are nobody's but ours.
                busy |= shared.run_data_planes();
            }
            if let Some(found) = look()? {
                led.note_missed_wakeup();
                spin_policy.record(outcome, short);
                return Ok(found);
            }
            if let Err(stop) = timer.check() {
                if stop == WaitStopped::Forked {
                    // The leads are the parent's.
                    std::mem::forget(led);
                }
                return Err(stop.error("waiting for other members"));
            }
            let now = clock::now();
            if busy {
                spin_until = now.after(spin);
            }
            if busy || now < spin_until {
                outcome.spun();
                led.unpark();
                std::hint::spin_loop();
            } else if led.park(timer.park_until(), Duration::from_nanos(pause)) {
                outcome.slept(clock::now().since(now));
            }
        }
    }

    /// What ends any wait for messages besides themselves: the one place for it.
    fn check(&self) -> Result<()> {
        self.dead().map_or(Ok(()), Err)
    }

    /// The error of the first member that is known to be dead. Members that left in order are none: they may have done
    /// their part.
    fn dead(&self) -> Option<Error> {
        let is_dead = |p: &&Peer| p.link.state() == LinkState::Dead && !p.link.was_leaving();
        let dead = self.members.peers.iter().flatten().find(is_dead)?;
        Some(dead.link.gone())
    }
}
