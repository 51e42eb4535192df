//! Peers as the seeds name them: by the address and port where they listen, and by what moves the bytes.

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

/// How long somebody who is being connected may hold up a call that names nobody who is.
pub(crate) const ARRIVAL: Duration = Duration::from_secs(2);

/// Waits for those who are being connected: a tag of theirs may have come, and the program relies on it.
pub(crate) fn let_in(py: Python<'_>, session: &Session) -> PyResult<()> {
    py.detach(|| {
        let until = Instant::now().checked_add(ARRIVAL);
        for rank in session.arriving() {
            let left = until.map_or(ARRIVAL, |u| u.saturating_duration_since(Instant::now()));
            match session.wait_peer(rank, left) {
                Err(e) if e.kind() == ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
        Ok(())
    })
    .or_raise(py)
}

/// Ranks of sessions that a process makes only because it is connected to a peer over another transport already. Who is looked
/// for by an address is found by its first rank.
pub(crate) const SECOND_RANKS: Range<u32> = 3072..4096;

/// One such name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    ip: IpAddr,
    port: u16,
    conn: u8,
}

/// Who is at a place.
struct Known {
    peer: StdPeer,
    /// The link of the same process that its tags take, where that is another one.
    tags: Option<StdPeer>,
}

/// Who is where.
pub(crate) struct Places {
    known: RwLock<HashMap<Place, Known>>,
    /// Names that were ended: they are no guesses any more.
    ended: RwLock<HashSet<Place>>,
    /// Addresses of this process: peers over a local socket are at them.
    own: RwLock<Vec<IpAddr>>,
    /// Whether a peer that came over another transport than the one that is named will do.
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

impl Place {
    pub(crate) fn of(py: Python<'_>, ip: &str, port: Port, conn: Conn) -> PyResult<Self> {
        Ok(Self { ip: ip_of(py, ip)?, port: port.0, conn: conn.0 })
    }
}

impl Places {
    pub(crate) fn new(fallback: bool) -> Self {
        Self {
            known: RwLock::default(),
            ended: RwLock::default(),
            own: RwLock::default(),
            fallback,
        }
    }

    /// Those of a session beside this one: nobody is known yet.
    pub(crate) fn beside(&self) -> Self {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner).clone();
        Self { own: RwLock::new(own), ..Self::new(self.fallback) }
    }

    pub(crate) fn insert(&self, place: Place, peer: StdPeer, tags: Option<StdPeer>) {
        self.ended.write().unwrap_or_else(PoisonError::into_inner).remove(&place);
        let known = Known { peer, tags };
        let old = self.known.write().unwrap_or_else(PoisonError::into_inner).insert(place, known);
        drop(old);
    }

    /// The peer at a place in its present life.
    pub(crate) fn renew(&self, place: Place, fresh: &StdPeer) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get_mut(&place) {
            known.peer = fresh.clone();
        }
    }

    /// Who is known by a name, and the link that its tags take; nobody from here on.
    pub(crate) fn remove(&self, place: Place) -> Option<(StdPeer, Option<StdPeer>)> {
        let known = self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&place);
        known.map(|k| (k.peer, k.tags))
    }

    /// A name was ended.
    pub(crate) fn end(&self, place: Place) {
        self.ended.write().unwrap_or_else(PoisonError::into_inner).insert(place);
    }

    /// Whether some name stands for a peer, or its tags go over that link.
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

    /// The peer that is known by a name, alive or dead.
    #[inline]
    pub(crate) fn known(&self, place: Place) -> Option<StdPeer> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&place).map(|k| k.peer.clone())
    }

    /// The peer of a session at an address, if it is known by that alone.
    pub(crate) fn guess(
        &self,
        py: Python<'_>,
        session: &Session,
        place: Place,
        ip: &str,
    ) -> PyResult<Option<StdPeer>> {
        if self.ended.read().unwrap_or_else(PoisonError::into_inner).contains(&place) {
            return Ok(None);
        }
        let wanted = conn_of(py, place.conn)?;
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner).contains(&place.ip);
        let is_here = own || place.ip.is_loopback();
        let is_there = |p: &StdPeer| match p.address() {
            Some(addr) => addr.ip() == place.ip,
            None => is_here,
        };
        let any = self.fallback || wanted == ConnType::Auto;
        let moves = |p: &StdPeer| any || p.conn() == Some(wanted);
        let mut all: Vec<StdPeer> =
            session.peers().into_iter().filter(|p| is_there(p) && moves(p)).collect();
        let named = |p: &StdPeer| p.conn() == Some(wanted);
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

/// Says that nobody is at a place.
#[cold]
pub(crate) fn nobody(py: Python<'_>, place: Place, ip: &str) -> PyResult<PyErr> {
    let what = format!(
        "no peer at {ip}:{} over {}: call connect() with that address, port and conn, or wait until it has connected \
         (check_conn)",
        place.port,
        conn_of(py, place.conn)?
    );
    Ok(refuse(py, ErrorKind::NotFound, what))
}
