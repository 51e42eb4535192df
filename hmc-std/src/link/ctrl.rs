//! The control half of a link: its [machine](ControlMachine), and its socket.

use std::sync::Arc;

use hmc_core::ctrl::conn::ControlConn;
use hmc_core::ctrl::framer::Framer;
use hmc_core::limits::FRAMER_INITIAL_BYTES;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::time::Instant;
use hmc_core::transport::Readiness;
use hmc_core::wire::message::{ControlMessage, tag_frame};
use hmc_mem::os::ring::RingReader;

use crate::base::error::{Error, ErrorKind, Result};
use crate::io::reactor::Registered;
use crate::io::socket::Socket;
use crate::transport::ctrl_rings::PeerRing;
use machine::ControlMachine;
use rings::RingIo;

pub(crate) mod machine;
mod receive;
mod rings;

pub(crate) struct CtrlState {
    socket: Arc<Socket>,
    pub(crate) machine: ControlMachine,
    /// The system may hold back what it took, and says that there is space when it does not.
    holds_back: bool,
    claimed: bool,
    /// A leader that receives through a ring sleeps on the socket, or somebody else was told of it.
    parked: bool,
    rings: RingIo,
    registered: Registered,
}

impl CtrlState {
    pub(crate) fn new(socket: Arc<Socket>, control: ControlConn, framer: Framer<Vec<u8>>) -> Self {
        let holds_back = socket.take_when_sent();
        let machine = ControlMachine::new(control, framer);
        Self {
            socket,
            machine,
            holds_back,
            claimed: false,
            parked: false,
            rings: RingIo::default(),
            registered: Registered::default(),
        }
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
        let wanted = self.socket_wants();
        // What comes through a ring makes no socket ready.
        let claimed = self.claimed && (self.parked || !self.rings.receives());
        if claimed { Readiness { read: false, end: false, ..wanted } } else { wanted }
    }

    /// What is waited for on the socket.
    fn socket_wants(&self) -> Readiness {
        let wanted = self.machine.wants();
        let by_ring = wanted.write && self.rings.sends();
        // A byte tells that there is space in the ring, also while nothing else is to be read.
        let read = wanted.read || (by_ring && self.rings.receives() && wanted.end);
        Readiness { read, write: wanted.write && !by_ring, ..wanted }
    }

    /// A leader is about to sleep: returns what is to be waited for on the socket. `None` if bytes have come, which no socket
    /// tells of.
    pub(crate) fn park(&mut self) -> Option<Readiness> {
        self.rings.wake_peer(&self.socket);
        self.parked = true;
        self.sleep().then(|| self.socket_wants())
    }

    /// Nobody looks at the ring any more until the peer wakes this end. Whether that is so: there are no bytes.
    pub(crate) fn sleep(&mut self) -> bool {
        if !self.machine.reads() {
            return true;
        }
        self.rings.sleep().unwrap_or_else(|e| {
            self.machine.receive_failed(e);
            false
        })
    }

    /// The socket has something for a leader that looks at the ring alone.
    pub(crate) fn note_ready(&mut self) {
        self.rings.look();
        self.parked = true;
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.parked
    }

    /// Nobody looks at the ring by itself now.
    pub(crate) fn is_unattended(&self) -> bool {
        !self.claimed || self.parked
    }

    pub(crate) fn receives_by_ring(&self) -> bool {
        self.rings.receives()
    }

    /// Whether the ring by which this end receives has bytes.
    #[inline]
    pub(crate) fn has_ring_bytes(&self) -> bool {
        self.rings.has_bytes()
    }

    /// Wakes the peer, if it sleeps although bytes were written to its ring.
    #[inline]
    pub(crate) fn wake_peer(&mut self) {
        self.rings.wake_peer(&self.socket);
    }

    /// All that this end sends goes through the peer's ring from now on, of which the peer is told by `note`. Not while earlier
    /// bytes wait for the peer to read.
    pub(crate) fn send_by(&mut self, ring: PeerRing, note: &ControlMessage<'_>, now: Instant) {
        if self.machine.offer(note) {
            self.flush(now);
            if self.machine.is_idle() {
                self.rings.send_by(ring);
            } else {
                // A local socket takes a short frame or nothing of it.
                self.machine.withdraw();
            }
        }
    }

    /// All that this end receives comes through `ring` from now on. Whether nothing but wake bytes came behind the note of that.
    pub(crate) fn receive_by(&mut self, ring: RingReader) -> bool {
        self.rings.receive_by(ring);
        self.machine.take_held().iter().all(|byte| *byte == 0)
    }

    pub(crate) fn is_claimed(&self) -> bool {
        self.claimed
    }

    pub(crate) fn set_claimed(&mut self, on: bool) {
        self.claimed = on;
        self.parked = false;
        if on {
            self.rings.lead();
        }
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
            let moved = self.rings.send(&self.socket, &frame);
            self.machine.transmitted_of(&frame, moved);
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
            let moved = self.rings.send(&self.socket, bytes);
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
