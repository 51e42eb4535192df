//! The methods of a session for Python: its buffer, its listeners and peers, and the calls of the C++ HMC.

use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use hmc_std::{Address, ConnType, Listener, Peer as StdPeer, PeerRank, want};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt};

use crate::args::{Conn, Count, Name, Port};
use crate::errors::OrRaise;
use crate::generations::Generations;
use crate::group::RawGroup;
use crate::native::Core;
use crate::parts::Parts;
use crate::peer::Peer;
use crate::peer_table::{PeerKey, PeerTable, conn_of};
use crate::region::Region;
use crate::remote::{Direction, address_of, copy};
use crate::session_state::SessionState;
use crate::settings::Who;
use crate::{data, dicts, settings};

impl Core {
    fn wrap(slf: &Bound<'_, Self>, peer: StdPeer) -> PyResult<Py<Peer>> {
        Py::new(slf.py(), Peer::new(peer, slf.clone().unbind()))
    }
}

#[pymethods]
impl Core {
    /// Makes the buffer and nothing else. ``settings``: see ``hmc.Session``.
    #[new]
    #[pyo3(signature = (*, buffer_size, num_chs = 1, settings = None))]
    fn new(
        py: Python<'_>,
        buffer_size: u64,
        num_chs: u32,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (builder, wanted) = settings::builder(py, buffer_size, num_chs, settings)?;
        let state =
            py.detach(|| SessionState::begin(builder, buffer_size, wanted.ucx)).or_raise(py)?;
        Ok(Self {
            parts: Parts::new(state, PeerTable::new(wanted.fallback)),
            waits: wanted.waits,
            ucx: wanted.ucx,
            insecure: AtomicBool::new(false),
        })
    }

    /// Another session over the same buffer, which has not started. Each finds the peers of the others by their places and
    /// names, and waits for transfers that the others began.
    fn _beside(&self, py: Python<'_>) -> PyResult<Self> {
        let parts = py.detach(|| self.parts.beside()).or_raise(py)?;
        Ok(Self { parts, waits: self.waits, ucx: false, insecure: AtomicBool::new(false) })
    }

