//! The native half of ``hmc.Session``: what it holds. Its methods for Python are in `session`.

use std::sync::Arc;

use hmc_std::{ConnBuffer, Session};
use pyo3::prelude::*;

use crate::errors::OrRaise as _;
use crate::parts::Parts;
use crate::time::Waits;

/// The native half of ``hmc.Session``.
#[pyclass(module = "hmc._hmc", frozen, subclass, weakref)]
pub(crate) struct Core {
    pub(crate) parts: Parts,
    pub(crate) waits: Waits,
    /// Whether the buffer is UCX's own.
    pub(crate) ucx: bool,
}

impl Core {
    /// The session's buffer, waiting until it is there.
    pub(crate) fn buffer(&self, py: Python<'_>) -> PyResult<ConnBuffer> {
        let state = &self.parts.own.state;
        let made = state.buffer_now();
        made.unwrap_or_else(|| py.detach(|| state.buffer())).or_raise(py)
    }

    /// The session, if it has started.
    pub(crate) fn live(&self, py: Python<'_>) -> PyResult<Arc<Session>> {
        self.parts.own.state.session(py)
    }
}
