//! Messages that begin or end in one step, while nothing else of the link's messages is concerned. What these calls do a
//! [poll](RndvState::poll) does, too, which looks at everything.

use std::sync::Arc;

use hmc_core::range::Extent;
use hmc_core::rndv::receiver::CopyOut;
use hmc_core::rndv::sender::SenderPhase;
use hmc_core::rndv::{RndvId, RndvMsg, RndvRole};
use hmc_core::time::Instant;

use super::actions::RndvActions;
use super::handle::MessageHandle;
use super::host::Host;
use super::note::Note;
use super::run::{copy_out, span_of};
use super::state::{MessageBuffer, PostedRecv, RndvState, SendOp};
use crate::callbacks::wakers::Notice;

/// A message that ended well. To be dropped without the rendezvous state's lock: its memory's owner may run code of its own.
#[derive(Debug)]
pub(super) struct EndedMessage {
    pub(super) memory: (MessageBuffer, Arc<MessageHandle>),
    pub(super) notice: Option<Notice>,
    /// This end sent it: another one may be begun.
    pub(super) has_space: bool,
}

impl RndvState {
    /// Sends the offer of a message that was begun as the only one to the peer, if no note comes before it. Whether it is sent.
    pub(super) fn offer_only(&mut self, host: &mut impl Host, after: &mut RndvActions) -> bool {
        let is_only = self.outbound.len() == 1 && self.outgoing.is_empty();
        if is_only {
            self.run_outbound(host, 0, after);
            self.send_notes(host);
        }
        is_only
    }

    /// Acts on a note that ends a message. Gives it back if a poll is to look at it.
    pub(super) fn take_last_note(
        &mut self,
        host: &mut impl Host,
        note: Note,
        now: Instant,
    ) -> Result<EndedMessage, Note> {
        match note {
            Note::Step(end @ RndvMsg::End { id, from: RndvRole::Receiver, how: Ok(()) }) => {
                self.end_sent(id, &end).ok_or(note)
            }
            Note::Eager { id, bytes } => {
                self.receive_now(host, (id, &bytes), now).ok_or(Note::Eager { id, bytes })
            }
            Note::Step(_) => Err(note),
        }
    }

    /// The peer has a message that went with its offer.
    fn end_sent(&mut self, id: RndvId, end: &RndvMsg) -> Option<EndedMessage> {
        let at = self.outbound.iter().position(|m| m.machine.id() == id)?;
        let m = self.outbound.get_mut(at)?;
        // Of other messages, and of those that are to fail, this is not all.
        if m.machine.phase() != SenderPhase::Offered || m.machine.receive(end).is_err() {
            return None;
        }
        let SendOp { mut bytes, handle, len, .. } = self.outbound.remove(at);
        let notice = handle.over(len, span_of(&mut bytes));
        Some(EndedMessage { memory: (bytes, handle), notice, has_space: true })
    }

    /// Copies a message to the first receive, if that takes it and its memory is registered, and sends its end.
    fn receive_now(
        &mut self,
        host: &mut impl Host,
        (id, bytes): (RndvId, &[u8]),
        now: Instant,
    ) -> Option<EndedMessage> {
        let want = self.posted_recvs.front()?;
        let len = u64::try_from(bytes.len()).ok()?;
        let fits = want.takes(len) && want.deadline > now && !want.has_own_window();
        if !fits
            || want.bytes.is_borrowed()
            || !self.inbound.is_empty()
            || !self.outgoing.is_empty()
        {
            return None;
        }
        let mut incoming = self.incoming;
        incoming.offer(id).ok()?;
        if len != 0 {
            copy_out(want, bytes, &CopyOut { seq: 0, to: Extent::new(len).whole() }).ok()?;
        }
        incoming.offer_finished();
        self.incoming = incoming;
        self.outgoing.push_back(RndvMsg::End { id, from: RndvRole::Receiver, how: Ok(()) }.into());
        // The peer waits for it.
        self.send_notes(host);
        let mut want = self.posted_recvs.pop_front()?;
        want.give_back(&mut self.spare, &mut self.kept);
        let PostedRecv { mut bytes, handle, .. } = want;
        let notice = handle.over(len, span_of(&mut bytes));
        Some(EndedMessage { memory: (bytes, handle), notice, has_space: false })
    }
}
