//! A message of any size that was begun: what its owner waits for, asks and gets back.

use std::sync::Arc;
use std::task::{Context, Poll};

use hmc_core::rndv::AbortReason;
use hmc_core::time::Instant;
use hmc_core::types::ConnType;

use crate::base::error::{ErrorKind, Result};
use crate::base::polling::Polling;
use crate::base::process::forked;
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::callbacks::wakers::Notice;
use crate::link::op_resources::OpResources;
use crate::link::rndv::handle::MessageHandle;
use crate::link::{Link, WaitScope};
use crate::ops::peer_handle::Peer;

/// The owner of one message. Dropped, it detaches the message: that runs on, and its memory goes back when nothing touches it.
#[derive(Debug)]
pub struct MessageOp {
    pub(crate) peer: Peer,
    handle: Arc<MessageHandle>,
    /// When it ends at the latest.
    deadline: Instant,
}

const WHAT: &str = "waiting for a message";

impl Peer {
    /// Drives the link until `look` finds something.
    pub(crate) fn drive_rndv<R>(
        &self,
        until: WaitLimit,
        look: &mut impl FnMut() -> Option<R>,
    ) -> std::result::Result<R, WaitStopped> {
        // What a session sends to itself comes through no socket.
        if self.link.conn() == Some(ConnType::Loopback) {
            return self.shared.wait_for_event(until, |_| look());
        }
        self.link.drive(WaitScope::Both, until, |_: &Link| look())
    }
}

/// A call that sends messages and waits for the peer ([`Link::defer_wakes`]).
pub(crate) struct DeferredWakes<'a>(&'a Peer);

impl<'a> DeferredWakes<'a> {
    pub(crate) fn new(peer: &'a Peer) -> Self {
        peer.link.defer_wakes();
        Self(peer)
    }
}

impl Drop for DeferredWakes<'_> {
    fn drop(&mut self) {
        // A forked child takes no lock: a thread of its parent may have held it.
        if self.0.shared.check_process().is_ok() {
            self.0.link.resume_wakes();
        }
    }
}

impl MessageOp {
    pub(crate) fn new(peer: Peer, handle: Arc<MessageHandle>, deadline: Instant) -> Self {
        Self { peer, handle, deadline }
    }

    pub(crate) fn handle(&self) -> &Arc<MessageHandle> {
        &self.handle
    }

    /// The length of the message, or why it failed; `None` while it runs.
    pub(crate) fn result(&self) -> Option<Result<u64>> {
        self.handle.result()
    }

    /// As [`Self::result`], after one poll of its link if it runs.
    pub(crate) fn polled_result(&self) -> Option<Result<u64>> {
        if let Err(e) = self.peer.shared.check_process() {
            return Some(Err(e));
        }
        self.result().or_else(|| {
            let link = &self.peer.link;
            link.poll_data(false);
            // A session's link to itself has no connection.
            if link.conn() != Some(ConnType::Loopback) {
                link.poll_ctrl(false);
            }
            self.result()
        })
    }

    /// Waits until it has ended, or the wait is over.
    pub(crate) fn wait_until(
        &self,
        until: WaitLimit,
    ) -> std::result::Result<Result<u64>, WaitStopped> {
        self.peer.drive_rndv(until, &mut || self.result())
    }

    /// Waits until it has ended, which is at its deadline. If the caller's interrupt hook ends the wait, the message ends too.
    /// `copy` copies bytes of the caller that only it may touch.
    pub(crate) fn finish(&self, mut copy: impl FnMut() -> Result<()>) -> Result<u64> {
        self.peer.shared.check_process()?;
        let mut broken = None;
        let until = WaitLimit::new(self.deadline, self.peer.shared.config.interrupt);
        let ended = self.peer.drive_rndv(until, &mut || {
            if broken.is_none() {
                broken = copy().err();
            }
            self.result()
        });
        let result = match ended {
            Ok(result) => result,
            // The message is the parent's.
            Err(WaitStopped::Forked) => return Err(forked()),
            Err(stop) => self.stop(stop),
        };
        match broken {
            Some(e) => Err(e.with_peer(self.peer.rank())),
            None => result,
        }
    }

    /// The wait for it was stopped: it ends, unless it has ended.
    pub(crate) fn stop(&self, stop: WaitStopped) -> Result<u64> {
        let is_late = stop == WaitStopped::Deadline;
        self.end(if is_late { AbortReason::DeadlineExceeded } else { AbortReason::Cancelled });
        match self.result() {
            // Its owner withdrew it by the hook.
            Some(Err(e)) if !is_late && e.kind() == ErrorKind::Cancelled => {}
            Some(result) => return result,
            None => {}
        }
        Err(stop.error(WHAT).with_peer(self.peer.rank()))
    }

    pub(crate) fn end(&self, why: AbortReason) {
        self.peer.link.end_rndv(&self.handle, why);
    }

    /// Whether `reached` finds what is waited for. If not, `cx` is woken when that may have changed.
    fn poll<R>(&self, cx: &Context<'_>, reached: impl Fn() -> Option<R>) -> Poll<R> {
        if let Some(found) = reached() {
            return Poll::Ready(found);
        }
        self.peer.shared.wakers.start();
        // Wakers of the application's are cloned and dropped without a lock.
        match self.handle.set_waker(Notice::User(cx.waker().clone())) {
            // A call that waits for several looks again.
            Some(Notice::Own(waker)) => waker.wake(),
            Some(Notice::User(_)) | None => {}
        }
        // What ended before the waker was set woke nobody.
        reached().map_or(Poll::Pending, Poll::Ready)
    }

    /// The result as a future has it. The waker of the last call is woken.
    pub(crate) fn poll_result(&self, cx: &Context<'_>) -> Poll<Result<u64>> {
        let _polling = Polling::enter();
        self.peer.shared.check_process()?;
        self.poll(cx, || self.result())
    }

    fn freed(&self) -> Option<()> {
        self.handle.is_free().then_some(())
    }

    /// Whether nothing touches its memory any more. The waker of the last call is woken.
    pub(crate) fn poll_fenced(&self, cx: &Context<'_>) -> Poll<()> {
        if self.peer.shared.check_process().is_err() {
            // It never will be, here.
            return Poll::Ready(());
        }
        self.poll(cx, || self.freed())
    }

    /// Waits until nothing touches its memory any more.
    pub(crate) fn wait_fenced(&self, until: WaitLimit) -> std::result::Result<(), WaitStopped> {
        if self.peer.shared.check_process().is_err() {
            return Err(WaitStopped::Forked);
        }
        self.peer.drive_rndv(until, &mut || self.freed())
    }

    /// Takes what it still holds, if nothing touches that any more.
    pub(crate) fn take_held(&self) -> Option<OpResources> {
        self.peer.shared.check_process().ok()?;
        self.freed()?;
        Some(self.handle.take_span().map(OpResources::span).unwrap_or_default())
    }

    /// Asks it to end.
    pub(crate) fn cancel(&self) {
        if self.peer.shared.check_process().is_ok() {
            self.end(AbortReason::Cancelled);
        }
    }
}
