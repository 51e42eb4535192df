//! Registered memory: copies in and out by offset, and its bytes as a buffer or a tensor.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hmc_std::{
    ConnBuffer, Error, ErrorKind, Origin, Peer as StdPeer, Remote as StdRemote, Window as StdWindow,
};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::data::{self, DropDeferred};
use crate::dlpack::export::export;
use crate::dlpack::tensor::HERE;
use crate::errors::{OrRaise, raise, refuse};

/// Copies of more bytes let other Python threads run.
const LONG: usize = 64 << 10;

/// Memory registered for transfer: a session's buffer, memory from ``Session.allocate``, or an array of the application's
/// from ``Session.register``.
///
/// Offsets and lengths are in bytes. Peers may read and write exposed memory at any time; copies are safe against that.
/// ``memoryview(region)``, ``numpy.frombuffer(region, dtype)`` and ``numpy.from_dlpack(region)`` see the bytes in place.
///
/// >>> import hmc
/// >>> with hmc.Session(rank=0, buffer_size=0) as s:
/// ...     region = s.allocate(8)
/// ...     n = region.write(b"bytes", offset=1)
/// ...     n, region.read(5, 1), bytes(memoryview(region)), region.readonly
/// (5, bytearray(b'bytes'), b'\x00bytes\x00\x00', False)
#[pyclass(module = "hmc._hmc", frozen, subclass, weakref)]
pub(crate) struct Region {
    pub(crate) buffer: ConnBuffer,
    /// The array whose memory it is; none for memory of ours.
    owner: Option<Py<PyAny>>,
    readonly: bool,
    _deferred: DropDeferred,
}

/// A length that was left out is the object's own.
fn wanted(py: Python<'_>, have: usize, nbytes: Option<usize>, what: &str) -> PyResult<usize> {
    let n = nbytes.unwrap_or(have);
    if n <= have {
        return Ok(n);
    }
    let what = format!("nbytes={n}, but {what} has {have} bytes");
    Err(refuse(py, ErrorKind::Length, what))
}

/// An array of bytes that nobody else knows, and the place of its bytes, which are to be written. It is not filled with zeros:
/// that would take as long as the copy, with the interpreter's lock.
fn unfilled(py: Python<'_>, nbytes: usize) -> PyResult<(Bound<'_, PyByteArray>, data::Bytes)> {
    let len = isize::try_from(nbytes).unwrap_or(isize::MAX);
    // SAFETY: the interpreter is ours; without a source the bytes are whatever memory has there.
    let made = unsafe { ffi::PyByteArray_FromStringAndSize(std::ptr::null(), len) };
    // SAFETY: a new reference, or null with an exception set.
    let out = unsafe { Bound::from_owned_ptr_or_err(py, made) }?.cast_into::<PyByteArray>()?;
    // SAFETY: it has `nbytes` bytes there as long as nobody resizes it, which only who has it could.
    let to = unsafe { data::at(out.data().expose_provenance(), nbytes) };
    Ok((out, to))
}

impl Region {
    pub(crate) fn new(buffer: ConnBuffer, owner: Option<Py<PyAny>>, readonly: bool) -> Self {
        Self { buffer, owner, readonly, _deferred: DropDeferred }
    }

    /// Refuses what would change memory that the application may only read.
    pub(crate) fn check_writable(&self, py: Python<'_>) -> PyResult<()> {
        if !self.readonly {
            return Ok(());
        }
        Err(refuse(
            py,
            ErrorKind::InvalidConfig,
            "the registered array is read-only: it can be a source only",
        ))
    }

    fn copy_in(
        &self,
        py: Python<'_>,
        from: &data::Bytes,
        n: usize,
        offset: u64,
    ) -> PyResult<usize> {
        self.check_writable(py)?;
        let n = n.min(from.len());
        let copy = || {
            // SAFETY: the object keeps its bytes while `from` lives; they may be this region's own.
            unsafe { self.buffer.write_from(offset, from.start, n) }
        };
        if n > LONG { py.detach(copy) } else { copy() }.or_raise(py)?;
        Ok(n)
    }

    fn copy_out(&self, py: Python<'_>, to: &data::Bytes, n: usize, offset: u64) -> PyResult<usize> {
        let n = n.min(to.len());
        let copy = || {
            // SAFETY: as above; it was checked to be writable.
            unsafe { self.buffer.read_to(offset, to.start, n) }
        };
        if n > LONG { py.detach(copy) } else { copy() }.or_raise(py)?;
        Ok(n)
    }
}

