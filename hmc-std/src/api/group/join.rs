//! Making a group.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hmc_core::types::Rank;

use super::{Group, Members};
use crate::api::peer::Peer;
use crate::api::session::Session;
use crate::base::config::check_rank;
use crate::base::error::{Error, Result};
use crate::link::park_waker::ParkWaker;
use crate::link::spin_policy::SpinPolicy;
use crate::ops::event_wait::EventWait;
use crate::ops::request::sealed::Sealed;
use crate::ops::request::{Request, Verb};
use crate::ops::who::closed;
use crate::state::inner::SessionInner;

/// A group that is made ([`Session::group`]).
#[derive(Debug)]
pub struct Join<'a> {
    shared: &'a Arc<SessionInner>,
    ranks: &'a [u32],
}

impl Session {
    /// Makes a group of `ranks` in this order, this session's rank among them. Waits until all of them are connected.
    ///
    /// # Errors
    /// Of the request:
    /// - `InvalidConfig` if the list lacks this session's rank or has a rank twice.
    /// - `DeadlineExceeded`, with the rank that did not connect; `Interrupted`.
    /// - `Unsupported` for a peer without a data plane.
    /// - `SystemLimit` if no descriptor is left.
    pub fn group<'a>(&'a self, ranks: &'a [u32]) -> Request<Join<'a>> {
        Request::new(Join { shared: &self.shared, ranks })
    }
}

impl Join<'_> {
    /// Our position among the ranks.
    fn check(&self) -> Result<usize> {
        self.shared.check_process()?;
        let own = self.shared.config.rank.0;
        for (i, rank) in self.ranks.iter().enumerate() {
            if self.ranks.iter().skip(i.saturating_add(1)).any(|r| r == rank) {
                let what = format!("rank {rank} is twice in the list of a group; name each once");
                return Err(Error::config(what));
            }
        }
        self.ranks.iter().try_for_each(|rank| check_rank(*rank))?;
        self.ranks.iter().position(|r| *r == own).ok_or_else(|| {
            let what = format!("the list of a group lacks this session's own rank, {own}; add it");
            Error::config(what)
        })
    }

    /// Returns the first rank that is not connected.
    fn missing(&self) -> Option<u32> {
        let own = self.shared.config.rank.0;
        let is_there = |rank| self.shared.link(Rank(rank)).is_some_and(|l| l.is_ready_now());
        self.ranks.iter().copied().find(|rank| *rank != own && !is_there(*rank))
    }

    /// The group, once all are connected.
    fn look(&self, position: usize) -> Option<Result<Group>> {
        match self.missing() {
            None => Some(self.made(position)),
            // Nobody connects any more.
            Some(rank) if self.shared.is_leaving() => Some(Err(closed().with_peer(Rank(rank)))),
            Some(_) => None,
        }
    }

    fn made(&self, position: usize) -> Result<Group> {
        let waker = ParkWaker::new()?;
        let mut peers = Vec::with_capacity(self.ranks.len());
        for rank in self.ranks {
            if *rank == self.shared.config.rank.0 {
                peers.push(None);
                continue;
            }
            let link = self.shared.live_link(Rank(*rank))?;
            let peer = Peer { link, shared: Arc::clone(self.shared) };
            peer.check_rndv()?;
            peers.push(Some(peer));
        }
        for peer in peers.iter().flatten() {
            peer.link.park_wakers.register(&waker);
        }
        let (shared, ranks) = (Arc::clone(self.shared), self.ranks.to_vec());
        let (state, spin_policy) = (Mutex::default(), SpinPolicy::default());
        let channels = ranks.iter().map(|_| OnceLock::new()).collect();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let members = Arc::new(Members {
            has_processors: ranks.len() <= processors,
            shared,
            ranks,
            position,
            peers,
            channels,
            is_parked: AtomicBool::new(false),
            waker,
            state,
            spin_policy,
        });
        Ok(Group { members })
    }

    /// The error with the rank that did not connect, and what was waited for.
    fn late(&self, error: impl FnOnce(String) -> Error) -> Error {
        match self.missing() {
            Some(rank) => {
                error(format!("waiting for rank {rank} to connect")).with_peer(Rank(rank))
            }
            None => error("waiting for the members of a group to connect".into()),
        }
    }
}

impl Sealed for Join<'_> {}

impl<'a> Verb for Join<'a> {
    type Output = Group;
    type Error = Error;
    type Pending = PendingJoin<'a>;

    fn wait(self, within: Option<Duration>) -> Result<Group> {
        let position = self.check()?;
        let shared = self.shared;
        let until = shared.until(within.unwrap_or(shared.config.deadline));
        shared
            .wait_for_event(until, |_| self.look(position))
            .unwrap_or_else(|stop| Err(self.late(|what| stop.error(what))))
    }

    fn pending(self, within: Option<Duration>) -> PendingJoin<'a> {
        PendingJoin { join: self, wait: EventWait::new(within) }
    }
}

/// It as a future.
#[derive(Debug)]
pub struct PendingJoin<'a> {
    join: Join<'a>,
    wait: EventWait,
}

impl Future for PendingJoin<'_> {
    type Output = Result<Group>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { join, wait } = &mut *self;
        let position = join.check()?;
        let late = || join.late(Error::deadline);
        wait.poll(join.shared, cx, late, || join.look(position))
    }
}
