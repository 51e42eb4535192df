//! One round of a collective: any number of messages to and from other members, moved on together by the caller's thread.
//!
//! Memory is borrowed: the caller copies its bytes itself, piece by piece. While there is nothing to copy, a thread sleeps on all
//! links, and a future leaves them to the session's thread. A round ends when all of its messages have, or with the first that fails: the others are withdrawn then, so that
//! their other ends fail too, and nothing of the caller's memory is touched any more. In every wait it also looks at the
//! members that it exchanges nothing with: the death of one is the end of all.

use std::future::poll_fn;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use hmc_core::rndv::AbortReason;
use hmc_core::time::{Duration, Instant};
use hmc_core::types::Rank;

use super::Members;
use super::call::Call;
use super::channel::stream::Stream;
use super::channel::{Reason, left};
use super::flight::{Flight, Message};
use super::meeting::Meeting;
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

/// For how long a member whose partner gave up or left waits, at the least, for the report of a death that explains it.
const BLAME_NS: u64 = 100_000_000;

/// For how long a thread looks at channels that change nothing before it sleeps.
const SPIN_NS: u64 = 100_000;

/// The same while a long message moves: another member may need so long to read a piece of it.
const SPIN_LONG_NS: u64 = 1_000_000;

/// For how long it looks at channels at the most, before it serves the links and calls the interrupt hook.
const MAX_SPIN_NS: u64 = 10_000_000;

/// How often data planes are served by a caller, where no thread does.
const MANUAL_POLL_NS: u64 = 1_000_000;

/// For how long it keeps the processor, before it leaves that to another member between two looks.
const KEEP_NS: u64 = 1_000;

/// The same while pieces of a long message are copied, if there is a processor for each member.
const KEEP_LONG_NS: u64 = 20_000;

/// The messages of one round. What has not ended is withdrawn when the value goes.
struct Round<'m, 'a> {
    call: Call<'m>,
    flights: Vec<Flight<'m, 'a>>,
    /// Of the flights, those before it have ended.
    first: usize,
    streams: Vec<Stream<'m, 'a>>,
    /// The latest look at the streams changed something.
    has_moved: bool,
    /// Members that agree on a channel, and the messages that wait for that.
    meetings: Vec<(Meeting<'m, 'a>, Vec<Message<'a>>)>,
}

impl<'m, 'a> Round<'m, 'a> {
    fn new(call: Call<'m>) -> Self {
        let (flights, streams, meetings) = (Vec::new(), Vec::new(), Vec::new());
        Self { call, flights, first: 0, streams, has_moved: false, meetings }
    }

    /// Begins a message. The first ones between two members of a host have to wait until these have agreed on a channel.
    fn begin(&mut self, message: Message<'a>) -> Result<()> {
        let Call { members, by, .. } = self.call;
        let position = message.position();
        let peer = members.peer(position)?;
        match members.channels.get(position).and_then(OnceLock::get) {
            Some(Some(channel)) => {
                peer.check_rndv()?;
                let (bytes, sends) = match message {
                    Message::Send(_, bytes) => (bytes, true),
                    Message::Receive(_, bytes) => (bytes, false),
                };
                self.streams.push(channel.begin(peer, bytes, sends, self.call.blocks));
            }
            None if members.may_have_channel(peer) => {
                peer.check_rndv()?;
                match self.meetings.iter_mut().find(|(m, _)| std::ptr::eq(m.peer, peer)) {
                    Some((_, waiting)) => waiting.push(message),
                    None => self.meetings.push((Meeting::begin(peer, by)?, vec![message])),
                }
            }
            Some(None) | None => self.flights.push(Flight::begin(peer, message, by)?),
        }
        Ok(())
    }

    /// Copies what can be copied. Whether all messages have ended.
    fn move_on(&mut self) -> Result<bool> {
        let mut all = self.move_streams()?;
        for flight in self.flights.iter_mut().skip(self.first) {
            if flight.over || flight.move_on()? {
                self.first = self.first.saturating_add(usize::from(all));
            } else {
                all = false;
            }
        }
        let mut n = 0;
        while let Some((meeting, _)) = self.meetings.get_mut(n) {
            let Some(channel) = meeting.move_on(self.call.blocks)? else {
                n = n.saturating_add(1);
                continue;
            };
            let (_, waiting) = self.meetings.swap_remove(n);
            self.call.members.keep_channel(&waiting, channel);
            let begun = self.streams.len();
            waiting.into_iter().try_for_each(|message| self.begin(message))?;
            self.announce(begun)?;
            // Those that have just begun may be over: look again.
            return self.move_on();
        }
        Ok(all && self.meetings.is_empty())
    }

