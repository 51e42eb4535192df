//! Errors as Python sees them: one class for each family, with the fields of the Rust error as attributes.
//!
//! The classes are written in Python (`hmc/errors.py`), where their documentation belongs. A call that Ctrl-C ended raises
//! what the signal's handler raised.

use std::cell::RefCell;

use hmc_std::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

thread_local! {
    /// What a signal's handler raised while this thread was in a blocking call.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Whether the thread is to come back: a signal's handler raised something. Handlers run on the main thread only.
pub(crate) fn interrupted() -> bool {
    if rustix::thread::gettid() != rustix::process::getpid() {
        return false;
    }
    Python::try_attach(|py| py.check_signals())
        .is_some_and(|r| r.map_err(|e| RAISED.set(Some(e))).is_err())
}

/// The class of a family, and the kind's name.
fn family(kind: ErrorKind) -> (&'static str, &'static str) {
    match kind {
        ErrorKind::Range => ("OutOfRange", "range"),
        ErrorKind::Length => ("InvalidArgument", "length"),
        ErrorKind::InvalidConfig => ("InvalidArgument", "invalid_config"),
        ErrorKind::NotFound => ("NotFound", "not_found"),
        ErrorKind::Stale => ("NotFound", "stale"),
        ErrorKind::DeadlineExceeded => ("DeadlineExceeded", "deadline_exceeded"),
        ErrorKind::Interrupted => ("HMCStatusError", "interrupted"),
        ErrorKind::Cancelled => ("Cancelled", "cancelled"),
        ErrorKind::PeerDead => ("PeerDead", "peer_dead"),
        ErrorKind::Closed => ("Closed", "closed"),
        ErrorKind::DuplicateRank => ("Refused", "duplicate_rank"),
        ErrorKind::Refused => ("Refused", "refused"),
        ErrorKind::Protocol => ("Refused", "protocol"),
        ErrorKind::Version => ("Refused", "version"),
        ErrorKind::NoCredentials => ("NoCredentials", "no_credentials"),
        ErrorKind::Revoked => ("Revoked", "revoked"),
        ErrorKind::StaleEpoch => ("Revoked", "stale_epoch"),
        ErrorKind::Access => ("Revoked", "access"),
        ErrorKind::Busy => ("Busy", "busy"),
        ErrorKind::Full => ("Busy", "full"),
        ErrorKind::Quarantined => ("Busy", "quarantined"),
        ErrorKind::NoSpace => ("OutOfMemory", "no_space"),
        ErrorKind::SystemLimit => ("SystemLimit", "system_limit"),
        ErrorKind::Unavailable => ("Unavailable", "unavailable"),
        ErrorKind::Unsupported => ("Unavailable", "unsupported"),
        ErrorKind::Io => ("IoError", "io"),
        ErrorKind::Forked => ("Forked", "forked"),
        _ => ("HMCStatusError", "other"),
    }
}

/// Every kind of error by its name: its class, whose fault it is, and what to do about it.
#[pyfunction]
pub(crate) fn error_kinds(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let kinds = PyDict::new(py);
    for kind in ErrorKind::ALL {
        let (class, name) = family(*kind);
        kinds.set_item(name, (class, kind.blame().name(), kind.remedy()))?;
    }
    Ok(kinds)
}

pub(crate) fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("hmc.errors").map(Bound::unbind))?;
    Ok(module.bind(py).getattr(name)?.cast_into::<PyType>()?)
}

fn build(py: Python<'_>, e: &Error) -> PyResult<PyErr> {
    let (name, kind) = family(e.kind());
    let fields = PyDict::new(py);
    fields.set_item("kind", kind)?;
    fields.set_item("blame", e.blame().name())?;
    fields.set_item("remedy", e.remedy())?;
    if let Some(peer) = e.peer() {
        fields.set_item("peer", peer.0)?;
    }
    if let Some(op) = e.op() {
        fields.set_item("op", op.to_string())?;
    }
    if let Some(range) = e.range() {
        fields.set_item("side", range.side.to_string())?;
        fields.set_item("offset", range.offset)?;
        fields.set_item("length", range.len)?;
        fields.set_item("limit", range.limit)?;
    }
    if let Some(limit) = e.limit() {
        fields.set_item("limit_name", limit.name)?;
        fields.set_item("need", limit.need)?;
        fields.set_item("have", limit.have)?;
    }
    let status = status_number(e.status());
    let value = class(py, name)?.call((status, e.to_string()), Some(&fields))?;
    Ok(PyErr::from_value(value))
}

/// The number of the C++ HMC's `status_t`.
fn status_number(status: hmc_std::Status) -> u8 {
    use hmc_std::Status;
    match status {
        Status::Success => 0,
        Status::Error => 1,
        Status::Unsupport => 2,
        Status::InvalidConfig => 3,
        Status::Timeout => 4,
        Status::NotFound => 5,
    }
}

/// The exception for an error.
#[cold]
pub(crate) fn raise(py: Python<'_>, e: &Error) -> PyErr {
    if e.kind() == ErrorKind::Interrupted
        && let Some(raised) = RAISED.take()
    {
        return raised;
    }
    build(py, e).unwrap_or_else(|e| e)
}

/// An exception of ours that comes from no call of hmc-std.
#[cold]
pub(crate) fn refuse(py: Python<'_>, kind: ErrorKind, what: impl Into<String>) -> PyErr {
    raise(py, &Error::new(kind, what))
}

/// `?` for results of hmc-std.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    #[inline]
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|e| raise(py, &e))
    }
}
