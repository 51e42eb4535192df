//! The control connection of a link as a function of bytes, space and time: no socket, lock or clock. [`super::CtrlState`] drives it.
//!
//! Input are the bytes that were received ([`ControlMachine::received`]), how far an attempt to send came
//! ([`ControlMachine::transmitted`]), whether the inbox has space, and the time. Output are events of frames ([`ControlMachine::next`]),
//! bytes to send ([`ControlMachine::transmit`]), what to wait for ([`ControlMachine::wants`]) and the end ([`ControlMachine::ended`]).

use hmc_core::ctrl::conn::ControlConn;
use hmc_core::ctrl::framer::{Framer, Next};
use hmc_core::ctrl::io::{CloseReason, ControlEvent, ControlOutput};
use hmc_core::region::{Epoch, WindowId};
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::Readiness;
use hmc_core::wire::cursor::Writer;
use hmc_core::wire::hello::Features;
use hmc_core::wire::message::ControlMessage;
use rustix::io::Errno;

use crate::base::error::{Error, ErrorKind, Limit, Result};
use crate::node::pending_releases::PendingReleases;

/// Bytes that may wait to be sent to one peer before senders have to wait.
const MAX_UNSENT_BYTES: usize = 4 << 20;
/// Bytes of storage that are kept for more, and that may stay in front of what waits.
const KEPT_BYTES: usize = 64 << 10;

/// Why a control connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) eof: bool,
    /// Nothing can be sent any more, but what the peer had sent has not been received up to its end.
    pub(crate) unread: bool,
    pub(crate) text: String,
}

pub(crate) struct ControlMachine {
    control: ControlConn,
    framer: Framer<Vec<u8>>,
    pub(in crate::link) unsent: Vec<u8>,
    sent: usize,
    /// Bytes that the system took, in all.
    taken: u64,
    /// The system took nothing when a message was to be sent: somebody waits until it can.
    full: bool,
    /// Why nothing can be sent any more.
    cut: Option<Errno>,
    /// When to end whatever the peer may still send, once the data plane has ended.
    close_at: Option<Instant>,
    /// Release acks that are not sent yet, since earlier bytes wait for the peer to read.
    releases: PendingReleases,
    ended: Option<Ended>,
    /// Bytes were received since the poll began.
    came: bool,
    paused: bool,
    /// The peer has ended the connection, which was seen while the inbox was full.
    hung_up: bool,
}

impl ControlMachine {
    pub(super) fn new(control: ControlConn, framer: Framer<Vec<u8>>) -> Self {
        Self {
            control,
            framer,
            unsent: Vec::new(),
            sent: 0,
            taken: 0,
            full: false,
            cut: None,
            close_at: None,
            releases: PendingReleases::default(),
            ended: None,
            came: false,
            paused: false,
            hung_up: false,
        }
    }

    /// Returns why the connection ended, or why it is about to.
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
            let text = format!("its control connection failed: {}", std::io::Error::from(errno));
            Some(Ended { eof: is_eof(errno), unread: true, text })
        })
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

    /// This end closes the connection.
    pub(crate) fn close(&mut self) {
        self.control.abort();
        self.end(false, "closed here");
    }

    /// The data plane has ended: what the peer sent is received until `at` at the latest, or an earlier time that was set.
    pub(crate) fn close_at(&mut self, at: Instant) {
        self.close_at = Some(self.close_at.map_or(at, |set| set.min(at)));
    }

    /// Whether that time has come. Messages that wait for space in the inbox, or did, have all the time they need.
    pub(crate) fn is_close_due(&self, now: Instant) -> bool {
        !self.paused && !self.hung_up && self.close_at.is_some_and(|at| now >= at)
    }

    /// The readiness of the connection that the machine waits for: nothing once it has ended, of which poll(2) tells each
    /// time.
    pub(crate) fn wants(&self) -> Readiness {
        if self.ended.is_some() {
            return Readiness::default();
        }
        let write = self.full || self.sent < self.unsent.len();
        Readiness { read: !self.paused, write, end: self.paused && !self.hung_up }
    }

    /// When a tick ends it, if nothing comes before.
    pub(crate) fn ends_at(&self) -> Instant {
        self.control.ends_at()
    }

    /// Heartbeats travelled through shared memory: ours just now, and the peer's if `peer_beat`.
    pub(crate) fn note_beat(&mut self, peer_beat: bool, now: Instant) {
        self.control.on_sent(now);
        if peer_beat {
            self.control.on_received(self.framer.began(), now);
        }
    }

    /// So much of the peer's silence does not count, and so many periods are this end's own.
    pub(crate) fn adapt_deadlines(&mut self, late: Duration, spread: u64, now: Instant) {
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

    pub(super) fn bye(&mut self, by: Instant, now: Instant) {
        if self.control.bye(by, now).is_err() {
            self.control.abort();
        }
    }

    /// Whether a deadline is due that ends the connection unless bytes have come: this end may be the late one.
    pub(super) fn must_look(&self, now: Instant) -> bool {
        !self.paused && self.control.is_due_to_end(now)
    }

    /// Looks at the deadlines. Whether one was due.
    pub(super) fn tick(&mut self, now: Instant) -> bool {
        let due = now >= self.control.next_deadline();
        if due {
            // A full inbox is our own fault, not the peer's silence.
            if self.paused {
                self.control.on_received(None, now);
            }
            self.control.tick(now);
        }
        due
    }
}

