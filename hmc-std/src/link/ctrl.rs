//! The control half of a link: frames in and out of one socket, around the core's machine.

use std::sync::Arc;

use hmc_core::ctrl::conn::ControlConn;
use hmc_core::ctrl::framer::Framer;
use hmc_core::ctrl::io::{CloseReason, ControlOutput};
use hmc_core::limits::FRAMER_INITIAL_BYTES;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::Readiness;
use hmc_core::wire::cursor::Writer;
use hmc_core::wire::hello::Features;
use hmc_core::wire::message::{ControlMessage, tag_frame};
use rustix::io::Errno;

use crate::driver::Registered;
use crate::error::{Error, ErrorKind, Result};
use crate::node::owed::Owed;
use crate::socket::Socket;

mod receive;

/// Bytes that may wait to be sent to one peer before senders have to wait.
const MAX_UNSENT_BYTES: usize = 4 << 20;
/// Bytes of storage that are kept for more, and that may stay in front of what waits.
const KEPT_BYTES: usize = 64 << 10;
/// Why a control connection ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) eof: bool,
    /// Nothing can be sent any more, but what the peer had sent has not been received up to its end.
    pub(crate) unread: bool,
    pub(crate) text: String,
}

pub(crate) struct CtrlState {
    socket: Arc<Socket>,
    control: ControlConn,
    framer: Framer<Vec<u8>>,
    pub(super) unsent: Vec<u8>,
    sent: usize,
    /// Bytes that the system took, in all.
    taken: u64,
    /// The system may hold back what it took, and says that there is room when it does not.
    holds_back: bool,
    /// The system took nothing when a message was to be sent: somebody waits until it can.
    full: bool,
    /// Why nothing can be sent any more.
    cut: Option<Errno>,
    /// When to end whatever the peer may still send, once the data plane has ended.
    close_at: Option<Instant>,
    /// What the peer is to be told and was not, since earlier bytes wait for it to read.
    owed: Owed,
    ended: Option<Ended>,
    paused: bool,
    /// The peer has ended the connection, which was seen while nothing is read: the inbox is full.
    hung_up: bool,
    attended: bool,
    registered: Registered,
}

