//! How an event loop hears that operations have ended: a descriptor to watch, and who knocked.
//!
//! The thread that ends an operation takes no interpreter lock: it notes a number and writes to an eventfd.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use hmc_std::{ErrorKind, Origin};
use pyo3::prelude::*;
use rustix::event::EventfdFlags;

use crate::errors::{OrRaise, refuse};

pub(crate) struct Ring {
    fd: OwnedFd,
    knocked: Mutex<Vec<u64>>,
}

impl Ring {
    pub(crate) fn knock(&self, key: u64) {
        self.knocked.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        // eventfd(2): fails only when the counter is full, and then it rings already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}

/// A descriptor that becomes readable when watched operations end.
#[pyclass(module = "hmc._hmc", frozen)]
pub(crate) struct Bell {
    ring: Arc<Ring>,
    /// A forked child shares the descriptor with its parent, and must not take what rings there.
    origin: Origin,
}

impl Bell {
    pub(crate) fn ring(&self) -> Arc<Ring> {
        Arc::clone(&self.ring)
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        if self.origin.is_child() {
            // The child may have closed the descriptor, and have another file under its number.
            std::mem::forget(Arc::clone(&self.ring));
        }
    }
}

#[pymethods]
impl Bell {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let fd = fd.map_err(|e| refuse(py, ErrorKind::SystemLimit, format!("no eventfd: {e}")))?;
        let origin = Origin::here().or_raise(py)?;
        Ok(Self { ring: Arc::new(Ring { fd, knocked: Mutex::default() }), origin })
    }

    /// The descriptor.
    fn fileno(&self) -> i32 {
        self.ring.fd.as_raw_fd()
    }

    /// The keys of those that have ended since the last call.
    fn take(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.origin.check().or_raise(py)?;
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.ring.fd, &mut count);
        let knocked = &self.ring.knocked;
        Ok(std::mem::take(&mut *knocked.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
