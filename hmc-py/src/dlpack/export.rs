//! Memory of ours as tensors of bytes.

use std::ffi::c_void;

use hmc_std::ConnBuffer;
use pyo3::ffi;
use pyo3::prelude::*;

use super::tensor::{
    CPU, DataType, Device, PLAIN, Plain, READ_ONLY, Raw, UINT, VERSION, VERSIONED, Versioned,
};
use crate::data::DropDeferred;

/// What an exported tensor points to.
struct Exported {
    shape: [i64; 1],
    strides: [i64; 1],
    _keep: ConnBuffer,
    _deferred: DropDeferred,
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
    let out = Box::into_raw(Box::new(Exported { shape, strides, _keep, _deferred: DropDeferred }));
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
