//! Lists of copies that were checked once.

use hmc_std::request::{Gets, Puts};
use hmc_std::{Error, Plan};
use pyo3::prelude::*;

use crate::data::DropDeferred;
use crate::ends::Ends;
use crate::errors::OrRaise;
use crate::op::{Op, Whose};
use crate::piece::Item;

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
    whose: Whose,
    list: List,
    _deferred: DropDeferred,
}

/// The list, by the way that its bytes go.
pub(crate) enum List {
    Put(Plan<Puts>),
    Get(Plan<Gets>),
}

impl List {
    /// Checks a list of pieces.
    pub(crate) fn new(gets: bool, pieces: &[Item], ends: &Ends) -> Result<Self, Error> {
        let pieces: Vec<_> = pieces.iter().map(|piece| piece.of(ends)).collect::<Result<_, _>>()?;
        Ok(if gets {
            Self::Get(ends.window.get_list(&pieces).prepare()?)
        } else {
            Self::Put(ends.window.put_list(&pieces).prepare()?)
        })
    }
}

impl Batch {
    pub(crate) fn new(whose: Whose, list: List) -> Self {
        Self { whose, list, _deferred: DropDeferred }
    }
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        match &self.list {
            List::Put(plan) => plan.len(),
            List::Get(plan) => plan.len(),
        }
    }

    /// Does all copies and returns when they are done, puts visible to the peer.
    ///
    /// ``timeout`` is in seconds (default: the session's deadline). Raises as :meth:`Peer.put`; some of the copies may have been done then.
    #[pyo3(signature = (timeout = None))]
    fn run(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = self.whose.waits.own(py, timeout)?;
        py.detach(|| match &self.list {
            List::Put(plan) => plan.again().within(timeout).wait(),
            List::Get(plan) => plan.again().within(timeout).wait(),
        })
        .map(drop)
        .or_raise(py)
    }

    /// Begins all copies as one operation.
    fn post(&self, py: Python<'_>) -> PyResult<Op> {
        let op = py.detach(|| match &self.list {
            List::Put(plan) => plan.again().start_blocking(),
            List::Get(plan) => plan.again().start_blocking(),
        });
        Ok(Op::transfer(self.whose, op.or_raise(py)?))
    }
}