    /// Announces the messages from there on: those that fit are there, even if another one fails.
    fn announce(&mut self, from: usize) -> Result<()> {
        // What is sent to a member goes with all that is announced to it.
        self.streams.iter_mut().skip(from).try_for_each(Stream::send_first)?;
        self.streams.iter().try_for_each(|stream| stream.channel.flush(stream.peer))
    }

    /// Ends the meetings of a member that failed, so that the others learn of it. Whether all have ended.
    fn end_meetings(&mut self) -> bool {
        let mut n = 0;
        while let Some((meeting, _)) = self.meetings.get_mut(n) {
            let met = match meeting.move_on(self.call.blocks) {
                Ok(None) => {
                    n = n.saturating_add(1);
                    continue;
                }
                Ok(met) => met,
                Err(_) => None,
            };
            let (meeting, waiting) = self.meetings.swap_remove(n);
            let Some(met) = met else { continue };
            let channel = self.call.members.keep_channel(&waiting, met);
            // A short message is received as if it had come with its offer. Nothing is received from a channel here, so senders learn of
            // the failure. Messages end when both ends have met.
            let begun = self.streams.len();
            let begins = |m: &Message<'_>| channel.is_none() || matches!(m, Message::Send(..));
            let mut begins = waiting.into_iter().filter(begins);
            let _ = begins.try_for_each(|message| self.begin(message));
            let _ = self.announce(begun);
            if let Some(channel) = channel {
                channel.report_failure(meeting.peer, Reason::GaveUp);
            }
        }
        self.meetings.is_empty()
    }

    fn move_streams(&mut self) -> Result<bool> {
        let mut all = true;
        self.has_moved = false;
        for stream in &mut self.streams {
            all &= stream.move_on()?;
            self.has_moved |= stream.has_moved;
        }
        for stream in &self.streams {
            stream.channel.flush(stream.peer)?;
        }
        if self.streams.iter().any(|stream| stream.has_more) {
            // Nobody else tells this member to go on.
            let Members { waker, shared, .. } = self.call.members;
            waker.wake(&shared.wakers);
        }
        Ok(all)
    }

    /// All messages on links, those of meetings included.
    fn on_links(&mut self) -> impl Iterator<Item = &mut Flight<'m, 'a>> {
        let notices = self.meetings.iter_mut().flat_map(|(meeting, _)| &mut meeting.notices);
        self.flights.iter_mut().chain(notices)
    }

    fn links(&self) -> Vec<&'m Link> {
        let flights = self.flights.iter().map(|f| f.peer);
        let streams = self.streams.iter().map(|s| s.peer);
        let meetings = self.meetings.iter().map(|(m, _)| m.peer);
        flights.chain(streams).chain(meetings).map(|peer| &*peer.link).collect()
    }

    /// What this end waited for when its time was over.
    fn late(&self) -> Error {
        let flights = self.flights.iter().filter(|f| !f.over).map(|f| f.peer);
        let streams = self.streams.iter().filter(|s| !s.over).map(|s| s.peer);
        let meetings = self.meetings.iter().map(|(m, _)| m.peer);
        let waited = flights.chain(streams).chain(meetings);
        let mut ranks: Vec<u32> = waited.map(|peer| peer.rank().0).collect();
        ranks.sort_unstable();
        ranks.dedup();
        Error::deadline(format_args!("waiting for ranks {ranks:?}"))
    }

    fn withdraw(&mut self, why: AbortReason) {
        self.on_links().for_each(|flight| flight.withdraw(why));
    }

