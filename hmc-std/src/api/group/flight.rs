//! One message between two members, on their link.

use std::sync::Arc;

use hmc_core::rndv::AbortReason;
use hmc_core::time::Instant;
use hmc_mem::shared::SharedBytes;

use crate::api::peer::Peer;
use crate::base::error::Result;
use crate::link::LinkState;
use crate::link::rndv::handle::MessageHandle;
use crate::link::rndv::state::{MessageBuffer, PostedRecv};
use crate::memory::Span;
use crate::ops::carried::Done;
use crate::ops::message_begin::full;
use crate::ops::running::Running;
use crate::ops::started::{Op, given};

/// A message of one round.
#[derive(Clone, Copy)]
pub(super) enum Message<'a> {
    /// These bytes, to the member at that position.
    Send(usize, SharedBytes<'a>),
    /// As many bytes as this takes, from the member at that position.
    Receive(usize, SharedBytes<'a>),
}

impl Message<'_> {
    /// The position of the other member.
    pub(super) const fn position(&self) -> usize {
        match self {
            Self::Send(position, _) | Self::Receive(position, _) => *position,
        }
    }
}

/// What of a message is the caller's.
enum Borrowed<'a> {
    Out(SharedBytes<'a>),
    In(SharedBytes<'a>),
    /// Nothing: the operation has memory of its own.
    Nothing(Op<Span>),
}

/// A message that was begun.
pub(super) struct Flight<'m, 'a> {
    pub(super) peer: &'m Peer,
    handle: Arc<MessageHandle>,
    borrowed: Borrowed<'a>,
    /// It ended, or was withdrawn: nothing of what was borrowed is touched any more.
    pub(super) over: bool,
}

impl<'m, 'a> Flight<'m, 'a> {
    pub(super) fn begin(peer: &'m Peer, message: Message<'a>, by: Instant) -> Result<Self> {
        let borrowed = match message {
            Message::Send(_, bytes) => Borrowed::Out(bytes),
            Message::Receive(_, into) => Borrowed::In(into),
        };
        peer.check_rndv()?;
        let handle = match &borrowed {
            Borrowed::Out(bytes) => offer(peer, bytes, by)?,
            Borrowed::Nothing(op) => handle_of(op)?,
            Borrowed::In(into) => {
                let space = into.extent().len();
                let halves = Ok(peer.staging(space)?);
                let want =
                    PostedRecv::new(MessageBuffer::Borrowed(None), space, halves, by).exactly();
                peer.link.with_rndv(|rndv| rndv.receive(want))
            }
        };
        Ok(Self { peer, handle, borrowed, over: false })
    }

    /// A message of registered memory that was started.
    pub(super) fn of(peer: &'m Peer, op: Op<Span>) -> Result<Self> {
        Ok(Self { peer, handle: handle_of(&op)?, borrowed: Borrowed::Nothing(op), over: false })
    }

    /// The memory of such a message, and how much of it was moved, once it has ended.
    pub(super) fn into_memory(self) -> Result<Done<Span>> {
        match self.borrowed {
            Borrowed::Nothing(op) => Ok(op.wait()?),
            Borrowed::Out(_) | Borrowed::In(_) => Err(given()),
        }
    }

    /// Copies what can be copied. Whether it has ended; as long as it has not, it has to be asked again.
    pub(super) fn move_on(&mut self) -> Result<bool> {
        if self.over {
            return Ok(true);
        }
        let copied = match &self.borrowed {
            Borrowed::Out(bytes) => {
                self.peer.link.rndv_send_borrowed(&self.handle, bytes);
                Ok(())
            }
            Borrowed::In(into) => self.peer.link.rndv_recv_borrowed(&self.handle, into),
            Borrowed::Nothing(_) => {
                let ended = self.handle.result().transpose();
                self.over = ended.map_err(|e| e.with_peer(self.peer.rank()))?.is_some();
                return Ok(self.over);
            }
        };
        let found = self.handle.take();
        copied.map_err(|e| e.with_peer(self.peer.rank()))?;
        let Some((result, _)) = found else {
            return Ok(false);
        };
        self.over = true;
        result.map(|_| true)
    }

    /// Ends it, unless it has ended.
    pub(super) fn withdraw(&mut self, why: AbortReason) {
        // A child that the hook forked says nothing on its parent's connection.
        if !std::mem::replace(&mut self.over, true) && !self.peer.shared.origin.is_child() {
            self.peer.link.end_rndv(&self.handle, why);
        }
    }

    /// Ends the message if it is matched, so that the partner is notified: a message that is withdrawn before it is matched is
    /// as if it had never been sent. Returns `true` if it has ended.
    pub(super) fn withdraw_if_matched(&mut self) -> bool {
        if !self.over && !self.peer.link.with_rndv(|rndv| rndv.is_unmatched(&self.handle)) {
            self.withdraw(AbortReason::Cancelled);
        }
        self.over
    }

    /// Whether nothing of it is left here, nor an answer of the partner due. The dead give none; what they may still touch
    /// is quarantined with their link.
    pub(super) fn is_forgotten(&self) -> bool {
        let link = &self.peer.link;
        link.state() == LinkState::Dead || !link.with_rndv(|rndv| rndv.knows(&self.handle))
    }
}

fn handle_of(op: &Op<Span>) -> Result<Arc<MessageHandle>> {
    match op.running() {
        Some(Running::Message(message)) => Ok(Arc::clone(message.handle())),
        Some(Running::Posted(_)) | None => Err(given()),
    }
}

/// Offers a message whose bytes are borrowed. A short one is sent with its offer, if the peer takes that.
fn offer(peer: &Peer, bytes: &SharedBytes<'_>, by: Instant) -> Result<Arc<MessageHandle>> {
    peer.offer_lent(bytes, by)?.attempt(peer).unwrap_or_else(|| Err(full().with_peer(peer.rank())))
}
