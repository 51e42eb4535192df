//! Operations that were begun: to be waited for, asked, withdrawn, or awaited.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use hmc_std::delivery::Delivery;
use hmc_std::future::OpFuture;
use hmc_std::{Error, ErrorKind, OpId, Peer};
use pyo3::prelude::*;

use crate::data::DropDeferred;
use crate::errors::{OrRaise, interrupted, raise};
use crate::loop_waker::{LoopWaker, LoopWakerInner};
use crate::time;

/// How often a thread that leaves the waiting to another one looks for signals.
const SLICE: Duration = Duration::from_millis(50);

/// What an operation is at the moment.
enum State {
    /// A transfer, known by its name.
    Posted(OpId),
    /// A transfer that tells the listeners when it ends.
    Watched(OpFuture),
    /// A message under way.
    Message(Arc<Delivery>),
    /// It is over.
    Over(Result<u64, Error>),
}

struct Inner {
    state: State,
    /// One thread waits for it. A result is given once: all others leave it to that one, and are told.
    led: bool,
}

/// Event loops that want to hear of an operation.
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
    inner: Mutex<Inner>,
    /// The state is another one, or nobody waits any more.
    changed: Condvar,
    listeners: Arc<Listeners>,
    _deferred: DropDeferred,
}

/// What the one who waits waits for.
enum Lead {
    Transfer(OpId),
    Message(Arc<Delivery>),
}

impl Op {
    fn new(peer: Peer, state: State) -> Self {
        let (inner, listeners) = (Inner { state, led: false }, Arc::default());
        Self {
            peer,
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            listeners,
            _deferred: DropDeferred,
        }
    }

    pub(crate) fn transfer(peer: Peer, op: OpId) -> Self {
        Self::new(peer, State::Posted(op))
    }

    pub(crate) fn message(peer: Peer, delivery: Delivery) -> Self {
        Self::new(peer, State::Message(Arc::new(delivery)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits without the GIL, and without a lock: others may cancel it. `None`: it has not ended in time.
    fn finish(&self, timeout: Duration) -> Result<Option<u64>, Error> {
        let end = Instant::now().checked_add(timeout);
        let left = || end.map_or(Duration::MAX, |e| e.saturating_duration_since(Instant::now()));
        let lead = loop {
            let mut inner = self.lock();
            if let State::Over(result) = &inner.state {
                return result.clone().map(Some);
            }
            if !inner.led {
                let Some(lead) = inner.state.lead() else { return Ok(None) };
                inner.led = true;
                break lead;
            }
            let left = left();
            if left.is_zero() && !self.has_ended(&inner.state) {
                return Ok(None);
            }
            let park = left.clamp(Duration::from_millis(1), SLICE);
            drop(self.changed.wait_timeout(inner, park));
            // Without the lock: the handler may use this operation.
            if interrupted() {
                return Err(Error::new(ErrorKind::Interrupted, "the wait was interrupted"));
            }
        };
        let ended = match lead {
            Lead::Transfer(op) => match self.peer.wait_within(op, left()) {
                // The wait ended, not the operation.
                Err(e) if is_wait_over(&e) && self.peer.test(op).is_ok() => {
                    if e.kind() == ErrorKind::Interrupted { Err(e) } else { Ok(None) }
                }
                result => Ok(Some(result)),
            },
            Lead::Message(message) => message
                .wait_for(left())
                .map(|found| found.map(|delivered| delivered.map(|(n, _)| n).map_err(Error::from))),
        };
        {
            let mut inner = self.lock();
            inner.led = false;
            if let Ok(Some(result)) = &ended {
                inner.state = State::Over(result.clone());
            }
        }
        self.notify_waiters();
        ended?.transpose()
    }

    /// Those who wait, and those who listen, look again.
    fn notify_waiters(&self) {
        self.changed.notify_all();
        self.listeners.wake_by_ref();
    }

    /// Whether a transfer has ended, of which another thread takes the result.
    fn has_ended(&self, state: &State) -> bool {
        // One that is unknown has been taken.
        matches!(state, State::Posted(op) if self.peer.test(*op).unwrap_or(true))
    }

    /// Looks whether it has ended; if not, `listener` is told when it has.
    fn look(&self, listener: Option<Waker>) -> bool {
        let mut inner = self.lock();
        if matches!(inner.state, State::Over(_)) {
            return true;
        }
        self.listeners.list().extend(listener);
        if inner.led {
            return false;
        }
        if let State::Posted(op) = &inner.state {
            match self.peer.watch(*op) {
                Ok(future) => inner.state = State::Watched(future),
                Err(e) => inner.state = State::Over(Err(e)),
            }
        }
        let waker = Waker::from(Arc::clone(&self.listeners));
        let mut cx = Context::from_waker(&waker);
        let ended = match &mut inner.state {
            State::Over(_) | State::Posted(_) => return true,
            State::Watched(future) => Pin::new(future).poll(&mut cx),
            State::Message(delivery) => {
                delivery.poll_ref(&mut cx).map(|r| r.map(|(n, _)| n).map_err(Error::from))
            }
        };
        let Poll::Ready(result) = ended else { return false };
        inner.state = State::Over(result);
        drop(inner);
        self.notify_waiters();
        true
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::Posted(op) = inner.state {
            // As a future that is dropped: nobody can wait for it any more, and it leaves its slot when it ends.
            drop(self.peer.watch(op));
        }
    }
}

impl State {
    /// What is to be waited for. A transfer goes by its name then.
    fn lead(&mut self) -> Option<Lead> {
        if let Self::Watched(_) = self {
            let gone = Error::new(ErrorKind::Stale, "the operation is over");
            if let Self::Watched(future) = std::mem::replace(self, Self::Over(Err(gone)))
                && let Some(op) = future.into_id()
            {
                *self = Self::Posted(op);
            }
        }
        match self {
            Self::Posted(op) => Some(Lead::Transfer(*op)),
            Self::Message(delivery) => Some(Lead::Message(Arc::clone(delivery))),
            Self::Watched(_) | Self::Over(_) => None,
        }
    }
}

fn is_wait_over(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::DeadlineExceeded | ErrorKind::Interrupted)
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
        Ok(py.detach(|| {
            let name = match &self.lock().state {
                State::Over(_) => return true,
                State::Posted(op) => Some(*op),
                State::Watched(future) => future.id(),
                State::Message(_) => None,
            };
            match name {
                // One that is unknown: another thread is about to say how it ended.
                Some(op) => self.peer.test(op).unwrap_or(true),
                None => self.look(None),
            }
        }))
    }

    /// Asks it to end. It still has to be waited for: it ends as ``Cancelled`` unless it had ended before. What was begun of it
    /// may still arrive at the peer, over UCX or RDMA with several channels even after a later transfer of the same bytes.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.peer.check_process().or_raise(py)?;
        let cancelled = py.detach(|| match &self.lock().state {
            State::Over(_) => Ok(()),
            State::Posted(op) => self.peer.cancel(*op),
            State::Watched(future) => future.id().map_or(Ok(()), |op| self.peer.cancel(op)),
            State::Message(delivery) => {
                delivery.cancel();
                Ok(())
            }
        });
        match cancelled {
            // It had ended: another thread is about to say how.
            Err(e) if e.kind() == ErrorKind::Stale => Ok(()),
            other => other.or_raise(py),
        }
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
