//! Receives messages of the peer on the control connection, and executes them for the link.

use hmc_core::ctrl::io::ControlEvent;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::time::Instant;
use hmc_core::wire::advert::ENDPOINT_CTRL_RING;
use hmc_core::wire::message::ControlMessage;
use rustix::io::Errno;

use super::CtrlState;
use crate::base::error::{Error, ErrorKind};
use crate::link::Link;
use crate::link::received::Received;
use crate::link::rndv::note::Note;
use crate::node::inbox::Message;

/// Receive calls of one poll, before others get theirs.
const BUDGET_READS: usize = 64;

impl CtrlState {
    /// Reads until the socket is empty, executes what came, sends what is to be answered.
    pub(crate) fn poll(&mut self, now: Instant, link: &Link, received: &mut Received) {
        received.space = self.machine.begin_poll();
        if !self.claimed || link.is_closing() {
            self.rings.look();
        }
        if self.claimed {
            self.rings.awake();
        }
        if self.machine.is_paused() {
            self.machine.pause(!link.inbox().admits(1, self.machine.held()));
        }
        for _ in 0..BUDGET_READS {
            // What was received before a pause comes first.
            self.execute_received(now, link, received);
            if !self.machine.reads() {
                break;
            }
            let filled = self.fill(now);
            received.any |= filled.is_some();
            match filled {
                Some(false) => {}
                Some(true) => {
                    self.execute_received(now, link, received);
                    break;
                }
                None => break,
            }
        }
        if self.machine.is_paused() {
            let has_ended = self.rings.receives() && !self.takes_wakes();
            if has_ended || self.socket.has_ended() {
                self.rings.look();
                self.machine.note_hang_up();
            }
        }
        if self.rings.tell_space(&self.socket) && self.machine.is_idle() {
            // No ping asked for it: it only wakes the peer, which looks for space then. So does what is queued already.
            let _ = self.machine.offer(&ControlMessage::Pong(0));
        }
        self.flush(now);
        self.send_answers(now);
        self.rings.wake_late_peer(&self.socket, now);
    }

    /// Takes the peer's wake bytes. Whether the connection goes on.
    fn takes_wakes(&mut self) -> bool {
        self.rings.take_wakes(&self.socket).unwrap_or(false)
    }

    /// One receive call. Says whether the socket is now (very likely) empty, if something came.
    fn fill(&mut self, now: Instant) -> Option<bool> {
        let space = self.machine.space();
        let capacity = space.len();
        match self.rings.recv(&self.socket, space) {
            Ok(n) => {
                self.machine.received(n, now);
                return Some(n < capacity);
            }
            Err(Errno::AGAIN) => {}
            Err(e) => self.machine.receive_failed(e),
        }
        None
    }

    /// Executes what was received, as long as the inbox has space.
    fn execute_received(&mut self, now: Instant, link: &Link, received: &mut Received) {
        while self.machine.reads() && self.machine.next(now, |event| execute(event, link, received))
        {
            if let Some(ring) = received.ring.take()
                && !self.receive_by(ring)
            {
                self.machine.receive_failed(Errno::PROTO);
            }
            self.send_answers(now);
            // Look whether there is space for a message before one is taken out of the stream.
            if !link.inbox().admits(1, self.machine.held()) {
                self.machine.pause(true);
            }
        }
    }

    /// Looks at the deadlines. One that would end the connection looks for bytes first: this end may be the late one.
    pub(crate) fn tick(&mut self, now: Instant, link: &Link, received: &mut Received) {
        if self.machine.must_look(now) {
            self.poll(now, link, received);
        }
        if self.machine.tick(now) {
            self.send_answers(now);
        }
    }
}

/// Executes one message for a link. Returns a window of the peer that needs a release ack, if there is one.
fn execute(
    event: ControlEvent<'_>,
    link: &Link,
    received: &mut Received,
) -> Option<(WindowId, Epoch)> {
    match event {
        ControlEvent::Deliver(m) => return deliver(m, link, received),
        ControlEvent::PeerBye => received.bye = true,
        // Handshakes are over when a link exists, and `Output::Close` reports the end.
        ControlEvent::HelloReceived(_)
        | ControlEvent::CxxHello { .. }
        | ControlEvent::Challenged(_)
        | ControlEvent::Proven
        | ControlEvent::AttachReceived { .. }
        | ControlEvent::Connected(_)
        | ControlEvent::Attached
        | ControlEvent::Refused(_)
        | ControlEvent::Finished => {}
    }
    None
}

/// A note of a message: nothing but its link's rendezvous state looks at it. No window needs a release ack.
fn receive_note(note: Note, link: &Link, received: &mut Received) -> Option<(WindowId, Epoch)> {
    if !link.rndv_receive(note) {
        let what = "more notes of messages than may be under way";
        received.failed = Some(Error::new(ErrorKind::Protocol, what));
    }
    received.rndv = true;
    None
}

fn deliver(
    m: ControlMessage<'_>,
    link: &Link,
    received: &mut Received,
) -> Option<(WindowId, Epoch)> {
    let message = match m {
        ControlMessage::Tag(tag) => Message::Tag(tag),
        ControlMessage::Int32(n) => Message::Int(n),
        ControlMessage::Struct(bytes) => Message::bytes(bytes.to_vec()),
        ControlMessage::Notify { tag, .. } => Message::Notify(tag),
        ControlMessage::Rndv(note) => return receive_note(Note::Step(note), link, received),
        ControlMessage::Eager { id, bytes } => {
            return receive_note(Note::Eager { id, bytes: bytes.into() }, link, received);
        }
        ControlMessage::Advert(advert) => {
            link.data_fairly().add_peer_window(&advert);
            received.adverts = true;
            return None;
        }
        ControlMessage::Revoke { window, epoch } => {
            received.revoked = true;
            // What still runs sends it at its end, where the ack is a fence.
            let left = link.data_fairly().remove_peer_window(window, epoch);
            return left.then_some((window, epoch));
        }
        ControlMessage::Revoked { window, epoch } => {
            link.data_fairly().plane().receive_release(window, epoch);
            received.left = true;
            return None;
        }
        ControlMessage::Endpoint(blob) => {
            received.adverts = true;
            if blob.kind == ENDPOINT_CTRL_RING {
                received.ring = link.data_fairly().plane().take_own_ring();
                if received.ring.is_none() {
                    let what =
                        "its control frames are to come through a ring that it does not have";
                    received.failed = Some(Error::new(ErrorKind::Protocol, what));
                }
                return None;
            }
            received.failed = link.receive_note(&blob).err();
            return None;
        }
        // The state table delivers nothing else.
        _ => return None,
    };
    link.deliver(message);
    received.messages = true;
    None
}
