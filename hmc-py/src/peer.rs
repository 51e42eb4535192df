//! One peer: transfers, messages, windows.

use std::time::Instant;

use hmc_std::{
    Access, ErrorKind, Message, Peer as StdPeer,
    want::{self, Wanted},
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::batch::{Batch, List};
use crate::data;
use crate::dicts;
use crate::ends::Ends;
use crate::errors::{OrRaise, refuse};
use crate::generations::Generations;
use crate::native::Core;
use crate::op::{Op, Whose};
use crate::piece::Item;
use crate::region::{Region, Remote, Window};

/// A connected peer.
///
/// Belongs to one life of the peer: when that is over every call raises ``PeerDead``, also after the peer came back; ask the
/// session for a new one then. All methods may be called from any thread; blocking ones let other Python threads run, take
/// ``timeout`` in seconds (default: the session's deadline, 30 if it has none) and give way to Ctrl-C on the main thread.
///
/// >>> import hmc
/// >>> with hmc.Session(rank=0, buffer_size=4096) as s:
/// ...     peer = s.loopback()                      # or s.connect(1, "tcp://..."), s.peer(1)
/// ...     peer.put(b"some bytes", remote_offset=100)
/// ...     out = bytearray(4)
/// ...     peer.get(out, remote_offset=105)
/// ...     peer.put_notify(b"more", tag=7)
/// ...     out, peer.recv_notify(), peer.conn
/// (bytearray(b'byte'), 7, 'loopback')
#[pyclass(module = "hmc._hmc", frozen, subclass, weakref)]
pub(crate) struct Peer {
    pub(crate) inner: StdPeer,
    session: Py<Core>,
}

impl Peer {
    pub(crate) fn new(inner: StdPeer, session: Py<Core>) -> Self {
        Self { inner, session }
    }

    /// Whose operations it begins.
    fn whose(&self) -> Whose {
        let session = self.session.get();
        let origin = session.parts.own.state.origin;
        Whose { rank: self.inner.rank(), origin, waits: session.waits }
    }
}

/// The rights that a text names.
fn access(py: Python<'_>, text: &str) -> PyResult<Access> {
    match text {
        "r" | "read" => Ok(Access::READ),
        "w" | "write" => Ok(Access::WRITE),
        "rw" => Ok(Access::READ | Access::WRITE),
        other => {
            let what =
                format!("access={other:?}: give \"r\", \"w\" or \"rw\", as the peer sees it");
            Err(refuse(py, ErrorKind::InvalidConfig, what))
        }
    }
}

#[pymethods]
impl Peer {
    /// The peer's rank.
    #[getter]
    fn rank(&self) -> u32 {
        self.inner.rank().0
    }

    /// Whether it can still be used.
    #[getter]
    fn connected(&self) -> bool {
        self.inner.is_connected()
    }

    /// The name of the transport that moves the bytes: ``"shm"``, ``"tcp"``, ``"ucx"``, ``"loopback"``.
    #[getter]
    fn conn(&self) -> Option<&'static str> {
        self.inner.explain().conn.map(hmc_std::ConnType::name)
    }

    /// Bytes of the peer's session buffer.
    #[getter]
    fn remote_nbytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.inner.buffer().map(|b| b.len()).or_raise(py)
    }

    fn __repr__(&self) -> String {
        let conn = self.conn().unwrap_or("control only");
        let state = if self.inner.is_connected() { "connected" } else { "gone" };
        format!("<hmc.Peer {}: {conn}, {state}>", self.inner.rank())
    }

    /// Copies ``nbytes`` bytes from ``local_offset`` of ``src`` to ``remote_offset`` of the peer's buffer, or of ``window``,
    /// and returns when the peer can read them.
    ///
    /// ``src`` is a region, an array (used in place), or None for the session's own buffer. With ``notify``, that tag (0 to
    /// 2**64-1) is delivered to the peer after the bytes.
    ///
    /// With ``expect``, each block of the window of which it has bytes must have that generation (``Generations``): else it
    /// raises ``Revoked`` (kind ``"stale_epoch"``).
    ///
    /// Raises ``OutOfRange`` (nothing is written), ``PeerDead``, ``DeadlineExceeded``, ``Revoked``.
    #[pyo3(signature = (src = None, remote_offset = 0, *, local_offset = 0, nbytes = None, window = None, notify = None, expect = None, timeout = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn put(
        &self,
        py: Python<'_>,
        src: Option<&Bound<'_, PyAny>>,
        remote_offset: u64,
        local_offset: u64,
        nbytes: Option<u64>,
        window: Option<&Remote>,
        notify: Option<u64>,
        expect: Option<u32>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let timeout = self.session.get().waits.own(py, timeout)?;
        let mut ends =
            self.ends(py, src, (local_offset, remote_offset, nbytes), window, (false, true))?;
        ends.expect = expect;
        py.detach(|| ends.put(timeout, notify)).map(drop).or_raise(py)
    }

    /// Copies ``nbytes`` bytes from ``remote_offset`` of the peer's buffer, or of ``window``, to ``local_offset`` of ``dst``.
    /// As :meth:`put`; ``dst`` must be writable and C-contiguous.
    #[pyo3(signature = (dst = None, remote_offset = 0, *, local_offset = 0, nbytes = None, window = None, expect = None, timeout = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn get(
        &self,
        py: Python<'_>,
        dst: Option<&Bound<'_, PyAny>>,
        remote_offset: u64,
        local_offset: u64,
        nbytes: Option<u64>,
        window: Option<&Remote>,
        expect: Option<u32>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let timeout = self.session.get().waits.own(py, timeout)?;
        let mut ends =
            self.ends(py, dst, (local_offset, remote_offset, nbytes), window, (true, true))?;
        ends.expect = expect;
        py.detach(|| ends.get(timeout)).map(drop).or_raise(py)
    }

    /// Begins a put and returns it as an ``Op``. The bytes of ``src`` must not change until it has ended. While as many
    /// operations run as the session has ``slots`` (128), it waits until one has ended, and raises ``DeadlineExceeded`` if
    /// none does within the session's deadline.
    #[pyo3(signature = (src = None, remote_offset = 0, *, local_offset = 0, nbytes = None, window = None, notify = None, expect = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn put_nb(
        &self,
        py: Python<'_>,
        src: Option<&Bound<'_, PyAny>>,
        remote_offset: u64,
        local_offset: u64,
        nbytes: Option<u64>,
        window: Option<&Remote>,
        notify: Option<u64>,
        expect: Option<u32>,
    ) -> PyResult<Op> {
        let mut ends =
            self.ends(py, src, (local_offset, remote_offset, nbytes), window, (false, false))?;
        ends.expect = expect;
        let op = py.detach(|| {
            let put = ends.expecting(ends.window.put(ends.there, ends.range()?), None);
            if let Some(tag) = notify {
                put.notify(tag).start_blocking()
            } else {
                put.start_blocking()
            }
        });
        Ok(Op::transfer(self.whose(), op.or_raise(py)?))
    }

    /// Begins a get and returns it as an ``Op``. Waits for a slot as ``put_nb`` does.
    #[pyo3(signature = (dst = None, remote_offset = 0, *, local_offset = 0, nbytes = None, window = None, expect = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn get_nb(
        &self,
        py: Python<'_>,
        dst: Option<&Bound<'_, PyAny>>,
        remote_offset: u64,
        local_offset: u64,
        nbytes: Option<u64>,
        window: Option<&Remote>,
        expect: Option<u32>,
    ) -> PyResult<Op> {
        let mut ends =
            self.ends(py, dst, (local_offset, remote_offset, nbytes), window, (true, false))?;
        ends.expect = expect;
        let op = py.detach(|| {
            let get = ends.window.get(ends.there, ends.range()?);
            ends.expecting(get, None).start_blocking()
        });
        Ok(Op::transfer(self.whose(), op.or_raise(py)?))
    }

    /// Puts, then delivers ``tag`` to the peer after the bytes. Returns when both are there.
    #[pyo3(signature = (src, tag, remote_offset = 0, *, local_offset = 0, nbytes = None, window = None, timeout = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn put_notify(
        &self,
        py: Python<'_>,
        src: Option<&Bound<'_, PyAny>>,
        tag: u64,
        remote_offset: u64,
        local_offset: u64,
        nbytes: Option<u64>,
        window: Option<&Remote>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.put(py, src, remote_offset, local_offset, nbytes, window, Some(tag), None, timeout)
    }

    /// Checks a list of copies from ``src`` to the peer, to be run many times. Each is a ``Piece``, which can be many blocks at equal
    /// distances, or a tuple ``(local_offset, remote_offset, nbytes)``. A fourth number is the generation that the copy expects
    /// (``Generations``).
    ///
    /// Raises ``OutOfRange`` for the first copy that exceeds the memory or the window.
    #[pyo3(signature = (copies, src = None, *, window = None))]
    fn prepare_put(
        &self,
        py: Python<'_>,
        copies: Vec<Item>,
        src: Option<&Bound<'_, PyAny>>,
        window: Option<&Remote>,
    ) -> PyResult<Batch> {
        self.prepare(py, false, &copies, src, window)
    }

    /// As :meth:`prepare_put`, for copies from the peer to ``dst``.
    #[pyo3(signature = (copies, dst = None, *, window = None))]
    fn prepare_get(
        &self,
        py: Python<'_>,
        copies: Vec<Item>,
        dst: Option<&Bound<'_, PyAny>>,
        window: Option<&Remote>,
    ) -> PyResult<Batch> {
        self.prepare(py, true, &copies, dst, window)
    }

    /// Exposes ``nbytes`` bytes at ``offset`` of a region to this peer, who finds them by ``label`` (0 to 2**64-1). What it
    /// may do: ``"r"``, ``"w"`` or ``"rw"`` (a read-only array: ``"r"``).
    ///
    /// >>> import hmc
    /// >>> with hmc.Session(rank=0, buffer_size=0) as s:
    /// ...     peer, memory = s.loopback(), bytearray(10)
    /// ...     with peer.expose(s.register(memory), label=3, access="w"):
    /// ...         peer.put(b"there", window=peer.window(3))
    /// ...     memory
    /// bytearray(b'there\x00\x00\x00\x00\x00')
    ///
    /// With ``generations`` the bytes are blocks that transfers of the peer can expect to be as they were (``Generations``);
    /// one object may serve several windows and peers.
    #[pyo3(signature = (region, label, *, access = "rw", offset = 0, nbytes = None, generations = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn expose(
        &self,
        py: Python<'_>,
        region: &Region,
        label: u64,
        access: &str,
        offset: u64,
        nbytes: Option<u64>,
        generations: Option<&Generations>,
    ) -> PyResult<Window> {
        let rights = self::access(py, access)?;
        if rights.contains(Access::WRITE) {
            region.check_writable(py)?;
        }
        let covered =
            generations.map(|g| u64::from(g.inner.len()).saturating_mul(g.inner.block_len()));
        let rest = || region.buffer.len().saturating_sub(offset);
        let n = nbytes.or(covered).unwrap_or_else(rest);
        if let Some(covered) = covered.filter(|covered| *covered != n) {
            let what = format!("nbytes={n}, but the generations are those of {covered} bytes");
            return Err(refuse(py, ErrorKind::InvalidConfig, what));
        }
        let range = region.buffer.range(offset, n).or_raise(py)?;
        let made = py.detach(|| match generations {
            None => self.inner.expose(range, rights, label),
            Some(g) => self.inner.expose_blocks(range, rights, label, &g.inner),
        });
        let deadline = self.session.get().waits.own(py, None)?;
        Window::new(made.or_raise(py)?, deadline).or_raise(py)
    }

    /// The peer's window of that label, waiting for it.
    #[pyo3(signature = (label, timeout = None))]
    fn window(&self, py: Python<'_>, label: u64, timeout: Option<f64>) -> PyResult<Remote> {
        let timeout = self.session.get().waits.own(py, timeout)?;
        let found = py.detach(|| self.inner.window(label).within(timeout).wait());
        Ok(Remote { inner: found.or_raise(py)?, peer: self.inner.clone() })
    }

    /// Sends a tag, 0 to 2**64-1. Puts that were waited for before can be read by whoever receives it.
    ///
    /// Waits while the peer does not receive what was sent before.
    #[pyo3(signature = (tag, timeout = None))]
    fn send_tag(&self, py: Python<'_>, tag: u64, timeout: Option<f64>) -> PyResult<()> {
        let timeout = self.session.get().waits.own(py, timeout)?;
        py.detach(|| self.inner.send(Message::Tag(tag)).within(timeout).wait()).or_raise(py)
    }

    /// Receives the oldest tag, or the oldest that equals ``tag``.
    #[pyo3(signature = (tag = None, timeout = None))]
    fn recv_tag(&self, py: Python<'_>, tag: Option<u64>, timeout: Option<f64>) -> PyResult<u64> {
        let timeout = self.session.get().waits.own(py, timeout)?;
        let want = tag.map_or(Wanted::Tag, Wanted::ThisTag);
        match py.detach(|| self.inner.recv(want).within(timeout).wait()).or_raise(py)? {
            Message::Tag(tag) | Message::Notify(tag) => Ok(tag),
            Message::Int(_) | Message::Bytes(_) => {
                Err(refuse(py, ErrorKind::Protocol, "not a tag"))
            }
        }
    }

    /// Sends a 32-bit number, as ``sendInt`` of the C++ HMC. Waits as :meth:`send_tag`, for the session's deadline.
    fn send_int(&self, py: Python<'_>, n: i32) -> PyResult<()> {
        py.detach(|| self.inner.send(Message::Int(n)).wait()).or_raise(py)
    }

    /// Receives the oldest 32-bit number: what the C++ HMC sends with ``sendInt``.
    #[pyo3(signature = (timeout = None))]
    fn recv_int(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<i32> {
        let timeout = self.session.get().waits.own(py, timeout)?;
        py.detach(|| self.inner.recv(want::Int).within(timeout).wait()).or_raise(py)
    }

    /// Receives the oldest tag of a ``put_notify``: the bytes of that put can be read.
    #[pyo3(signature = (timeout = None))]
    fn recv_notify(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<u64> {
        let timeout = self.session.get().waits.own(py, timeout)?;
        py.detach(|| self.inner.recv(want::Notify).within(timeout).wait()).or_raise(py)
    }

    /// Sends a small message, at most 1 MiB; any bytes. Waits as :meth:`send_tag`.
    #[pyo3(signature = (message, timeout = None))]
    fn send(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let timeout = self.session.get().waits.own(py, timeout)?;
        let bytes = data::source(message)?;
        py.detach(|| self.inner.send(Message::copy_of(bytes.view())?).within(timeout).wait())
            .or_raise(py)
    }

    /// Receives the oldest small message.
    #[pyo3(signature = (timeout = None))]
    fn recv<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyBytes>> {
        let timeout = self.session.get().waits.own(py, timeout)?;
        let bytes = py.detach(|| self.inner.recv(want::Bytes).within(timeout).wait());
        Ok(PyBytes::new(py, &bytes.or_raise(py)?))
    }

    /// Sends any number of bytes to the peer's next ``recv_data``, from where they lie, and returns when the peer has them.
    #[pyo3(signature = (src, timeout = None))]
    fn send_data(
        &self,
        py: Python<'_>,
        src: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<usize> {
        let timeout = self.session.get().waits.own(py, timeout)?;
        let bytes = data::source(src)?;
        py.detach(|| self.inner.send_data(bytes.view()).within(timeout).wait()).or_raise(py)?;
        Ok(bytes.len())
    }

    /// Receives the peer's next message into ``dst`` and returns its length.
    #[pyo3(signature = (dst, timeout = None))]
    fn recv_data(
        &self,
        py: Python<'_>,
        dst: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let timeout = self.session.get().waits.own(py, timeout)?;
        let bytes = data::target(dst)?;
        py.detach(|| self.inner.recv_data(bytes.view()).within(timeout).wait().map(|d| d.bytes))
            .or_raise(py)
    }

    /// Begins to send; see :meth:`send_data`. The bytes must not change until it has ended.
    fn isend_data(&self, py: Python<'_>, src: &Bound<'_, PyAny>) -> PyResult<Op> {
        let region = self.session.get().region_for(py, src, false)?;
        let begun = py.detach(|| {
            let span = region.take_all()?;
            self.inner.send_data(span).start().map_err(hmc_std::Error::from)
        });
        Ok(Op::message(self.whose(), begun.or_raise(py)?))
    }

    /// Begins to receive the peer's next message into ``dst``; see :meth:`recv_data`.
    fn irecv_data(&self, py: Python<'_>, dst: &Bound<'_, PyAny>) -> PyResult<Op> {
        let region = self.session.get().region_for(py, dst, true)?;
        let begun = py.detach(|| {
            let span = region.take_all()?;
            self.inner.recv_data(span).start().map_err(hmc_std::Error::from)
        });
        Ok(Op::message(self.whose(), begun.or_raise(py)?))
    }

    /// Which transport was chosen, why, and why not the others: a dict with ``conn``, ``choices``, ``trust``,
    /// ``target_checks``, ``slower`` and ``text``.
    fn explain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dicts::explanation(py, &self.inner.explain())
    }

    /// For measurements: seconds of one put of ``nbytes`` bytes, in the mean of ``count``, without Python in between.
    #[pyo3(signature = (nbytes, count, src = None))]
    fn _time_put(
        &self,
        py: Python<'_>,
        nbytes: u64,
        count: u32,
        src: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<f64> {
        let ends = self.ends(py, src, (0, 0, Some(nbytes)), None, (false, false))?;
        let begun = Instant::now();
        py.detach(|| {
            let range = ends.range()?;
            (0..count).try_for_each(|_| ends.window.put(0, range).wait().map(drop))
        })
        .or_raise(py)?;
        Ok(begun.elapsed().as_secs_f64() / f64::from(count.max(1)))
    }

    /// Ends the link in order: both ends finish what was begun.
    #[pyo3(signature = (timeout = None))]
    fn disconnect(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = self.session.get().waits.own(py, timeout)?;
        py.detach(|| self.inner.disconnect().within(timeout).wait()).or_raise(py)
    }
}

impl Peer {
    /// Both ends of a transfer, with a window of this peer.
    fn ends(
        &self,
        py: Python<'_>,
        local: Option<&Bound<'_, PyAny>>,
        ranges: (u64, u64, Option<u64>),
        window: Option<&Remote>,
        (writes, lends): (bool, bool),
    ) -> PyResult<Ends> {
        Ends::new(py, self.session.get(), &self.inner, (local, window), ranges, (writes, lends))
    }

    fn prepare(
        &self,
        py: Python<'_>,
        gets: bool,
        pieces: &[Item],
        local: Option<&Bound<'_, PyAny>>,
        window: Option<&Remote>,
    ) -> PyResult<Batch> {
        let ends = self.ends(py, local, (0, 0, None), window, (gets, false))?;
        Ok(Batch::new(self.whose(), List::new(gets, pieces, &ends).or_raise(py)?))
    }
}