#[pymethods]
impl Region {
    /// Size in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.buffer.len()
    }

    /// The address of the first byte.
    #[getter]
    fn ptr(&self) -> usize {
        self.buffer.as_ptr().addr()
    }

    /// Whether it can be a source only.
    #[getter]
    fn readonly(&self) -> bool {
        self.readonly
    }

    /// The registered array, or None for memory that HMC allocated.
    #[getter]
    fn array(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.owner.as_ref().map(|o| o.clone_ref(py))
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.buffer.len()).unwrap_or(usize::MAX)
    }

    fn __repr__(&self) -> String {
        let whose = if self.owner.is_some() { "of the application's" } else { "of HMC's" };
        format!("<hmc.Region: {} bytes {whose}>", self.buffer.len())
    }

    /// Copies an object's bytes in at ``offset`` and returns how many. See the module's documentation for what can be a
    /// source; one with gaps is packed in C order first.
    ///
    /// Raises ``OutOfRange`` when they exceed the region; nothing is written then.
    #[pyo3(signature = (src, offset = 0, nbytes = None))]
    fn write(&self, src: &Bound<'_, PyAny>, offset: u64, nbytes: Option<usize>) -> PyResult<usize> {
        let py = src.py();
        let from = data::source(src)?;
        let n = wanted(py, from.len(), nbytes, "the source")?;
        self.copy_in(py, &from, n, offset)
    }

    /// Fills ``dst``, or its first ``nbytes`` bytes, from ``offset``; returns how many. ``dst`` must be writable and
    /// C-contiguous.
    #[pyo3(signature = (dst, offset = 0, nbytes = None))]
    fn read_into(
        &self,
        dst: &Bound<'_, PyAny>,
        offset: u64,
        nbytes: Option<usize>,
    ) -> PyResult<usize> {
        let py = dst.py();
        let to = data::target(dst)?;
        let n = wanted(py, to.len(), nbytes, "the destination")?;
        self.copy_out(py, &to, n, offset)
    }

    /// A copy of ``nbytes`` bytes at ``offset``.
    #[pyo3(signature = (nbytes, offset = 0))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        nbytes: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        let len = self.buffer.len();
        let inside = u64::try_from(nbytes).is_ok_and(|n| n <= len);
        if !inside {
            // Before any memory is taken for it. The same words as for all ranges.
            self.buffer.crc32c(offset, u64::try_from(nbytes).unwrap_or(u64::MAX)).or_raise(py)?;
        }
        if nbytes <= LONG {
            return PyByteArray::new_with(py, nbytes, |out| {
                self.buffer.read_at(offset, out).map_err(|e| raise(py, &e))
            });
        }
        let (out, to) = unfilled(py, nbytes)?;
        self.copy_out(py, &to, nbytes, offset)?;
        Ok(out)
    }

    /// Copies ``nbytes`` bytes from ``address``, in this process. The caller vouches for that memory.
    #[pyo3(signature = (address, nbytes, offset = 0))]
    fn write_from_address(
        &self,
        py: Python<'_>,
        address: usize,
        nbytes: usize,
        offset: u64,
    ) -> PyResult<usize> {
        // SAFETY: the documentation hands this to the caller.
        let from = unsafe { data::at(address, nbytes) };
        self.copy_in(py, &from, nbytes, offset)
    }

    /// Copies ``nbytes`` bytes to ``address``, in this process. The caller vouches for that memory.
    #[pyo3(signature = (address, nbytes, offset = 0))]
    fn read_to_address(
        &self,
        py: Python<'_>,
        address: usize,
        nbytes: usize,
        offset: u64,
    ) -> PyResult<usize> {
        // SAFETY: as above.
        let to = unsafe { data::at(address, nbytes) };
        self.copy_out(py, &to, nbytes, offset)
    }

    /// Copies within the region. The two ranges may overlap.
    fn copy_within(
        &self,
        py: Python<'_>,
        dst_offset: u64,
        src_offset: u64,
        nbytes: u64,
    ) -> PyResult<()> {
        self.check_writable(py)?;
        py.detach(|| self.buffer.copy_within(dst_offset, src_offset, nbytes)).or_raise(py)
    }

    /// Sets ``nbytes`` bytes at ``offset`` to ``value`` (0 to 255).
    #[pyo3(signature = (value, offset = 0, nbytes = None))]
    fn fill(&self, py: Python<'_>, value: u8, offset: u64, nbytes: Option<u64>) -> PyResult<()> {
        self.check_writable(py)?;
        let n = nbytes.unwrap_or_else(|| self.buffer.len().saturating_sub(offset));
        py.detach(|| self.buffer.fill(offset, n, value)).or_raise(py)
    }

    /// The CRC-32C of ``nbytes`` bytes at ``offset``.
    #[pyo3(signature = (offset = 0, nbytes = None))]
    fn crc32c(&self, py: Python<'_>, offset: u64, nbytes: Option<u64>) -> PyResult<u32> {
        let n = nbytes.unwrap_or_else(|| self.buffer.len().saturating_sub(offset));
        py.detach(|| self.buffer.crc32c(offset, n)).or_raise(py)
    }

    /// The 64-bit word at ``offset`` (a multiple of 8), read with acquire ordering: bytes that a peer of this host put
    /// before it can be read.
    fn load_flag(&self, py: Python<'_>, offset: u64) -> PyResult<u64> {
        self.buffer.load_flag(offset).or_raise(py)
    }

    /// Writes the 64-bit word at ``offset`` (a multiple of 8) with release ordering.
    fn store_flag(&self, py: Python<'_>, offset: u64, value: u64) -> PyResult<()> {
        self.check_writable(py)?;
        self.buffer.store_flag(offset, value).or_raise(py)
    }

    /// The bytes in place, as a buffer of bytes.
    ///
    /// # Safety
    /// As of Python's slot: `view` is Python's.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        this.buffer.check_process().or_raise(slf.py())?;
        let start = NonNull::new(this.buffer.as_ptr()).unwrap_or(NonNull::dangling());
        let (len, readonly) = (this.__len__(), this.readonly);
        // SAFETY: Python gives the view; the bytes live as long as this object.
        unsafe { crate::view::export(slf.into_any(), (start, len), readonly, view, flags) }
    }

    /// The bytes as a DLPack tensor of ``uint8``, in place.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.buffer.check_process().or_raise(py)?;
        if stream.is_some() || copy == Some(true) || dl_device.is_some_and(|d| d != HERE) {
            return Err(pyo3::exceptions::PyBufferError::new_err(
                "host memory, in place: without a stream, a copy or another device",
            ));
        }
        export(py, &self.buffer, self.readonly, max_version)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        HERE
    }
}

