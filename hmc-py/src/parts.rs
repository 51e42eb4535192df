//! Sessions over one buffer: each has a rank, peers and names of its own, and asks the others for what it does not know.

use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use hmc_std::error::Result;
use hmc_std::{ErrorKind, Message, Peer as StdPeer, Session, want::Wanted};
use pyo3::prelude::*;

use crate::data::DropDeferred;
use crate::errors::OrRaise;
use crate::names::{Find, Names};
use crate::op_table::OpTable;
use crate::peer_table::{CONNECT_GRACE, PeerKey, PeerTable, nobody, wait_connecting};
use crate::session_state::{SessionState, closed};

/// How long a call waits at one of several sessions for a peer to appear before it looks at the others.
const SLICE: Duration = Duration::from_millis(5);

/// One of them.
pub(crate) struct Part {
    pub(crate) state: SessionState,
    pub(crate) places: PeerTable,
    pub(crate) names: Names,
}

/// One of them, and those beside it.
pub(crate) struct Parts {
    pub(crate) own: Arc<Part>,
    all: Arc<RwLock<Vec<Weak<Part>>>>,
    pub(crate) begun: Arc<OpTable>,
}

/// One that runs.
type Live = (Arc<Part>, Arc<Session>);

impl Parts {
    pub(crate) fn new(state: SessionState, places: PeerTable) -> Self {
        let own = Arc::new(Part { state, places, names: Names::new() });
        let all = Arc::new(RwLock::new(vec![Arc::downgrade(&own)]));
        Self { own, all, begun: Arc::new(OpTable::new()) }
    }

