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

    /// Removes a rank for which no thread could be started.
    pub(super) fn remove(&self, rank: u32) {
        self.lock().remove(&rank);
    }

    /// Whether this rank has a thread.
    pub(super) fn has(&self, rank: u32) -> bool {
        self.lock().contains_key(&rank)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::{MAX_WAITING, Next, Requests};
    use hmc_std::Session;

    #[test]
    fn a_rank_has_one_thread_until_nothing_waits() {
        let session = Session::builder(0).start().unwrap();
        let (peer, requests) = (session.peer(0).unwrap(), Requests::default());
        assert!(!requests.has(0));
        assert!(requests.begins(&peer, b"first"), "it needs a thread");
        assert!(requests.has(0) && !requests.has(1));
        for n in 0..=MAX_WAITING {
            assert!(!requests.begins(&peer, &n.to_le_bytes()), "{n}: its thread comes to that");
        }
        for n in 0..MAX_WAITING {
            let next = requests.next(0);
            assert!(
                matches!(&next, Some(Next::Serve(_, bytes)) if **bytes == n.to_le_bytes()),
                "{n}: {next:?}"
            );
        }
        assert!(matches!(requests.next(0), Some(Next::Refuse(_, 1))), "the one beyond the limit");
        assert!(requests.has(0) && requests.next(0).is_none() && !requests.has(0));
        // No thread could be started: the next request tries again.
        assert!(requests.begins(&peer, b"next"));
        requests.remove(0);
        assert!(!requests.has(0) && requests.begins(&peer, b"again"));
    }

    #[test]
    fn requests_of_a_client_that_is_gone_are_dropped() {
        let session = Session::builder(0).start().unwrap();
        let (peer, requests) = (session.peer(0).unwrap(), Requests::default());
        assert!(requests.begins(&peer, b"served"));
        assert!((0..=MAX_WAITING).all(|_| !requests.begins(&peer, b"waits")));
        drop(session);
        assert!(!peer.is_connected());
        assert!(requests.next(0).is_none(), "neither served nor refused");
    }
}
