//! The bytes of Python objects: found, checked, and owned while they are used.
//!
//! Three protocols, in this order: the buffer protocol (bytes, bytearray, memoryview, NumPy, array), NumPy's array interface
//! (dtypes that the buffer protocol has no name for), DLPack (torch, and all others). Strides are honoured or refused, never
//! misread; arrays of Python objects are refused.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use hmc_std::ErrorKind;
use hmc_std::memory::{SharedBytes, StableBytes};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;

use crate::array::{Array, BufferOwner, BufferView, no_devices};
use crate::dlpack::import::import;
use crate::errors::refuse;
use crate::lazy;
use crate::pack::pack;

/// Packing more bytes lets other Python threads run.
const LONG: usize = 64 << 10;

/// Bytes without gaps, held as long as this lives.
pub(crate) struct Bytes {
    pub(crate) start: *mut u8,
    len: usize,
    pub(crate) writable: bool,
    _keep: BufferOwner,
}

// SAFETY: the bytes are reached by address only; what keeps them is a reference to a Python object, which PyO3 lets go of on
// any thread, or memory of ours.
unsafe impl Send for Bytes {}
// SAFETY: as above; nothing in here changes.
unsafe impl Sync for Bytes {}

/// Bytes that are registered. Whoever lets go of them last may be a thread that must not wait for the interpreter: what holds
/// them is put aside then, for the next call ([`DropDeferred`]).
pub(crate) struct RegisteredBytes(Option<Bytes>);

/// What registered bytes were held by, to be let go of by somebody who is attached to the interpreter: the newest, which leads
/// to the others. Without a lock: a forked child would find it locked for ever if a thread of its parent had it then.
static DEFERRED: AtomicPtr<Deferred> = AtomicPtr::new(ptr::null_mut());

/// One of those.
struct Deferred {
    bytes: Bytes,
    older: *mut Deferred,
}

impl From<Bytes> for RegisteredBytes {
    fn from(bytes: Bytes) -> Self {
        Self(Some(bytes))
    }
}