/// Bytes in.
impl ControlMachine {
    /// A poll begins. Whether somebody who waits for space to send may try again.
    pub(super) fn begin_poll(&mut self) -> bool {
        self.came = false;
        std::mem::take(&mut self.full)
    }

    /// Whether it stopped reading because the inbox was full.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether the inbox has no space for one more message, so that nothing is read, unless the peer has ended the connection.
    pub(super) fn pause(&mut self, on: bool) {
        self.paused = on && !self.hung_up;
    }

    /// Whether bytes of the peer are of use: the connection has not ended, and the inbox has space.
    pub(super) fn reads(&self) -> bool {
        self.ended.is_none() && !self.paused
    }

    /// Bytes that were received and not taken out.
    pub(super) fn held(&self) -> usize {
        self.framer.held()
    }

    /// Takes what was received and not taken out.
    pub(super) fn take_held(&mut self) -> &[u8] {
        self.framer.take_held()
    }

    /// Where to receive into.
    pub(super) fn space(&mut self) -> &mut [u8] {
        self.framer.space()
    }

    /// So many bytes were received into [`Self::space`]; none: the peer ended the connection.
    pub(super) fn received(&mut self, n: usize, now: Instant) {
        if n == 0 {
            return self.hang_up();
        }
        self.framer.filled(n, now);
        self.came = true;
    }

    /// Nothing could be received.
    pub(super) fn receive_failed(&mut self, e: Errno) {
        if is_eof(e) {
            return self.hang_up();
        }
        self.end(false, format!("its control connection failed: {}", std::io::Error::from(e)));
    }

    /// The peer has ended the connection while nothing is read. Now the rest is read, which the system or a ring holds.
    pub(super) fn note_hang_up(&mut self) {
        self.hung_up = true;
        self.paused = false;
    }

    /// Takes the next whole frame and has `execute` do what it means, if it is not the protocol's own business; that returns
    /// a window of the peer that this end has left, of which the peer gets a release ack. Whether there was a frame.
    pub(super) fn next(
        &mut self,
        now: Instant,
        execute: impl FnOnce(ControlEvent<'_>) -> Option<(WindowId, Epoch)>,
    ) -> bool {
        match self.framer.next(self.control.frame_limit()) {
            Ok(Next::Frame(header, payload)) => match self.control.receive(header, payload, now) {
                Ok(event) => {
                    let left = event.and_then(execute);
                    if left.is_some_and(|(id, epoch)| !self.releases.add(id, epoch)) {
                        self.end(false, "it revoked a window that it cannot have");
                    }
                }
                Err(v) => self.end(false, format!("it broke the protocol: {v}")),
            },
            Ok(Next::Need(_)) => {
                // To look at what lies there already is no sign of life.
                if self.came {
                    self.control.on_received(self.framer.began(), now);
                }
                return false;
            }
            Ok(Next::Grow(bytes)) => {
                // The frame's length was checked against its limit; storage grows by doubling,
                // so never to more than twice what arrived.
                let storage = more_storage(bytes, self.framer.capacity());
                if self.framer.grow(storage).is_err() {
                    self.end(false, "a frame does not fit");
                }
                return false;
            }
            // The answer to it is queued, and the connection ends.
            Err(e) => {
                self.control.malformed(e);
                self.answer_some(now);
            }
        }
        true
    }
}

/// Bytes out.
impl ControlMachine {
    /// Queues what the protocol answers, and release acks. While earlier bytes wait for the peer to read, nothing is queued
    /// behind them but its owner's messages: a peer that never reads cannot make answers pile up. Whether something was
    /// queued: once it is sent, there may be more.
    #[inline]
    pub(super) fn answer(&mut self, now: Instant) -> bool {
        (self.control.has_output() || !self.releases.is_empty()) && self.answer_some(now)
    }

    fn answer_some(&mut self, now: Instant) -> bool {
        let before = self.unsent.len();
        while self.may_answer() || self.control.close_reason().is_some() {
            let Some(output) = self.control.poll_output() else { break };
            match output {
                ControlOutput::Transmit(frame) => self.queue_bytes(frame.as_bytes()),
                ControlOutput::WakeAt(_) => {}
                ControlOutput::Close(why) => self.end(why == CloseReason::Orderly, why.to_string()),
            }
        }
        while self.may_answer()
            && self.ended.is_none()
            && let Some((window, epoch)) = self.releases.take()
        {
            self.append(&ControlMessage::Revoked { window, epoch });
            self.control.on_sent(now);
        }
        self.unsent.len() != before
    }

    /// Nothing of ours uses that window of the peer any more: queues the message of it.
    pub(super) fn queue_release(&mut self, window: WindowId, epoch: Epoch) {
        self.releases.add(window, epoch);
    }

