//! Notification of an event loop about completed operations: a descriptor to watch, and their keys.
//!
//! The thread that completes an operation does not take the interpreter lock: it stores a key and writes to an eventfd.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use hmc_std::{ErrorKind, Origin};
use pyo3::prelude::*;
use rustix::event::EventfdFlags;

use crate::errors::{OrRaise, refuse};

pub(crate) struct LoopWakerInner {
    fd: OwnedFd,
    keys: Mutex<Vec<u64>>,
}

impl LoopWakerInner {
    pub(crate) fn wake(&self, key: u64) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        // eventfd(2): fails only if the counter is full, and then the descriptor is readable already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}

/// A descriptor that becomes readable when watched operations complete.
#[pyclass(name = "Waker", module = "hmc._hmc", frozen)]
pub(crate) struct LoopWaker {
    inner: Arc<LoopWakerInner>,
    /// A forked child shares the descriptor with its parent, and must not read its keys.
    origin: Origin,
}

impl LoopWaker {
    pub(crate) fn inner(&self) -> Arc<LoopWakerInner> {
        Arc::clone(&self.inner)
    }
}

impl Drop for LoopWaker {
    fn drop(&mut self) {
        if self.origin.is_child() {
            // The child may have closed the descriptor, and have another file under its number.
            std::mem::forget(Arc::clone(&self.inner));
        }
    }
}

#[pymethods]
impl LoopWaker {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let fd = fd.map_err(|e| refuse(py, ErrorKind::SystemLimit, format!("no eventfd: {e}")))?;
        let origin = Origin::here().or_raise(py)?;
        Ok(Self { inner: Arc::new(LoopWakerInner { fd, keys: Mutex::default() }), origin })
    }

    /// The descriptor.
    fn fileno(&self) -> i32 {
        self.inner.fd.as_raw_fd()
    }

    /// The keys of operations that have completed since the last call.
    fn take(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.origin.check().or_raise(py)?;
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.inner.fd, &mut count);
        let keys = &self.inner.keys;
        Ok(std::mem::take(&mut *keys.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
