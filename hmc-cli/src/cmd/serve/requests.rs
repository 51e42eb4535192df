//! Clients that are being served, and what else they have asked for.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hmc_std::Peer;

/// Requests of one client that are kept while it is being served.
pub(super) const MAX_WAITING: usize = 16;

/// What a client's thread does next.
#[derive(Debug)]
pub(super) enum Next {
    /// Serve this request.
    Serve(Peer, Vec<u8>),
    /// Refuse so many, which came when [`MAX_WAITING`] were kept.
    Refuse(Peer, u64),
}

/// What came from a rank beyond what its thread serves now. The rank may be another process's by now: each request has
/// its own peer. Answers are in the order of the requests: once one is to be refused, so are those after it until all
/// have been answered.
#[derive(Debug, Default)]
struct Waiting {
    kept: VecDeque<(Peer, Vec<u8>)>,
    refused: Option<(Peer, u64)>,
}

impl Waiting {
    /// Who is gone waits for nothing.
    fn drop_gone(&mut self) {
        self.kept.retain(|(peer, _)| peer.is_connected());
        self.refused.take_if(|(peer, _)| !peer.is_connected());
    }

    fn add(&mut self, peer: &Peer, bytes: &[u8]) {
        self.drop_gone();
        match &mut self.refused {
            Some((_, count)) => *count = count.saturating_add(1),
            None if self.kept.len() < MAX_WAITING => {
                self.kept.push_back((peer.clone(), bytes.to_vec()));
            }
            refused @ None => *refused = Some((peer.clone(), 1)),
        }
    }

    fn next(&mut self) -> Option<Next> {
        self.drop_gone();
        let kept = self.kept.pop_front().map(|(peer, bytes)| Next::Serve(peer, bytes));
        kept.or_else(|| self.refused.take().map(|(peer, count)| Next::Refuse(peer, count)))
    }
}

/// The ranks that have a thread.
#[derive(Debug, Default)]
pub(super) struct Requests(Mutex<HashMap<u32, Waiting>>);

impl Requests {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread has to be started for this request; else the rank's own takes it by [`Self::next`].
    pub(super) fn begins(&self, peer: &Peer, bytes: &[u8]) -> bool {
        let mut ranks = self.lock();
        let rank = peer.rank().0;
        if let Some(waiting) = ranks.get_mut(&rank) {
            waiting.add(peer, bytes);
            return false;
        }
        ranks.insert(rank, Waiting::default());
        true
    }

    /// What the rank's thread does next. `None` if nothing waits; the rank then has no thread.
    pub(super) fn next(&self, rank: u32) -> Option<Next> {
        let mut ranks = self.lock();
        let next = ranks.get_mut(&rank).and_then(Waiting::next);
        if next.is_none() {
            ranks.remove(&rank);
        }
        next
    }

    /// Forgets a rank for which no thread could be started.
    pub(super) fn forget(&self, rank: u32) {
        self.lock().remove(&rank);
    }

    /// Whether this rank has a thread.
    pub(super) fn has(&self, rank: u32) -> bool {
        self.lock().contains_key(&rank)
    }
}