impl Drop for RegisteredBytes {
    fn drop(&mut self) {
        let Some(bytes) = self.0.take() else { return };
        let new = Box::into_raw(Box::new(Deferred { bytes, older: ptr::null_mut() }));
        let mut newest = DEFERRED.load(Ordering::Relaxed);
        loop {
            // SAFETY: from a box; nobody else knows it before the exchange below has been made.
            unsafe { (*new).older = newest };
            // Release: who takes it finds it whole.
            let put = DEFERRED.compare_exchange(newest, new, Ordering::Release, Ordering::Relaxed);
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
unsafe impl StableBytes for RegisteredBytes {
    fn as_bytes_ptr(&self) -> (*mut u8, usize) {
        self.0.as_ref().map_or((std::ptr::null_mut(), 0), |b| (b.start, b.len))
    }
}

/// Lets go of what was put aside, when it is dropped itself: the last field of what holds registered memory.
pub(crate) struct DropDeferred;

impl Drop for DropDeferred {
    fn drop(&mut self) {
        if DEFERRED.load(Ordering::Relaxed).is_null() {
            return;
        }
        // All of them, so that nobody else has any.
        let mut next = DEFERRED.swap(ptr::null_mut(), Ordering::Acquire);
        let mut all = Vec::new();
        while !next.is_null() {
            // SAFETY: from a box (`RegisteredBytes::drop`), and taken out of the list, where it was once, by the swap above.
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

/// The array that an object is; with `copies`, one that holds the same if its own bytes do not say what it shows; with
/// `lasts`, one whose memory stays where it is while the array is held.
fn array_of(obj: &Bound<'_, PyAny>, copies: bool, lasts: bool) -> PyResult<Array> {
    let py = obj.py();
    // SAFETY: an object, and the interpreter is ours.
    if unsafe { ffi::PyObject_CheckBuffer(obj.as_ptr()) } == 1 {
        lazy::no_mask(obj)?;
        match BufferView::of(obj) {
            Ok(buffer) => return Array::of_buffer(py, buffer),
            // Of a dtype that buffers have no name for.
            Err(e) if !obj.hasattr(intern!(py, "__array_interface__"))? => return Err(e),
            Err(_) => return Array::of_interface(obj),
        }
    }
    if let Some(export) = obj.getattr_opt(intern!(py, "__dlpack__"))? {
        let plain = lazy::materialized(obj, copies)?;
        if lasts {
            lazy::keep_size(&plain)?;
        }
        if plain.is(obj) {
            return import(obj, &export);
        }
        return import(&plain, &plain.getattr(intern!(py, "__dlpack__"))?);
    }
    if obj.hasattr(intern!(py, "__array_interface__"))? {
        return Array::of_interface(obj);
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

/// The bytes of an array where they lie; one with gaps is refused.
fn in_place(array: Array, py: Python<'_>, what: &str) -> PyResult<Bytes> {
    let len = array.reachable(py)?;
    if array.strides.is_some() {
        let what = format!(
            "{what} must be C-contiguous: its bytes are used where they lie; give a contiguous array \
             (numpy.ascontiguousarray, tensor.contiguous())"
        );
        return Err(refuse(py, ErrorKind::InvalidConfig, what));
    }
    Ok(Bytes { start: array.start, len, writable: array.writable, _keep: array.keep })
}

/// A copy of an array in C order.
fn packed(array: Array, py: Python<'_>) -> PyResult<Bytes> {
    let len = array.reachable(py)?;
    let mut out: Vec<u8> = Vec::new();
    out.try_reserve_exact(len).map_err(|_| {
        let what = format!("no memory for a copy without gaps of {len} bytes");
        refuse(py, ErrorKind::NoSpace, what)
    })?;
    let strides = array.strides.as_deref().unwrap_or_default();
    let (from, shape, item) = (array.start.expose_provenance(), &array.shape, array.item);
    let mut copy = || {
        let from = std::ptr::with_exposed_provenance_mut(from);
        // SAFETY: whoever describes the array vouches for each element of its shape, and `array.keep` keeps them.
        unsafe { pack(from, shape, strides, item, &mut out) }
    };
    let whole = if len > LONG { py.detach(copy) } else { copy() };
    if !whole {
        return Err(refuse(py, ErrorKind::Interrupted, "packing an array was interrupted"));
    }
    let (start, writable) = (out.as_mut_ptr(), false);
    Ok(Bytes { start, len, writable, _keep: BufferOwner::Packed(out) })
}

/// The bytes of a source, in C order: where they lie, or a copy when the object has gaps. For a call that uses them until it
/// returns; else see [`lasting`].
pub(crate) fn source(obj: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    source_of(obj, false)
}

fn source_of(obj: &Bound<'_, PyAny>, lasts: bool) -> PyResult<Bytes> {
    let array = array_of(obj, true, lasts)?;
    if array.strides.is_some() {
        packed(array, obj.py())
    } else {
        in_place(array, obj.py(), "a source")
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
    let bytes = in_place(array_of(obj, false, lasts)?, py, "a destination")?;
    if bytes.writable {
        return Ok(bytes);
    }
    let what = format!("{} is read-only and cannot be a destination", kind_of(obj));
    Err(refuse(py, ErrorKind::InvalidConfig, what))
}

/// The bytes of an object where they lie, read-only or not, to be registered.
pub(crate) fn place(obj: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    in_place(array_of(obj, false, true)?, obj.py(), "registered memory")
}

/// Memory at an address that the caller vouches for.
///
/// # Safety
/// `len` bytes at `address` are readable (and writable, if they are written) as long as this lives.
pub(crate) unsafe fn at(address: usize, len: usize) -> Bytes {
    let start = std::ptr::with_exposed_provenance_mut(address);
    Bytes { start, len, writable: true, _keep: BufferOwner::Packed(Vec::new()) }
}
