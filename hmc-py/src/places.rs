//! Peers as the seeds name them: by the address and port where they listen, and by what moves the bytes.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use hmc_std::{ConnType, ErrorKind, Peer as StdPeer, Session};
use pyo3::prelude::*;

use crate::args::{Conn, Port};
use crate::errors::{OrRaise, refuse};

/// How long somebody who is being connected may hold up a call that names nobody who is.
const ARRIVAL: Duration = Duration::from_secs(2);

/// Waits for those who are being connected: a tag of theirs may have come, and the program relies on it.
fn let_in(py: Python<'_>, session: &Session) -> PyResult<()> {
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

/// One such name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    ip: IpAddr,
    port: u16,
    conn: u8,
}

/// Who is where.
pub(crate) struct Places {
    known: RwLock<HashMap<Place, StdPeer>>,
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

    pub(crate) fn insert(&self, place: Place, peer: StdPeer) {
        self.ended.write().unwrap_or_else(PoisonError::into_inner).remove(&place);
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(place, peer);
    }

    /// Ends a name: who bore it, and whether that was its last. `None` when nobody did.
    pub(crate) fn end(
        &self,
        py: Python<'_>,
        session: &Session,
        place: Place,
        ip: &str,
    ) -> PyResult<Option<(StdPeer, bool)>> {
        let named = self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&place);
        let peer = match named {
            Some(peer) => peer,
            None => match self.guess(py, session, place, ip)? {
                Some(peer) => peer,
                None => return Ok(None),
            },
        };
        self.ended.write().unwrap_or_else(PoisonError::into_inner).insert(place);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let is_last = known.values().all(|other| other.rank() != peer.rank());
        Ok(Some((peer, is_last)))
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

    /// The peer at a place, in its present life.
    #[inline]
    pub(crate) fn at(
        &self,
        py: Python<'_>,
        session: impl FnOnce() -> PyResult<Arc<Session>>,
        place: Place,
        ip: &str,
    ) -> PyResult<StdPeer> {
        let found = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&place).cloned();
        match found {
            Some(peer) if peer.is_connected() => Ok(peer),
            Some(peer) => self.renewed(py, &*session()?, place, &peer),
            None => self.guessed(py, &*session()?, place, ip),
        }
    }

    /// A peer that came back has a new life.
    #[cold]
    fn renewed(
        &self,
        py: Python<'_>,
        session: &Session,
        place: Place,
        old: &StdPeer,
    ) -> PyResult<StdPeer> {
        let_in(py, session)?;
        let fresh = session.peer(old.rank().0).or_raise(py)?;
        if fresh.is_connected() {
            self.insert(place, fresh.clone());
        }
        Ok(fresh)
    }

    /// Who connected to us has no port that we dialed: it is known by its address alone.
    #[cold]
    fn guessed(
        &self,
        py: Python<'_>,
        session: &Session,
        place: Place,
        ip: &str,
    ) -> PyResult<StdPeer> {
        if let Some(peer) = self.guess(py, session, place, ip)? {
            return Ok(peer);
        }
        Err(refuse(
            py,
            ErrorKind::NotFound,
            format!(
                "no peer at {ip}:{} over {}: call connect() with that address, port and conn, or wait until it has \
                 connected (check_conn)",
                place.port,
                conn_of(py, place.conn)?
            ),
        ))
    }

    fn guess(
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
        let look = || -> Vec<StdPeer> {
            session.peers().into_iter().filter(|p| is_there(p) && moves(p)).collect()
        };
        let mut all = look();
        if all.is_empty() {
            let_in(py, session)?;
            all = look();
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
