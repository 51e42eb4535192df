//! The orderly end of the link to one peer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::wait_limit::WaitLimit;
use crate::conn::shutdown::leave;
use crate::ops::background_call::BackgroundCall;
use crate::ops::peer_handle::Peer;
use crate::ops::request::sealed::Sealed;
use crate::ops::request::{Request, Verb};

/// A link that is to end ([`Peer::disconnect`]).
#[derive(Debug)]
pub struct Disconnect<'a>(&'a Peer);

impl Peer {
    /// Closes the link in order: sends BYE, waits until the operations of both ends are complete, and closes.
    ///
    /// # Errors
    /// Of the request: `DeadlineExceeded` if the peer did not answer before the deadline; `Interrupted`. The link is closed in either
    /// case.
    pub fn disconnect(&self) -> Request<Disconnect<'_>> {
        Request::new(Disconnect(self))
    }
}

fn disconnect(peer: &Peer, until: WaitLimit) -> Result<()> {
    leave(&peer.shared, std::slice::from_ref(&peer.link), until)
}

impl Sealed for Disconnect<'_> {}

impl<'a> Verb for Disconnect<'a> {
    type Output = ();
    type Error = Error;
    type Pending = PendingDisconnect<'a>;

    fn wait(self, within: Option<Duration>) -> Result<()> {
        let shared = &self.0.shared;
        shared.check_process()?;
        disconnect(self.0, shared.until(within.unwrap_or(shared.config.deadline)))
    }

    fn pending(self, within: Option<Duration>) -> PendingDisconnect<'a> {
        PendingDisconnect { peer: self.0, within, call: None }
    }
}

/// [`Disconnect`] as a future: a separate thread waits for the peer.
#[derive(Debug)]
pub struct PendingDisconnect<'a> {
    peer: &'a Peer,
    within: Option<Duration>,
    call: Option<BackgroundCall<()>>,
}

impl Future for PendingDisconnect<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { peer, within, call } = &mut *self;
        let shared = &peer.shared;
        shared.check_process()?;
        let call = match call {
            Some(call) => call,
            None => {
                let at = shared.clock.deadline_in(within.unwrap_or(shared.config.deadline));
                let (until, mine) = (WaitLimit::time(at), peer.clone());
                shared.wakers.start();
                let leaves = move || disconnect(&mine, until);
                call.insert(BackgroundCall::start("hmc-disconnect", &shared.wakers, leaves)?)
            }
        };
        call.poll(cx)
    }
}
