//! A message of the application on its way out: what a blocking send does, without waiting.

use hmc_core::time::Instant;
use hmc_core::wire::message::ControlMessage;
use hmc_std::Message;
use hmc_std::error::{Error, ErrorKind, Result};
use hmc_std::internals::link::DrivenLink;
use hmc_std::peer::Peer;

/// A message that is being sent.
pub(super) struct Sending {
    pub(super) number: u64,
    pub(super) peer: Peer,
    pub(super) message: Message<'static>,
    /// The system has all of it at that mark; `None` while it has nothing of it.
    pub(super) mark: Option<u64>,
    pub(super) until: Instant,
}

impl Sending {
    /// Sends it if the system takes it now. The result once it needs this process no more, or never will leave it.
    pub(super) fn look(&mut self, now: Instant) -> Option<Result<u64>> {
        let result = self.attempt();
        if result.is_none() && now >= self.until {
            let e = Error::new(ErrorKind::DeadlineExceeded, "sending: the peer does not receive");
            return Some(Err(e.with_peer(self.peer.rank())));
        }
        result
    }

    fn attempt(&mut self) -> Option<Result<u64>> {
        if self.mark.is_none() {
            let message = match &self.message {
                Message::Tag(tag) | Message::Notify(tag) => ControlMessage::Tag(*tag),
                Message::Int(value) => ControlMessage::Int32(*value),
                Message::Bytes(bytes) => ControlMessage::Struct(bytes),
            };
            let link = DrivenLink::of(&self.peer);
            match link.check_open().and_then(|()| link.send_out(&message)) {
                Err(e) if e.kind() == ErrorKind::Full => return None,
                Err(e) => return Some(Err(e)),
                Ok(None) => return Some(Ok(0)),
                Ok(mark) => self.mark = mark,
            }
        }
        DrivenLink::of(&self.peer).has_left(self.mark?).map(|r| r.map(|()| 0))
    }
}