    /// Another one, which has not started.
    pub(crate) fn beside(&self) -> Result<Self> {
        let state = self.own.state.beside()?;
        let own = Arc::new(Part { state, places: self.own.places.beside(), names: Names::new() });
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|part| part.strong_count() != 0);
        all.push(Arc::downgrade(&own));
        drop(all);
        Ok(Self { own, all: Arc::clone(&self.all), begun: Arc::clone(&self.begun) })
    }

    /// All of them, this one first.
    fn all(&self) -> Vec<Arc<Part>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let others = all.iter().filter_map(Weak::upgrade).filter(|p| !Arc::ptr_eq(p, &self.own));
        std::iter::once(Arc::clone(&self.own)).chain(others).collect()
    }

    /// The session of that number.
    ///
    /// # Errors
    /// `Closed`.
    pub(crate) fn session(&self, id: u64) -> Result<Arc<Session>> {
        let is_it = |part: &Part| part.state.id() == Some(id);
        let of = |part: &Part| is_it(part).then(|| part.state.running()).flatten();
        let other = || self.all().iter().find_map(|part| of(part));
        of(&self.own).or_else(other).ok_or_else(closed)
    }

    /// Those that run, this one first.
    ///
    /// # Errors
    /// Why this one does not, where none does; `Forked`.
    pub(crate) fn live(&self, py: Python<'_>) -> PyResult<Vec<Live>> {
        self.own.state.check_process().or_raise(py)?;
        drop(DropDeferred);
        let all = self.all().into_iter();
        let live: Vec<Live> =
            all.filter_map(|p| Some((Arc::clone(&p), p.state.running()?))).collect();
        if live.is_empty() {
            self.own.state.session(py)?;
        }
        Ok(live)
    }

    /// Refuses to go on where none of them runs.
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.own.state.session(py).is_err() {
            self.live(py)?;
        }
        Ok(())
    }

    /// The peer of a place at which no connected peer of this session is known to be.
    #[cold]
    pub(crate) fn find(&self, py: Python<'_>, key: PeerKey, ip: &str) -> PyResult<StdPeer> {
        let live = self.live(py)?;
        let known = self.all().into_iter().find_map(|part| Some((part.places.known(key)?, part)));
        if let Some(((old, session), part)) = known {
            if old.is_connected() {
                return Ok(old);
            }
            for (_, session) in &live {
                wait_connecting(py, session)?;
            }
            // One that came back has a new life.
            let Ok(session) = self.session(session) else { return Ok(old) };
            let fresh = session.peer(old.rank().0).or_raise(py)?;
            if fresh.is_connected() {
                part.places.renew(key, &fresh);
            }
            return Ok(fresh);
        }
        self.guess(py, &live, key, ip)?.map_or_else(|| Err(nobody(py, key, ip)?), Ok)
    }

    /// Who connected to one of them has no port that was dialed: it is known by its address alone. A peer of this session that is
    /// being connected comes before those of the others.
    fn guess(
        &self,
        py: Python<'_>,
        live: &[Live],
        key: PeerKey,
        ip: &str,
    ) -> PyResult<Option<StdPeer>> {
        for (_, session) in live {
            let look = || self.own.places.guess(py, session, key, ip);
            let mut found = look()?;
            if found.is_none() {
                wait_connecting(py, session)?;
                found = look()?;
            }
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Ends a name of a peer and the transfers that were begun by it, and links that no name stands for then. Whoever is
    /// unknown has none.
    pub(crate) fn end(
        &self,
        py: Python<'_>,
        key: PeerKey,
        ip: &str,
        timeout: Duration,
    ) -> PyResult<()> {
        let (live, all) = (self.live(py)?, self.all());
        let (peer, tags) = match all.iter().find_map(|part| part.places.remove(key)) {
            Some(known) => known,
            None => match self.guess(py, &live, key, ip)? {
                Some(peer) => (peer, None),
                None => return Ok(()),
            },
        };
        self.own.places.end(key);
        py.detach(|| {
            let until = Instant::now().checked_add(timeout);
            let left = || until.map_or(timeout, |u| u.saturating_duration_since(Instant::now()));
            let session = peer.explain().session;
            self.session(session)?;
            self.begun.end(session, key, left())?;
            let links = std::iter::once(&peer).chain(&tags).filter(|p| !self.is_placed(p));
            links.map(|link| link.disconnect().within(left()).wait()).fold(Ok(()), Result::and)
        })
        .or_raise(py)
    }

    /// Whether some place names a link, or one whose tags go over it.
    pub(crate) fn is_placed(&self, peer: &StdPeer) -> bool {
        self.all().iter().any(|part| part.places.names(peer))
    }

    /// The peer of a name, as far as it is known now: one that is connected before those that are gone, and one of this session,
    /// also if it is being connected, before those of the others.
    pub(crate) fn named(&self, live: &[Live], name: u32) -> Result<StdPeer> {
        let rank = hmc_std::rank_of(name);
        let find: Find<'_> = &|id| self.session(id).ok();
        let mut gone = None;
        for (part, session) in live {
            if live.len() > 1 && session.info().connecting.contains(&hmc_std::Rank(rank)) {
                let _ = session.accept(rank).within(CONNECT_GRACE).wait();
            }
            match part.names.peer(session, name, find) {
                Ok(peer) if peer.is_connected() => return Ok(peer),
                // Of those that are gone and those that are unknown the first session's counts.
                other => gone = gone.filter(Result::is_ok).or(Some(other)),
            }
        }
        gone.unwrap_or_else(|| Err(closed()))
    }

    /// The oldest message of a name that is wanted, waiting for the peer to appear if need be.
    pub(crate) fn recv(
        &self,
        live: &[Live],
        name: u32,
        want: Wanted,
        (appears, timeout): (Duration, Duration),
    ) -> Result<Message<'static>> {
        let find: Find<'_> = &|id| self.session(id).ok();
        let Some(((part, session), others)) = live.split_first() else {
            return Err(closed());
        };
        if others.is_empty() {
            return part.names.recv(session, name, want, (appears, timeout), find);
        }
        let until = Instant::now().checked_add(appears);
        loop {
            if let Ok(peer) = self.named(live, name) {
                return peer.recv(want).within(timeout).wait();
            }
            let left = until.map_or(SLICE, |u| u.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return part.names.recv(session, name, want, (Duration::ZERO, timeout), find);
            }
            match session.accept(hmc_std::rank_of(name)).within(left.min(SLICE)).wait() {
                Err(e) if e.kind() != ErrorKind::DeadlineExceeded => return Err(e),
                _ => {}
            }
        }
    }
}
