//! What the peer says on the control connection: received, and executed for its link.

use hmc_core::ctrl::framer::Next;
use hmc_core::ctrl::io::ControlEvent;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::time::Instant;
use hmc_core::wire::message::ControlMessage;
use rustix::io::Errno;

use super::CtrlState;
use crate::error::{Error, ErrorKind};
use crate::link::Link;
use crate::link::heard::Heard;
use crate::node::inbox::Message;

/// Receive calls of one turn, before others get theirs.
const BUDGET_READS: usize = 64;

impl CtrlState {
    /// Reads until the socket is empty, executes what came, sends what is to be answered.
    pub(crate) fn turn(&mut self, now: Instant, link: &Link, heard: &mut Heard) {
        let mut came = false;
        self.paused = self.paused && !link.inbox().admits(1, self.framer.held());
        heard.room = std::mem::take(&mut self.full);
        let reads = if self.paused { 0 } else { BUDGET_READS };
        for _ in 0..reads {
            // What was received before a pause comes first.
            self.digest(now, link, heard, came);
            if self.ended.is_some() || self.paused {
                break;
            }
            match self.fill(now) {
                Ok(drained) => {
                    came = true;
                    if drained {
                        self.digest(now, link, heard, true);
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::CONNRESET | Errno::PIPE) => self.hang_up(),
                Err(e) => {
                    let text = std::io::Error::from(e);
                    self.end(false, format!("its control connection failed: {text}"));
                }
            }
        }
        self.hung_up |= self.paused && self.socket.has_ended();
        self.flush(now);
        self.obey(now);
    }

    /// One receive call. Says whether the socket is now (very likely) empty.
    fn fill(&mut self, now: Instant) -> std::result::Result<bool, Errno> {
        let space = self.framer.space();
        let room = space.len();
        let n = self.socket.recv(space)?;
        if n == 0 {
            self.hang_up();
            return Ok(true);
        }
        self.framer.filled(n, now);
        Ok(n < room)
    }

    /// Consumes what was received. `came` says whether anything was just now: looking at what lies
    /// there already is no sign of life.
    fn digest(&mut self, now: Instant, link: &Link, heard: &mut Heard, came: bool) {
        while self.ended.is_none() {
            match self.framer.next(self.control.frame_limit()) {
                Ok(Next::Frame(header, payload)) => {
                    match self.control.receive(header, payload, now) {
                        Ok(event) => {
                            if let Some(event) = event {
                                let left = execute(event, link, heard);
                                if left.is_some_and(|(id, epoch)| !self.owed.add(id, epoch)) {
                                    self.end(false, "it revoked a window that it cannot have");
                                }
                            }
                        }
                        Err(v) => self.end(false, format!("it broke the protocol: {v}")),
                    }
                    self.obey(now);
                }
                Ok(Next::Need(_)) => {
                    if came {
                        let began = self.framer.began();
                        self.control.on_received(began, now);
                    }
                    return;
                }
                Ok(Next::Grow(bytes)) => {
                    // The frame's length was judged against its limit; storage grows by doubling,
                    // so never to more than twice what arrived.
                    let storage = more_storage(bytes, self.framer.capacity());
                    if self.framer.grow(storage).is_err() {
                        self.end(false, "a frame does not fit");
                    }
                    return;
                }
                Err(e) => {
                    let v = self.control.malformed(e);
                    self.obey(now);
                    self.end(false, format!("it broke the protocol: {v}"));
                }
            }
            // Look whether there is room for a message before one is taken out of the stream.
            if !link.inbox().admits(1, self.framer.held()) {
                self.paused = true;
                return;
            }
        }
    }

    /// Looks at the deadlines. One that would end the connection looks for bytes first: this end may be the late one.
    pub(crate) fn tick(&mut self, now: Instant, link: &Link, heard: &mut Heard) {
        if !self.paused && self.control.is_due_to_end(now) {
            self.turn(now, link, heard);
        }
        if now >= self.control.next_deadline() {
            // A full inbox is our own fault, not the peer's silence.
            if self.paused {
                self.control.on_received(None, now);
            }
            self.control.tick(now);
            self.obey(now);
        }
    }
}

/// Executes one message for a link. Gives a window of the peer that it is to be told we have left, if there is one.
fn execute(event: ControlEvent<'_>, link: &Link, heard: &mut Heard) -> Option<(WindowId, Epoch)> {
    match event {
        ControlEvent::Deliver(m) => return deliver(m, link, heard),
        ControlEvent::PeerBye => heard.bye = true,
        // Handshakes are over when a link exists, and the end is told by `Output::Close`.
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

fn deliver(m: ControlMessage<'_>, link: &Link, heard: &mut Heard) -> Option<(WindowId, Epoch)> {
    let message = match m {
        ControlMessage::Tag(tag) => Message::Tag(tag),
        ControlMessage::Int32(n) => Message::Int(n),
        ControlMessage::Struct(bytes) => Message::Struct(bytes.to_vec()),
        ControlMessage::Notify { tag, .. } => Message::Notify(tag),
        ControlMessage::Rndv(note) => {
            if !link.relay_hear(note) {
                let what = "more notes of messages than may be under way";
                heard.failed = Some(Error::new(ErrorKind::Protocol, what));
            }
            heard.relay = true;
            return None;
        }
        ControlMessage::Advert(advert) => {
            link.data_in_turn().learn_remote(&advert);
            heard.adverts = true;
            return None;
        }
        ControlMessage::Revoke { window, epoch } => {
            heard.revoked = true;
            // What still runs says it at its end, where the word is a fence.
            let left = link.data_in_turn().forget_remote(window, epoch);
            return left.then_some((window, epoch));
        }
        ControlMessage::Revoked { window, epoch } => {
            link.data_in_turn().port().receive_release(window, epoch);
            heard.left = true;
            return None;
        }
        ControlMessage::Endpoint(blob) => {
            heard.adverts = true;
            heard.failed = link.receive_note(&blob).err();
            return None;
        }
        // The state table delivers nothing else.
        _ => return None,
    };
    link.deliver(message);
    heard.messages = true;
    None
}

/// Storage for a frame that does not fit into `capacity`, of which `bytes` are wanted.
fn more_storage(bytes: usize, capacity: usize) -> Vec<u8> {
    let most = capacity.saturating_mul(2);
    vec![0; bytes.min(most)]
}

#[cfg(test)]
mod tests {
    use super::more_storage;

    #[test]
    fn storage_grows_by_doubling_at_the_most() {
        for (bytes, capacity, len) in [(10, 8, 10), (16, 8, 16), (17, 8, 16), (1 << 20, 512, 1024)]
        {
            assert_eq!(more_storage(bytes, capacity), vec![0; len], "{bytes} of {capacity}");
        }
    }
}
