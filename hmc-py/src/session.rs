//! A session of one process: its buffer, its doors, its peers, and what the seeds call them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use hmc_std::{
    Address, Communicator, ConnBuffer, Copy, Direction, Error, ErrorKind, Message, Peer as StdPeer,
    Prepared, Session, Want,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::begun::Begun;
use crate::data::{Registered, Sweep};
use crate::errors::{OrRaise, refuse};
use crate::group::RawGroup;
use crate::peer::Peer;
use crate::places::{Place, Places, conn_of};
use crate::region::Region;
use crate::time::Waits;
use crate::{data, settings, told};

/// Where a session is in its life.
enum Life {
    /// Its buffer is there; nobody can reach it.
    Prepared,
    Live(Arc<Session>),
    Closed,
}

/// The native half of ``hmc.Session``.
#[pyclass(module = "hmc._hmc", frozen, subclass, weakref)]
pub(crate) struct Core {
    prepared: Mutex<Option<Prepared>>,
    life: RwLock<Life>,
    buffer: ConnBuffer,
    places: Places,
    begun: Begun,
    waits: Waits,
    /// Whether the buffer is UCX's own.
    ucx: bool,
}

/// Copies of at most so many bytes are over before another thread could have the interpreter.
const SHORT: u64 = 4 << 10;

fn transfer(
    py: Python<'_>,
    waits: Waits,
    peer: &StdPeer,
    direction: Direction,
    copy: Copy,
    timeout: Option<f64>,
) -> PyResult<()> {
    if copy.len <= SHORT && peer.transfer_now(direction, copy).or_raise(py)? {
        return Ok(());
    }
    let timeout = waits.cxx(py, timeout)?;
    py.detach(|| peer.transfer_within(direction, copy, timeout)).or_raise(py)
}

fn address_of(py: Python<'_>, text: &str) -> PyResult<Address> {
    py.detach(|| text.parse::<Address>()).or_raise(py)
}

impl Core {
    pub(crate) fn buffer(&self) -> &ConnBuffer {
        &self.buffer
    }

    fn live(&self, py: Python<'_>) -> PyResult<Arc<Session>> {
        drop(Sweep);
        let (kind, what) = match &*self.life.read().unwrap_or_else(PoisonError::into_inner) {
            Life::Live(session) => return Ok(Arc::clone(session)),
            Life::Prepared => (
                ErrorKind::NotFound,
                "this session has no peers yet: call init_server() or connect() first",
            ),
            Life::Closed => (ErrorKind::Closed, "this session was closed"),
        };
        // Without the lock: raising runs Python, which may let a thread run that wants it.
        Err(refuse(py, kind, what))
    }

    /// A region over an object's bytes, for spans of it.
    pub(crate) fn region_for(
        &self,
        py: Python<'_>,
        obj: &Bound<'_, PyAny>,
        writes: bool,
    ) -> PyResult<hmc_std::Region> {
        let bytes = if writes { data::target(obj)? } else { data::source(obj)? };
        self.live(py)?.register(Registered::from(bytes)).or_raise(py)
    }

