//! Tensors of other packages, without a copy.

use std::ffi::CStr;
use std::ptr::NonNull;

use hmc_std::ErrorKind;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict};

use super::tensor::{
    CPU, CUDA_HOST, PLAIN, Plain, READ_ONLY, ROCM_HOST, Raw, Tensor, USED_PLAIN, USED_VERSIONED,
    VERSION, VERSIONED, Versioned,
};
use crate::array::{Array, BufferOwner, no_devices};
use crate::errors::refuse;

/// Takes a tensor by its `__dlpack__`.
pub(crate) fn import(obj: &Bound<'_, PyAny>, export: &Bound<'_, PyAny>) -> PyResult<Array> {
    let py = obj.py();
    let device = obj.call_method0(intern!(py, "__dlpack_device__"))?;
    let (kind, _): (i32, i32) = device.extract()?;
    if ![CPU, CUDA_HOST, ROCM_HOST].contains(&kind) {
        return Err(no_devices(py));
    }
    let capsule = capsule_of(obj, export)?.cast_into::<PyCapsule>()?;
    let (tensor, raw, read_only) = take(&capsule)?;
    array_of(py, &raw, !read_only, tensor)
}

/// What `__dlpack__` gives, by the newest version that it knows.
fn capsule_of<'py>(
    obj: &Bound<'py, PyAny>,
    export: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static NEWEST: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let py = obj.py();
    let newest = NEWEST.get_or_try_init(py, || {
        let wanted = PyDict::new(py);
        wanted.set_item("max_version", (VERSION.major, VERSION.minor))?;
        Ok::<_, PyErr>(wanted.unbind())
    })?;
    match export.call((), Some(newest.bind(py))) {
        Ok(capsule) => Ok(capsule),
        // A package from before version 1.
        Err(e) if e.is_instance_of::<PyTypeError>(py) => export.call0(),
        Err(e) => {
            // torch hands out no tensors that require gradients; their bytes are those of the detached one.
            let asks = obj.getattr_opt(intern!(py, "requires_grad"))?;
            if !asks.is_some_and(|asks| asks.is_truthy().unwrap_or(false)) {
                return Err(e);
            }
            let plain = obj.call_method0(intern!(py, "detach"))?;
            plain.call_method0(intern!(py, "__dlpack__"))
        }
    }
}

/// The tensor of a capsule, which is used up by that.
fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<(Tensor, Raw, bool)> {
    let py = capsule.py();
    let found = |name: &CStr| {
        // SAFETY: a capsule, and a name that ends with a zero.
        let is_it = unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) } == 1;
        // SAFETY: as above; the name is the capsule's.
        let p =
            is_it.then(|| unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) });
        p.and_then(NonNull::new)
    };
    let use_up = |name: &'static CStr| {
        // SAFETY: a capsule; the name lives for ever.
        unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) };
    };
    if let Some(p) = found(VERSIONED) {
        let p = p.cast::<Versioned>();
        // SAFETY: a capsule of that name holds such a struct, whose version stands first in all of them.
        let version = unsafe { (*p.as_ptr()).version };
        if version.major != VERSION.major {
            let what =
                format!("DLPack {}.{}: this package knows 1.x", version.major, version.minor);
            return Err(refuse(py, ErrorKind::Unsupported, what));
        }
        use_up(USED_VERSIONED);
        // SAFETY: of this version; the struct is ours now and lives until its deleter is called.
        let managed = unsafe { p.as_ref() };
        return Ok((Tensor::Versioned(p), managed.tensor, managed.flags & READ_ONLY != 0));
    }
    if let Some(p) = found(PLAIN) {
        let p = p.cast::<Plain>();
        use_up(USED_PLAIN);
        // SAFETY: a capsule of that name holds such a struct, which is ours now.
        let managed = unsafe { p.as_ref() };
        return Ok((Tensor::Plain(p), managed.tensor, false));
    }
    Err(refuse(
        py,
        ErrorKind::InvalidConfig,
        "`__dlpack__` gave a capsule that holds no tensor, or was used before",
    ))
}

fn array_of(py: Python<'_>, raw: &Raw, writable: bool, tensor: Tensor) -> PyResult<Array> {
    let odd =
        |what: &str| refuse(py, ErrorKind::InvalidConfig, format!("a DLPack tensor with {what}"));
    let ndim = usize::try_from(raw.ndim).map_err(|_| odd("a negative number of dimensions"))?;
    let bits = usize::from(raw.dtype.bits).saturating_mul(usize::from(raw.dtype.lanes));
    if bits % 8 != 0 || bits == 0 {
        return Err(odd("elements that are no whole bytes"));
    }
    let item = bits / 8;
    let read = |p: *const i64| -> Vec<i64> {
        if p.is_null() || ndim == 0 {
            return Vec::new();
        }
        // SAFETY: dlpack.h: `shape` and, unless null, `strides` have `ndim` numbers.
        (0..ndim).map(|i| unsafe { p.wrapping_add(i).read() }).collect()
    };
    let shape: Result<Vec<usize>, _> = read(raw.shape).into_iter().map(usize::try_from).collect();
    let shape = shape.map_err(|_| odd("a negative extent"))?;
    if shape.len() != ndim {
        return Err(odd("dimensions but no shape"));
    }
    let scale = isize::try_from(item).unwrap_or(isize::MAX);
    let strides: Result<Vec<isize>, _> =
        read(raw.strides).into_iter().map(isize::try_from).collect();
    let strides = strides.map_err(|_| odd("a stride beyond all memory"))?;
    let strides = (!strides.is_empty())
        .then(|| strides.into_iter().map(|s| s.saturating_mul(scale)).collect());
    let offset =
        usize::try_from(raw.byte_offset).map_err(|_| odd("an offset beyond all memory"))?;
    let start = raw.data.cast::<u8>().wrapping_add(offset);
    let mut array =
        Array { start, item, shape, strides, writable, keep: BufferOwner::Tensor(tensor) };
    array.drop_plain_strides();
    Ok(array)
}
