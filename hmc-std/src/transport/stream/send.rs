//! Frames out: composed of replies and requests, and sent as far as the socket accepts them.

use hmc_core::limits::MAX_STREAM_FRAME_BYTES;
use hmc_core::window::WindowFault;
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::work::{CompleteWhen, Failure, Opcode};
use rustix::io::Errno;

use super::requests::Phase;
use super::tx::{Body, Owner, SMALL_BYTES};
use super::{DataCloseReason, StreamDataPlane};
use crate::transport::generation_tables::When;
use hmc_core::transport::DataPlane as _;
use hmc_mem::os::io::{MAX_PARTS, SendPart};

/// Source of the rest of a frame whose memory was taken back.
static ZEROS: [u8; 4096] = [0; 4096];

impl StreamDataPlane {
    pub(super) fn has_output(&mut self) -> bool {
        !self.tx.is_idle()
            || (!self.tx.held && !self.tx.offers.is_empty())
            || self.target.has_output()
            || self.requests.has_unsent()
    }

    /// Sends until nothing is left or the socket is full. Never blocks.
    pub(crate) fn send_queued(&mut self) {
        while self.down.is_none() {
            if self.tx.is_idle() {
                if !self.send_offers() {
                    return;
                }
                self.compose();
                if self.tx.is_idle() {
                    return;
                }
            }
            match self.send_some() {
                Ok(n) => self.note_sent(n),
                Err(Errno::AGAIN) => return,
                Err(e) => return self.fail(e),
            }
        }
    }

    /// One send call, of what is staged and the payload that follows it.
    fn send_some(&self) -> Result<usize, Errno> {
        let stage = self.tx.stage.get(self.tx.sent..).unwrap_or_default();
        if self.tx.bodies.is_empty() {
            return self.socket.send(stage);
        }
        let mut parts: heapless::Vec<SendPart<'_>, MAX_PARTS> = heapless::Vec::new();
        let mut has_space = parts.push(SendPart::Private(stage)).is_ok();
        for Body { region, range, .. } in &self.tx.bodies {
            let (part, whole) = match region {
                Some(region) => (SendPart::Shared(region.bytes(), *range), true),
                None => {
                    let len = usize::try_from(range.len()).unwrap_or(usize::MAX);
                    let zeros = ZEROS.get(..len.min(ZEROS.len())).unwrap_or_default();
                    (SendPart::Private(zeros), zeros.len() == len)
                }
            };
            has_space = has_space && parts.push(part).is_ok();
            if !has_space || !whole {
                break;
            }
        }
        self.socket.send_parts(&parts)
    }

    /// Tries again to send descriptors that the kernel refused. To be called periodically: no socket signals when the kernel accepts them.
    pub(crate) fn retry_offers(&mut self) {
        self.tx.held = false;
    }

    /// Sends the descriptors that wait. Returns false when the socket is full or down.
    fn send_offers(&mut self) -> bool {
        while !self.tx.held
            && let Some(offer) = self.tx.offers.front()
        {
            // A frame is far smaller than a socket buffer, and nothing else is in it: unix(7)
            // streams take such a message whole or not at all.
            match self.socket.send_fd(&offer.frame.emit(), &offer.fd) {
                Ok(_) => {
                    self.tx.offers.pop_front();
                }
                Err(Errno::AGAIN) => return false,
                // unix(7): more descriptors of this user are on their way than this process may have open. All else goes on.
                Err(Errno::TOOMANYREFS) => self.tx.held = true,
                Err(e) => {
                    self.close(DataCloseReason::System(e.raw_os_error()));
                    return false;
                }
            }
        }
        true
    }

    fn note_sent(&mut self, n: usize) {
        let staged = self.tx.stage.len().saturating_sub(self.tx.sent);
        let from_stage = n.min(staged);
        self.tx.sent = self.tx.sent.saturating_add(from_stage);
        if self.tx.sent == self.tx.stage.len() {
            self.tx.stage.clear();
            self.tx.sent = 0;
        }
        let mut left = u64::try_from(n.saturating_sub(from_stage)).unwrap_or(0);
        self.bytes_out = self.bytes_out.saturating_add(left);
        while self.tx.stage.is_empty()
            && let Some(body) = self.tx.bodies.front_mut()
        {
            let (sent, rest) = body.range.split_at_most(left);
            body.range = rest;
            left = left.saturating_sub(sent.len());
            if !rest.is_empty() {
                return;
            }
            let owner = body.owner;
            self.tx.bodies.pop_front();
            if let Owner::Request(seq) = owner {
                self.note_payload_gone(seq);
            }
        }
    }

    /// The payload of a put has left local memory.
    fn note_payload_gone(&mut self, seq: u32) {
        let Some(r) = self.requests.get_mut(seq) else {
            return;
        };
        if r.phase == Phase::Sent && r.work.when == CompleteWhen::Local {
            let len = r.report;
            self.answer_early(seq, Ok(len));
        }
    }