impl CtrlState {
    pub(crate) fn new(socket: Arc<Socket>, control: ControlConn, framer: Framer<Vec<u8>>) -> Self {
        let holds_back = socket.take_when_sent();
        Self {
            socket,
            holds_back,
            control,
            framer,
            unsent: Vec::new(),
            sent: 0,
            taken: 0,
            full: false,
            cut: None,
            close_at: None,
            owed: Owed::default(),
            ended: None,
            paused: false,
            hung_up: false,
            attended: false,
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

    #[inline]
    pub(crate) fn ended(&self) -> Option<Ended> {
        let has = self.ended.is_some() || self.hung_up || self.cut.is_some();
        if has { self.why_ended() } else { None }
    }

    #[cold]
    fn why_ended(&self) -> Option<Ended> {
        self.ended.clone().or_else(|| {
            if self.hung_up {
                let text = "the peer ended the connection".to_owned();
                return Some(Ended { eof: true, unread: true, text });
            }
            let errno = self.cut?;
            let eof = matches!(errno, Errno::PIPE | Errno::CONNRESET);
            let text = format!("its control connection failed: {}", std::io::Error::from(errno));
            Some(Ended { eof, unread: true, text })
        })
    }

    /// The data plane has ended: what the peer sent is received up to its end, until `at` at the latest, or an earlier time
    /// that was set.
    pub(crate) fn close_at(&mut self, at: Instant) {
        self.close_at = Some(self.close_at.map_or(at, |set| set.min(at)));
    }

    /// Whether that time has come. Messages that wait for room in the inbox have all the time they need.
    pub(crate) fn is_close_due(&self, now: Instant) -> bool {
        !self.paused && self.close_at.is_some_and(|at| now >= at)
    }

    /// Whether all that was sent up to `mark` is on its way and needs this process no more.
    pub(crate) fn has_left(&mut self, mark: u64) -> bool {
        if self.taken < mark {
            return false;
        }
        // Over a local socket it is in the peer's queue.
        let has = !self.holds_back || self.socket.has_room();
        self.full |= !has;
        has
    }

    /// Whether there are bytes to send, or somebody who waits to send some.
    fn wants_room(&self) -> bool {
        self.full || self.sent < self.unsent.len()
    }

    pub(crate) fn interest(&self) -> Readiness {
        let wanted = self.wants();
        if self.attended { Readiness { read: false, end: false, ..wanted } } else { wanted }
    }

    /// What a leader that parks has to wait for: nothing once the connection has ended, of which poll(2) tells each time.
    pub(crate) fn wants(&self) -> Readiness {
        if self.ended.is_some() {
            return Readiness::default();
        }
        let end = self.paused && !self.hung_up;
        Readiness { read: !self.paused, write: self.wants_room(), end }
    }

    pub(crate) fn is_attended(&self) -> bool {
        self.attended
    }

    /// Whether it stopped reading because the inbox was full.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(crate) fn attend(&mut self, on: bool) {
        self.attended = on;
    }

    /// The registration, when it must change.
    pub(crate) fn registration(&mut self, wanted: Readiness) -> Option<&mut Registered> {
        self.registered.differs(wanted).then_some(&mut self.registered)
    }

    fn end(&mut self, eof: bool, text: impl Into<String>) {
        if self.ended.is_none() {
            self.ended = Some(Ended { eof, unread: false, text: text.into() });
        }
    }

    fn hang_up(&mut self) {
        let why = self.control.eof();
        self.end(true, why.to_string());
    }

    /// Carries out what the machine wants, and says what is owed. While earlier bytes wait for the peer to read, nothing
    /// is queued behind them but its owner's messages: a peer that never reads cannot make answers pile up.
    #[inline]
    pub(crate) fn obey(&mut self, now: Instant) {
        if self.control.has_output() || !self.owed.is_empty() {
            self.obey_some(now);
        }
    }

    fn obey_some(&mut self, now: Instant) {
        while self.may_answer() || self.control.close_reason().is_some() {
            let Some(output) = self.control.poll_output() else { break };
            match output {
                ControlOutput::Transmit(frame) => {
                    self.unsent.extend_from_slice(frame.as_bytes());
                    self.flush(now);
                }
                ControlOutput::WakeAt(_) => {}
                ControlOutput::Close(why) => {
                    self.flush(now);
                    self.end(why == CloseReason::Orderly, why.to_string());
                }
            }
        }
        while self.may_answer()
            && self.ended.is_none()
            && let Some((window, epoch)) = self.owed.take()
        {
            self.append(&ControlMessage::Revoked { window, epoch });
            self.control.on_sent(now);
            self.flush(now);
        }
    }

    /// Nothing of ours uses that window of the peer any more: it is told so.
    pub(crate) fn say_left(&mut self, window: WindowId, epoch: Epoch, now: Instant) {
        self.owed.add(window, epoch);
        self.obey(now);
    }

    /// When a tick ends it, if nothing comes before.
    pub(crate) fn ends_at(&self) -> Instant {
        self.control.ends_at()
    }

    /// Heartbeats travelled through shared memory: ours just now, and the peer's if `heard`.
    pub(crate) fn note_beat(&mut self, heard: bool, now: Instant) {
        self.control.on_sent(now);
        if heard {
            self.control.on_received(self.framer.began(), now);
        }
    }

    /// So much of the peer's silence does not count, and so many periods are this end's own.
    pub(crate) fn suit(&mut self, late: Duration, spread: u64, now: Instant) {
        self.control.excuse(late, now);
        self.control.spread_beats(spread);
    }

    /// The period of heartbeats in force; zero when there are none.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.control.heartbeat()
    }

    /// What the peer offers.
    pub(crate) fn features(&self) -> Features {
        self.control.peer().map_or(Features::empty(), |p| p.features)
    }

    pub(crate) fn bye(&mut self, by: Instant, now: Instant) {
        if self.control.bye(by, now).is_err() {
            self.control.abort();
        }
        self.obey(now);
    }

