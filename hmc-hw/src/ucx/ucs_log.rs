//! UCX's API for log handlers: types and numbers of ucs/debug/log_def.h and ucs/config/types.h, the same from 1.10
//! to 1.22.

use std::ffi::{c_char, c_uint, c_void};

use crate::sys::VaList;

/// `ucs_log_func_t`.
pub(super) type LogHandlerFn = unsafe extern "C" fn(
    file: *const c_char,
    line: c_uint,
    function: *const c_char,
    level: c_uint,
    component: *const c_void,
    format: *const c_char,
    arguments: VaList,
) -> c_uint;
/// `ucs_log_push_handler`.
pub(super) type PushHandlerFn = unsafe extern "C" fn(handler: LogHandlerFn);

/// `UCS_LOG_FUNC_RC_STOP`: no further handler is called.
pub(super) const STOP: c_uint = 0;
/// `UCS_LOG_FUNC_RC_CONTINUE`.
pub(super) const CONTINUE: c_uint = 1;
/// `UCS_LOG_LEVEL_FATAL`: UCX's own handler prints it and ends the process.
pub(super) const FATAL: c_uint = 0;
