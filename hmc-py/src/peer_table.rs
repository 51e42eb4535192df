//! Peers as the C++ HMC names them: by the address and port of their listener, and by the transport.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::ops::Range;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use hmc_std::{ConnType, ErrorKind, Peer as StdPeer, Session};
use pyo3::prelude::*;

use crate::args::{Conn, Port};
use crate::errors::{OrRaise, refuse};
use crate::names::is_same;

/// How long a connecting peer may delay a call that names no connected one.
pub(crate) const CONNECT_GRACE: Duration = Duration::from_secs(2);

/// Waits for connecting peers: the program may rely on a tag of theirs that has come.
pub(crate) fn wait_connecting(py: Python<'_>, session: &Session) -> PyResult<()> {
    py.detach(|| {
        let until = Instant::now().checked_add(CONNECT_GRACE);
        for rank in session.info().connecting {
            let left = until.map_or(CONNECT_GRACE, |u| u.saturating_duration_since(Instant::now()));
            match session.accept(rank).within(left).wait() {
                Err(e) if e.kind() == ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
        Ok(())
    })
    .or_raise(py)
}

/// Ranks of sessions that a process makes only because it is connected to a peer over another transport already. A process that is looked up by an address is found by its first rank.
pub(crate) const SECOND_RANKS: Range<u32> = 3072..4096;

/// One such key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PeerKey {
    ip: IpAddr,
    port: u16,
    conn: u8,
}

/// The peer of a key.
struct Known {
    peer: StdPeer,
    /// The id of its session.
    session: u64,
    /// The link of the same process for its tags, if that is another one.
    tags: Option<StdPeer>,
}

/// Peers by key.
pub(crate) struct PeerTable {
    known: RwLock<HashMap<PeerKey, Known>>,
    /// Ended keys: they are not guessed any more.
    ended: RwLock<HashSet<PeerKey>>,
    /// Addresses of this process: peers over a local socket are at them.
    own: RwLock<Vec<IpAddr>>,
    /// A peer over another transport than the named one is accepted.
    fallback: bool,
}

/// The transport of a number of `ConnType` in Python.
pub(crate) fn conn_of(py: Python<'_>, conn: u8) -> PyResult<ConnType> {
    Ok(match conn {
        0 => ConnType::Rdma,
        1 => ConnType::Ucx,
        2 => ConnType::Auto,
        3 => ConnType::Shm,
        4 => ConnType::Tcp,
        5 => ConnType::Loopback,
        other => {
            let what = format!("conn={other}: give a ConnType");
            return Err(refuse(py, ErrorKind::InvalidConfig, what));
        }
    })
}

fn ip_of(py: Python<'_>, text: &str) -> PyResult<IpAddr> {
    if let Ok(ip) = text.parse() {
        return Ok(ip);
    }
    let found = py.detach(|| (text, 0).to_socket_addrs());
    let first = found.ok().and_then(|mut all| all.next()).map(|a| a.ip());
    first.ok_or_else(|| {
        let what = format!("`{text}` is no IP address, and no name that can be resolved");
        refuse(py, ErrorKind::InvalidConfig, what)
    })
}

impl PeerKey {
    pub(crate) fn of(py: Python<'_>, ip: &str, port: Port, conn: Conn) -> PyResult<Self> {
        Ok(Self { ip: ip_of(py, ip)?, port: port.0, conn: conn.0 })
    }
}

impl PeerTable {
    pub(crate) fn new(fallback: bool) -> Self {
        Self {
            known: RwLock::default(),
            ended: RwLock::default(),
            own: RwLock::default(),
            fallback,
        }
    }

    /// Returns an empty table for another session of this process.
    pub(crate) fn beside(&self) -> Self {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner).clone();
        Self { own: RwLock::new(own), ..Self::new(self.fallback) }
    }

    pub(crate) fn insert(&self, key: PeerKey, peer: StdPeer, tags: Option<StdPeer>) {
        self.ended.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
        let known = Known { session: peer.explain().session, peer, tags };
        let old = self.known.write().unwrap_or_else(PoisonError::into_inner).insert(key, known);
        drop(old);
    }

    /// Replaces the peer of a key by its present incarnation.
    pub(crate) fn renew(&self, key: PeerKey, fresh: &StdPeer) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get_mut(&key) {
            known.session = fresh.explain().session;
            known.peer = fresh.clone();
        }
    }

    /// Removes a key. Returns its peer, and the link for its tags.
    pub(crate) fn remove(&self, key: PeerKey) -> Option<(StdPeer, Option<StdPeer>)> {
        let known = self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
        known.map(|k| (k.peer, k.tags))
    }

    /// Ends a key.
    pub(crate) fn end(&self, key: PeerKey) {
        self.ended.write().unwrap_or_else(PoisonError::into_inner).insert(key);
    }

    /// Returns `true` if a key refers to a peer, or its tags use that link.
    pub(crate) fn names(&self, peer: &StdPeer) -> bool {
        let is = |p: &StdPeer| is_same(p, peer);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().any(|k| is(&k.peer) || k.tags.as_ref().is_some_and(is))
    }

    /// One more address of this process.
    pub(crate) fn add_own(&self, py: Python<'_>, ip: &str) -> PyResult<()> {
        let ip = ip_of(py, ip)?;
        self.own.write().unwrap_or_else(PoisonError::into_inner).push(ip);
        Ok(())
    }

    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.known.write().unwrap_or_else(PoisonError::into_inner));
        drop(all);
    }

    /// Returns the peer of a key, connected or not.
    #[inline]
    pub(crate) fn known(&self, key: PeerKey) -> Option<(StdPeer, u64)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&key).map(|k| (k.peer.clone(), k.session))
    }

    /// The peer of a session at an address, if it is known by that alone.
    pub(crate) fn guess(
        &self,
        py: Python<'_>,
        session: &Session,
        key: PeerKey,
        ip: &str,
    ) -> PyResult<Option<StdPeer>> {
        if self.ended.read().unwrap_or_else(PoisonError::into_inner).contains(&key) {
            return Ok(None);
        }
        let wanted = conn_of(py, key.conn)?;
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner).contains(&key.ip);
        let is_here = own || key.ip.is_loopback();
        let is_there = |p: &StdPeer| match p.explain().address {
            Some(addr) => addr.ip() == key.ip,
            None => is_here,
        };
        let any = self.fallback || wanted == ConnType::Auto;
        let moves = |p: &StdPeer| any || p.explain().conn == Some(wanted);
        let mut all: Vec<StdPeer> =
            session.peers().into_iter().filter(|p| is_there(p) && moves(p)).collect();
        let named = |p: &StdPeer| p.explain().conn == Some(wanted);
        if all.len() > 1 && all.iter().any(named) {
            all.retain(named);
        }
        let is_first = |p: &StdPeer| !SECOND_RANKS.contains(&p.rank().0);
        if all.len() > 1 && all.iter().any(is_first) {
            all.retain(is_first);
        }
        match all.as_slice() {
            [peer] => Ok(Some(peer.clone())),
            [] => Ok(None),
            several => {
                let ranks: Vec<String> = several.iter().map(|p| p.rank().to_string()).collect();
                Err(refuse(
                    py,
                    ErrorKind::InvalidConfig,
                    format!(
                        "several peers are at {ip} (ranks {}): name one by its rank, `session.peer(rank)`",
                        ranks.join(", ")
                    ),
                ))
            }
        }
    }
}

/// Returns the error for a key without a peer.
#[cold]
pub(crate) fn nobody(py: Python<'_>, key: PeerKey, ip: &str) -> PyResult<PyErr> {
    let what = format!(
        "no peer at {ip}:{} over {}: call connect() with that address, port and conn, or wait until it has connected \
         (check_conn)",
        key.port,
        conn_of(py, key.conn)?
    );
    Ok(refuse(py, ErrorKind::NotFound, what))
}
