//! Finding a window of a peer by its label.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hmc_core::types::ConnType;

use crate::base::error::{Error, Result};
use crate::link::{LinkState, WaitScope};
use crate::ops::event_wait::EventWait;
use crate::ops::peer_handle::Peer;
use crate::ops::remote::Remote;
use crate::ops::request::sealed::Sealed;
use crate::ops::request::{Request, Verb};

/// A window that is looked for ([`Peer::window`]).
#[derive(Debug)]
pub struct Find<'a> {
    peer: &'a Peer,
    label: u64,
}

impl Peer {
    /// Waits until the peer exposes a window to this process under `label`, and returns it.
    ///
    /// # Errors
    /// Of the request: `DeadlineExceeded` if the peer exposes no such window before the deadline; `PeerDead`, `Closed`.
    pub fn window(&self, label: u64) -> Request<Find<'_>> {
        Request::new(Find { peer: self, label })
    }

    /// Returns the peer's session buffer, which is exposed for reading and writing.
    ///
    /// # Errors
    /// `NotFound` if the peer has none; `PeerDead`, `Closed`.
    pub fn buffer(&self) -> Result<Remote> {
        self.shared.check_process()?;
        self.link.check_open()?;
        Ok(Remote::new(self.clone(), self.default_remote()?))
    }
}

impl Find<'_> {
    fn look(&self) -> Option<Result<Remote>> {
        let link = &self.peer.link;
        // In this order: nothing comes after the end.
        let is_dead = link.state() == LinkState::Dead;
        let found = link.data().named_remote(self.label);
        match found {
            Some(window) => Some(Ok(Remote::new(self.peer.clone(), window))),
            None => is_dead.then(|| Err(link.gone())),
        }
    }

    fn what(&self) -> String {
        format!("waiting for the window labelled {}", self.label)
    }
}

impl Sealed for Find<'_> {}

impl<'a> Verb for Find<'a> {
    type Output = Remote;
    type Error = Error;
    type Pending = PendingFind<'a>;

    fn wait(self, within: Option<Duration>) -> Result<Remote> {
        let shared = &self.peer.shared;
        shared.check_process()?;
        let until = shared.until(within.unwrap_or(shared.config.deadline));
        // What a session exposes to itself comes through no socket.
        let found = if self.peer.link.conn() == Some(ConnType::Loopback) {
            shared.wait_for_event(until, |_| self.look())
        } else {
            self.peer.link.drive(WaitScope::Both, until, |_| self.look())
        };
        found.unwrap_or_else(|stop| Err(stop.error(self.what()).with_peer(self.peer.rank())))
    }

    fn pending(self, within: Option<Duration>) -> PendingFind<'a> {
        PendingFind { find: self, wait: EventWait::new(within) }
    }
}

/// It as a future.
#[derive(Debug)]
pub struct PendingFind<'a> {
    find: Find<'a>,
    wait: EventWait,
}

impl Future for PendingFind<'_> {
    type Output = Result<Remote>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { find, wait } = &mut *self;
        let late = || Error::deadline(find.what()).with_peer(find.peer.rank());
        wait.poll(&find.peer.shared, cx, late, || find.look())
    }
}
