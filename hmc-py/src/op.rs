//! Operations that were begun: to be waited for, asked, withdrawn, or awaited.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use hmc_std::delivery::Delivery;
use hmc_std::{Error, ErrorKind, Op as StdOp, Peer, Waited};
use pyo3::prelude::*;

use crate::data::DropDeferred;
use crate::errors::{OrRaise, interrupted, raise};
use crate::loop_waker::{LoopWaker, LoopWakerInner};
use crate::op_table::unfinished;
use crate::time;

/// How often a thread that leaves the waiting to another one looks for signals.
const SLICE: Duration = Duration::from_millis(50);

/// What an operation is.
enum Kind {
    Transfer(StdOp),
    Message(Message),
}

/// A message under way. Its result is given once: one thread waits for it, and tells the others.
struct Message {
    inner: Mutex<Inner>,
    /// The state is another one, or nobody waits any more.
    changed: Condvar,
}

struct Inner {
    state: State,
    /// One thread waits for it. All others leave it to that one, and are told.
    led: bool,
}

enum State {
    Running(Arc<Delivery>),
    Over(Result<u64, Error>),
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
    peer: Peer,
    kind: Kind,
    listeners: Arc<Listeners>,
    _deferred: DropDeferred,
}

impl Op {
    fn new(peer: Peer, kind: Kind) -> Self {
        Self { peer, kind, listeners: Arc::default(), _deferred: DropDeferred }
    }

    pub(crate) fn transfer(peer: Peer, op: StdOp) -> Self {
        Self::new(peer, Kind::Transfer(op))
    }

    pub(crate) fn message(peer: Peer, delivery: Delivery) -> Self {
        let inner = Inner { state: State::Running(Arc::new(delivery)), led: false };
        let message = Message { inner: Mutex::new(inner), changed: Condvar::new() };
        Self::new(peer, Kind::Message(message))
    }

    /// Waits without the GIL, and without a lock: others may cancel it. `None`: it has not ended in time.
    fn finish(&self, timeout: Duration) -> Result<Option<u64>, Error> {
        match &self.kind {
            Kind::Transfer(op) => match op.wait_for(timeout) {
                Waited::Ended(result) => result.map(Some),
                Waited::Limit => Ok(None),
                Waited::Interrupted => {
                    Err(unfinished(op, ErrorKind::Interrupted, "the wait was interrupted"))
                }
            },
            Kind::Message(message) => message.finish(timeout, &self.listeners),
        }
    }

    /// Looks whether it has ended; if not, `listener` is told when it has.
    fn look(&self, listener: Option<Waker>) -> bool {
        self.listeners.list().extend(listener);
        let waker = Waker::from(Arc::clone(&self.listeners));
        let mut cx = Context::from_waker(&waker);
        match &self.kind {
            Kind::Transfer(op) => op.poll_ended(&mut cx).is_ready(),
            Kind::Message(message) => message.look(&mut cx, &self.listeners),
        }
    }
}

fn wait_interrupted() -> Error {
    Error::new(ErrorKind::Interrupted, "the wait was interrupted")
}

impl Message {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, timeout: Duration, listeners: &Arc<Listeners>) -> Result<Option<u64>, Error> {
        let end = Instant::now().checked_add(timeout);
        let left = || end.map_or(Duration::MAX, |e| e.saturating_duration_since(Instant::now()));
        let delivery = loop {
            let mut inner = self.lock();
            let delivery = match &inner.state {
                State::Over(result) => return result.clone().map(Some),
                State::Running(delivery) => Arc::clone(delivery),
            };
            if !inner.led {
                inner.led = true;
                break delivery;
            }
            let left = left();
            if left.is_zero() {
                return Ok(None);
            }
            let park = left.clamp(Duration::from_millis(1), SLICE);
            drop(self.changed.wait_timeout(inner, park));
            // Without the lock: the handler may use this operation.
            if interrupted() {
                return Err(wait_interrupted());
            }
        };
        let ended = delivery
            .wait_for(left())
            .map(|found| found.map(|delivered| delivered.map(|(n, _)| n).map_err(Error::from)));
        {
            let mut inner = self.lock();
            inner.led = false;
            if let Ok(Some(result)) = &ended {
                inner.state = State::Over(result.clone());
            }
        }
        self.notify_waiters(listeners);
        ended?.transpose()
    }

    /// Those who wait, and those who listen, look again.
    fn notify_waiters(&self, listeners: &Arc<Listeners>) {
        self.changed.notify_all();
        listeners.wake_by_ref();
    }

    fn look(&self, cx: &mut Context<'_>, listeners: &Arc<Listeners>) -> bool {
        let mut inner = self.lock();
        if inner.led {
            return matches!(inner.state, State::Over(_));
        }
        let ended = match &inner.state {
            State::Over(_) => return true,
            State::Running(delivery) => delivery.poll_ref(cx),
        };
        let Poll::Ready(delivered) = ended else { return false };
        inner.state = State::Over(delivered.map(|(n, _)| n).map_err(Error::from));
        drop(inner);
        self.notify_waiters(listeners);
        true
    }

    fn cancel(&self) {
        if let State::Running(delivery) = &self.lock().state {
            delivery.cancel();
        }
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
        self.peer.check_process().or_raise(py)?;
        let timeout = time::timeout(py, timeout, self.peer.deadline())?;
        let ended = py.detach(|| self.finish(timeout));
        drop(DropDeferred);
        let ended = ended.or_raise(py)?;
        ended.ok_or_else(|| {
            let what = "the operation has not ended yet; wait again, or cancel it";
            let e = Error::new(ErrorKind::DeadlineExceeded, what);
            raise(py, &e.with_peer(self.peer.rank()))
        })
    }

    /// Whether it has ended. Waits for nothing.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        self.peer.check_process().or_raise(py)?;
        Ok(py.detach(|| match &self.kind {
            Kind::Transfer(op) => matches!(op.wait_for(Duration::ZERO), Waited::Ended(_)),
            Kind::Message(_) => self.look(None),
        }))
    }

    /// Asks it to end. It still has to be waited for: it ends as ``Cancelled`` unless it had ended before. What was begun of it
    /// may still arrive at the peer, over UCX or RDMA with several channels even after a later transfer of the same bytes.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.peer.check_process().or_raise(py)?;
        py.detach(|| match &self.kind {
            Kind::Transfer(op) => op.cancel(),
            Kind::Message(message) => message.cancel(),
        });
        Ok(())
    }

    fn __await__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let future = slf.py().import("hmc.aio")?.call_method1("awaitable", (slf,))?;
        Ok(future.call_method0("__await__")?.unbind())
    }

    /// The rank at the other end.
    #[getter]
    fn peer_rank(&self) -> u32 {
        self.peer.rank().0
    }

    /// Wakes ``waker`` with ``key`` when it has completed. True if it has already; a wake may follow nevertheless.
    fn _watch(&self, py: Python<'_>, waker: &LoopWaker, key: u64) -> PyResult<bool> {
        self.peer.check_process().or_raise(py)?;
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
