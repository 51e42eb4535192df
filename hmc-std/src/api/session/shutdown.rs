//! The orderly end of a session.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::owner::Owner;
use super::running::Session;
use crate::base::error::{Error, Result};
use crate::base::wait_limit::WaitLimit;
use crate::ops::background_call::BackgroundCall;
use crate::ops::request::sealed::Sealed;
use crate::ops::request::{Request, Verb};

/// A session that is to end ([`Session::shutdown`]).
#[derive(Debug)]
pub struct Shutdown<'a>(&'a Arc<Owner>);

impl Session {
    /// Ends the session in order, for all its handles: no new operations; waits for the posted ones, says BYE to all peers,
    /// closes, its listeners too. Dropping the last handle does the same within 200 ms.
    ///
    /// # Errors
    /// Of the request: `DeadlineExceeded` when some peer did not agree in time, `Interrupted`; everything is closed all the
    /// same.
    pub fn shutdown(&self) -> Request<Shutdown<'_>> {
        Request::new(Shutdown(&self.owner))
    }
}

impl Sealed for Shutdown<'_> {}

impl<'a> Verb for Shutdown<'a> {
    type Output = ();
    type Error = Error;
    type Pending = PendingShutdown<'a>;

    fn wait(self, within: Option<Duration>) -> Result<()> {
        let shared = &self.0.shared;
        shared.check_process()?;
        self.0.end(shared.until(within.unwrap_or(shared.config.deadline)))
    }

    fn pending(self, within: Option<Duration>) -> PendingShutdown<'a> {
        PendingShutdown { owner: self.0, within, call: None }
    }
}

/// It as a future: a thread of its own waits for the peers.
#[derive(Debug)]
pub struct PendingShutdown<'a> {
    owner: &'a Arc<Owner>,
    within: Option<Duration>,
    call: Option<BackgroundCall<()>>,
}

impl Future for PendingShutdown<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { owner, within, call } = &mut *self;
        let shared = &owner.shared;
        shared.check_process()?;
        let call = match call {
            Some(call) => call,
            None => {
                let at = shared.clock.deadline_in(within.unwrap_or(shared.config.deadline));
                let (until, mine) = (WaitLimit::time(at), Arc::clone(owner));
                let ends = move || mine.end(until);
                call.insert(BackgroundCall::start("hmc-shutdown", &shared.wakers, ends)?)
            }
        };
        call.poll(cx)
    }
}