/// What became of a window.
enum Access {
    Open(StdWindow<ConnBuffer>),
    /// It was taken back, or why the peer may still be in it.
    Over(Result<(), Error>),
}

/// Memory that a peer may access until it is revoked.
#[pyclass(module = "hmc._hmc", frozen)]
pub(crate) struct Window {
    access: Mutex<Access>,
    nbytes: u64,
    deadline: Duration,
    origin: Origin,
    _deferred: DropDeferred,
}

impl Window {
    pub(crate) fn new(inner: StdWindow<ConnBuffer>, deadline: Duration) -> Result<Self, Error> {
        let nbytes = inner.len();
        let (access, origin) = (Mutex::new(Access::Open(inner)), Origin::here()?);
        Ok(Self { access, nbytes, deadline, origin, _deferred: DropDeferred })
    }

    fn end(&self, timeout: Duration) -> Result<(), Error> {
        // Who comes second waits for the first: both are promised the same.
        let mut access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        let window = match &*access {
            Access::Over(result) => return result.clone(),
            Access::Open(_) => std::mem::replace(&mut *access, Access::Over(Ok(()))),
        };
        let Access::Open(window) = window else { return Ok(()) };
        let ended = window.revoke().within(timeout).wait().map(drop);
        *access = Access::Over(ended.clone().map_err(|e| match e.kind() {
            ErrorKind::Interrupted => {
                let what = "revoking was interrupted: the peer may still be in the window; its memory is held until it is out";
                Error::new(ErrorKind::Quarantined, what)
            }
            _ => e,
        }));
        ended
    }
}

#[pymethods]
impl Window {
    /// Size in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.nbytes
    }

    /// Takes the window back: from when this returns, the peer reads and writes none of its bytes.
    ///
    /// Raises ``Busy`` (kind ``"quarantined"``) when the peer did not get out within ``timeout`` seconds: the memory is held
    /// until it is out or has ended. Revoked again, it answers the same.
    #[pyo3(signature = (timeout = None))]
    fn revoke(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.origin.check().or_raise(py)?;
        let timeout = crate::time::timeout(py, timeout, self.deadline)?;
        let ended = py.detach(|| self.end(timeout));
        // What the window alone held goes now.
        drop(DropDeferred);
        ended.or_raise(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_ended))]
    fn __exit__(&self, py: Python<'_>, _ended: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.revoke(py, None)
    }
}

/// A window of a peer, found by its label.
#[pyclass(module = "hmc._hmc", frozen, from_py_object)]
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) inner: StdRemote,
    /// Whose window it is.
    pub(crate) peer: StdPeer,
}

#[pymethods]
impl Remote {
    /// Size in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.len()
    }

    fn __repr__(&self) -> String {
        format!("<hmc.RemoteWindow: {} bytes>", self.inner.len())
    }
}
