//! The bytes of Python objects: found, checked, and held while they are used.
//!
//! Three doors, in this order: the buffer protocol (bytes, bytearray, memoryview, NumPy, array), NumPy's array interface
//! (dtypes that the buffer protocol has no name for), DLPack (torch, and all others). Strides are honoured or refused, never
//! misread; arrays of Python objects are refused.

use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use hmc_std::ErrorKind;
use hmc_std::memory::{SharedBytes, StableBytes};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::refuse;
use crate::pack::pack;
use crate::{dlpack, lazy};

/// Packing more bytes lets other Python threads run.
const LONG: usize = 64 << 10;

/// What holds the bytes.
#[allow(dead_code, reason = "held for their drops")]
pub(crate) enum Keep {
    Buffer(Lent),
    Object(Py<PyAny>),
    Tensor(dlpack::Tensor),
    /// A copy in C order of an object with gaps.
    Packed(Vec<u8>),
}

/// What an object exports by the buffer protocol, until this is dropped. The view stays where it is: exporters may know its
/// address.
pub(crate) struct Lent(Box<ffi::Py_buffer>);

impl Lent {
    fn of(obj: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: an object, and a view that nobody else has.
        let rc =
            unsafe { ffi::PyObject_GetBuffer(obj.as_ptr(), &raw mut *view, ffi::PyBUF_FULL_RO) };
        if rc == 0 { Ok(Self(view)) } else { Err(PyErr::fetch(obj.py())) }
    }

    /// As `struct` writes it; `B` where nothing is said.
    fn format(&self) -> &[u8] {
        if self.0.format.is_null() {
            return b"B";
        }
        // SAFETY: a text that ends with a zero and lives as long as the view.
        unsafe { CStr::from_ptr(self.0.format) }.to_bytes()
    }

    /// Shape, strides or suboffsets; `None` where the exporter leaves them out.
    fn numbers(&self, first: *mut isize) -> Option<Vec<isize>> {
        let n = usize::try_from(self.0.ndim).unwrap_or_default();
        // SAFETY: unless null, there is one for each dimension.
        (!first.is_null())
            .then(|| (0..n).map(|i| unsafe { first.wrapping_add(i).read() }).collect())
    }

    fn len(&self) -> usize {
        usize::try_from(self.0.len).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // At the interpreter's end nobody wants it back.
        // SAFETY: filled by `of`, and released once.
        let _ = Python::try_attach(|_| unsafe { ffi::PyBuffer_Release(&raw mut *self.0) });
    }
}

/// An array in memory that this process can reach.
pub(crate) struct Array {
    pub(crate) start: *mut u8,
    /// Bytes of one element.
    pub(crate) item: usize,
    pub(crate) shape: Vec<usize>,
    /// In bytes; `None` for C order without gaps.
    pub(crate) strides: Option<Vec<isize>>,
    pub(crate) writable: bool,
    pub(crate) keep: Keep,
}

/// Bytes without gaps, held as long as this lives.
pub(crate) struct Bytes {
    pub(crate) start: *mut u8,
    len: usize,
    pub(crate) writable: bool,
    _keep: Keep,
}

// SAFETY: the bytes are reached by address only; what keeps them is a reference to a Python object, which PyO3 lets go of on
// any thread, or memory of ours.
unsafe impl Send for Bytes {}
// SAFETY: as above; nothing in here changes.
unsafe impl Sync for Bytes {}

/// Bytes that are registered. Whoever lets go of them last may be a thread that must not wait for the interpreter: what holds
/// them is put aside then, for the next call ([`Sweep`]).
pub(crate) struct Registered(Option<Bytes>);

/// What registered bytes were held by, to be let go of by somebody who is attached to the interpreter: the newest, which leads
/// to the others. Without a lock: a forked child would find it locked for ever if a thread of its parent had it then.
static PUT_ASIDE: AtomicPtr<Aside> = AtomicPtr::new(ptr::null_mut());

/// One of those.
struct Aside {
    bytes: Bytes,
    older: *mut Aside,
}

impl From<Bytes> for Registered {
    fn from(bytes: Bytes) -> Self {
        Self(Some(bytes))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Some(bytes) = self.0.take() else { return };
        let new = Box::into_raw(Box::new(Aside { bytes, older: ptr::null_mut() }));
        let mut newest = PUT_ASIDE.load(Ordering::Relaxed);
        loop {
            // SAFETY: from a box; nobody else knows it before the exchange below has been made.
            unsafe { (*new).older = newest };
            // Release: who takes it finds it whole.
            let put = PUT_ASIDE.compare_exchange(newest, new, Ordering::Release, Ordering::Relaxed);
            match put {
                Ok(_) => return,
                Err(other) => newest = other,
            }
        }
    }
}

