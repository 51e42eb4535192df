//! Messages of bytes that are lent for the call: this process copies them piece by piece, and only in the caller's own calls.
//! Nothing of them is under way when a call returns, nor when a future was dropped.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hmc_core::rndv::AbortReason;
use hmc_core::time::Instant;

use crate::base::error::{Error, Result};
use crate::base::wait_limit::WaitStopped;
use crate::callbacks::wakers::Notice;
use crate::ops::carried::Done;
use crate::ops::event_wait::EventWait;
use crate::ops::lent::Lent;
use crate::ops::message_begin::{Beginning, WAITING, begin};
use crate::ops::message_op::{DeferredWakes, MessageOp};
use crate::ops::peer_handle::Peer;
use crate::ops::started::given;

/// A message of lent bytes that is sent, or received into them.
#[derive(Debug)]
pub(crate) struct LentMessage<'a, 'b> {
    peer: &'a Peer,
    bytes: Lent<'b>,
    sends: bool,
}

impl<'a, 'b> LentMessage<'a, 'b> {
    pub(crate) fn new(peer: &'a Peer, bytes: Lent<'b>, sends: bool) -> Self {
        Self { peer, bytes, sends }
    }

    fn beginning(&self, by: Instant) -> Result<Beginning> {
        if self.sends {
            self.peer.offer_lent(&self.bytes.0, by)
        } else {
            self.peer.want_lent(&self.bytes.0, by)
        }
    }

    /// Copies what can be copied now.
    fn copy(&self, op: &MessageOp) -> Result<()> {
        if self.sends {
            self.peer.link.rndv_send_borrowed(op.handle(), &self.bytes.0);
            return Ok(());
        }
        self.peer.link.rndv_recv_borrowed(op.handle(), &self.bytes.0)
    }

    pub(crate) fn wait(self, within: Option<Duration>) -> Result<Done> {
        let shared = &self.peer.shared;
        let until = shared.until(within.unwrap_or(shared.config.deadline));
        let _waits = DeferredWakes::new(self.peer);
        let op = begin(self.peer, &mut self.beginning(until.at)?, until, true)?;
        let bytes = op.finish(|| self.copy(&op))?;
        Ok(Done { bytes, memory: () })
    }

    pub(crate) fn pending(self, within: Option<Duration>) -> PendingLentMessage<'a, 'b> {
        PendingLentMessage { message: self, state: State::New, wait: EventWait::new(within) }
    }
}

/// A message of lent bytes as a future, which copies them in its own polls. Dropped, it withdraws the message.
#[derive(Debug)]
pub struct PendingLentMessage<'a, 'b> {
    message: LentMessage<'a, 'b>,
    state: State,
    wait: EventWait,
}

#[derive(Debug)]
enum State {
    New,
    Beginning(Beginning),
    Running(MessageOp),
    Over,
}

impl PendingLentMessage<'_, '_> {
    /// Begins it, once there is space for it.
    fn poll_begin(&mut self, cx: &Context<'_>) -> Poll<Result<()>> {
        let Self { message, state, wait } = self;
        let peer = message.peer;
        let by = wait.deadline(&peer.shared);
        if let State::New = state {
            *state = State::Beginning(message.beginning(by)?);
        }
        if let State::Beginning(beginning) = state {
            let late = || Error::deadline(WAITING);
            let begun =
                wait.poll_on(&peer.shared, peer.link.space(), cx, late, || beginning.attempt(peer));
            let handle = ready!(begun).map_err(|e| e.with_peer(peer.rank()))?;
            *state = State::Running(MessageOp::new(peer.clone(), handle, by));
        }
        Poll::Ready(Ok(()))
    }

    /// Copies what can be copied, and looks whether it has ended.
    fn poll_end(&mut self, cx: &Context<'_>) -> Poll<Result<u64>> {
        let Self { message, state, wait } = self;
        let State::Running(op) = state else { return Poll::Ready(Err(given())) };
        let peer = message.peer;
        // Its end, and what is to be copied, wake the task. The waker that it replaces is dropped here, without a lock.
        drop(op.handle().set_waker(Notice::User(cx.waker().clone())));
        let mut broken = None;
        let late = || Error::deadline("waiting for a message");
        let ended = wait.poll_on(&peer.shared, peer.link.space(), cx, late, || {
            if broken.is_none() {
                broken = message.copy(op).err();
            }
            op.result().or_else(|| broken.clone().map(Err))
        });
        match ended {
            Poll::Ready(Err(_)) if op.result().is_none() && broken.is_none() => {
                Poll::Ready(op.stop(WaitStopped::Deadline))
            }
            Poll::Ready(result) => {
                Poll::Ready(broken.map_or(result, |e| Err(e.with_peer(peer.rank()))))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Future for PendingLentMessage<'_, '_> {
    type Output = Result<Done>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.message.peer.shared.check_process()?;
        let result = match ready!(self.poll_begin(cx)) {
            Ok(()) => ready!(self.poll_end(cx)),
            Err(e) => Err(e),
        };
        self.withdraw();
        Poll::Ready(result.map(|bytes| Done { bytes, memory: () }))
    }
}

impl PendingLentMessage<'_, '_> {
    /// Nobody copies its bytes any more: it ends, unless it has ended.
    fn withdraw(&mut self) {
        if let State::Running(op) = std::mem::replace(&mut self.state, State::Over)
            && !op.peer.shared.origin.is_child()
            && op.result().is_none()
        {
            op.end(AbortReason::Cancelled);
        }
    }
}

impl Drop for PendingLentMessage<'_, '_> {
    fn drop(&mut self) {
        self.withdraw();
    }
}