    /// An object's bytes as memory that is addressed by offset.
    pub(crate) fn share(&self, py: Python<'_>, bytes: data::Bytes) -> PyResult<ConnBuffer> {
        let session = self.live(py)?;
        session
            .register(Registered::from(bytes))
            .and_then(|region| session.share(region))
            .or_raise(py)
    }

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
        let prepared = py.detach(|| builder.prepare()).or_raise(py)?;
        let buffer = prepared.buffer().clone();
        Ok(Self {
            prepared: Mutex::new(Some(prepared)),
            life: RwLock::new(Life::Prepared),
            buffer,
            places: Places::new(wanted.fallback),
            begun: Begun::new(),
            waits: wanted.waits,
            ucx: wanted.ucx,
        })
    }

    /// The session's own buffer.
    #[getter]
    fn region(&self) -> Region {
        Region::new(self.buffer.clone(), None, false)
    }

    /// Whether it has a rank and a thread.
    /// Seconds that calls take at most that are given none: those of this package's own, and those of the C++ HMC.
    #[getter]
    fn _waits(&self) -> (f64, f64) {
        self.waits.seconds()
    }

    #[getter]
    fn _is_live(&self) -> bool {
        matches!(&*self.life.read().unwrap_or_else(PoisonError::into_inner), Life::Live(_))
    }

    /// Starts it: from here on it has a rank. Doors are opened before anybody can be met.
    #[pyo3(signature = (rank, *, tcp = None, uds = None, insecure = false, ucx = false, num_chs = 1))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn _start(
        &self,
        py: Python<'_>,
        rank: u32,
        tcp: Option<&str>,
        uds: Option<&str>,
        insecure: bool,
        ucx: bool,
        num_chs: u32,
    ) -> PyResult<()> {
        let started = py.detach(|| {
            let mut place = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
            let prepared = place
                .as_mut()
                .ok_or_else(|| Error::new(ErrorKind::Closed, "this session was closed"))?;
            prepared.set_rank(rank);
            prepared.clear_doors();
            if let Some(addr) = tcp {
                prepared.listen_tcp(addr);
            }
            if let Some(dir) = uds {
                prepared.listen_uds(dir);
            }
            if insecure {
                prepared.allow_insecure();
            }
            prepared.use_ucx(ucx || self.ucx);
            prepared.set_num_channels(num_chs);
            let session = Arc::new(prepared.start()?);
            let mut life = self.life.write().unwrap_or_else(PoisonError::into_inner);
            if matches!(*life, Life::Closed) {
                // Meanwhile. Nobody has seen it.
                drop(life);
                return Err(Error::new(ErrorKind::Closed, "this session was closed"));
            }
            *life = Life::Live(session);
            Ok(())
        });
        started.or_raise(py)
    }

    /// Gives the rank back, so that another can be tried. Only while there are no peers.
    fn _unstart(&self, py: Python<'_>) {
        let life = std::mem::replace(
            &mut *self.life.write().unwrap_or_else(PoisonError::into_inner),
            Life::Prepared,
        );
        py.detach(|| drop(life));
    }

    /// This process's rank.
    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.live(py)?.rank().0)
    }

    /// Where it listens, as ``connect`` takes it.
    #[getter]
    fn addresses(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let session = self.live(py)?;
        let tcp = session.tcp_addrs().into_iter().map(|a| format!("tcp://{a}"));
        let (uds, folder) =
            (session.uds_paths(), |p: &PathBuf| Some(format!("uds://{}", p.parent()?.display())));
        Ok(tcp.chain(uds.iter().filter_map(folder)).collect())
    }

    #[pyo3(signature = (addr, *, insecure = false))]
    fn _listen_tcp(&self, py: Python<'_>, addr: &str, insecure: bool) -> PyResult<String> {
        let session = self.live(py)?;
        if insecure {
            session.allow_insecure();
        }
        Ok(session.listen_tcp(addr).or_raise(py)?.to_string())
    }

    fn _listen_uds(&self, py: Python<'_>, dir: &str) -> PyResult<()> {
        self.live(py)?.listen_uds(dir).or_raise(py)
    }

    fn _allow_insecure(&self, py: Python<'_>) -> PyResult<()> {
        self.live(py)?.allow_insecure();
        Ok(())
    }

    fn _close_doors(&self, py: Python<'_>) -> PyResult<()> {
        let session = self.live(py)?;
        py.detach(|| session.close_doors());
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
        let (address, conn) = (address_of(py, address)?, conn_of(py, conn)?);
        let timeout = slf.get().waits.own(py, timeout)?;
        let peer = py.detach(|| match rank {
            Some(rank) => session.connect_with(rank, &address, conn, timeout),
            None => session.connect_any(&address, conn, timeout),
        });
        Self::wrap(slf, peer.or_raise(py)?)
    }

    /// This session as a peer of itself.
    fn _loopback(slf: &Bound<'_, Self>) -> PyResult<Py<Peer>> {
        let peer = slf.get().live(slf.py())?.loopback();
        Self::wrap(slf, peer.or_raise(slf.py())?)
    }

    /// From here on a peer is known by that place, too.
    fn _know(&self, py: Python<'_>, ip: &str, port: u16, conn: u8, peer: &Peer) -> PyResult<()> {
        self.places.insert(Place::of(py, ip, port, conn)?, peer.inner.clone());
        Ok(())
    }

    /// One more address of this process, at which peers over a local socket are.
    fn _own_ip(&self, py: Python<'_>, ip: &str) -> PyResult<()> {
        self.places.add_own(py, ip)
    }

    fn _forget(&self, py: Python<'_>, ip: &str, port: u16, conn: u8) -> PyResult<()> {
        self.places.remove(Place::of(py, ip, port, conn)?);
        Ok(())
    }

    /// The peer of a place of the seeds.
    fn _at(slf: &Bound<'_, Self>, ip: &str, port: u16, conn: u8) -> PyResult<Py<Peer>> {
        let this = slf.get();
        let peer = this.places.at(slf.py(), || this.live(slf.py()), (ip, port, conn))?;
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
            if alive { session.wait_peer(rank, timeout) } else { session.meet(rank, timeout) }
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
        match py.detach(|| session.control().recv_any(Want::Struct, timeout)).or_raise(py)? {
            (rank, Message::Struct(bytes)) => Ok((rank.0, PyBytes::new(py, &bytes))),
            _ => Err(refuse(py, ErrorKind::Protocol, "not bytes")),
        }
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
        Ok(RawGroup::new(py.detach(|| session.group(&ranks)).or_raise(py)?, self.waits))
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
        let made = py.detach(|| session.allocate(nbytes).and_then(|r| session.share(r)));
        Ok(Region::new(made.or_raise(py)?, None, false))
    }

    /// Copies ``nbytes`` bytes from ``local_off`` of our buffer to ``remote_off`` of the buffer of the peer at ``(ip, port)``,
    /// and returns when the peer can read them.
    #[pyo3(signature = (ip, port, local_off = 0, remote_off = 0, nbytes = 0, conn = 0, timeout = None))]
    #[allow(clippy::too_many_arguments, reason = "the seeds' signature")]
    fn put_remote(
        &self,
        py: Python<'_>,
        ip: &str,
        port: u16,
        local_off: u64,
        remote_off: u64,
        nbytes: u64,
        conn: u8,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let peer = self.places.at(py, || self.live(py), (ip, port, conn))?;
        let copy = Copy { local_offset: local_off, remote_offset: remote_off, len: nbytes };
        transfer(py, self.waits, &peer, Direction::Put, copy, timeout)
    }

    /// Copies ``nbytes`` bytes from ``remote_off`` of the peer's buffer to ``local_off`` of ours.
    #[pyo3(signature = (ip, port, local_off = 0, remote_off = 0, nbytes = 0, conn = 0, timeout = None))]
    #[allow(clippy::too_many_arguments, reason = "the seeds' signature")]
    fn get_remote(
        &self,
        py: Python<'_>,
        ip: &str,
        port: u16,
        local_off: u64,
        remote_off: u64,
        nbytes: u64,
        conn: u8,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let peer = self.places.at(py, || self.live(py), (ip, port, conn))?;
        let copy = Copy { local_offset: local_off, remote_offset: remote_off, len: nbytes };
        transfer(py, self.waits, &peer, Direction::Get, copy, timeout)
    }

    /// Begins a put and returns its number, for ``wait``.
    #[pyo3(signature = (ip, port, local_off = 0, remote_off = 0, nbytes = 0, conn = 0))]
    #[allow(clippy::too_many_arguments, reason = "the seeds' signature")]
    fn put_nb(
        &self,
        py: Python<'_>,
        ip: &str,
        port: u16,
        local_off: u64,
        remote_off: u64,
        nbytes: u64,
        conn: u8,
    ) -> PyResult<u64> {
        let peer = self.places.at(py, || self.live(py), (ip, port, conn))?;
        let op = py.detach(|| peer.put_nb(local_off, remote_off, nbytes)).or_raise(py)?;
        Ok(self.begun.number(op))
    }

    /// Begins a get and returns its number, for ``wait``.
    #[pyo3(signature = (ip, port, local_off = 0, remote_off = 0, nbytes = 0, conn = 0))]
    #[allow(clippy::too_many_arguments, reason = "the seeds' signature")]
    fn get_nb(
        &self,
        py: Python<'_>,
        ip: &str,
        port: u16,
        local_off: u64,
        remote_off: u64,
        nbytes: u64,
        conn: u8,
    ) -> PyResult<u64> {
        let peer = self.places.at(py, || self.live(py), (ip, port, conn))?;
        let op = py.detach(|| peer.get_nb(local_off, remote_off, nbytes)).or_raise(py)?;
        Ok(self.begun.number(op))
    }

    /// Waits for the transfers of these numbers, whatever becomes of each; then raises the first failure.
    fn _wait(&self, py: Python<'_>, numbers: Vec<u64>, timeout: Option<f64>) -> PyResult<()> {
        let session = self.live(py)?;
        let timeout = self.waits.cxx(py, timeout)?;
        py.detach(|| self.begun.wait(&session, &numbers, timeout)).or_raise(py)
    }

    /// Sends a tag to a rank.
    #[pyo3(signature = (peer, tag, timeout = None))]
    fn _ctrl_send(
        &self,
        py: Python<'_>,
        peer: u32,
        tag: u64,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let session = self.live(py)?;
        let timeout = self.waits.cxx(py, timeout)?;
        py.detach(|| session.peer(peer)?.send_tag_within(tag, timeout)).or_raise(py)
    }

    /// Receives the oldest tag of a rank, waiting for the rank to appear if need be.
    #[pyo3(signature = (peer, timeout = None))]
    fn _ctrl_recv(&self, py: Python<'_>, peer: u32, timeout: Option<f64>) -> PyResult<u64> {
        let session = self.live(py)?;
        let timeout = self.waits.own(py, timeout)?;
        match py.detach(|| session.control().recv(peer, Want::Tag, timeout)).or_raise(py)? {
            Message::Tag(tag) | Message::Notify(tag) => Ok(tag),
            _ => Err(refuse(py, ErrorKind::Protocol, "not a tag")),
        }
    }

    /// Counters of the session and its peers, as dicts.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        told::stats(py, &self.live(py)?.stats())
    }

    /// Ends the session in order: waits for what was begun, says goodbye, closes. Its buffer stays readable.
    #[pyo3(signature = (timeout = None))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = self.waits.closing(py, timeout)?;
        let life = std::mem::replace(
            &mut *self.life.write().unwrap_or_else(PoisonError::into_inner),
            Life::Closed,
        );
        py.detach(|| {
            self.places.clear();
            let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).take();
            let ended = match life {
                // Calls of other threads end with their links.
                Life::Live(session) => Communicator::shutdown(&session, timeout),
                Life::Prepared | Life::Closed => Ok(()),
            };
            drop(prepared);
            ended
        })
        .or_raise(py)
    }
}
