//! The native half of ``hmc.Session``: what it holds. Its methods for Python are in `session`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hmc_std::{Address, ConnBuffer, ErrorKind, Peer as StdPeer, Session};
use pyo3::prelude::*;

use crate::args::{Conn, Port};
use crate::errors::{OrRaise as _, refuse};
use crate::parts::Parts;
use crate::peer_table::PeerKey;
use crate::time::Waits;

/// The native half of ``hmc.Session``.
#[pyclass(module = "hmc._hmc", frozen, subclass, weakref)]
pub(crate) struct Core {
    pub(crate) parts: Parts,
    pub(crate) waits: Waits,
    /// Whether the buffer is UCX's own.
    pub(crate) ucx: bool,
    /// Whether connections that prove nothing about their other ends were allowed since its start.
    pub(crate) insecure: AtomicBool,
}

impl Core {
    /// The session's buffer, waiting until it is there.
    pub(crate) fn buffer(&self, py: Python<'_>) -> PyResult<ConnBuffer> {
        let state = &self.parts.own.state;
        let made = state.buffer_now();
        made.unwrap_or_else(|| py.detach(|| state.buffer())).or_raise(py)
    }

    /// The session, if it has started.
    pub(crate) fn live(&self, py: Python<'_>) -> PyResult<Arc<Session>> {
        self.parts.own.state.session(py)
    }

    /// An address as this session may use it: what proves nothing about itself is allowed by name.
    pub(crate) fn trusted(&self, address: Address) -> Address {
        match self.insecure.load(Ordering::Relaxed) {
            true => address.unauthenticated(),
            false => address,
        }
    }

    /// Listens at a TCP address, and says where.
    pub(crate) fn listen_tcp(
        &self,
        py: Python<'_>,
        session: &Session,
        addr: &str,
        insecure: bool,
    ) -> PyResult<String> {
        self.insecure.fetch_or(insecure, Ordering::Relaxed);
        let Ok(at) = addr.parse::<SocketAddr>() else {
            let what = format!("`{addr}` is no listening address: write IP:PORT");
            return Err(refuse(py, ErrorKind::InvalidConfig, what));
        };
        let listener = session.listen(&self.trusted(Address::tcp(at))).or_raise(py)?;
        Ok(listener.address().to_string().trim_start_matches("tcp://").to_owned())
    }

    /// The peer of a place, its session, and the place.
    #[inline]
    pub(crate) fn at(
        &self,
        py: Python<'_>,
        ip: &str,
        port: Port,
        conn: Conn,
    ) -> PyResult<(StdPeer, (u64, PeerKey))> {
        let key = PeerKey::of(py, ip, port, conn)?;
        let (peer, session) = match self.parts.own.places.known(key) {
            Some((peer, session)) if peer.is_connected() => (peer, session),
            _ => {
                let peer = self.parts.find(py, key, ip)?;
                let session = peer.explain().session;
                (peer, session)
            }
        };
        Ok((peer, (session, key)))
    }
}
