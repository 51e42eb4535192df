//! Types and values of OpenCL, as far as they are wanted: written by hand from `CL/cl.h` and `CL/cl_platform.h` of
//! opencl-c-headers 3.0, and compared with the installed header by `tests.rs`.
#![allow(non_camel_case_types, reason = "the names of the header")]

pub(super) type cl_int = i32;
pub(super) type cl_uint = u32;
pub(super) type cl_ulong = u64;
pub(super) type cl_bool = cl_uint;
pub(super) type cl_bitfield = cl_ulong;
pub(super) type cl_device_type = cl_bitfield;
pub(super) type cl_mem_flags = cl_bitfield;
pub(super) type cl_command_queue_properties = cl_bitfield;
pub(super) type cl_context_properties = isize;
pub(super) type cl_platform_info = cl_uint;
pub(super) type cl_device_info = cl_uint;
pub(super) type cl_event_info = cl_uint;

/// Objects of the library, which are named by pointers to them only.
macro_rules! handles {
    ($($name:ident = $object:ident;)+) => {$(
        #[repr(C)]
        pub(super) struct $object([u8; 0]);
        pub(super) type $name = *mut $object;
    )+};
}

handles! {
    cl_platform_id = _cl_platform_id;
    cl_device_id = _cl_device_id;
    cl_context = _cl_context;
    cl_command_queue = _cl_command_queue;
    cl_mem = _cl_mem;
    cl_event = _cl_event;
}

/// Constants with a table of their names and values, for the comparison with the header.
macro_rules! constants {
    ($($name:ident: $type:ty = $value:expr;)+) => {
        $(pub(super) const $name: $type = $value;)+

        #[cfg(test)]
        #[expect(clippy::as_conversions, reason = "bits of each, whatever its type")]
        pub(super) const CONSTANTS: &[(&str, u64)] =
            &[$((stringify!($name), $value as $type as i64 as u64)),+];
    };
}

constants! {
    CL_SUCCESS: cl_int = 0;
    CL_DEVICE_NOT_FOUND: cl_int = -1;
    CL_MEM_OBJECT_ALLOCATION_FAILURE: cl_int = -4;
    CL_OUT_OF_HOST_MEMORY: cl_int = -6;
    CL_INVALID_BUFFER_SIZE: cl_int = -61;
    CL_FALSE: cl_bool = 0;
    CL_COMPLETE: cl_int = 0;
    CL_PLATFORM_NAME: cl_platform_info = 0x0902;
    CL_DEVICE_TYPE_ALL: cl_device_type = 0xFFFF_FFFF;
    CL_DEVICE_MAX_MEM_ALLOC_SIZE: cl_device_info = 0x1010;
    CL_DEVICE_GLOBAL_MEM_SIZE: cl_device_info = 0x101F;
    CL_DEVICE_AVAILABLE: cl_device_info = 0x1027;
    CL_DEVICE_NAME: cl_device_info = 0x102B;
    CL_CONTEXT_PLATFORM: cl_context_properties = 0x1084;
    CL_MEM_READ_WRITE: cl_mem_flags = 1;
    CL_EVENT_COMMAND_EXECUTION_STATUS: cl_event_info = 0x11D3;
}

/// `cl_khr_icd`: the loader knows no driver. `CL/cl_ext.h` has it.
pub(super) const CL_PLATFORM_NOT_FOUND_KHR: cl_int = -1001;
