//! Tensors as dlpack.h has them, and one of another package.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::prelude::*;

/// `kDLCPU` and the kinds of pinned host memory (`DLDeviceType`).
pub(super) const CPU: i32 = 1;
pub(super) const CUDA_HOST: i32 = 3;
pub(super) const ROCM_HOST: i32 = 11;
/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
pub(super) const READ_ONLY: u64 = 1;
/// `kDLUInt` of `DLDataTypeCode`.
pub(super) const UINT: u8 = 1;
/// The version of the structs below.
pub(super) const VERSION: Version = Version { major: 1, minor: 0 };

/// The device of host memory: its kind and number.
pub(crate) const HERE: (i32, i32) = (CPU, 0);

pub(super) const PLAIN: &CStr = c"dltensor";
pub(super) const USED_PLAIN: &CStr = c"used_dltensor";
pub(super) const VERSIONED: &CStr = c"dltensor_versioned";
pub(super) const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Device {
    pub(super) kind: i32,
    pub(super) id: i32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct DataType {
    pub(super) code: u8,
    pub(super) bits: u8,
    pub(super) lanes: u16,
}

/// `DLTensor`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Raw {
    pub(super) data: *mut c_void,
    pub(super) device: Device,
    pub(super) ndim: i32,
    pub(super) dtype: DataType,
    pub(super) shape: *mut i64,
    pub(super) strides: *mut i64,
    pub(super) byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
pub(crate) struct Plain {
    pub(super) tensor: Raw,
    pub(super) context: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut Plain)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
pub(crate) struct Versioned {
    pub(super) version: Version,
    pub(super) context: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    pub(super) flags: u64,
    pub(super) tensor: Raw,
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