// SAFETY: the object's memory neither moves nor goes while the reference (or the export of its buffer) is held. Other code made it,
// so that whatever is in it is a value. It may be registered more than once and written by Python code at any time: this module
// never borrows a span of it as a slice.
unsafe impl StableBytes for Registered {
    fn as_bytes_ptr(&self) -> (*mut u8, usize) {
        self.0.as_ref().map_or((std::ptr::null_mut(), 0), |b| (b.start, b.len))
    }
}

/// Lets go of what was put aside, when it is dropped itself: the last field of what holds registered memory.
pub(crate) struct Sweep;

impl Drop for Sweep {
    fn drop(&mut self) {
        if PUT_ASIDE.load(Ordering::Relaxed).is_null() {
            return;
        }
        // All of them, so that nobody else has any.
        let mut next = PUT_ASIDE.swap(ptr::null_mut(), Ordering::Acquire);
        let mut all = Vec::new();
        while !next.is_null() {
            // SAFETY: from a box (`Registered::drop`), and taken out of the list, where it was once, by the swap above.
            let aside = unsafe { Box::from_raw(next) };
            next = aside.older;
            all.push(aside.bytes);
        }
        // Deleters of other packages and releases of buffers want the interpreter; at its end nobody wants them back.
        let _ = Python::try_attach(|_| drop(all));
    }
}

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn address(&self) -> usize {
        self.start.addr()
    }

    /// All of them. Python code may read and write them at any time, also while a call of ours copies them, so there is
    /// no way to a slice.
    pub(crate) fn view(&self) -> SharedBytes<'_> {
        // Without bytes the address may be null.
        let start = NonNull::new(self.start).unwrap_or(NonNull::dangling());
        // SAFETY: the object has `len` bytes there, which it keeps while this lives, and fewer than there are addresses
        // (`Array::len`). Other code made them: no value or reference of Rust is among them.
        let view = unsafe { SharedBytes::new(start, self.len) };
        if self.writable { view } else { view.read_only() }
    }
}

fn kind_of(obj: &Bound<'_, PyAny>) -> String {
    obj.get_type().fully_qualified_name().map_or_else(|_| "object".into(), |n| n.to_string())
}

/// How many bytes an array has, if that is a number.
fn bytes_of(item: usize, shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(item, |n, extent| n.checked_mul(*extent))
}

impl Array {
    /// The array that an object is; with `copies`, one that holds the same if its own bytes do not say what it shows; with
    /// `lasts`, one whose memory stays where it is while the array is held.
    fn of(obj: &Bound<'_, PyAny>, copies: bool, lasts: bool) -> PyResult<Self> {
        let py = obj.py();
        // SAFETY: an object, and the interpreter is ours.
        if unsafe { ffi::PyObject_CheckBuffer(obj.as_ptr()) } == 1 {
            lazy::no_mask(obj)?;
            match Lent::of(obj) {
                Ok(buffer) => return Self::of_buffer(py, buffer),
                // Of a dtype that buffers have no name for.
                Err(e) if !obj.hasattr(intern!(py, "__array_interface__"))? => return Err(e),
                Err(_) => return Self::of_interface(obj),
            }
        }
        if let Some(export) = obj.getattr_opt(intern!(py, "__dlpack__"))? {
            let plain = lazy::settled(obj, copies)?;
            if lasts {
                lazy::keep_size(&plain)?;
            }
            if plain.is(obj) {
                return dlpack::import(obj, &export);
            }
            return dlpack::import(&plain, &plain.getattr(intern!(py, "__dlpack__"))?);
        }
        if obj.hasattr(intern!(py, "__array_interface__"))? {
            return Self::of_interface(obj);
        }
        if obj.hasattr(intern!(py, "__cuda_array_interface__"))? {
            return Err(no_devices(py));
        }
        let what = format!(
            "{} has no bytes that HMC can reach: give bytes, bytearray, memoryview, a NumPy array, a torch tensor, or \
             an object with the buffer protocol or DLPack",
            kind_of(obj)
        );
        Err(pyo3::exceptions::PyTypeError::new_err(what))
    }

