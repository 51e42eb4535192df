//! The library itself, its configuration and its contexts.

use core::ffi::{c_char, c_uint};
use std::ffi::{CStr, CString};

use crate::faults::{Call, refused};
use crate::handle::Handle;
use crate::state::state;
use crate::sys::{
    self, FILE, ucp_config_t, ucp_context_attr_t, ucp_context_h, ucp_lib_attr_t, ucp_params_t,
    ucs_status_t,
};

// SAFETY: the name is UCX's own, and a process has one libucp. The pointers are null or valid, as UCX asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_get_version(
    major: *mut c_uint,
    minor: *mut c_uint,
    release: *mut c_uint,
) {
    let version = state().script.knobs.version;
    for (to, number) in [major, minor, release].into_iter().zip(version) {
        // SAFETY: the caller's, to be written.
        unsafe { to.write(number) };
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_get_version_string() -> *const c_char {
    c"fake".as_ptr()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_lib_query(attr: *mut ucp_lib_attr_t) -> ucs_status_t {
    // SAFETY: the caller's, to be read and written.
    if let Some(attr) = unsafe { attr.as_mut() } {
        attr.max_thread_level = sys::UCS_THREAD_MODE_MULTI;
    }
    sys::UCS_OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_config_read(
    _prefix: *const c_char,
    _file: *const c_char,
    config: *mut *mut ucp_config_t,
) -> ucs_status_t {
    let mut w = state();
    if let Some(status) = refused(w.script.count(Call::ConfigRead)) {
        return status;
    }
    let name = w.configs.insert(0, true);
    // SAFETY: the caller's, to be written.
    unsafe { config.write(name.pointer()) };
    sys::UCS_OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_config_modify(
    config: *mut ucp_config_t,
    name: *const c_char,
    value: *const c_char,
) -> ucs_status_t {
    let mut w = state();
    if let Some(status) = refused(w.script.count(Call::ConfigModify)) {
        return status;
    }
    if w.configs.get(Handle::of(config)).is_none() || name.is_null() || value.is_null() {
        return w.misuse(Call::ConfigModify, "this configuration was released, or never read");
    }
    // SAFETY: a C string, by UCX's rule.
    let name = unsafe { CStr::from_ptr(name) };
    if name == c"RCACHE_ENABLE"
        && let Some(caches) = w.configs.get_mut(Handle::of(config))
    {
        // SAFETY: as above.
        *caches = unsafe { CStr::from_ptr(value) } != c"n";
    }
    let known = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_';
    if name.to_bytes().iter().all(known) { sys::UCS_OK } else { sys::UCS_ERR_NO_ELEM }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_config_release(config: *mut ucp_config_t) {
    let mut w = state();
    if w.configs.remove(Handle::of(config)).is_none() {
        w.misuse(Call::ConfigRead, "this configuration is released twice");
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_init_version(
    major: c_uint,
    _minor: c_uint,
    _params: *const ucp_params_t,
    config: *const ucp_config_t,
    context: *mut ucp_context_h,
) -> ucs_status_t {
    let mut w = state();
    if let Some(status) = refused(w.script.count(Call::Init)) {
        return status;
    }
    if major != 1 {
        return sys::UCS_ERR_NOT_IMPLEMENTED;
    }
    // Releases before 1.13 have no cache here.
    let caches = w.script.knobs.version[1] >= 13
        && w.configs.get(Handle::of(config.cast_mut())).is_none_or(|caches| *caches);
    let name = w.contexts.insert(0, caches);
    // SAFETY: the caller's, to be written.
    unsafe { context.write(name.pointer()) };
    sys::UCS_OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_cleanup(context: ucp_context_h) {
    let mut w = state();
    w.script.count(Call::Cleanup);
    let name = Handle::of(context);
    let workers = w.workers.values_mut().any(|x| x.context == name);
    let memories = w.memories.values_mut().any(|m| m.context == name);
    if workers || memories {
        w.misuse(Call::Cleanup, "workers or memory of this context are left");
    }
    if w.contexts.remove(name).is_none() {
        w.misuse(Call::Cleanup, "this context was given back already");
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_context_query(
    context: ucp_context_h,
    attr: *mut ucp_context_attr_t,
) -> ucs_status_t {
    let mut w = state();
    if w.contexts.get(Handle::of(context)).is_none() {
        return w.misuse(Call::Init, "this context was given back, or never made");
    }
    // SAFETY: the caller's, to be read and written.
    if let Some(attr) = unsafe { attr.as_mut() } {
        attr.request_size = 128;
        attr.thread_mode = sys::UCS_THREAD_MODE_MULTI;
        attr.memory_types = w.script.knobs.memory_types;
    }
    sys::UCS_OK
}

/// Writes a text that ends with a zero.
///
/// # Safety
/// `stream` is a C stream.
pub(crate) unsafe fn print(stream: *mut FILE, text: &CStr) {
    // SAFETY: the caller vouched for the stream. What cannot be written is lost, as with UCX.
    let _ = unsafe { libc::fputs(text.as_ptr(), stream.cast()) };
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_context_print_info(_context: ucp_context_h, stream: *mut FILE) {
    let lanes = state().lane_name();
    // As UCX 1.13.1 and 1.22.0 print it.
    let mut text = String::from("#\n# UCP context\n#\n#            md 0  :  posix\n#\n");
    for (at, lane) in lanes.split('+').enumerate() {
        text += &format!("#      resource {at}  :  md {at}  dev {at}  flags -- {lane}\n");
    }
    text += "#\n";
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the caller's stream.
    unsafe { print(stream, &text) };
}

// SAFETY: as above; the name is UCS's own.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucs_status_string(status: ucs_status_t) -> *const c_char {
    let text = match status {
        sys::UCS_OK => c"Success",
        sys::UCS_INPROGRESS => c"Operation in progress",
        sys::UCS_ERR_NO_RESOURCE => c"No resources are available to initiate the operation",
        sys::UCS_ERR_IO_ERROR => c"Input/output error",
        sys::UCS_ERR_NO_MEMORY => c"Out of memory",
        sys::UCS_ERR_INVALID_PARAM => c"Invalid parameter",
        sys::UCS_ERR_UNREACHABLE => c"Destination is unreachable",
        sys::UCS_ERR_BUSY => c"Device is busy",
        sys::UCS_ERR_CANCELED => c"Request canceled",
        sys::UCS_ERR_CONNECTION_RESET => c"Connection reset by remote peer",
        sys::UCS_ERR_ENDPOINT_TIMEOUT => c"Endpoint timeout",
        _ => c"Unknown error",
    };
    text.as_ptr()
}
