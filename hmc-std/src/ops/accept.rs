//! Accepting peers that connect.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::base::config::check_rank;
use crate::base::error::{Error, Result};
use crate::link::{Link, LinkState};
use crate::ops::event_wait::EventWait;
use crate::ops::peer_handle::Peer;
use crate::ops::request::sealed::Sealed;
use crate::ops::request::{Request, Verb};
use crate::ops::who::{Who, closed};
use crate::state::inner::SessionInner;

/// A peer that is waited for ([`Session::accept`](crate::Session::accept)).
#[derive(Debug)]
pub struct Accept<'a> {
    shared: &'a Arc<SessionInner>,
    who: Who,
    or_unread: bool,
}

impl<'a> Request<Accept<'a>> {
    pub(crate) fn accept(shared: &'a Arc<SessionInner>, who: Who) -> Self {
        Self::new(Accept { shared, who, or_unread: false })
    }

    /// Also accepts a peer that has disconnected and left unreceived messages, which [`Peer::recv`] still returns.
    pub fn or_unread(self) -> Self {
        self.map(|a| a.or_unread = true)
    }
}

impl Accept<'_> {
    fn check(&self) -> Result<()> {
        self.shared.check_process()?;
        match self.who {
            Who::Rank(rank) => check_rank(rank),
            Who::Any | Who::Namesake => Ok(()),
        }
    }

    fn will_do(&self, link: &Link) -> bool {
        let is_unread = || self.or_unread && link.inbox().len() > 0;
        match link.state() {
            LinkState::Ready => link.is_ready_now() || is_unread(),
            LinkState::Leaving | LinkState::Dead => is_unread(),
            LinkState::Opening => false,
        }
    }

    fn link(&self) -> Option<Arc<Link>> {
        match self.who {
            Who::Any => {
                let is_new =
                    |l: &Arc<Link>| self.will_do(l) && !l.is_given.swap(true, Ordering::Relaxed);
                if self.or_unread {
                    let found = |l: &Arc<Link>| is_new(l).then(|| Arc::clone(l));
                    return self.shared.links.find_round_robin(found);
                }
                self.shared.links().into_iter().find(is_new)
            }
            Who::Rank(_) => self.who.link(self.shared).filter(|l| self.will_do(l)),
            // It may be gone, if messages of it are unread.
            Who::Namesake => self.who.link(self.shared),
        }
    }

    fn look(&self) -> Option<Result<Peer>> {
        let Some(link) = self.link() else {
            // Nobody connects any more.
            return self.shared.is_leaving().then(|| Err(self.who.blame(closed(), self.shared)));
        };
        link.is_given.store(true, Ordering::Relaxed);
        Some(Ok(Peer { link, shared: Arc::clone(self.shared) }))
    }
}

impl Sealed for Accept<'_> {}

impl<'a> Verb for Accept<'a> {
    type Output = Peer;
    type Error = Error;
    type Pending = PendingAccept<'a>;

    fn wait(self, within: Option<Duration>) -> Result<Peer> {
        self.check()?;
        let shared = self.shared;
        let until = shared.until(within.unwrap_or(shared.config.deadline));
        shared.wait_for_event(until, |_| self.look()).unwrap_or_else(|stop| {
            Err(self.who.blame(stop.error(self.who.appearing(shared)), shared))
        })
    }

    fn pending(self, within: Option<Duration>) -> PendingAccept<'a> {
        PendingAccept { accept: self, wait: EventWait::new(within) }
    }
}

/// It as a future.
#[derive(Debug)]
pub struct PendingAccept<'a> {
    accept: Accept<'a>,
    wait: EventWait,
}

impl Future for PendingAccept<'_> {
    type Output = Result<Peer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { accept, wait } = &mut *self;
        accept.check()?;
        let (shared, who) = (accept.shared, accept.who);
        let late = || who.blame(Error::deadline(who.appearing(shared)), shared);
        wait.poll(shared, cx, late, || accept.look())
    }
}
