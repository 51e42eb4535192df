//! Refuses sub-interpreters: the classes and the state of this library exist once in a process.

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The number of the interpreter that a process starts with (`PyInterpreterState_GetID`).
const MAIN: i64 = 0;

/// Raises `ImportError` in an interpreter that is not the main one. To be asked before any class exists: those that a
/// sub-interpreter made first would be taken from the main one.
pub(crate) fn require_main(_attached: Python<'_>) -> PyResult<()> {
    // SAFETY: needs an attached thread, which `Python` proves; the answer is never null then.
    let state = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: `state` is the interpreter of this thread, which lives as long as the thread is attached.
    let number = unsafe { ffi::PyInterpreterState_GetID(state) };
    if number == MAIN {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "hmc cannot be used in a sub-interpreter: its native half exists once in a process; import it in the main interpreter, \
         or use another process",
    ))
}
