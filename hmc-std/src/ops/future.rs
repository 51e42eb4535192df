//! Operations as futures. Wakers are called, cloned and dropped outside every lock.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hmc_core::queue::Transfer;
use hmc_core::slots;

use crate::api::peer::Peer;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::op_id::OpId;
use crate::callbacks::wakers::Notice;
use crate::link::op_resources::OpResources;
use crate::memory::{Region, Span};
use crate::ops::op::OpError;

/// A transfer between the two buffers. Resolves to the bytes moved.
///
/// Dropping it abandons the operation: it runs on, nobody learns its result.
#[derive(Debug)]
#[must_use = "an operation that nobody waits for may not have ended"]
pub struct OpFuture {
    peer: Peer,
    op: Option<slots::SlotId>,
    /// What is to be begun when there is space.
    later: Option<Box<(Transfer, Region)>>,
}

fn poll_op(
    peer: &Peer,
    op: slots::SlotId,
    cx: &Context<'_>,
) -> Poll<Result<(slots::Outcome, OpResources)>> {
    let stale = |_| Error::new(ErrorKind::Stale, "the operation was already waited for");
    if let Err(e) = peer.shared.check_process() {
        return Poll::Ready(Err(e));
    }
    peer.shared.wakers.start();
    let waker = Notice::User(cx.waker().clone());
    let replaced = {
        let mut data = peer.link.data();
        match data.take(op) {
            Ok(Some(r)) => return Poll::Ready(Ok(r)),
            Ok(None) => data.set_waker(op, waker),
            Err(e) => return Poll::Ready(Err(stale(e))),
        }
    };
    drop(replaced);
    peer.link.wake_on_completion();
    Poll::Pending
}

impl OpFuture {
    pub(crate) fn new(peer: Peer, op: slots::SlotId) -> Self {
        Self { peer, op: Some(op), later: None }
    }

    /// One that is to be begun.
    pub(crate) fn later(peer: Peer, t: Transfer, region: Region) -> Self {
        Self { peer, op: None, later: Some(Box::new((t, region))) }
    }

    /// Begins it, if that is to be done and there is space. Whether it was begun.
    pub(crate) fn begin(&mut self) -> Result<bool> {
        let Some(later) = &self.later else { return Ok(true) };
        let (t, region) = &**later;
        let hold = OpResources::region(region.clone());
        let deadline = self.peer.shared.clock.deadline_in(self.peer.shared.config.deadline);
        let Some(posted) = self.peer.try_post(t, deadline, hold) else { return Ok(false) };
        self.later = None;
        self.op = Some(posted.map_err(|e| e.with_peer(self.peer.rank()))?);
        self.peer.link.resume_background();
        Ok(true)
    }

    /// The operation's name, once it was begun; to wait for it by name, see [`OpFuture::into_id`].
    #[must_use]
    pub fn id(&self) -> Option<OpId> {
        self.op.map(|op| self.peer.name(op))
    }

    /// The operation by its name again: it is not abandoned. `None` when its result was given, or when it was not begun for
    /// lack of space: then it never will be.
    #[must_use]
    pub fn into_id(mut self) -> Option<OpId> {
        let id = self.id();
        self.op = None;
        id
    }
}

impl Future for OpFuture {
    type Output = Result<u64>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.later.is_some() {
            self.peer.shared.check_process()?;
            // First the waker: space that comes meanwhile is found, or wakes.
            self.peer.shared.wakers.start();
            self.peer.link.wake_for_space(cx.waker());
            if !self.begin()? {
                return Poll::Pending;
            }
        }
        let Some(op) = self.op else {
            return Poll::Ready(Err(Error::new(ErrorKind::Stale, "polled after it was done")));
        };
        let r = std::task::ready!(poll_op(&self.peer, op, cx));
        self.op = None;
        let peer = &self.peer;
        Poll::Ready(r.and_then(|(o, _)| o.result.map_err(|e| peer.failed(e.into()))))
    }
}

impl Drop for OpFuture {
    fn drop(&mut self) {
        if let Some(op) = self.op.take() {
            self.peer.abandon(op);
        }
    }
}

/// A transfer that owns its span. As a future, or by [`Op::wait`], it gives the span back.
///
/// Dropping it abandons the operation: it runs on, and the span returns to its region at its fence.
#[derive(Debug)]
#[must_use = "an operation that nobody waits for may not have ended"]
pub struct Op {
    peer: Peer,
    op: Option<slots::SlotId>,
}

/// The bytes moved and the span.
pub type SpanResult = std::result::Result<(u64, Span), OpError>;

impl Op {
    pub(crate) fn new(peer: Peer, op: slots::SlotId) -> Self {
        Self { peer, op: Some(op) }
    }

    fn conclude(peer: &Peer, outcome: slots::Outcome, mut hold: OpResources) -> SpanResult {
        match (outcome.result, hold.take_span()) {
            (Ok(n), Some(span)) => Ok((n, span)),
            (Ok(_), None) => Err(OpError {
                error: Error::new(ErrorKind::Stale, "the operation lost its span"),
                span: None,
            }),
            (Err(e), span) => Err(OpError { error: peer.failed(e.into()), span }),
        }
    }

    /// Waits for the end, up to `timeout`.
    ///
    /// # Errors
    /// The operation itself when it has not ended in time or the wait was interrupted, or how it failed.
    pub fn wait(mut self, timeout: Duration) -> std::result::Result<(u64, Span), WaitError> {
        let Some(op) = self.op else {
            return Err(WaitError::Failed(OpError {
                error: Error::new(ErrorKind::Stale, "waited for after it was done"),
                span: None,
            }));
        };
        let mine = self.peer.shared.check_process();
        match mine.and_then(|()| self.peer.finish(op, self.peer.shared.until(timeout))) {
            Ok((outcome, hold)) => {
                self.op = None;
                Self::conclude(&self.peer, outcome, hold).map_err(WaitError::Failed)
            }
            Err(e) if e.kind() == ErrorKind::DeadlineExceeded => Err(WaitError::Running(self)),
            Err(e) if e.kind() == ErrorKind::Interrupted => Err(WaitError::Interrupted(self)),
            Err(error) => {
                self.op = None;
                Err(WaitError::Failed(OpError { error, span: None }))
            }
        }
    }

    /// Asks for the operation to end; it still has to be waited for.
    pub fn cancel(&self) {
        if let Some(op) = self.op {
            let _ = self.peer.cancel(self.peer.name(op));
        }
    }
}

/// Why [`Op::wait`] gave no result.
#[derive(Debug)]
pub enum WaitError {
    /// It has not ended yet; wait again, cancel it, or drop it.
    Running(Op),
    /// It has not ended yet, and the caller's interrupt hook ended the wait.
    Interrupted(Op),
    /// It failed.
    Failed(OpError),
}

impl std::fmt::Display for WaitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Running(_) => f.write_str("the operation has not ended yet"),
            Self::Interrupted(_) => f.write_str("the interrupt hook ended the wait"),
            Self::Failed(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for WaitError {}

impl Future for Op {
    type Output = SpanResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(op) = self.op else {
            let error = Error::new(ErrorKind::Stale, "polled after it was done");
            return Poll::Ready(Err(OpError { error, span: None }));
        };
        let r = std::task::ready!(poll_op(&self.peer, op, cx));
        self.op = None;
        Poll::Ready(match r {
            Ok((outcome, hold)) => Self::conclude(&self.peer, outcome, hold),
            Err(error) => Err(OpError { error, span: None }),
        })
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        if let Some(op) = self.op.take() {
            self.peer.abandon(op);
        }
    }
}
