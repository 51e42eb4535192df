//! How UCX hands its messages on: types and numbers of ucs/debug/log_def.h and ucs/config/types.h, the same from 1.10
//! to 1.22.

use std::ffi::{c_char, c_uint, c_void};

use crate::sys::Arguments;

/// `ucs_log_func_t`.
pub(super) type Handler = unsafe extern "C" fn(
    file: *const c_char,
    line: c_uint,
    function: *const c_char,
    level: c_uint,
    component: *const c_void,
    format: *const c_char,
    arguments: Arguments,
) -> c_uint;
/// `ucs_log_push_handler`.
pub(super) type Push = unsafe extern "C" fn(handler: Handler);

/// `UCS_LOG_FUNC_RC_STOP`: nobody else needs to see it.
pub(super) const STOP: c_uint = 0;
/// `UCS_LOG_FUNC_RC_CONTINUE`.
pub(super) const CONTINUE: c_uint = 1;
/// `UCS_LOG_LEVEL_FATAL`: UCX's own handler prints it and ends the process.
pub(super) const FATAL: c_uint = 0;
