//! The control half of a link: its [machine](ControlMachine), and its socket.

use std::sync::Arc;

use hmc_core::ctrl::conn::ControlConn;
use hmc_core::ctrl::framer::Framer;
use hmc_core::limits::FRAMER_INITIAL_BYTES;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::time::Instant;
use hmc_core::transport::Readiness;
use hmc_core::wire::message::{ControlMessage, tag_frame};

use crate::base::error::{Error, ErrorKind, Result};
use crate::io::reactor::Registered;
use crate::io::socket::Socket;
use machine::ControlMachine;

pub(crate) mod machine;
mod receive;

pub(crate) struct CtrlState {
    socket: Arc<Socket>,
    pub(crate) machine: ControlMachine,
    /// The system may hold back what it took, and says that there is space when it does not.
    holds_back: bool,
    claimed: bool,
    registered: Registered,
}

impl CtrlState {
    pub(crate) fn new(socket: Arc<Socket>, control: ControlConn, framer: Framer<Vec<u8>>) -> Self {
        let holds_back = socket.take_when_sent();
        let machine = ControlMachine::new(control, framer);
        Self { socket, machine, holds_back, claimed: false, registered: Registered::default() }
    }

    /// Storage for a new connection's frames.
    pub(crate) fn new_framer() -> Framer<Vec<u8>> {
        Framer::new(vec![0; FRAMER_INITIAL_BYTES])
    }

    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// What the background thread is to wait for: not for what a leader receives.
    pub(crate) fn interest(&self) -> Readiness {
        let wanted = self.machine.wants();
        if self.claimed { Readiness { read: false, end: false, ..wanted } } else { wanted }
    }

    pub(crate) fn is_claimed(&self) -> bool {
        self.claimed
    }

    pub(crate) fn set_claimed(&mut self, on: bool) {
        self.claimed = on;
    }

    /// The registration, when it must change.
    pub(crate) fn registration(&mut self, wanted: Readiness) -> Option<&mut Registered> {
        self.registered.differs(wanted).then_some(&mut self.registered)
    }

    /// Whether all that was sent up to `mark` is on its way and needs this process no more.
    pub(crate) fn has_left(&mut self, mark: u64) -> bool {
        if self.machine.taken() < mark {
            // Whoever waits for that learns that there is space again.
            self.machine.await_space();
            return false;
        }
        // Over a local socket it is in the peer's queue.
        let has = !self.holds_back || self.socket.has_space();
        if !has {
            self.machine.await_space();
        }
        has
    }

    /// Sends what the protocol answers, and release acks.
    #[inline]
    pub(crate) fn send_answers(&mut self, now: Instant) {
        while self.machine.answer(now) {
            self.flush(now);
        }
    }

    /// Sends that nothing of ours uses that window of the peer any more.
    pub(crate) fn send_release(&mut self, window: WindowId, epoch: Epoch, now: Instant) {
        self.machine.queue_release(window, epoch);
        self.send_answers(now);
    }

    pub(crate) fn bye(&mut self, by: Instant, now: Instant) {
        self.machine.bye(by, now);
        self.send_answers(now);
    }

    /// Queues a message and sends what fits.
    pub(crate) fn send(&mut self, m: &ControlMessage<'_>, now: Instant) -> Result<()> {
        self.machine.queue(m)?;
        self.flush(now);
        Ok(())
    }

    /// Sends messages of the protocol together, so that the peer is woken once, unless earlier ones wait for the peer to read: then
    /// nothing is queued behind them, and the poll that finds space reports it. How many were taken: all, or none.
    pub(crate) fn send_all_if_idle<'m>(
        &mut self,
        messages: impl Iterator<Item = ControlMessage<'m>>,
        now: Instant,
    ) -> usize {
        self.flush(now);
        let taken = self.machine.offer_all(messages);
        if taken != 0 {
            self.flush(now);
        }
        taken
    }

    /// Sends a message of the application, if the system takes any of it now. Gives the mark at which it [has
    /// left](Self::has_left), if it has not yet.
    ///
    /// # Errors
    /// `Full`: nothing of it was sent.
    pub(crate) fn send_out(&mut self, m: &ControlMessage<'_>, now: Instant) -> Result<Option<u64>> {
        self.flush(now);
        let before = self.machine.taken();
        if let ControlMessage::Tag(tag) = m
            && self.machine.is_idle()
        {
            // A small frame takes no detour through the buffer.
            let frame = tag_frame(*tag);
            self.machine.transmitted_of(&frame, self.socket.send(&frame));
        } else if self.machine.offer(m) {
            self.flush(now);
        } else {
            return Err(full());
        }
        let mark = self.machine.sent_since(before, now).ok_or_else(full)?;
        Ok(if self.has_left(mark) { None } else { Some(mark) })
    }

    #[inline]
    fn flush(&mut self, now: Instant) {
        if !self.machine.is_idle() {
            self.flush_some(now);
        }
    }

    fn flush_some(&mut self, now: Instant) {
        loop {
            let bytes = self.machine.transmit();
            if bytes.is_empty() {
                return;
            }
            let moved = self.socket.send(bytes);
            if !self.machine.transmitted(moved, now) {
                return;
            }
        }
    }
}

#[cold]
fn full() -> Error {
    Error::new(ErrorKind::Full, "the peer does not receive as fast as this end sends")
}

#[cfg(test)]
mod tests;