    fn of_buffer(py: Python<'_>, buffer: Lent) -> PyResult<Self> {
        if has_objects(buffer.format()) {
            return Err(objects());
        }
        let view = &*buffer.0;
        if buffer.numbers(view.suboffsets).is_some_and(|s| s.iter().any(|n| *n >= 0)) {
            return Err(refuse(
                py,
                ErrorKind::InvalidConfig,
                "the buffer lies behind pointers (suboffsets); make a plain copy of it first",
            ));
        }
        let shape = buffer.numbers(view.shape);
        let (item, shape) = match (shape, view.ndim) {
            (Some(shape), _) => {
                (view.itemsize, shape.into_iter().map(isize::unsigned_abs).collect())
            }
            (None, 0) => (view.itemsize, Vec::new()),
            // Bytes in a row.
            (None, _) => (1, vec![buffer.len()]),
        };
        let mut array = Self {
            start: view.buf.cast(),
            item: item.unsigned_abs(),
            strides: buffer.numbers(view.strides).filter(|s| s.len() == shape.len()),
            shape,
            writable: view.readonly == 0,
            keep: Keep::Buffer(buffer),
        };
        array.forget_plain_strides();
        Ok(array)
    }

    /// NumPy's array interface, version 3.
    fn of_interface(obj: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = obj.py();
        let interface = obj.getattr(intern!(py, "__array_interface__"))?;
        let interface = interface.cast::<PyDict>()?;
        let need = |key: &str| {
            interface.get_item(key)?.ok_or_else(|| {
                let what = format!("the array interface has no `{key}`");
                refuse(py, ErrorKind::InvalidConfig, what)
            })
        };
        let odd = |what: &str| {
            refuse(py, ErrorKind::InvalidConfig, format!("the array interface {what}"))
        };
        let typestr: String = need("typestr")?.extract()?;
        let shape: Vec<usize> = need("shape")?.extract()?;
        let kind = typestr.as_bytes().get(1).copied();
        let item = typestr.get(2..).and_then(|n| n.split('[').next()).and_then(|n| n.parse().ok());
        let dtype = obj.getattr_opt(intern!(py, "dtype"))?;
        let holds = match dtype {
            // Of NumPy: also an object in a field.
            Some(dtype) => match dtype.getattr_opt(intern!(py, "hasobject"))? {
                Some(holds) => holds.is_truthy()?,
                None => false,
            },
            None => false,
        };
        if kind == Some(b'O') || holds {
            return Err(objects());
        }
        let item: usize = item.ok_or_else(|| odd(&format!("has no typestr: {typestr:?}")))?;
        // Texts of NumPy count characters.
        let item = if kind == Some(b'U') { 4usize.saturating_mul(item) } else { item };
        let strides = match interface.get_item("strides")?.filter(|s| !s.is_none()) {
            Some(strides) => Some(strides.cast::<PyTuple>()?.extract::<Vec<isize>>()?),
            None => None,
        };
        if strides.as_ref().is_some_and(|s| s.len() != shape.len()) {
            return Err(odd("has not one stride for each dimension"));
        }
        let data = need("data")?;
        let mut array = Self {
            start: std::ptr::null_mut(),
            item,
            shape,
            strides,
            writable: false,
            keep: Keep::Object(obj.clone().unbind()),
        };
        array.forget_plain_strides();
        if data.is_instance_of::<PyTuple>() {
            let (start, readonly): (usize, bool) = data.extract()?;
            array.start = std::ptr::with_exposed_provenance_mut(start);
            array.writable = !readonly;
            return Ok(array);
        }
        // Bytes that hold the data themselves.
        let lent = Lent::of(&data)?;
        let offset = match interface.get_item("offset")? {
            Some(offset) => offset.extract()?,
            None => 0usize,
        };
        let room = lent.len().checked_sub(offset);
        if array.strides.is_some() || room.is_none_or(|room| array.len(py).is_ok_and(|n| n > room))
        {
            return Err(odd("names other bytes than its data has"));
        }
        array.start = lent.0.buf.cast::<u8>().wrapping_add(offset);
        array.writable = lent.0.readonly == 0;
        array.keep = Keep::Buffer(lent);
        Ok(array)
    }

    /// Strides that say nothing but C order.
    pub(crate) fn forget_plain_strides(&mut self) {
        let Some(strides) = &self.strides else { return };
        let mut next = isize::try_from(self.item).unwrap_or(isize::MAX);
        let empty = self.shape.contains(&0);
        let plain = strides.iter().zip(&self.shape).rev().all(|(stride, extent)| {
            let fits = *extent == 1 || *stride == next;
            next = next.saturating_mul(isize::try_from(*extent).unwrap_or(isize::MAX));
            fits
        });
        if plain || empty {
            self.strides = None;
        }
    }

    fn len(&self, py: Python<'_>) -> PyResult<usize> {
        bytes_of(self.item, &self.shape).filter(|n| isize::try_from(*n).is_ok()).ok_or_else(|| {
            refuse(
                py,
                ErrorKind::InvalidConfig,
                "the array's shape has more bytes than there are addresses",
            )
        })
    }

