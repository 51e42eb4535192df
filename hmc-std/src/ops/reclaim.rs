//! How the memory of a failed operation comes back.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::base::error::{Error, ErrorKind};
use crate::ops::carried::{Carried, Failed};
use crate::ops::request::sealed::Sealed;
use crate::ops::request::{Request, Verb};

impl<M: Carried> Failed<M> {
    /// Waits for the fence of the failed operation, and returns its memory. After the failure the transport, or a stopped peer that
    /// resumes, may still perform copies that it began.
    ///
    /// # Errors
    /// Of the request: this value again if its time passes before the fence, or the memory was returned to its region. As a future
    /// it has no time limit.
    pub fn reclaim(self) -> Request<Reclaim<M>> {
        Request::new(Reclaim(self))
    }
}

/// The memory of a failed operation ([`Failed::reclaim`]).
#[derive(Debug)]
pub struct Reclaim<M>(Failed<M>);

impl<M> Sealed for Reclaim<M> {}

impl<M: Carried> Verb for Reclaim<M> {
    type Output = M;
    type Error = Failed<M>;
    type Pending = PendingReclaim<M>;

    fn wait(self, within: Option<Duration>) -> Result<M, Failed<M>> {
        if let Some(op) = self.0.holder() {
            let shared = &op.peer().shared;
            // How it ended shows below.
            let _ = op.wait_fenced(shared.until(within.unwrap_or(shared.config.deadline)));
        }
        self.0.take()
    }

    fn pending(self, _: Option<Duration>) -> PendingReclaim<M> {
        PendingReclaim(Some(self.0))
    }
}

/// It as a future.
#[derive(Debug)]
pub struct PendingReclaim<M>(Option<Failed<M>>);

impl<M: Carried> Future for PendingReclaim<M> {
    type Output = Result<M, Failed<M>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(op) = self.0.as_ref().and_then(Failed::holder) {
            ready!(op.poll_fenced(cx));
        }
        match self.0.take() {
            Some(failed) => Poll::Ready(failed.take()),
            None => {
                let e = Error::new(ErrorKind::Stale, "the memory was given before");
                Poll::Ready(Err(e.into()))
            }
        }
    }
}
