//! One message between two members, on their link.

use std::sync::Arc;

use hmc_core::rndv::AbortReason;
use hmc_core::time::Instant;
use hmc_mem::shared::SharedBytes;

use super::Members;
use crate::api::peer::Peer;
use crate::base::error::Result;
use crate::link::LinkState;
use crate::link::rndv::handle::MessageHandle;
use crate::link::rndv::state::{MessageBuffer, PostedRecv};
use crate::ops::message_begin::full;

/// A message of one round.
pub(super) enum Message<'a> {
    /// These bytes, to the member at that position.
    Send(usize, SharedBytes<'a>),
    /// As many bytes as this takes, from the member at that position.
    Receive(usize, SharedBytes<'a>),
}

/// What of a message is the caller's.
enum Borrowed<'a> {
    Out(SharedBytes<'a>),
    In(SharedBytes<'a>),
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
    pub(super) fn begin(members: &'m Members, message: Message<'a>, by: Instant) -> Result<Self> {
        let (position, borrowed) = match message {
            Message::Send(to, bytes) => (to, Borrowed::Out(bytes)),
            Message::Receive(from, into) => (from, Borrowed::In(into)),
        };
        let peer = members.peer(position)?;
        peer.check_rndv()?;
        let handle = match &borrowed {
            Borrowed::Out(bytes) => offer(peer, bytes, by)?,
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

    /// Ends it once the partner will hear of that: a message that is withdrawn before both ends met is as if it had never
    /// been. Whether it has ended.
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

/// Offers a message whose bytes are borrowed. A short one is sent with its offer, if the peer takes that.
fn offer(peer: &Peer, bytes: &SharedBytes<'_>, by: Instant) -> Result<Arc<MessageHandle>> {
    peer.offer_lent(bytes, by)?.attempt(peer).unwrap_or_else(|| Err(full().with_peer(peer.rank())))
}