    fn append(&mut self, m: &ControlMessage<'_>) {
        let from = self.unsent.len();
        let to = from.saturating_add(m.emitted_len());
        self.unsent.resize(to, 0);
        let ok = self
            .unsent
            .get_mut(from..to)
            .is_some_and(|place| m.emit(&mut Writer::new(place)).is_ok());
        if !ok {
            self.unsent.truncate(from);
        }
    }

    /// Queues a message and sends what fits.
    pub(crate) fn send(&mut self, m: &ControlMessage<'_>, now: Instant) -> Result<()> {
        let waiting = self.unsent.len().saturating_sub(self.sent);
        if waiting.saturating_add(m.emitted_len()) > MAX_UNSENT_BYTES {
            return Err(Error::new(
                ErrorKind::Full,
                format!(
                    "{waiting} bytes of control messages wait for the peer, the limit is \
                     {MAX_UNSENT_BYTES}; it must receive some first"
                ),
            ));
        }
        self.append(m);
        self.flush(now);
        Ok(())
    }

    /// Sends a message of the protocol unless earlier ones wait for the peer to read: then nothing is queued behind them, and
    /// the turn that finds room says so. Whether it was taken.
    pub(crate) fn send_if_idle(&mut self, m: &ControlMessage<'_>, now: Instant) -> bool {
        self.flush(now);
        let idle = self.unsent.is_empty();
        if idle {
            self.append(m);
            self.flush(now);
        }
        self.full |= !idle;
        idle
    }

    /// Sends a message of the application, if the system takes any of it now. Gives the mark at which it [has
    /// left](Self::has_left), if it has not yet.
    ///
    /// # Errors
    /// `Full`: nothing of it was sent.
    pub(crate) fn send_out(&mut self, m: &ControlMessage<'_>, now: Instant) -> Result<Option<u64>> {
        self.flush(now);
        if self.unsent.is_empty() {
            let before = self.taken;
            if let ControlMessage::Tag(tag) = m {
                // A small frame takes no detour through the buffer.
                let frame = tag_frame(*tag);
                let n = self.hand_to_system(&frame);
                self.unsent.extend_from_slice(frame.get(n..).unwrap_or_default());
            } else {
                self.append(m);
                self.flush(now);
            }
            if self.taken != before || self.cut.is_some() {
                self.control.on_sent(now);
                let waiting = self.unsent.len().saturating_sub(self.sent);
                let mark = self.taken.saturating_add(u64::try_from(waiting).unwrap_or(0));
                return Ok(if self.has_left(mark) { None } else { Some(mark) });
            }
            self.unsent.clear();
            self.unsent.shrink_to(KEPT_BYTES);
        }
        self.full = true;
        Err(Error::new(ErrorKind::Full, "the peer does not receive as fast as this end sends"))
    }

    /// Bytes that the system took of these.
    fn hand_to_system(&mut self, bytes: &[u8]) -> usize {
        if self.cut.is_some() {
            return 0;
        }
        match self.socket.send(bytes) {
            Ok(n) => {
                self.taken = self.taken.saturating_add(u64::try_from(n).unwrap_or(0));
                n
            }
            Err(Errno::AGAIN) => 0,
            // What the peer sent before it went can still be received.
            Err(e) => {
                self.cut = Some(e);
                0
            }
        }
    }

    #[inline]
    fn flush(&mut self, now: Instant) {
        if !self.unsent.is_empty() {
            self.flush_some(now);
        }
    }

    fn flush_some(&mut self, now: Instant) {
        let unsent = std::mem::take(&mut self.unsent);
        while let Some(rest) = unsent.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let n = self.hand_to_system(rest);
            if n == 0 {
                break;
            }
            self.sent = self.sent.saturating_add(n);
            self.control.on_sent(now);
        }
        self.unsent = unsent;
        if self.sent == self.unsent.len() || self.cut.is_some() {
            self.unsent.clear();
            self.unsent.shrink_to(KEPT_BYTES);
            self.sent = 0;
        } else if self.sent >= KEPT_BYTES && self.sent >= self.unsent.len() >> 1 {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
    }

    pub(crate) fn close(&mut self) {
        self.control.abort();
        self.end(false, "closed here");
    }
}

#[cfg(test)]
mod tests;
