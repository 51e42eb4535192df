//! A message of `send_data` or `recv_data` that is under way: to be waited for, or a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hmc_core::rndv::AbortReason;

use crate::api::peer::Peer;
use crate::base::error::{Error, Result};
use crate::base::polling::Polling;
use crate::base::wait_limit::WaitStopped;
use crate::link::rndv::handle::{self, Found, MessageHandle};
use crate::memory::Span;

/// A message that failed.
#[derive(Debug)]
pub struct OpError {
    /// Why it failed.
    pub error: Error,
    /// The span, when no transport will touch it any more. `None` when it has not reached its fence:
    /// the range then stays `Busy` in its region until it has.
    pub span: Option<Span>,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        if self.span.is_none() {
            f.write_str("; its memory is held until the transport lets go of it")?;
        }
        Ok(())
    }
}

impl std::error::Error for OpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<OpError> for Error {
    fn from(e: OpError) -> Self {
        e.error
    }
}

/// A message that is being sent or received. It ends within the session's deadline, whoever waits.
///
/// Dropping it abandons the message: it runs on, and its span returns to its region.
#[derive(Debug)]
#[must_use = "a message that nobody waits for may not have arrived"]
pub struct Delivery {
    peer: Peer,
    handle: Option<Arc<MessageHandle>>,
}

/// The bytes of the message, and the span that was given for it.
pub type Delivered = std::result::Result<(u64, Option<Span>), OpError>;

fn stale() -> OpError {
    OpError { error: handle::stale(), span: None }
}

fn conclude(found: Found) -> Delivered {
    match found {
        (Ok(len), span) => Ok((len, span)),
        (Err(error), span) => Err(OpError { error, span }),
    }
}

impl Delivery {
    pub(crate) fn new(peer: Peer, handle: Arc<MessageHandle>) -> Self {
        Self { peer, handle: Some(handle) }
    }

    fn check_process(&self) -> std::result::Result<(), OpError> {
        self.peer.shared.check_process().map_err(|error| OpError { error, span: None })
    }

    /// Waits for the end, up to `timeout`; a message that has not ended by then, or when the wait is
    /// interrupted, is ended.
    ///
    /// # Errors
    /// How it failed. The span is with the error, unless something may still touch it: then it
    /// returns to its region later.
    pub fn wait(mut self, timeout: Duration) -> Delivered {
        let handle = self.handle.take().ok_or_else(stale)?;
        self.check_process()?;
        let until = self.peer.shared.until(timeout);
        let what = "waiting for a message";
        conclude(self.peer.wait_rndv(&handle, until, what, || handle.take()))
    }

    /// Waits up to `timeout` and leaves the message alone: `None` when it has not ended by then. For those who share it; the
    /// result is given once, and all others get `Stale`.
    ///
    /// # Errors
    /// `Interrupted`. How the message itself failed is in what is given.
    pub fn wait_for(&self, timeout: Duration) -> Result<Option<Delivered>> {
        self.peer.shared.check_process()?;
        let Some(handle) = &self.handle else { return Ok(Some(Err(stale()))) };
        let until = self.peer.shared.until(timeout);
        match self.peer.drive_rndv(until, &mut || handle.take()) {
            Ok(found) => Ok(Some(conclude(found))),
            Err(WaitStopped::Deadline) => Ok(None),
            Err(stop) => Err(stop.error("waiting for a message").with_peer(self.peer.rank())),
        }
    }

    /// As the future's `poll`, for those who share it. The waker of the last call is woken.
    pub fn poll_ref(&self, cx: &mut Context<'_>) -> Poll<Delivered> {
        let _polling = Polling::enter();
        if let Err(e) = self.check_process() {
            return Poll::Ready(Err(e));
        }
        let Some(handle) = &self.handle else { return Poll::Ready(Err(stale())) };
        self.peer.shared.wakers.start();
        match handle.take_or_wake(cx.waker().clone()) {
            Ok(found) => Poll::Ready(conclude(found)),
            // The waker that it replaces is dropped here, without locks.
            Err(_) => Poll::Pending,
        }
    }

    /// Takes the result if it is known; `Stale` once it was given. Drives nothing.
    pub fn test(&mut self) -> Option<Delivered> {
        if let Err(e) = self.check_process() {
            return Some(Err(e));
        }
        let Some(handle) = &self.handle else { return Some(Err(stale())) };
        let found = handle.take()?;
        self.handle = None;
        Some(conclude(found))
    }

    /// Asks for it to end; it still has to be waited for.
    pub fn cancel(&self) {
        if let Some(handle) = self.handle.as_ref().filter(|_| self.check_process().is_ok()) {
            self.peer.link.end_rndv(handle, AbortReason::Cancelled);
        }
    }
}

impl Future for Delivery {
    type Output = Delivered;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.poll_ref(cx);
        if polled.is_ready() {
            self.handle = None;
        }
        polled
    }
}
