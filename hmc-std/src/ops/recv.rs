//! Receiving small messages of one peer, or of any.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hmc_core::types::{ConnType, Rank};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::link::{Link, LinkState, WaitScope};
use crate::node::inbox::{Message, Wanted};
use crate::ops::event_wait::EventWait;
use crate::ops::peer_handle::Peer;
use crate::ops::request::sealed::Sealed;
use crate::ops::request::{Request, Verb};
use crate::ops::want::Want;
use crate::ops::who::{Who, closed};
use crate::state::inner::SessionInner;

/// A message of one peer that is received ([`Peer::recv`]).
#[derive(Debug)]
pub struct Recv<'a, W> {
    peer: &'a Peer,
    want: W,
}

/// A message of one peer or of any that is received ([`Session::recv`](crate::Session::recv)).
#[derive(Debug)]
pub struct RecvFrom<'a, W> {
    shared: &'a Arc<SessionInner>,
    who: Who,
    want: W,
}

impl Peer {
    /// Receives the oldest message that `want` selects, and waits for one if there is none; other messages stay.
    /// [`want`](crate::want) lists the selections. A future that is dropped has taken no message.
    ///
    /// # Errors
    /// Of the request: `PeerDead` or `Closed` if the link is closed and no such message is left; `DeadlineExceeded`;
    /// `Interrupted`.
    pub fn recv<W: Want>(&self, want: W) -> Request<Recv<'_, W>> {
        Request::new(Recv { peer: self, want })
    }
}

/// Takes a message and, when a connection waited for space, lets it read on.
pub(crate) fn take_message(link: &Link, want: Wanted) -> Option<Message<'static>> {
    let (m, awaited) = {
        let mut inbox = link.inbox();
        (inbox.take(want)?, inbox.stop_awaiting())
    };
    // A session's link to itself has no connection.
    let is_own = link.conn() == Some(ConnType::Loopback);
    if is_own {
        link.announce_space();
    }
    if awaited {
        if !is_own {
            link.poll_ctrl(false);
        }
        link.poll_data(false);
    }
    Some(m)
}

/// The value of a wanted message of the peer, or why there will be none.
fn look<W: Want>(link: &Link, want: W) -> Option<Result<W::Output>> {
    // In this order: no message comes after the end.
    let is_dead = link.state() == LinkState::Dead;
    if let Some(m) = take_message(link, want.wanted()) {
        let other = || Error::new(ErrorKind::Protocol, "a message of another kind");
        return Some(W::value(m).ok_or_else(other));
    }
    is_dead.then(|| Err(link.gone()))
}

/// Receives a message of the peer of that link.
fn recv_on<W: Want>(
    shared: &SessionInner,
    link: &Link,
    want: W,
    until: WaitLimit,
) -> Result<W::Output> {
    // What a session sends to itself comes through no socket.
    let found = if link.conn() == Some(ConnType::Loopback) {
        shared.wait_for_event(until, |_| look(link, want))
    } else {
        // The tags of puts come beside their bytes.
        let scope = match want.wanted() {
            Wanted::Tag | Wanted::Int | Wanted::Bytes => WaitScope::Ctrl,
            Wanted::Notify | Wanted::ThisTag(_) | Wanted::Any => WaitScope::Both,
        };
        link.drive(scope, until, |link| look(link, want))
    };
    found.unwrap_or_else(|stop| {
        // A forked child takes no lock: a thread of its parent may have held it.
        let full = if stop == WaitStopped::Forked { "" } else { link.full_inbox() };
        Err(stop.error(format_args!("{}{full}", waiting(want))).with_peer(link.peer))
    })
}

fn waiting(want: impl Want) -> String {
    format!("waiting for a message ({:?})", want.wanted())
}

impl<W> Sealed for Recv<'_, W> {}

impl<'a, W: Want> Verb for Recv<'a, W> {
    type Output = W::Output;
    type Error = Error;
    type Pending = PendingRecv<'a, W>;

    fn wait(self, within: Option<Duration>) -> Result<W::Output> {
        let shared = &self.peer.shared;
        shared.check_process()?;
        let until = shared.until(within.unwrap_or(shared.config.deadline));
        recv_on(shared, &self.peer.link, self.want, until)
    }

