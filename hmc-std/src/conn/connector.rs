//! State machine of a connect: dials until a link is ready, joins dials of others, waits for a crossing one.
//!
//! It opens no connection and never blocks: [`Connector::advance`] returns the next step ([`ConnectStep`]).
//! [`crate::conn::connect`] drives it on the caller's thread.

use std::sync::Arc;

use hmc_core::limits::RANK_KEPT_NS;
use hmc_core::time::{Duration, Instant};
use hmc_core::types::{ConnType, Rank};
use hmc_core::wire::reject::RejectReason;

use crate::base::address::Address;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock::lock;
use crate::conn::dial_target::DialTarget;
use crate::conn::dialer::{DialStep, Dialer};
use crate::conn::retry::Retries;
use crate::io::socket::Socket;
use crate::link::{Link, LinkState};
use crate::state::inner::SessionInner;

/// How long a refusal as a duplicate is doubted: the link of the peer's own dial may be about to appear.
const DUPLICATE_GRACE_MS: u64 = 1000;
/// The pause before a peer that dials us itself is dialed again.
const CROSSING_BACKOFF_MS: u64 = 300;

/// What connecting needs next.
#[derive(Debug)]
pub(crate) enum ConnectStep {
    /// A connection there; hand it in by [`Connector::opened`].
    Open(DialTarget),
    /// Bytes on [`Connector::socket`].
    Receive,
    /// The rest of the handshake on this link.
    Drive(Arc<Link>),
    /// Events of the peers, or that time. The rank was taken, or was not, when that was found: an event is what differs from it.
    Event { by: Instant, taken: bool },
    /// That time.
    Pause(Instant),
}

enum State {
    Idle,
    Dialing(Box<Dialer>),
    Opening(Arc<Link>),
    /// Somebody else is at it, or was a moment ago.
    Waiting {
        /// When to dial again, unless there is a link.
        again: Instant,
        /// When to give up, and why.
        until: Instant,
        refused: Option<RejectReason>,
    },
}

/// One wish to be connected.
pub(crate) struct Connector {
    rank: Rank,
    /// The rank that the peer must say it has: `rank`, unless that is private.
    pub(crate) claims: Rank,
    /// The rank that it has, should it be another one.
    pub(crate) found: Option<Rank>,
    address: Address,
    conn: ConnType,
    deadline: Instant,
    /// Until when a rank that is kept for another process is waited for.
    kept_until: Option<Instant>,
    retries: Retries,
    state: State,
}

impl Connector {
    pub(crate) fn new(rank: Rank, address: &Address, conn: ConnType, deadline: Instant) -> Self {
        Self {
            rank,
            claims: rank,
            found: None,
            address: address.clone(),
            conn,
            deadline,
            kept_until: None,
            retries: Retries::default(),
            state: State::Idle,
        }
    }

    pub(crate) const fn rank(&self) -> Rank {
        self.rank
    }

    /// The connection on which an answer is awaited.
    pub(crate) fn socket(&self) -> Option<&Socket> {
        match &self.state {
            State::Dialing(dialer) => dialer.socket(),
            State::Idle | State::Opening(_) | State::Waiting { .. } => None,
        }
    }