    /// Whether nothing waits to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.unsent.is_empty()
    }

    fn waiting(&self) -> usize {
        self.unsent.len().saturating_sub(self.sent)
    }

    /// Queues bytes, unless nothing can be sent any more.
    fn queue_bytes(&mut self, bytes: &[u8]) {
        if self.cut.is_none() {
            self.unsent.extend_from_slice(bytes);
        }
    }

    fn append(&mut self, m: &ControlMessage<'_>) {
        if self.cut.is_some() {
            return;
        }
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

    /// Queues a message.
    ///
    /// # Errors
    /// `Full` if too much waits.
    pub(super) fn queue(&mut self, m: &ControlMessage<'_>) -> Result<()> {
        let waiting = self.waiting();
        if waiting.saturating_add(m.emitted_len()) > MAX_UNSENT_BYTES {
            let need = waiting.saturating_add(m.emitted_len());
            let limit = Limit::new(
                "bytes of control messages that wait for the peer",
                need,
                MAX_UNSENT_BYTES,
            );
            return Err(Error::limited(ErrorKind::Full, limit)
                .with_remedy("the peer must receive some first"));
        }
        self.append(m);
        Ok(())
    }

    /// Queues a message if nothing waits; else its sender is to try again when there is space. Whether it was queued.
    pub(super) fn offer(&mut self, m: &ControlMessage<'_>) -> bool {
        let idle = self.is_idle();
        if idle {
            self.append(m);
        }
        self.full |= !idle;
        idle
    }

    /// As [`Self::offer`], for several. How many were queued: all, or none.
    pub(super) fn offer_all<'m>(
        &mut self,
        messages: impl Iterator<Item = ControlMessage<'m>>,
    ) -> usize {
        let idle = self.is_idle();
        self.full |= !idle;
        messages.take_while(|_| idle).map(|m| self.append(&m)).count()
    }

    /// Bytes that the system took, in all.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes back what was queued last, of which nothing was sent.
    pub(super) fn withdraw(&mut self) {
        self.unsent.clear();
        self.sent = 0;
    }

    /// Somebody waits until the system takes bytes.
    pub(super) fn await_space(&mut self) {
        self.full = true;
    }

    /// The bytes to send next, if any.
    #[inline]
    pub(super) fn transmit(&self) -> &[u8] {
        self.unsent.get(self.sent..).unwrap_or_default()
    }

    /// So many bytes of [`Self::transmit`] were sent, or why none can be. Whether to try on.
    pub(super) fn transmitted(
        &mut self,
        moved: std::result::Result<usize, Errno>,
        now: Instant,
    ) -> bool {
        let n = self.count(moved);
        if n != 0 {
            self.sent = self.sent.saturating_add(n);
            self.control.on_sent(now);
        }
        if self.sent >= self.unsent.len() {
            self.unsent.clear();
            self.unsent.shrink_to(KEPT_BYTES);
            self.sent = 0;
        } else if self.sent >= KEPT_BYTES && self.sent >= self.unsent.len() >> 1 {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
        n != 0
    }

    /// As [`Self::transmitted`], of bytes that were not queued: what is left of them is now.
    #[inline]
    pub(super) fn transmitted_of(
        &mut self,
        bytes: &[u8],
        moved: std::result::Result<usize, Errno>,
    ) {
        let n = self.count(moved);
        self.queue_bytes(bytes.get(n..).unwrap_or_default());
    }

    /// Bytes that the system took.
    #[inline]
    fn count(&mut self, moved: std::result::Result<usize, Errno>) -> usize {
        match moved {
            Ok(n) => {
                self.taken = self.taken.saturating_add(u64::try_from(n).unwrap_or(0));
                n
            }
            Err(Errno::AGAIN) => 0,
            // What the peer sent before it went can still be received.
            Err(e) => {
                self.cut.get_or_insert(e);
                self.unsent.clear();
                0
            }
        }
    }

    /// A message was handed over when the system had taken `before` bytes in all. If it took any of it, the message is on
    /// its way, and this returns the count at which the system has all of it; else nothing of it was sent, and its sender is
    /// to try again when there is space.
    #[inline]
    pub(super) fn sent_since(&mut self, before: u64, now: Instant) -> Option<u64> {
        if self.taken != before || self.cut.is_some() {
            self.control.on_sent(now);
            return Some(self.taken.saturating_add(u64::try_from(self.waiting()).unwrap_or(0)));
        }
        self.unsent.clear();
        self.unsent.shrink_to(KEPT_BYTES);
        self.full = true;
        None
    }
}

/// Whether the errno of a connection says that the peer ended it.
fn is_eof(e: Errno) -> bool {
    matches!(e, Errno::PIPE | Errno::CONNRESET)
}

/// Storage for a frame that does not fit into `capacity`, of which `bytes` are wanted.
fn more_storage(bytes: usize, capacity: usize) -> Vec<u8> {
    let most = capacity.saturating_mul(2);
    vec![0; bytes.min(most)]
}

#[cfg(test)]
mod tests;