    fn pending(self, within: Option<Duration>) -> PendingRecv<'a, W> {
        PendingRecv { recv: self, wait: EventWait::new(within) }
    }
}

/// It as a future.
#[derive(Debug)]
pub struct PendingRecv<'a, W> {
    recv: Recv<'a, W>,
    wait: EventWait,
}

impl<W: Want> Future for PendingRecv<'_, W> {
    type Output = Result<W::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { recv: Recv { peer, want }, wait } = &mut *self;
        let (link, want) = (&peer.link, *want);
        let late = || {
            let what = format!("{}{}", waiting(want), link.full_inbox());
            Error::deadline(what).with_peer(link.peer)
        };
        wait.check()?;
        let received = wait.poll(&peer.shared, cx, late, || look(link, want));
        wait.give(received)
    }
}

impl<'a, W: Want> RecvFrom<'a, W> {
    pub(crate) fn new(shared: &'a Arc<SessionInner>, who: Who, want: W) -> Self {
        Self { shared, who, want }
    }

    /// The link of the one peer whose messages are received, once it has appeared.
    fn link(&self) -> Option<Result<Arc<Link>>> {
        match self.who.link(self.shared) {
            Some(link) => Some(Ok(link)),
            // Nobody connects any more.
            None if self.shared.is_leaving() => Some(Err(self.who.blame(closed(), self.shared))),
            None => None,
        }
    }

    fn look_at_all(&self) -> Option<Result<(Rank, W::Output)>> {
        let take = |link: &Arc<Link>| {
            let value = W::value(take_message(link, self.want.wanted())?)?;
            Some((link.peer, value))
        };
        let found = self.shared.links.find_round_robin(take).map(Ok);
        found.or_else(|| self.shared.is_leaving().then(|| Err(closed())))
    }

    fn look(&self) -> Option<Result<(Rank, W::Output)>> {
        if self.who == Who::Any {
            return self.look_at_all();
        }
        match self.link()? {
            Ok(link) => Some(look(&link, self.want)?.map(|value| (link.peer, value))),
            Err(e) => Some(Err(e)),
        }
    }

    fn what(&self) -> String {
        match self.who {
            Who::Any => "waiting for a message of any peer".into(),
            Who::Rank(_) | Who::Namesake => self.who.appearing(self.shared),
        }
    }
}

impl<W> Sealed for RecvFrom<'_, W> {}

impl<'a, W: Want> Verb for RecvFrom<'a, W> {
    type Output = (Rank, W::Output);
    type Error = Error;
    type Pending = PendingRecvFrom<'a, W>;

    fn wait(self, within: Option<Duration>) -> Result<Self::Output> {
        let shared = self.shared;
        shared.check_process()?;
        let until = shared.until(within.unwrap_or(shared.config.deadline));
        let stopped = |stop: WaitStopped| self.who.blame(stop.error(self.what()), shared);
        if self.who == Who::Any {
            let found = shared.wait_for_event(until, |_| self.look_at_all());
            return found.unwrap_or_else(|stop| Err(stopped(stop)));
        }
        let link = match self.link() {
            Some(link) => link?,
            None => shared.wait_for_event(until, |_| self.link()).map_err(stopped)??,
        };
        Ok((link.peer, recv_on(shared, &link, self.want, until)?))
    }

    fn pending(self, within: Option<Duration>) -> PendingRecvFrom<'a, W> {
        PendingRecvFrom { recv: self, wait: EventWait::new(within) }
    }
}

/// It as a future.
#[derive(Debug)]
pub struct PendingRecvFrom<'a, W> {
    recv: RecvFrom<'a, W>,
    wait: EventWait,
}

impl<W: Want> Future for PendingRecvFrom<'_, W> {
    type Output = Result<(Rank, W::Output)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { recv, wait } = &mut *self;
        let late = || recv.who.blame(Error::deadline(recv.what()), recv.shared);
        wait.check()?;
        let received = wait.poll(recv.shared, cx, late, || recv.look());
        wait.give(received)
    }
}