    /// Its length, if there can be as many bytes where it says that they are.
    fn reachable(&self, py: Python<'_>) -> PyResult<usize> {
        let len = self.len(py)?;
        if len > 0 && self.start.is_null() {
            let what = format!("an array of {len} bytes at address 0 has no memory");
            return Err(refuse(py, ErrorKind::InvalidConfig, what));
        }
        Ok(len)
    }

    /// Its bytes where they lie; an array with gaps is refused.
    fn in_place(self, py: Python<'_>, what: &str) -> PyResult<Bytes> {
        let len = self.reachable(py)?;
        if self.strides.is_some() {
            let what = format!(
                "{what} must be C-contiguous: its bytes are used where they lie; give a contiguous array \
                 (numpy.ascontiguousarray, tensor.contiguous())"
            );
            return Err(refuse(py, ErrorKind::InvalidConfig, what));
        }
        Ok(Bytes { start: self.start, len, writable: self.writable, _keep: self.keep })
    }

    /// A copy in C order.
    fn packed(self, py: Python<'_>) -> PyResult<Bytes> {
        let len = self.reachable(py)?;
        let mut out: Vec<u8> = Vec::new();
        out.try_reserve_exact(len).map_err(|_| {
            let what = format!("no memory for a copy without gaps of {len} bytes");
            refuse(py, ErrorKind::NoSpace, what)
        })?;
        let strides = self.strides.as_deref().unwrap_or_default();
        let (from, shape, item) = (self.start.expose_provenance(), &self.shape, self.item);
        let mut copy = || {
            let from = std::ptr::with_exposed_provenance_mut(from);
            // SAFETY: whoever describes the array vouches for each element of its shape, and `self.keep` keeps them.
            unsafe { pack(from, shape, strides, item, &mut out) }
        };
        let whole = if len > LONG { py.detach(copy) } else { copy() };
        if !whole {
            return Err(refuse(py, ErrorKind::Interrupted, "packing an array was interrupted"));
        }
        let (start, writable) = (out.as_mut_ptr(), false);
        Ok(Bytes { start, len, writable, _keep: Keep::Packed(out) })
    }
}

/// Whether elements of a format of `struct` (PEP 3118) are or hold references to Python objects. Names of fields stand between
/// colons.
fn has_objects(format: &[u8]) -> bool {
    format.split(|c| *c == b':').step_by(2).any(|codes| codes.contains(&b'O'))
}

fn objects() -> PyErr {
    pyo3::exceptions::PyTypeError::new_err(
        "an array of Python objects has no bytes that mean anything in another process; pickle it",
    )
}

/// Device memory.
pub(crate) fn no_devices(py: Python<'_>) -> PyErr {
    refuse(
        py,
        ErrorKind::Unavailable,
        "device memory (CUDA, ROCm and others) cannot be reached by this version: copy the tensor to the host \
         (`.cpu()`) first",
    )
}

/// The bytes of a source, in C order: where they lie, or a copy when the object has gaps. For a call that uses them until it
/// returns; else see [`lasting`].
pub(crate) fn source(obj: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    source_of(obj, false)
}

fn source_of(obj: &Bound<'_, PyAny>, lasts: bool) -> PyResult<Bytes> {
    let array = Array::of(obj, true, lasts)?;
    if array.strides.is_some() {
        array.packed(obj.py())
    } else {
        array.in_place(obj.py(), "a source")
    }
}

/// The bytes of a destination: writable and without gaps. As [`source`], until the call returns.
pub(crate) fn target(obj: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    target_of(obj, false)
}

/// The bytes of a source, or with `writes` of a destination, for what uses them when the call has returned.
pub(crate) fn lasting(obj: &Bound<'_, PyAny>, writes: bool) -> PyResult<Bytes> {
    if writes { target_of(obj, true) } else { source_of(obj, true) }
}

fn target_of(obj: &Bound<'_, PyAny>, lasts: bool) -> PyResult<Bytes> {
    let py = obj.py();
    let bytes = Array::of(obj, false, lasts)?.in_place(py, "a destination")?;
    if bytes.writable {
        return Ok(bytes);
    }
    let what = format!("{} is read-only and cannot be a destination", kind_of(obj));
    Err(refuse(py, ErrorKind::InvalidConfig, what))
}

/// The bytes of an object where they lie, read-only or not, to be registered.
pub(crate) fn place(obj: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    Array::of(obj, false, true)?.in_place(obj.py(), "registered memory")
}

/// Memory at an address that the caller vouches for.
///
/// # Safety
/// `len` bytes at `address` are readable (and writable, if they are written) as long as this lives.
pub(crate) unsafe fn at(address: usize, len: usize) -> Bytes {
    let start = std::ptr::with_exposed_provenance_mut(address);
    Bytes { start, len, writable: true, _keep: Keep::Packed(Vec::new()) }
}
