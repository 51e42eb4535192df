//! Taking back a window, as a request.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::process::Origin;
use crate::base::wait_limit::WaitLimit;
use crate::ops::background_call::BackgroundCall;
use crate::ops::exposure::{Exposure, TakenBack};
use crate::ops::request::Verb;
use crate::ops::request::sealed::Sealed;

/// A window that is to be taken back.
#[derive(Debug)]
pub struct Revoke<W>(W);

/// A window of ours, of either kind.
pub trait Revocable: Send + Sized + Unpin + std::fmt::Debug + 'static {
    /// What its owner gets back.
    type Memory: Send + std::fmt::Debug + 'static;

    fn exposure(&self) -> &Exposure;

    /// Gives the memory back, or locks it away until the fence.
    fn conclude(self, over: TakenBack) -> Result<Self::Memory>;
}

impl<W> Revoke<W> {
    pub(super) fn of(window: W) -> Self {
        Self(window)
    }
}

impl<W> Sealed for Revoke<W> {}

impl<W: Revocable> Verb for Revoke<W> {
    type Output = W::Memory;
    type Error = Error;
    type Pending = PendingRevoke<W>;

    // An error of the steps before the last leaves the memory in the window, whose drop takes it back.
    fn wait(self, within: Option<Duration>) -> Result<W::Memory> {
        let exposure = self.0.exposure();
        let shared = &exposure.peer().shared;
        shared.check_process()?;
        let until = shared.until(within.unwrap_or(shared.config.deadline));
        let over = exposure.begin().and_then(|fence| exposure.finish(fence, until))?;
        self.0.conclude(over)
    }

    fn pending(self, within: Option<Duration>) -> PendingRevoke<W> {
        PendingRevoke { state: State::New(self.0), within }
    }
}

/// It as a future. If the peer is inside the window at the first poll, a thread of its own waits until it is out. Dropped, it
/// leaves the window revoked, and the memory goes back at its fence.
#[derive(Debug)]
pub struct PendingRevoke<W: Revocable> {
    state: State<W>,
    within: Option<Duration>,
}

#[derive(Debug)]
enum State<W: Revocable> {
    New(W),
    Waiting(BackgroundCall<W::Memory>, Origin),
    Over,
}

impl<W: Revocable> Future for PendingRevoke<W> {
    type Output = Result<W::Memory>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New(_) = &self.state
            && let State::New(window) = std::mem::replace(&mut self.state, State::Over)
        {
            let exposure = window.exposure();
            let shared = Arc::clone(&exposure.peer().shared);
            shared.check_process()?;
            let fence = exposure.begin()?;
            if exposure.has_passed(&fence) {
                return Poll::Ready(window.conclude(Ok(())));
            }
            let at = shared.clock.deadline_in(self.within.unwrap_or(shared.config.deadline));
            shared.wakers.start();
            let waits = move || {
                let over = window.exposure().finish(fence, WaitLimit::time(at))?;
                window.conclude(over)
            };
            let call = BackgroundCall::start("hmc-revoke", &shared.wakers, waits)?;
            self.state = State::Waiting(call, shared.origin);
        }
        match &self.state {
            State::Waiting(call, origin) => {
                // In a child the thread is the parent's.
                origin.check()?;
                call.poll(cx)
            }
            State::New(_) | State::Over => {
                Poll::Ready(Err(Error::new(ErrorKind::Stale, "the memory was given before")))
            }
        }
    }
}