    /// The descriptor for event loops.
    fn _fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.live(py)?.events().map(|events| events.as_raw_fd()).or_raise(py)
    }

    /// Makes it unreadable until the next event.
    fn _clear_events(&self, py: Python<'_>) -> PyResult<()> {
        self.live(py)?.events().and_then(|events| events.clear()).or_raise(py)
    }

    /// The session's own buffer.
    #[getter]
    fn region(&self, py: Python<'_>) -> PyResult<Region> {
        Ok(Region::new(self.buffer(py)?, None, false))
    }

    /// Seconds that calls take at most that are given none: those of this package's own, and those of the C++ HMC.
    #[getter]
    fn _waits(&self) -> (f64, f64) {
        self.waits.seconds()
    }

    /// Refuses to go on in a forked child: before a lock is taken, that a thread which the child does not have may hold.
    fn _check_process(&self, py: Python<'_>) -> PyResult<()> {
        self.parts.own.state.check_process().or_raise(py)
    }

    /// Whether it has a rank and a thread.
    #[getter]
    fn _is_live(&self) -> bool {
        self.parts.own.state.is_live()
    }

    /// Starts it: from now on it has a rank. Listeners are opened before any peer can connect.
    #[pyo3(signature = (rank, *, tcp = None, uds = None, ucx = false, num_chs = 1, **who))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn _start(
        &self,
        py: Python<'_>,
        rank: u32,
        tcp: Option<&str>,
        uds: Option<&str>,
        ucx: bool,
        num_chs: u32,
        who: Option<Who>,
    ) -> PyResult<()> {
        self.insecure.store(false, Ordering::Relaxed);
        let started = py.detach(|| {
            self.parts.own.state.start(|prepared| {
                prepared.set_rank(rank);
                prepared.clear_listeners();
                if let Some(addr) = tcp {
                    prepared.listen_tcp(addr);
                }
                if let Some(dir) = uds {
                    prepared.listen_uds(dir);
                }
                if let Some(who) = &who {
                    who.apply(prepared);
                }
                prepared.use_ucx(ucx || self.ucx);
                prepared.set_num_channels(num_chs);
            })
        });
        started.or_raise(py)
    }

    /// Gives the rank back, so that another can be tried. Only while there are no peers.
    fn _unstart(&self, py: Python<'_>) {
        py.detach(|| self.parts.own.state.unstart());
    }

    #[getter]
    fn _job(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.live(py)?.info().job)
    }

    /// This process's rank.
    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.live(py)?.rank().0)
    }

    /// Where it listens, as ``connect`` takes it.
    #[getter]
    fn addresses(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(dicts::addresses(&*self.live(py)?))
    }

    #[pyo3(signature = (addr, *, insecure = false))]
    fn _listen_tcp(&self, py: Python<'_>, addr: &str, insecure: bool) -> PyResult<String> {
        self.listen_tcp(py, &*self.live(py)?, addr, insecure)
    }

    fn _listen_uds(&self, py: Python<'_>, dir: &str) -> PyResult<()> {
        self.live(py)?.listen(&Address::uds(dir)).or_raise(py).map(drop)
    }

    fn _allow_insecure(&self, py: Python<'_>) -> PyResult<()> {
        self.live(py).map(|_| self.insecure.store(true, Ordering::Relaxed))
    }

    fn _close_listeners(&self, py: Python<'_>) -> PyResult<()> {
        let listeners = self.live(py)?.info().listeners;
        py.detach(|| listeners.iter().for_each(Listener::close));
        Ok(())
    }

    /// Connects to ``rank`` (None: to whoever listens there).
    #[pyo3(signature = (rank, address, conn, timeout = None))]
    fn _connect(
        slf: &Bound<'_, Self>,
        rank: Option<u32>,
        address: &str,
        conn: u8,
        timeout: Option<f64>,
    ) -> PyResult<Py<Peer>> {
        let py = slf.py();
        let session = slf.get().live(py)?;
        let (address, conn) = (slf.get().trusted(address_of(py, address)?), conn_of(py, conn)?);
        let timeout = slf.get().waits.own(py, timeout)?;
        let peer = py.detach(|| match rank {
            Some(rank) => session.connect(&address).rank(rank).over(conn).within(timeout).wait(),
            None => session.connect(&address).over(conn).within(timeout).wait(),
        });
        Self::wrap(slf, peer.or_raise(py)?)
    }

    /// Connects to whoever listens there, and calls it ``name`` where tags are sent and received; with ``upstream``, to a
    /// node of the C++ HMC, for tags and small messages.
    #[pyo3(signature = (name, address, conn, timeout = None, *, upstream = false))]
    fn _connect_named(
        slf: &Bound<'_, Self>,
        name: Name,
        address: &str,
        conn: u8,
        timeout: Option<f64>,
        upstream: bool,
    ) -> PyResult<Py<Peer>> {
        let (py, this) = (slf.py(), slf.get());
        let session = this.live(py)?;
        let (address, conn) = (this.trusted(address_of(py, address)?), conn_of(py, conn)?);
        let timeout = slf.get().waits.own(py, timeout)?;
        let (rank, conn) = match upstream {
            true => (PeerRank::Cxx(name.0), ConnType::Auto),
            false => (PeerRank::Alias(name.0), conn),
        };
        let peer =
            py.detach(|| session.connect(&address).rank(rank).over(conn).within(timeout).wait());
        let peer = peer.or_raise(py)?;
        this.parts.own.names.insert(&session, name.0, &peer);
        Self::wrap(slf, peer)
    }

    /// From here on `name` is that peer, which may be one of a session beside this one.
    fn _call(&self, py: Python<'_>, name: Name, peer: &Peer) -> PyResult<()> {
        self.parts.own.names.insert(&*self.live(py)?, name.0, &peer.inner);
        Ok(())
    }

    /// Disconnects the peer of a name, unless a place names it.
    fn _let_go(&self, py: Python<'_>, name: Name) -> PyResult<()> {
        let live = self.parts.live(py)?;
        let timeout = self.waits.own(py, None)?;
        let disconnected = py.detach(|| match self.parts.named(&live, name.0) {
            Ok(peer) if !self.parts.is_placed(&peer) => peer.disconnect().within(timeout).wait(),
            _ => Ok(()),
        });
        disconnected.or_raise(py)
    }

    /// This session as a peer of itself.
    fn _loopback(slf: &Bound<'_, Self>) -> PyResult<Py<Peer>> {
        let session = slf.get().live(slf.py())?;
        let own = session.peer(session.rank().0);
        Self::wrap(slf, own.or_raise(slf.py())?)
    }

    /// From here on a peer is known by that place, too. ``tags``: the same process as the peer of tags, where it is another.
    #[pyo3(signature = (ip, port, conn, peer, tags = None))]
    fn _know(
        &self,
        py: Python<'_>,
        ip: &str,
        port: Port,
        conn: Conn,
        peer: &Peer,
        tags: Option<&Peer>,
    ) -> PyResult<()> {
        self._check_process(py)?;
        let (key, tags) = (PeerKey::of(py, ip, port, conn)?, tags.map(|p| p.inner.clone()));
        self.parts.own.places.insert(key, peer.inner.clone(), tags);
        Ok(())
    }

    /// One more address of this process, at which peers over a local socket are.
    fn _own_ip(&self, py: Python<'_>, ip: &str) -> PyResult<()> {
        self._check_process(py).and_then(|()| self.parts.own.places.add_own(py, ip))
    }

    /// Ends one name of a peer and the transfers that were begun by it; with the last name, the link. Whoever is unknown has
    /// none.
    #[pyo3(signature = (ip, port, conn, timeout = None))]
    fn _end_place(
        &self,
        py: Python<'_>,
        ip: &str,
        port: Port,
        conn: Conn,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (key, timeout) = (PeerKey::of(py, ip, port, conn)?, self.waits.own(py, timeout)?);
        self.parts.end(py, key, ip, timeout)
    }

    /// The peer of a place of the C++ HMC.
    fn _at(slf: &Bound<'_, Self>, ip: &str, port: Port, conn: Conn) -> PyResult<Py<Peer>> {
        let (peer, _) = slf.get().at(slf.py(), ip, port, conn)?;
        Self::wrap(slf, peer)
    }

    /// The peer of that rank, waiting until it has connected. One that has left is it as long as messages of it are unread,
    /// unless it must be ``alive``.
    #[pyo3(signature = (rank, timeout = None, alive = false))]
    fn peer(
        slf: &Bound<'_, Self>,
        rank: u32,
        timeout: Option<f64>,
        alive: bool,
    ) -> PyResult<Py<Peer>> {
        let py = slf.py();
        let session = slf.get().live(py)?;
        let timeout = slf.get().waits.own(py, timeout)?;
        let peer = py.detach(|| {
            if alive {
                session.accept(rank).within(timeout).wait()
            } else {
                session.accept(rank).or_unread().within(timeout).wait()
            }
        });
        Self::wrap(slf, peer.or_raise(py)?)
    }

    /// The oldest small message of whichever rank has one: the rank, and the bytes.
    #[pyo3(signature = (timeout = None))]
    fn _recv_any<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<(u32, Bound<'py, PyBytes>)> {
        let session = self.live(py)?;
        let timeout = self.waits.own(py, timeout)?;
        let receive = || session.recv(hmc_std::Who::Any, want::Bytes).within(timeout).wait();
        let (rank, bytes) = py.detach(receive).or_raise(py)?;
        Ok((rank.0, PyBytes::new(py, &bytes)))
    }

    /// The peers that are connected now.
    #[getter]
    fn peers(slf: &Bound<'_, Self>) -> PyResult<Vec<Py<Peer>>> {
        slf.get().live(slf.py())?.peers().into_iter().map(|p| Self::wrap(slf, p)).collect()
    }

    /// A group of ranks in that order, waiting until all are connected.
    #[pyo3(signature = (ranks))]
    fn _group(&self, py: Python<'_>, ranks: Vec<u32>) -> PyResult<RawGroup> {
        let session = self.live(py)?;
        Ok(RawGroup::new(py.detach(|| session.group(&ranks).wait()).or_raise(py)?, self.waits))
    }

    /// Registers an array's memory in place: no byte is copied. It must be C-contiguous; a read-only one can be a source
    /// only. The array is held as long as the region, a window or an operation uses it.
    fn register(&self, array: &Bound<'_, PyAny>) -> PyResult<Region> {
        let py = array.py();
        let bytes = data::place(array)?;
        let readonly = !bytes.writable;
        let buffer = self.share(py, bytes)?;
        Ok(Region::new(buffer, Some(array.clone().unbind()), readonly))
    }

    /// Memory that peers of this host can map: puts into it are one copy. Its bytes are zero.
    fn allocate(&self, py: Python<'_>, nbytes: u64) -> PyResult<Region> {
        let session = self.live(py)?;
        let made = py.detach(|| session.memory().allocate(nbytes).and_then(|r| r.share()));
        Ok(Region::new(made.or_raise(py)?, None, false))
    }

    /// Generations for memory of ``nbytes`` bytes that is exposed in blocks of ``block_size`` bytes: whole ones, at most 65,536.
    fn generations(&self, py: Python<'_>, nbytes: u64, block_size: u64) -> PyResult<Generations> {
        let session = self.live(py)?;
        let made = py.detach(|| session.memory().generations(nbytes, block_size));
        Ok(Generations::new(made.or_raise(py)?))
    }

    /// Copies ``nbytes`` bytes from ``local_off`` of our buffer to ``remote_off`` of the buffer of the peer at ``(ip, port)``,
    /// and returns when the peer can read them.
    #[pyo3(
        signature = (ip, port, local_off = Count(0), remote_off = Count(0), nbytes = Count(0), conn = Conn(0), timeout = None),
        text_signature = "($self, ip, port, local_off=0, remote_off=0, nbytes=0, conn=0, timeout=None)"
    )]
    #[allow(clippy::too_many_arguments, reason = "the C++ HMC's signature")]
    fn put_remote(
        &self,
        py: Python<'_>,
        ip: &str,
        port: Port,
        local_off: Count,
        remote_off: Count,
        nbytes: Count,
        conn: Conn,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (peer, _) = self.at(py, ip, port, conn)?;
        self.move_now(py, &peer, Direction::Put, copy((local_off, remote_off, nbytes)), timeout)
    }

    /// Copies ``nbytes`` bytes from ``remote_off`` of the peer's buffer to ``local_off`` of ours.
    #[pyo3(
        signature = (ip, port, local_off = Count(0), remote_off = Count(0), nbytes = Count(0), conn = Conn(0), timeout = None),
        text_signature = "($self, ip, port, local_off=0, remote_off=0, nbytes=0, conn=0, timeout=None)"
    )]
    #[allow(clippy::too_many_arguments, reason = "the C++ HMC's signature")]
    fn get_remote(
        &self,
        py: Python<'_>,
        ip: &str,
        port: Port,
        local_off: Count,
        remote_off: Count,
        nbytes: Count,
        conn: Conn,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (peer, _) = self.at(py, ip, port, conn)?;
        self.move_now(py, &peer, Direction::Get, copy((local_off, remote_off, nbytes)), timeout)
    }

    /// Begins a put and returns its number, for ``wait``.
    #[pyo3(
        signature = (ip, port, local_off = Count(0), remote_off = Count(0), nbytes = Count(0), conn = Conn(0)),
        text_signature = "($self, ip, port, local_off=0, remote_off=0, nbytes=0, conn=0)"
    )]
    #[allow(clippy::too_many_arguments, reason = "the C++ HMC's signature")]
    fn put_nb(
        &self,
        py: Python<'_>,
        ip: &str,
        port: Port,
        local_off: Count,
        remote_off: Count,
        nbytes: Count,
        conn: Conn,
    ) -> PyResult<u64> {
        let (peer, (session, key)) = self.at(py, ip, port, conn)?;
        let op = self.begin(py, &peer, Direction::Put, copy((local_off, remote_off, nbytes)))?;
        Ok(self.parts.begun.insert(op, session, key))
    }

    /// Begins a get and returns its number, for ``wait``.
    #[pyo3(
        signature = (ip, port, local_off = Count(0), remote_off = Count(0), nbytes = Count(0), conn = Conn(0)),
        text_signature = "($self, ip, port, local_off=0, remote_off=0, nbytes=0, conn=0)"
    )]
    #[allow(clippy::too_many_arguments, reason = "the C++ HMC's signature")]
    fn get_nb(
        &self,
        py: Python<'_>,
        ip: &str,
        port: Port,
        local_off: Count,
        remote_off: Count,
        nbytes: Count,
        conn: Conn,
    ) -> PyResult<u64> {
        let (peer, (session, key)) = self.at(py, ip, port, conn)?;
        let op = self.begin(py, &peer, Direction::Get, copy((local_off, remote_off, nbytes)))?;
        Ok(self.parts.begun.insert(op, session, key))
    }

    /// Waits for the transfers of these numbers, whatever becomes of each; then raises the first failure.
    fn _wait(&self, py: Python<'_>, numbers: Vec<u64>, timeout: Option<f64>) -> PyResult<()> {
        self._check_process(py)?;
        if numbers.iter().all(|n| *n == 0) {
            return Ok(()); // what has ended, also where nothing was begun
        }
        self.parts.check(py)?;
        let timeout = self.waits.cxx(py, timeout)?;
        let find = |id| self.parts.session(id);
        py.detach(|| self.parts.begun.wait(find, &numbers, timeout)).or_raise(py)
    }

    /// Sends a tag to a peer by its name or rank; with ``int``, a 32-bit number.
    #[pyo3(signature = (peer, tag, timeout = None, *, int = false))]
    fn _ctrl_send(
        &self,
        py: Python<'_>,
        peer: Name,
        tag: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        int: bool,
    ) -> PyResult<()> {
        self.send_number(py, peer, tag, timeout, int)
    }

    /// Receives the oldest tag of a peer by its name or rank, waiting for it to appear if need be; with ``int``, the oldest
    /// 32-bit number.
    #[pyo3(signature = (peer, timeout = None, *, int = false))]
    fn _ctrl_recv<'py>(
        &self,
        py: Python<'py>,
        peer: Name,
        timeout: Option<f64>,
        int: bool,
    ) -> PyResult<Bound<'py, PyInt>> {
        self.recv_number(py, peer, timeout, int)
    }

    /// Counters of the session and its peers, as dicts.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dicts::stats(py, &self.live(py)?.stats())
    }

    /// Ends the session in order: waits for what was begun, says goodbye, closes. Its buffer stays readable.
    #[pyo3(signature = (timeout = None))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.parts.own.state.check_process().or_raise(py)?;
        let timeout = self.waits.closing(py, timeout)?;
        py.detach(|| {
            self.parts.own.places.clear();
            self.parts.own.names.clear();
            let session = self.parts.own.state.id();
            let ended = self.parts.own.state.close(timeout);
            if let Some(session) = session {
                self.parts.begun.close(session);
            }
            ended
        })
        .or_raise(py)
    }
}
