//! DLPack (dlpack.h, versions 1.x and the one before): tensors of other packages come in without a copy, and our memory goes
//! out as arrays of bytes.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use hmc_std::{ConnBuffer, ErrorKind};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict};

use crate::data::{Array, Keep, Sweep, no_devices};
use crate::errors::refuse;

/// `kDLCPU` and the kinds of pinned host memory (`DLDeviceType`).
const CPU: i32 = 1;
const CUDA_HOST: i32 = 3;
const ROCM_HOST: i32 = 11;
/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;
/// `kDLUInt` of `DLDataTypeCode`.
const UINT: u8 = 1;
/// The version of the structs below.
const VERSION: Version = Version { major: 1, minor: 0 };

/// The device of host memory: its kind and number.
pub(crate) const HERE: (i32, i32) = (CPU, 0);

const PLAIN: &CStr = c"dltensor";
const USED_PLAIN: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

#[derive(Clone, Copy)]
#[repr(C)]
struct Version {
    major: u32,
    minor: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Raw {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
pub(crate) struct Plain {
    tensor: Raw,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Plain)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
pub(crate) struct Versioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Raw,
}

/// A tensor of another package, held until this is dropped.
pub(crate) enum Tensor {
    Plain(NonNull<Plain>),
    Versioned(NonNull<Versioned>),
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // Deleters touch Python objects. Without an interpreter there is nobody left to give it back to.
        let _ = Python::try_attach(|_| match *self {
            Self::Plain(p) => {
                // SAFETY: taken from its capsule by `import`, which made us its only owner; it is given back once.
                if let Some(delete) = unsafe { (*p.as_ptr()).deleter } {
                    // SAFETY: as above: the deleter is called with what it belongs to.
                    unsafe { delete(p.as_ptr()) };
                }
            }
            Self::Versioned(p) => {
                // SAFETY: as above.
                if let Some(delete) = unsafe { (*p.as_ptr()).deleter } {
                    // SAFETY: as above.
                    unsafe { delete(p.as_ptr()) };
                }
            }
        });
    }
}

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
    let mut array = Array { start, item, shape, strides, writable, keep: Keep::Tensor(tensor) };
    array.forget_plain_strides();
    Ok(array)
}

/// What an exported tensor points to.
struct Exported {
    shape: [i64; 1],
    strides: [i64; 1],
    _keep: ConnBuffer,
    _sweep: Sweep,
}

/// # Safety
/// To be called once, with what `export` made.
unsafe extern "C" fn delete_plain(p: *mut Plain) {
    // SAFETY: made by `export` from two boxes, and deleted once.
    let managed = unsafe { Box::from_raw(p) };
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(managed.context.cast::<Exported>()) });
}

/// # Safety
/// As [`delete_plain`].
unsafe extern "C" fn delete_versioned(p: *mut Versioned) {
    // SAFETY: made by `export` from two boxes, and deleted once.
    let managed = unsafe { Box::from_raw(p) };
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(managed.context.cast::<Exported>()) });
}

/// A capsule that nobody used.
///
/// # Safety
/// As a capsule's destructor: once, with that capsule.
unsafe extern "C" fn end_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule; the names are those of `export`.
    let plain = unsafe { ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) } == 1;
    // SAFETY: as above.
    let versioned = unsafe { ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) } == 1;
    if plain {
        // SAFETY: valid under that name, so it still holds what `export` put there.
        let p = unsafe { ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()) };
        // SAFETY: as above.
        unsafe { delete_plain(p.cast()) };
    } else if versioned {
        // SAFETY: as above.
        let p = unsafe { ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()) };
        // SAFETY: as above.
        unsafe { delete_versioned(p.cast()) };
    }
}

/// Our memory as a tensor of bytes, by the newest version that the consumer knows.
pub(crate) fn export<'py>(
    py: Python<'py>,
    buffer: &ConnBuffer,
    read_only: bool,
    max_version: Option<(u32, u32)>,
) -> PyResult<Bound<'py, PyAny>> {
    let len = i64::try_from(buffer.len()).unwrap_or(i64::MAX);
    let versioned = max_version.is_some_and(|(major, _)| major >= VERSION.major);
    if read_only && !versioned {
        return Err(pyo3::exceptions::PyBufferError::new_err(
            "the memory is read-only, which DLPack before version 1 cannot say",
        ));
    }
    let (shape, strides, _keep) = ([len], [1], buffer.clone());
    let out = Box::into_raw(Box::new(Exported { shape, strides, _keep, _sweep: Sweep }));
    let tensor = Raw {
        data: buffer.as_ptr().cast(),
        device: Device { kind: CPU, id: 0 },
        ndim: 1,
        dtype: DataType { code: UINT, bits: 8, lanes: 1 },
        // SAFETY: the box was made above and lives until the deleter is called.
        shape: unsafe { (&raw mut (*out).shape).cast() },
        // SAFETY: as above.
        strides: unsafe { (&raw mut (*out).strides).cast() },
        byte_offset: 0,
    };
    let context = out.cast();
    let (pointer, name) = if versioned {
        let flags = if read_only { READ_ONLY } else { 0 };
        let deleter: Option<unsafe extern "C" fn(*mut Versioned)> = Some(delete_versioned);
        let managed = Versioned { version: VERSION, context, deleter, flags, tensor };
        (Box::into_raw(Box::new(managed)).cast::<c_void>(), VERSIONED)
    } else {
        let deleter: Option<unsafe extern "C" fn(*mut Plain)> = Some(delete_plain);
        let managed = Plain { tensor, context, deleter };
        (Box::into_raw(Box::new(managed)).cast::<c_void>(), PLAIN)
    };
    // SAFETY: the pointer is not null, the name lives for ever, and the destructor knows both.
    let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), Some(end_capsule)) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}
