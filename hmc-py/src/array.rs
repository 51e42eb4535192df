//! Arrays in memory that this process can reach, as the buffer protocol, NumPy and DLPack describe them.

use std::ffi::CStr;

use hmc_std::ErrorKind;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::dlpack::tensor::Tensor;
use crate::errors::refuse;

/// What holds the bytes.
#[allow(dead_code, reason = "held for their drops")]
pub(crate) enum BufferOwner {
    Buffer(BufferView),
    Object(Py<PyAny>),
    Tensor(Tensor),
    /// A copy in C order of an object with gaps.
    Packed(Vec<u8>),
}

/// What an object exports by the buffer protocol, until this is dropped. The view stays where it is: exporters may know its
/// address.
pub(crate) struct BufferView(Box<ffi::Py_buffer>);

impl BufferView {
    /// Asks an object for its buffer.
    pub(crate) fn of(obj: &Bound<'_, PyAny>) -> PyResult<Self> {
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

impl Drop for BufferView {
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
    pub(crate) keep: BufferOwner,
}

/// How many bytes an array has, if that is a number.
fn bytes_of(item: usize, shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(item, |n, extent| n.checked_mul(*extent))
}

impl Array {
    /// The array that a buffer is.
    pub(crate) fn of_buffer(py: Python<'_>, buffer: BufferView) -> PyResult<Self> {
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
            keep: BufferOwner::Buffer(buffer),
        };
        array.drop_plain_strides();
        Ok(array)
    }

    /// NumPy's array interface, version 3.
    pub(crate) fn of_interface(obj: &Bound<'_, PyAny>) -> PyResult<Self> {
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
            keep: BufferOwner::Object(obj.clone().unbind()),
        };
        array.drop_plain_strides();
        if data.is_instance_of::<PyTuple>() {
            let (start, readonly): (usize, bool) = data.extract()?;
            array.start = std::ptr::with_exposed_provenance_mut(start);
            array.writable = !readonly;
            return Ok(array);
        }
        // Bytes that hold the data themselves.
        let lent = BufferView::of(&data)?;
        let offset = match interface.get_item("offset")? {
            Some(offset) => offset.extract()?,
            None => 0usize,
        };
        let rest = lent.len().checked_sub(offset);
        if array.strides.is_some() || rest.is_none_or(|rest| array.len(py).is_ok_and(|n| n > rest))
        {
            return Err(odd("names other bytes than its data has"));
        }
        array.start = lent.0.buf.cast::<u8>().wrapping_add(offset);
        array.writable = lent.0.readonly == 0;
        array.keep = BufferOwner::Buffer(lent);
        Ok(array)
    }

    /// Strides that say nothing but C order.
    pub(crate) fn drop_plain_strides(&mut self) {
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
    pub(crate) fn reachable(&self, py: Python<'_>) -> PyResult<usize> {
        let len = self.len(py)?;
        if len > 0 && self.start.is_null() {
            let what = format!("an array of {len} bytes at address 0 has no memory");
            return Err(refuse(py, ErrorKind::InvalidConfig, what));
        }
        Ok(len)
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
