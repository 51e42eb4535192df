//! Messages out: what the protocol says waits in a queue, what the application says waits for the system.

#[cfg(hmc_mutants)]
use hmc_core::mutant::{self, Mutant};
use hmc_core::time::Instant;
use hmc_core::types::ConnType;
use hmc_core::wire::message::ControlMessage;

use super::ctrl::CtrlState;
use super::{Link, bump};
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::node::inbox::Message;

impl CtrlState {
    /// Whether the protocol may queue an answer: nothing waits for the peer to read.
    #[inline]
    pub(super) fn may_answer(&self) -> bool {
        #[cfg(hmc_mutants)]
        if mutant::is(Mutant::AnswersPileUp) {
            return true;
        }
        self.unsent.is_empty()
    }
}

impl Link {
    /// Sends a control message.
    ///
    /// # Errors
    /// `Full` when the peer does not read fast enough; `PeerDead` when it is gone.
    pub(crate) fn send(&self, m: &ControlMessage<'_>) -> Result<()> {
        self.send_by(m, |ctrl, m, now| ctrl.send(m, now)).map(drop)
    }

    /// Sends a message of the application. If this gives a mark, the message is on its way, and needs this process no more,
    /// when that [`has_left`](Link::has_left).
    ///
    /// # Errors
    /// `Full` when the system takes nothing now; `PeerDead` when the peer is gone.
    pub(crate) fn send_out(&self, m: &ControlMessage<'_>) -> Result<Option<u64>> {
        let mark = self.send_by(m, CtrlState::send_out)?;
        #[cfg(hmc_mutants)]
        let mark = mark.filter(|_| !mutant::is(Mutant::SentTooEarly));
        Ok(mark)
    }

    /// Whether the system has what was sent up to `mark`, if that is known; an error when it never will.
    pub(crate) fn has_left(&self, mark: u64) -> Option<Result<()>> {
        {
            let mut ctrl = self.ctrl();
            if ctrl.has_left(mark) {
                return Some(Ok(()));
            }
            self.settle_ctrl(&mut ctrl);
        }
        self.check_not_dead().err().map(Err)
    }

    #[inline]
    fn send_by<R: Default>(
        &self,
        m: &ControlMessage<'_>,
        send: impl FnOnce(&mut CtrlState, &ControlMessage<'_>, Instant) -> Result<R>,
    ) -> Result<R> {
        self.check_not_dead()?;
        if self.conn() == Some(ConnType::Loopback) {
            return self.send_to_self(m).map(|()| R::default());
        }
        let (sent, ended) = {
            let mut ctrl = self.ctrl();
            let sent = send(&mut ctrl, m, clock::now());
            self.settle_ctrl(&mut ctrl);
            (sent, ctrl.ended())
        };
        if ended.is_some() {
            self.end_ctrl(ended);
            return Err(self.gone());
        }
        let sent = sent.map_err(|e| e.with_peer(self.peer))?;
        self.count_sent(m);
        Ok(sent)
    }

    /// Counts a message of the application's.
    fn count_sent(&self, m: &ControlMessage<'_>) {
        if matches!(
            m,
            ControlMessage::Tag(_) | ControlMessage::Int32(_) | ControlMessage::Struct(_)
        ) {
            bump(&self.counters.messages_out);
        }
    }

    fn send_to_self(&self, m: &ControlMessage<'_>) -> Result<()> {
        let message = match m {
            ControlMessage::Tag(tag) => Message::Tag(*tag),
            ControlMessage::Int32(n) => Message::Int(*n),
            ControlMessage::Struct(bytes) => Message::Struct(bytes.to_vec()),
            ControlMessage::Advert(advert) => {
                self.data().learn_remote(advert);
                return Ok(());
            }
            ControlMessage::Revoke { window, epoch } => {
                let _ = self.data().forget_remote(*window, *epoch);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let full = {
            let bytes = if let Message::Struct(b) = &message { b.len() } else { 0 };
            !self.inbox().has_room(1, bytes)
        };
        if full {
            return Err(Error::new(
                ErrorKind::Full,
                "this session's own inbox is full; receive some",
            )
            .with_peer(self.peer));
        }
        self.deliver(message);
        self.count_sent(m);
        self.leader_lock.notify();
        if let Some(owner) = self.owner.upgrade() {
            owner.news(self);
        }
        Ok(())
    }

    fn check_not_dead(&self) -> Result<()> {
        if self.is_closing() { Err(self.gone()) } else { Ok(()) }
    }
}