    /// Fills the staging buffer with the next frames: answers first, then replies and requests in
    /// turn.
    fn compose(&mut self) {
        while self.tx.has_space() {
            if let Some(frame) = self.target.next_answer() {
                self.tx.head(&frame);
                continue;
            }
            self.tx.reply_turn = !self.tx.reply_turn;
            let mut composed = self.tx.reply_turn && self.compose_replies();
            composed = composed || self.compose_requests();
            if !composed && !self.compose_replies() {
                return;
            }
        }
    }

    pub(super) fn compose_reply(&mut self) -> bool {
        let Some(reply) = self.target.front_reply() else {
            return false;
        };
        // The last word on generations is a frame of its own, after all bytes were read.
        let has_word = reply.request.is_none() || reply.source.span.is_empty();
        let when = if reply.source.span.is_empty() { When::Read } else { When::Before };
        if !self.keeps_reply(when, &reply) {
            return true;
        }
        let Some(region) = self.regions.resolve(reply.source) else {
            // Cannot happen: the region was resolved when the request was accepted and the window
            // keeps it. Answer rather than assume.
            self.target.drop_reply(Failure::Window(WindowFault::Revoked));
            return true;
        };
        let (part, rest) = reply.source.span.split_at_most(u64::from(MAX_STREAM_FRAME_BYTES));
        let mut frame = DataFrame::new(DataKind::ReadData, reply.seq);
        frame.len = u32::try_from(part.len()).unwrap_or(0);
        frame.total = reply.total;
        frame.offset = reply.total.saturating_sub(reply.source.span.len());
        // Payload that is sent in place may be taken back half-way (a revocation), so that the last
        // word, "complete", is a frame of its own after it.
        if rest.is_empty() && part.len() <= SMALL_BYTES && has_word {
            frame.flags |= DataFlags::LAST;
        }
        self.tx.head(&frame);
        let owner = Owner::Reply { window: reply.window, epoch: reply.epoch };
        if self.tx.payload(region, part, owner) {
            self.bytes_out = self.bytes_out.saturating_add(part.len());
        }
        self.target.advance_reply(rest, frame.flags.contains(DataFlags::LAST));
        true
    }

    pub(super) fn compose_request(&mut self) -> bool {
        let Some((seq, r)) = self.requests.next_to_send() else {
            return false;
        };
        let work = r.work;
        let Some(region) = self.regions.resolve(work.local) else {
            self.answer(seq, Err(Failure::UnknownRegion));
            return true;
        };
        let kind = match (work.opcode, r.by_ref) {
            (Opcode::Get, false) => DataKind::Read,
            (Opcode::Get, true) => DataKind::ReadRef,
            (Opcode::Put | Opcode::PutNotify { .. }, false) => DataKind::Write,
            (Opcode::Put | Opcode::PutNotify { .. }, true) => DataKind::WriteRef,
        };
        let mut frame = DataFrame::new(kind, seq);
        frame.window = work.remote.window;
        frame.epoch = work.remote.epoch;
        frame.offset = work.remote.span.offset();
        frame.total = work.remote.span.len();
        if let Some(generation) = work.remote.expected {
            frame.expect(generation);
        }
        if kind != DataKind::Write {
            if let Opcode::PutNotify { tag } = work.opcode {
                frame.flags |= DataFlags::NOTIFY | DataFlags::LAST;
                frame.tag = tag;
            }
            if r.by_ref {
                let start = work.local.span.pointer(region.bytes().as_ptr());
                frame.addr = u64::try_from(start.expose_provenance()).unwrap_or(0);
            }
            if kind == DataKind::WriteRef {
                frame.flags |= DataFlags::LAST;
            }
            r.phase = Phase::Sent;
            self.tx.head(&frame);
            return true;
        }
        let Some((_, unsent)) = work.local.span.split_at(r.moved) else {
            self.answer(seq, Err(Failure::UnknownRegion));
            return true;
        };
        let (part, rest) = unsent.split_at_most(u64::from(MAX_STREAM_FRAME_BYTES));
        frame.len = u32::try_from(part.len()).unwrap_or(0);
        frame.offset = work.remote.span.split_at_most(r.moved).1.offset();
        r.moved = r.moved.saturating_add(part.len());
        if rest.is_empty() {
            frame.flags |= DataFlags::LAST;
            if let Opcode::PutNotify { tag } = work.opcode {
                frame.flags |= DataFlags::NOTIFY;
                frame.tag = tag;
            }
            r.phase = Phase::Sent;
        } else {
            r.phase = Phase::Sending;
        }
        self.tx.head(&frame);
        if self.tx.payload(region, part, Owner::Request(seq)) {
            self.bytes_out = self.bytes_out.saturating_add(part.len());
            self.note_payload_gone(seq);
        }
        true
    }
}
