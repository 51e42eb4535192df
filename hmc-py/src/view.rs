//! Bytes as buffers of Python: what comes out of this package, whatever it was before.

use std::ffi::c_int;
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::data::{Bytes, lasting, source, target};

/// The bytes of an object as a buffer of bytes, whatever it is itself: a source's, or with ``writable`` a destination's; with
/// ``lasts`` for an operation, which uses them when the call has returned.
#[pyclass(module = "hmc._hmc", frozen)]
pub(crate) struct View {
    bytes: Bytes,
    readonly: bool,
}

#[pymethods]
impl View {
    #[new]
    #[pyo3(signature = (obj, writable = false, lasts = false))]
    fn new(obj: &Bound<'_, PyAny>, writable: bool, lasts: bool) -> PyResult<Self> {
        let bytes = match (lasts, writable) {
            (true, _) => lasting(obj, writable)?,
            (false, true) => target(obj)?,
            (false, false) => source(obj)?,
        };
        Ok(Self { bytes, readonly: !writable })
    }

    /// # Safety
    /// As of Python's slot: `view` is Python's.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let start = NonNull::new(this.bytes.start).unwrap_or(NonNull::dangling());
        let (len, readonly) = (this.bytes.len(), this.readonly);
        // SAFETY: Python gives the view; the bytes are held as long as this object.
        unsafe { export(slf.into_any(), (start, len), readonly, view, flags) }
    }
}

/// Fills the view of a buffer of bytes; what exports it is `owner`.
///
/// # Safety
/// As `__getbuffer__`: `view` is Python's. The bytes live as long as `owner`.
pub(crate) unsafe fn export(
    owner: Bound<'_, PyAny>,
    (start, len): (NonNull<u8>, usize),
    readonly: bool,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let len = isize::try_from(len).unwrap_or(isize::MAX);
    // SAFETY: the caller vouches for `view`; the object is alive, and the call takes a reference to it.
    let rc = unsafe {
        ffi::PyBuffer_FillInfo(
            view,
            owner.as_ptr(),
            start.as_ptr().cast(),
            len,
            c_int::from(readonly),
            flags,
        )
    };
    if rc == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}
