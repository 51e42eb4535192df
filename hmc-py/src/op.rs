//! Operations that were begun: to be waited for, asked, withdrawn, or awaited.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use hmc_std::delivery::Delivery;
use hmc_std::future::OpFuture;
use hmc_std::{Error, ErrorKind, OpId, Peer};
use pyo3::prelude::*;

use crate::bell::{Bell, Ring};
use crate::data::Sweep;
use crate::errors::{OrRaise, raise};
use crate::time;

/// What an operation is at the moment.
enum State {
    /// A transfer, known by its name.
    Named(OpId),
    /// A transfer that rings a bell when it ends.
    Watched(OpFuture),
    /// A message under way.
    Message(Arc<Delivery>),
    /// It is over.
    Over(Result<u64, Error>),
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
    state: Mutex<State>,
    _sweep: Sweep,
}

impl Op {
    pub(crate) fn transfer(peer: Peer, op: OpId) -> Self {
        Self { peer, state: Mutex::new(State::Named(op)), _sweep: Sweep }
    }

    pub(crate) fn message(peer: Peer, delivery: Delivery) -> Self {
        Self { peer, state: Mutex::new(State::Message(Arc::new(delivery))), _sweep: Sweep }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits without the GIL, and without a lock: others may cancel it. `None`: it has not ended in time.
    fn finish(&self, timeout: Duration) -> Result<Option<u64>, Error> {
        let (op, message) = {
            let mut state = self.state();
            match &*state {
                State::Over(result) => return result.clone().map(Some),
                State::Message(delivery) => (None, Some(Arc::clone(delivery))),
                State::Named(op) => (Some(*op), None),
                State::Watched(_) => (state.unwatch(), None),
            }
        };
        let ended = match (op, message) {
            (Some(op), _) => match self.peer.wait_within(op, timeout) {
                Err(e) if is_wait_over(&e) && self.peer.test(op).is_ok() => {
                    // The wait ended, not the operation.
                    return if e.kind() == ErrorKind::Interrupted { Err(e) } else { Ok(None) };
                }
                result => result,
            },
            (None, Some(message)) => match message.wait_for(timeout)? {
                None => return Ok(None),
                Some(delivered) => delivered.map(|(n, _)| n).map_err(Error::from),
            },
            (None, None) => return Ok(None),
        };
        let mut state = self.state();
        if let State::Over(result) = &*state {
            // Two waited; the other one got it.
            return result.clone().map(Some);
        }
        *state = State::Over(ended.clone());
        ended.map(Some)
    }

    /// Looks whether it has ended, and registers who is to be told if not.
    fn look(&self, waker: &Waker) -> bool {
        let mut state = self.state();
        if let State::Named(op) = &*state {
            match self.peer.watch(*op) {
                Ok(future) => *state = State::Watched(future),
                Err(e) => *state = State::Over(Err(e)),
            }
        }
        let mut cx = Context::from_waker(waker);
        let ended = match &mut *state {
            State::Over(_) | State::Named(_) => return true,
            State::Watched(future) => Pin::new(future).poll(&mut cx),
            State::Message(delivery) => {
                delivery.poll_ref(&mut cx).map(|r| r.map(|(n, _)| n).map_err(Error::from))
            }
        };
        let Poll::Ready(result) = ended else { return false };
        *state = State::Over(result);
        true
    }
}

impl State {
    /// A wait goes by name.
    fn unwatch(&mut self) -> Option<OpId> {
        let gone = Error::new(ErrorKind::Stale, "the operation is over");
        match std::mem::replace(self, Self::Over(Err(gone))) {
            Self::Watched(future) => {
                let op = future.into_id()?;
                *self = Self::Named(op);
                Some(op)
            }
            other => {
                *self = other;
                None
            }
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
    /// ``timeout`` is in seconds (default 30). Raises ``DeadlineExceeded`` when it has not ended in time: it runs on and can
    /// be waited for again. Otherwise why it failed.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<u64> {
        let timeout = time::timeout(py, timeout)?;
        let ended = py.detach(|| self.finish(timeout));
        drop(Sweep);
        let ended = ended.or_raise(py)?;
        ended.ok_or_else(|| {
            let what = "the operation has not ended yet; wait again, or cancel it";
            let e = Error::new(ErrorKind::DeadlineExceeded, what);
            raise(py, &e.with_peer(self.peer.rank()))
        })
    }

    /// Whether it has ended. Waits for nothing.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        let test = || match &*self.state() {
            State::Over(_) => Ok(true),
            State::Named(op) => self.peer.test(*op),
            State::Watched(future) => future.id().map_or(Ok(true), |op| self.peer.test(op)),
            State::Message(_) => Ok(false),
        };
        if py.detach(test).or_raise(py)? {
            return Ok(true);
        }
        // A message is asked by a look that tells nobody.
        let is_message = matches!(&*self.state(), State::Message(_));
        Ok(is_message && py.detach(|| self.look(Waker::noop())))
    }

    /// Asks it to end. It still has to be waited for: it ends as ``Cancelled`` unless it had ended before.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| match &*self.state() {
            State::Over(_) => Ok(()),
            State::Named(op) => self.peer.cancel(*op),
            State::Watched(future) => future.id().map_or(Ok(()), |op| self.peer.cancel(op)),
            State::Message(delivery) => {
                delivery.cancel();
                Ok(())
            }
        })
        .or_raise(py)
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

    /// Rings ``bell`` with ``key`` when it has ended. True when it has already: nothing rings then.
    fn _watch(&self, py: Python<'_>, bell: &Bell, key: u64) -> bool {
        let waker = Waker::from(Arc::new(Knock { ring: bell.ring(), key }));
        py.detach(|| self.look(&waker))
    }
}

/// Wakes an event loop.
struct Knock {
    ring: Arc<Ring>,
    key: u64,
}

impl Wake for Knock {
    fn wake(self: Arc<Self>) {
        self.ring.knock(self.key);
    }
}
