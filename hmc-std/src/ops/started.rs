//! Operations that were started.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::op_name::OpName;
use crate::base::wait_limit::WaitStopped;
use crate::ops::carried::{Carried, Done};
use crate::ops::running::Running;

/// An operation that was started: to be waited for, asked, withdrawn, or awaited. Any thread may do so, by reference.
///
/// It ends at its deadline at the latest ([`Request::within`](crate::Request::within)). Dropping it detaches the operation:
/// it runs on, nobody learns its result, and its memory goes back at its fence.
#[derive(Debug)]
#[must_use = "an operation that nobody waits for may not have ended"]
pub struct Op<M: Carried = ()>(State<M>);

#[derive(Debug)]
enum State<M> {
    /// It was over when it was started.
    Over(Done<M>),
    Running(Running),
    /// Its future has given the result.
    Given,
}

/// What an operation gives that ended, or why it did not begin.
pub(crate) type OpResult<M> = std::result::Result<Done<M>, <M as Carried>::Error>;

/// What a request gives that is started, or why it did not begin.
pub(crate) type Started<M> = std::result::Result<Op<M>, <M as Carried>::Error>;

/// How a wait with a limit of its own ended. The limit ends the wait, never what is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Waited<T> {
    /// What was waited for has come.
    Ended(T),
    /// The limit has passed.
    Limit,
    /// The session's interrupt hook ended the wait.
    Interrupted,
}

impl<T> Waited<T> {
    /// What was waited for, if it has come.
    #[must_use]
    pub fn ended(self) -> Option<T> {
        match self {
            Self::Ended(value) => Some(value),
            Self::Limit | Self::Interrupted => None,
        }
    }
}

pub(crate) fn given() -> Error {
    Error::new(ErrorKind::Stale, "the result of the operation was given before")
}

/// What is given to who waits for an operation that has ended so.
pub(crate) fn conclude<M: Carried>(
    op: Running,
    result: Result<u64>,
) -> std::result::Result<Done<M>, M::Error> {
    match result {
        Err(error) => Err(M::failed(error, op)),
        Ok(bytes) => match op.take_held().and_then(|mut held| M::take(&mut held)) {
            Some(memory) => Ok(Done { bytes, memory }),
            // Never: bytes are counted once they are all there, and each operation has what it was given.
            None => Err(given().into()),
        },
    }
}

impl<M: Carried> Op<M> {
    #[inline(always)]
    pub(crate) fn over(done: Done<M>) -> Self {
        Self(State::Over(done))
    }

    pub(crate) fn begun(op: Running) -> Self {
        Self(State::Running(op))
    }

    /// What runs; `None` if it is over.
    pub(crate) fn running(&self) -> Option<&Running> {
        match &self.0 {
            State::Running(op) => Some(op),
            State::Over(_) | State::Given => None,
        }
    }

    /// Its name in errors and logs; `None` for a message, and if it was over when it was started.
    #[must_use]
    pub fn name(&self) -> Option<OpName> {
        self.running().and_then(Running::name)
    }

    /// Waits until it has ended. Gives what it moved, and its memory.
    ///
    /// # Errors
    /// How it failed: as the request says that started it, `DeadlineExceeded`, `Cancelled`, `Forked`. `Interrupted` when the
    /// session's interrupt hook ended the wait: the operation was cancelled then.
    #[inline]
    pub fn wait(self) -> std::result::Result<Done<M>, M::Error> {
        match self.0 {
            State::Over(done) => Ok(done),
            State::Running(op) => {
                let result = op.finish();
                conclude(op, result)
            }
            State::Given => Err(given().into()),
        }
    }

    /// Waits until it has ended, for `limit` at most, and leaves it alone: it can be waited for again, and its result stays
    /// until [`Op::wait`]. A limit of zero looks at its link once and waits for nothing.
    pub fn wait_for(&self, limit: Duration) -> Waited<Result<u64>> {
        let op = match &self.0 {
            State::Over(done) => return Waited::Ended(Ok(done.bytes)),
            State::Running(op) => op,
            State::Given => return Waited::Ended(Err(given())),
        };
        if let Some(result) = op.polled_result() {
            return Waited::Ended(result);
        }
        if limit.is_zero() {
            return Waited::Limit;
        }
        match op.wait_until(op.peer().shared.until(limit)) {
            Ok(result) => Waited::Ended(result),
            Err(WaitStopped::Deadline) => Waited::Limit,
            Err(WaitStopped::Interrupted) => Waited::Interrupted,
            Err(stop @ WaitStopped::Forked) => Waited::Ended(Err(stop.error(""))),
        }
    }

    /// As the future's `poll`, by reference, and its result stays. The waker of the last call, of any thread, is woken.
    pub fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<Result<u64>> {
        match &self.0 {
            State::Over(done) => Poll::Ready(Ok(done.bytes)),
            State::Running(op) => op.poll_result(cx),
            State::Given => Poll::Ready(Err(given())),
        }
    }

    /// Asks it to end: it ends as `Cancelled`, unless it has ended. That is no fence: what the transport had begun with may
    /// still be carried out, over UCX or RDMA with several channels even after a later operation of the same bytes.
    pub fn cancel(&self) {
        if let State::Running(op) = &self.0 {
            op.cancel();
        }
    }
}

impl<M: Carried> Future for Op<M> {
    type Output = std::result::Result<Done<M>, M::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Running(op) = &self.0 {
            let result = std::task::ready!(op.poll_result(cx));
            if let State::Running(op) = std::mem::replace(&mut self.0, State::Given) {
                return Poll::Ready(conclude(op, result));
            }
        }
        Poll::Ready(match std::mem::replace(&mut self.0, State::Given) {
            State::Over(done) => Ok(done),
            State::Running(_) | State::Given => Err(given().into()),
        })
    }
}