    /// Goes on as far as what there is allows: `Ok(Ok(link))` is ready.
    ///
    /// # Errors
    /// It is over.
    pub(crate) fn advance(
        &mut self,
        shared: &SessionInner,
    ) -> Result<std::result::Result<Arc<Link>, ConnectStep>> {
        loop {
            let now = shared.clock.now();
            match &mut self.state {
                State::Idle => {
                    let begun =
                        Dialer::begin(shared, (self.rank, self.claims), &self.address, self.conn)?;
                    self.state = match begun {
                        Some(dialer) => State::Dialing(Box::new(dialer)),
                        None => State::Waiting { again: now, until: self.deadline, refused: None },
                    };
                }
                State::Dialing(_) if now >= self.deadline => {
                    self.abandon(shared);
                    return Err(self.retries.deadline().with_peer(self.rank));
                }
                State::Dialing(dialer) => match dialer.advance(shared) {
                    Err(e) => self.again_after(e, now)?,
                    Ok(DialStep::Open(target)) => return Ok(Err(ConnectStep::Open(target))),
                    Ok(DialStep::Receive) => return Ok(Err(ConnectStep::Receive)),
                    Ok(DialStep::Pause(at)) => {
                        return Ok(Err(ConnectStep::Pause(at.min(self.deadline))));
                    }
                    Ok(DialStep::Linked(link)) => self.state = State::Opening(link),
                    Ok(DialStep::Refused(why @ RejectReason::Duplicate)) => {
                        let until = self.deadline.min(after_ms(now, DUPLICATE_GRACE_MS));
                        let again = Instant::NEVER;
                        self.state = State::Waiting { again, until, refused: Some(why) };
                    }
                    // The peer dials us itself: its connection is the one that stays, if it comes.
                    Ok(DialStep::Refused(why @ RejectReason::Busy)) => {
                        let again = after_ms(now, CROSSING_BACKOFF_MS);
                        let until = self.deadline;
                        self.state = State::Waiting { again, until, refused: Some(why) };
                    }
                    // A dead rank is kept for a while only.
                    Ok(DialStep::Refused(
                        why @ (RejectReason::Kept | RejectReason::Stale { .. }),
                    )) => {
                        let kept = now.after(Duration::from_nanos(RANK_KEPT_NS));
                        let until = *self.kept_until.get_or_insert(kept);
                        let again = after_ms(now, CROSSING_BACKOFF_MS);
                        let until = self
                            .deadline
                            .min(until.after(Duration::from_millis(DUPLICATE_GRACE_MS)));
                        self.state = State::Waiting { again, until, refused: Some(why) };
                    }
                    Ok(DialStep::Refused(why)) => {
                        if let RejectReason::WrongRank { ours } = why {
                            self.found = Some(ours);
                        }
                        return Err(shared.refusal(self.claims, why));
                    }
                },
                State::Opening(link) => match link.state() {
                    LinkState::Ready => return Ok(Ok(Arc::clone(link))),
                    LinkState::Leaving | LinkState::Dead => return Err(link.gone()),
                    LinkState::Opening if now >= self.deadline => {
                        link.close(false, "the handshake took too long");
                        let what = "connecting: the peer accepted but did not open its memory";
                        return Err(Error::deadline(what).with_peer(self.rank));
                    }
                    LinkState::Opening => return Ok(Err(ConnectStep::Drive(Arc::clone(link)))),
                },
                State::Waiting { again, until, refused } => {
                    if let Some(link) = shared.link(self.rank).filter(|l| l.is_ready_now()) {
                        self.check_kind(&link)?;
                        return Ok(Ok(link));
                    }
                    if now >= *until {
                        return Err(match *refused {
                            Some(why) => shared.refusal(self.claims, why),
                            None if self.retries.count() > 0 => {
                                self.retries.deadline().with_peer(self.rank)
                            }
                            None => Error::deadline("waiting for another dial to that rank")
                                .with_peer(self.rank),
                        });
                    }
                    let taken = lock(&shared.registry).is_taken(self.rank);
                    if taken {
                        return Ok(Err(ConnectStep::Event { by: *until, taken }));
                    }
                    if now < *again {
                        return Ok(Err(ConnectStep::Event { by: (*until).min(*again), taken }));
                    }
                    if refused.is_some() {
                        // It answers.
                        self.retries = Retries::default();
                    }
                    self.state = State::Idle;
                }
            }
        }
    }

    /// A transport asked for by name is not replaced by another one, also not by that of a link that exists.
    fn check_kind(&self, link: &Link) -> Result<()> {
        match link.conn() {
            Some(other) if self.conn != ConnType::Auto && other != self.conn => {
                let what = format!(
                    "already connected over {}, not {}: use that connection (`auto` takes it), or disconnect first",
                    other.name(),
                    self.conn.name()
                );
                Err(Error::new(ErrorKind::Unavailable, what).with_peer(self.rank))
            }
            _ => Ok(()),
        }
    }

    /// What [`ConnectStep::Open`] asked for: a connection, or why there is none.
    ///
    /// # Errors
    /// It is over.
    pub(crate) fn opened(&mut self, shared: &SessionInner, opened: Result<Socket>) -> Result<()> {
        let done = match &mut self.state {
            State::Dialing(dialer) => dialer.opened(shared, opened),
            State::Idle | State::Opening(_) | State::Waiting { .. } => Ok(()),
        };
        done.or_else(|e| self.again_after(e, shared.clock.now()))
    }

    /// The dial failed: it is tried again if that is worth it, unless the peer's own comes first.
    fn again_after(&mut self, e: Error, now: Instant) -> Result<()> {
        if !Retries::is_worth_it(&e) {
            return Err(e);
        }
        let again = self.retries.next(now);
        self.state = State::Waiting { again, until: self.deadline, refused: None };
        Ok(())
    }

    /// It is given up: the rank may be dialed again.
    pub(crate) fn abandon(&mut self, shared: &SessionInner) {
        if let State::Dialing(dialer) = &mut self.state {
            dialer.abandon(shared);
        }
        self.state = State::Idle;
    }
}

fn after_ms(now: Instant, ms: u64) -> Instant {
    now.after(Duration::from_millis(ms))
}
