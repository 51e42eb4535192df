//! Lists of copies that were checked once.

use hmc_std::{Batch as StdBatch, Peer as StdPeer};
use pyo3::prelude::*;

use crate::data::DropDeferred;
use crate::errors::OrRaise;
use crate::op::Op;
use crate::time;

/// A list of copies that was checked once and can be run many times.
///
/// ``run()`` does them and returns when all are done; ``post()`` begins them as one operation. Belongs to one life of the
/// peer.
///
/// >>> import hmc
/// >>> with hmc.Session(rank=0, buffer_size=4096) as s:
/// ...     batch = s.loopback().prepare_put([(0, 100, 2), (2, 200, 3)], b"abcde")
/// ...     batch.run()
/// ...     len(batch), s.buffer.read(2, 100), s.buffer.read(3, 200)
/// (2, bytearray(b'ab'), bytearray(b'cde'))
#[pyclass(module = "hmc._hmc", frozen)]
pub(crate) struct Batch {
    peer: StdPeer,
    batch: StdBatch,
    _deferred: DropDeferred,
}

impl Batch {
    pub(crate) fn new(peer: StdPeer, batch: StdBatch) -> Self {
        Self { peer, batch, _deferred: DropDeferred }
    }
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.batch.len()
    }

    /// Does all copies and returns when they are done, puts visible to the peer.
    ///
    /// ``timeout`` is in seconds (default: the session's deadline). Raises as :meth:`Peer.put`; some of the copies may have been done then.
    #[pyo3(signature = (timeout = None))]
    fn run(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = time::timeout(py, timeout, self.peer.deadline())?;
        py.detach(|| self.peer.run_batch_within(&self.batch, timeout)).or_raise(py)
    }

    /// Begins all copies as one operation.
    fn post(&self, py: Python<'_>) -> PyResult<Op> {
        let op = py.detach(|| self.peer.post_batch(&self.batch)).or_raise(py)?;
        Ok(Op::transfer(self.peer.clone(), op))
    }
}
