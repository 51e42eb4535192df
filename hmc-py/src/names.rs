//! Peers as programs of the C++ HMC call them on the control plane: by numbers that each end chooses for its links.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hmc_std::error::Result;
use hmc_std::{Error, ErrorKind, Message, Peer as StdPeer, Session, Who, rank_of, want::Wanted};

/// Names that are not the ranks of those who bear them, and the links that were made by each: the newest that is connected counts.
pub(crate) struct Names(RwLock<HashMap<u32, Vec<StdPeer>>>);

/// Finds the running session of an id.
pub(crate) type Find<'a> = &'a dyn Fn(u64) -> Option<Arc<Session>>;

/// Whether two are one peer, in whichever life.
pub(crate) fn is_same(a: &StdPeer, b: &StdPeer) -> bool {
    a.rank() == b.rank() && a.explain().session == b.explain().session
}

impl Names {
    pub(crate) fn new() -> Self {
        Self(RwLock::default())
    }

    /// From here on `name` is that peer, which may be one of a session beside this one.
    pub(crate) fn insert(&self, session: &Session, name: u32, peer: &StdPeer) {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if peer.rank().0 == rank_of(name) && peer.explain().session == session.info().id {
            names.remove(&name);
        } else {
            let links = names.entry(name).or_default();
            links.retain(|old| old.is_connected() && !is_same(old, peer));
            links.push(peer.clone());
        }
    }

    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner));
        drop(all);
    }

    /// The peer that bears a name which is not its rank.
    fn named(&self, name: u32, find: Find<'_>) -> Option<StdPeer> {
        let known = {
            let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let links = names.get(&name)?;
            links.iter().rfind(|p| p.is_connected()).or_else(|| links.last())?.clone()
        };
        if known.is_connected() {
            return Some(known);
        }
        // One that came back under its rank has a new life.
        let fresh = find(known.explain().session).and_then(|s| s.peer(known.rank().0).ok());
        Some(fresh.filter(StdPeer::is_connected).unwrap_or(known))
    }

    /// The peer of a name, as far as it is known now.
    pub(crate) fn peer(&self, session: &Session, name: u32, find: Find<'_>) -> Result<StdPeer> {
        if let Some(peer) = self.named(name, find) {
            return Ok(peer);
        }
        let rank = rank_of(name);
        if rank == session.rank().0
            && let Ok(peer) =
                session.accept(Who::Namesake).or_unread().within(Duration::ZERO).wait()
        {
            return Ok(peer);
        }
        // A name beyond all ranks can be a private one.
        known(session, rank).or_else(|_| known(session, name))
    }

    /// The oldest message of a name that is wanted, waiting for the peer to appear if need be.
    pub(crate) fn recv(
        &self,
        session: &Session,
        name: u32,
        want: Wanted,
        (appears, timeout): (Duration, Duration),
        find: Find<'_>,
    ) -> Result<Message<'static>> {
        if let Some(peer) = self.named(name, find) {
            return peer.recv(want).within(timeout).wait();
        }
        let rank = rank_of(name);
        if rank != name && known(session, name).is_ok() {
            return recv_of(session, name, want, (appears, timeout));
        }
        if rank != session.rank().0 || known(session, rank).is_ok() {
            return recv_of(session, rank, want, (appears, timeout));
        }
        session
            .accept(Who::Namesake)
            .or_unread()
            .within(appears)
            .wait()?
            .recv(want)
            .within(timeout)
            .wait()
    }
}

/// The peer of a rank that was connected: the session itself only if it was asked for by `loopback`.
fn known(session: &Session, rank: u32) -> Result<StdPeer> {
    if rank != session.rank().0 {
        return session.peer(rank);
    }
    let own = session.peers().into_iter().find(|peer| peer.rank().0 == rank);
    own.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("rank {rank} was never connected")))
}

/// The oldest wanted message of a rank, which may appear up to the first time from now; the second is that of the message.
///
/// # Errors
/// `PeerDead` at once for a rank that has gone, if there is no limit: it may never come back.
fn recv_of(
    session: &Session,
    rank: u32,
    want: Wanted,
    (appears, timeout): (Duration, Duration),
) -> Result<Message<'static>> {
    let peer = match known(session, rank) {
        Err(gone) if timeout == Duration::MAX && gone.kind() == ErrorKind::PeerDead => {
            return Err(gone);
        }
        Ok(peer) => peer,
        // With one time for both, whatever link of the rank appears counts.
        Err(_) if appears == timeout => {
            return session.recv(rank, want).within(timeout).wait().map(|(_, message)| message);
        }
        Err(_) => session.accept(rank).or_unread().within(appears).wait()?,
    };
    peer.recv(want).within(timeout).wait()
}

/// The number of a tag.
pub(crate) fn tag_of(message: Message<'_>) -> Result<u64> {
    match message {
        Message::Tag(tag) | Message::Notify(tag) => Ok(tag),
        Message::Int(_) | Message::Bytes(_) => Err(Error::new(ErrorKind::Protocol, "not a tag")),
    }
}

/// A 32-bit number.
pub(crate) fn int_of(message: Message) -> Result<i32> {
    match message {
        Message::Int(n) => Ok(n),
        _ => Err(Error::new(ErrorKind::Protocol, "not a 32-bit number")),
    }
}