    /// Looks at the channels until all messages have ended, or nothing changes for a while, without a look at the links. Returns
    /// whether all have ended.
    fn spin(&mut self) -> Result<bool> {
        let all = self.move_on()?;
        let only_channels = self.flights.is_empty() && self.meetings.is_empty();
        let Call { members, by, blocks } = self.call;
        if all || !only_channels || !blocks || members.shared.config.spin.is_zero() {
            return Ok(all);
        }
        let is_long = self.streams.iter().any(Stream::is_long);
        let spin = Duration::from_nanos(if is_long { SPIN_LONG_NS } else { SPIN_NS });
        let keeps = is_long && members.has_processors;
        let keep = Duration::from_nanos(if keeps { KEEP_LONG_NS } else { KEEP_NS });
        let mut moved = clock::now();
        let most = by.min(moved.after(Duration::from_nanos(MAX_SPIN_NS)));
        loop {
            if self.move_on()? {
                return Ok(true);
            }
            let now = clock::now();
            if self.has_moved {
                moved = now;
            }
            let idle = now.since(moved);
            if idle >= spin || now >= most {
                return Ok(false);
            }
            if idle < keep {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
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
    /// `Closed` when a partner left, `Cancelled` when one failed for reasons of its own, `DeadlineExceeded`, `Full`, `NoSpace`.
    pub(super) async fn exchange<'a>(
        &self,
        messages: impl IntoIterator<Item = Message<'a>>,
    ) -> Result<()> {
        let mut round = Round::new(*self);
        let begun = messages.into_iter().try_for_each(|message| round.begin(message));
        let spun = begun.and_then(|()| round.announce(0)).and_then(|()| round.spin());
        if let Ok(true) = spun {
            return Ok(());
        }
        let links = round.links();
        let moved = match spun {
            Ok(_) => {
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
        let mut e = self.told_in_order(e);
        let by = clock::now().after(Duration::from_nanos(GRACE_NS));
        let late = e.kind() == ErrorKind::DeadlineExceeded;
        // Others may have longer deadlines, or learn of a death later.
        self.members.report_failure(Reason::of(&e));
        // Not beyond its own time; of a partner's it has to tell others.
        let is_over = late && clock::now() >= self.by;
        if !is_over && e.kind() != ErrorKind::PeerDead {
            let doubtful = matches!(e.kind(), ErrorKind::Cancelled | ErrorKind::Closed);
            let blame =
                clock::now().after(Duration::from_nanos(if doubtful { BLAME_NS } else { 0 }));
            // A task is woken by messages and at the end of its wait: the first is as long as the doubt.
            for until in [blame, if late { by.min(self.by) } else { by }] {
                let told = self.wait(links, until, || {
                    let mut all = round.end_meetings();
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
                        e = self.told_in_order(found);
                        break;
                    }
                    Err(_) => {}
                }
            }
        }
        round.withdraw(if late { AbortReason::DeadlineExceeded } else { AbortReason::Cancelled });
        // What is wrong is known: only answers are waited for.
        let answered = self.wait(links, by, || {
            let all = round.on_links().all(|flight| flight.is_forgotten());
            Ok(all.then_some(()))
        });
        match answered.await {
            Err(found) if found.kind() == ErrorKind::Forked => found,
            _ => self.dead().unwrap_or(e),
        }
    }

    /// The error `e`. It is [`left`] if it came of a link that is over: one that was left in order tells of a death, too, in the end.
    fn told_in_order(&self, e: Error) -> Error {
        let is_member = |rank: Rank| self.members.ranks.contains(&rank.0);
        if e.kind() == ErrorKind::PeerDead && !e.peer().is_some_and(is_member) {
            // A member blames one that is none.
            return Error::new(ErrorKind::Cancelled, e.to_string());
        }
        let is_gone = matches!(e.kind(), ErrorKind::PeerDead | ErrorKind::Closed);
        let is_over = |p: &&Peer| Some(p.rank()) == e.peer() && p.link.check_open().is_err();
        let gone = self.members.peers.iter().flatten().find(is_over).filter(|_| is_gone);
        gone.map_or(e, left)
    }

    /// Waits until `look` finds something, which messages on `links` may bring: looks and sleeps alternately, or is pending.
    async fn wait<R>(
        &self,
        links: &[&Link],
        by: Instant,
        mut look: impl FnMut() -> Result<Option<R>>,
    ) -> Result<R> {
        if self.blocks {
            let found = self.sleep_until(links, by, look);
            self.members.set_parked(false);
            return found;
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
        self.members.set_parked(true);
        let found = match look() {
            Ok(None) if clock::now() < by => return Poll::Pending,
            Ok(None) => Err(Error::deadline("waiting for other members")),
            Ok(Some(found)) => Ok(found),
            Err(e) => Err(e),
        };
        waker.unpark_task();
        self.members.set_parked(false);
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
                // A member with a channel may be between its words and the frame that wakes.
                if self.members.channels().next().is_none() {
                    led.note_missed_wakeup();
                }
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
                self.members.set_parked(false);
                std::hint::spin_loop();
                continue;
            }
            self.members.set_parked(true);
            if led.park(timer.park_until(), Duration::from_nanos(pause)) {
                outcome.slept(clock::now().since(now));
            }
        }
    }

    /// What ends any wait for messages besides themselves: the one place for it.
    fn check(&self) -> Result<()> {
        let told = || self.members.channels().find_map(|(peer, channel)| channel.death(peer));
        self.dead().or_else(told).map_or(Ok(()), Err)
    }

    /// The error of the first member that is known to be dead. Members that left in order are none: they may have done
    /// their part.
    fn dead(&self) -> Option<Error> {
        let is_dead = |p: &&Peer| p.link.state() == LinkState::Dead && !p.link.was_leaving();
        let dead = self.members.peers.iter().flatten().find(is_dead)?;
        Some(dead.link.gone())
    }
}
