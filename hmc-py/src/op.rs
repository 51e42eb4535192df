//! Operations that were begun: to be waited for, asked, withdrawn, or awaited.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use hmc_std::{Error, ErrorKind, Op as StdOp, Origin, Rank, Span, Waited};
use pyo3::prelude::*;

use crate::data::DropDeferred;
use crate::errors::{OrRaise, raise};
use crate::loop_waker::{LoopWaker, LoopWakerInner};
use crate::op_table::unfinished;
use crate::time::Waits;

/// What an operation has until it ends.
enum Kind {
    /// Memory that others use too, or none.
    Shared(StdOp),
    /// A range of its own.
    Own(StdOp<Span>),
}

/// Both are asked alike.
macro_rules! either {
    ($kind:expr, $op:ident => $ask:expr) => {
        match $kind {
            Kind::Shared($op) => $ask,
            Kind::Own($op) => $ask,
        }
    };
}

/// Event loops that wait for an operation.
#[derive(Default)]
struct Listeners(Mutex<Vec<Waker>>);

impl Listeners {
    fn list(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Listeners {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let all = std::mem::take(&mut *self.list());
        all.into_iter().for_each(Waker::wake);
    }
}

/// A transfer or message under way.
///
/// ``wait()`` returns the bytes moved or raises why it failed; it can be awaited in asyncio. The arrays that it uses are
/// held until nothing touches them any more, whoever drops what. Dropping an operation abandons it: it runs on.
///
/// >>> import asyncio, hmc
/// >>> async def both(peer):
/// ...     return await peer.put_nb(b"ab"), await peer.put_nb(b"cde", 2)
/// >>> with hmc.Session(rank=0, buffer_size=16) as s:
/// ...     asyncio.run(both(s.loopback())), s.buffer.read(5)
/// ((2, 3), bytearray(b'abcde'))
#[pyclass(module = "hmc._hmc", frozen, subclass)]
pub(crate) struct Op {
    whose: Whose,
    kind: Kind,
    listeners: Arc<Listeners>,
    _deferred: DropDeferred,
}

/// Whose operation it is: its peer, the process that began it, and how long waits for it take.
#[derive(Clone, Copy)]
pub(crate) struct Whose {
    pub(crate) rank: Rank,
    pub(crate) origin: Origin,
    pub(crate) waits: Waits,
}

impl Op {
    fn new(whose: Whose, kind: Kind) -> Self {
        Self { whose, kind, listeners: Arc::default(), _deferred: DropDeferred }
    }

    pub(crate) fn transfer(whose: Whose, op: StdOp) -> Self {
        Self::new(whose, Kind::Shared(op))
    }

    pub(crate) fn message(whose: Whose, op: StdOp<Span>) -> Self {
        Self::new(whose, Kind::Own(op))
    }

    /// Waits without the GIL, and without a lock: others may cancel it. `None`: it has not ended in time.
    fn finish(&self, timeout: Duration) -> Result<Option<u64>, Error> {
        either!(&self.kind, op => match op.wait_for(timeout) {
            Waited::Ended(result) => result.map(Some),
            Waited::Limit => Ok(None),
            Waited::Interrupted => {
                Err(unfinished(op, ErrorKind::Interrupted, "the wait was interrupted"))
            }
        })
    }

    /// Looks whether it has ended; if not, `listener` is told when it has.
    fn look(&self, listener: Option<Waker>) -> bool {
        self.listeners.list().extend(listener);
        let waker = Waker::from(Arc::clone(&self.listeners));
        let mut cx = Context::from_waker(&waker);
        either!(&self.kind, op => op.poll_ended(&mut cx).is_ready())
    }
}

#[pymethods]
impl Op {
    /// Waits for the end and returns the bytes moved.
    ///
    /// ``timeout`` is in seconds (default: the session's deadline). Raises ``DeadlineExceeded`` when it has not ended in time: it runs on and can
    /// be waited for again. Otherwise why it failed.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<u64> {
        self.whose.origin.check().or_raise(py)?;
        let timeout = self.whose.waits.own(py, timeout)?;
        let ended = py.detach(|| self.finish(timeout));
        drop(DropDeferred);
        let ended = ended.or_raise(py)?;
        ended.ok_or_else(|| {
            let what = "the operation has not ended yet; wait again, or cancel it";
            let e = Error::new(ErrorKind::DeadlineExceeded, what);
            raise(py, &e.with_peer(self.whose.rank))
        })
    }

    /// Whether it has ended. Waits for nothing.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        self.whose.origin.check().or_raise(py)?;
        let ended = py.detach(|| either!(&self.kind, op => op.wait_for(Duration::ZERO)));
        Ok(matches!(ended, Waited::Ended(_)))
    }

    /// Asks it to end. It still has to be waited for: it ends as ``Cancelled`` unless it had ended before. What was begun of it
    /// may still arrive at the peer, over UCX or RDMA with several channels even after a later transfer of the same bytes.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.whose.origin.check().or_raise(py)?;
        py.detach(|| either!(&self.kind, op => op.cancel()));
        Ok(())
    }

    fn __await__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let future = slf.py().import("hmc.aio")?.call_method1("awaitable", (slf,))?;
        Ok(future.call_method0("__await__")?.unbind())
    }

    /// The rank at the other end.
    #[getter]
    fn peer_rank(&self) -> u32 {
        self.whose.rank.0
    }

    /// Wakes ``waker`` with ``key`` when it has completed. True if it has already; a wake may follow nevertheless.
    fn _watch(&self, py: Python<'_>, waker: &LoopWaker, key: u64) -> PyResult<bool> {
        self.whose.origin.check().or_raise(py)?;
        let waker = Waker::from(Arc::new(LoopWake { inner: waker.inner(), key }));
        Ok(py.detach(|| self.look(Some(waker))))
    }
}

/// Wakes an event loop.
struct LoopWake {
    inner: Arc<LoopWakerInner>,
    key: u64,
}

impl Wake for LoopWake {
    fn wake(self: Arc<Self>) {
        self.inner.wake(self.key);
    }
}
