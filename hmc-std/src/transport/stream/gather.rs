//! Payloads that are sent by one call: the headers of several frames, then their payloads from where they lie.

use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::work::Opcode;

use super::StreamDataPlane;
use super::requests::{Phase, Request};
use super::target::GetReply;
use super::tx::{Owner, SMALL_BYTES};

/// Payload up to this size is sent together with others: longer ones cost no call each to speak of.
const MAX_BYTES: u64 = 256 << 10;

/// Payload of one call: what waits behind it, and what a cancelled put keeps, waits for no more.
const MAX_GATHER_BYTES: u64 = 1 << 20;

/// Whether payload of that length is sent from where it lies, together with others.
fn is_gathered(len: u64) -> bool {
    len > SMALL_BYTES && len <= MAX_BYTES
}

impl Request {
    /// Whether it is a put whose frame can be one of several: one that expects no generation.
    fn can_be_gathered(&self) -> bool {
        let is_put =
            self.work.opcode == Opcode::Put && self.work.remote.expected.is_none() && !self.by_ref;
        is_put && self.phase == Phase::Queued && is_gathered(self.work.local.span.len())
    }
}

impl GetReply {
    /// Whether nothing of it was sent, and all of it can be a frame among several: no generation is compared before it.
    fn can_be_gathered(&self) -> bool {
        self.request.is_none() && self.total == self.source.span.len() && is_gathered(self.total)
    }
}

impl StreamDataPlane {
    /// Stages the next request, or as many puts as go together.
    pub(super) fn compose_requests(&mut self) -> bool {
        let most = if self.gathers { self.tx.space_to_gather() } else { 0 };
        let mut bytes = 0;
        let fits = |r: &&Request| {
            bytes = r.work.local.span.len().saturating_add(bytes);
            let is_short = bytes <= MAX_GATHER_BYTES;
            is_short && r.can_be_gathered() && self.regions.resolve(r.work.local).is_some()
        };
        let count = self.requests.unsent().take(most).take_while(fits).count();
        if count < 2 {
            return self.compose_request();
        }
        self.head_of(count);
        for _ in 0..count {
            let Some((seq, r)) = self.requests.next_to_send() else { break };
            let work = r.work;
            let span = work.local.span;
            (r.phase, r.moved) = (Phase::Sent, span.len());
            let mut frame = DataFrame::new(DataKind::Write, seq);
            (frame.window, frame.epoch) = (work.remote.window, work.remote.epoch);
            (frame.offset, frame.total) = (work.remote.span.offset(), span.len());
            frame.len = u32::try_from(span.len()).unwrap_or(0);
            frame.flags = DataFlags::LAST;
            self.tx.head(&frame);
            self.tx.body(self.regions.resolve(work.local), span, Owner::Request(seq));
        }
        true
    }

    /// Stages the next reply, or as many as go together.
    pub(super) fn compose_replies(&mut self) -> bool {
        let most = if self.gathers { self.tx.space_to_gather() } else { 0 };
        let replies = &self.target.replies;
        let mut bytes = 0;
        let fits = |r: &&GetReply| {
            bytes = r.total.saturating_add(bytes);
            bytes <= MAX_GATHER_BYTES && r.can_be_gathered()
        };
        let count = replies.iter().take(most).take_while(fits).count();
        if count < 2 {
            return self.compose_reply();
        }
        self.head_of(count);
        for reply in self.target.replies.iter_mut().take(count) {
            let mut frame = DataFrame::new(DataKind::ReadData, reply.seq);
            (frame.len, frame.total) = (u32::try_from(reply.total).unwrap_or(0), reply.total);
            self.tx.head(&frame);
            let owner = Owner::Reply { window: reply.window, epoch: reply.epoch };
            self.tx.body(self.regions.resolve(reply.source), reply.source.span, owner);
            // What says that it is complete is a frame of its own, as the payload may be taken back half-way.
            reply.source.span = reply.source.span.split_at_most(reply.total).1;
        }
        true
    }

    fn head_of(&mut self, count: usize) {
        self.tx.head(&DataFrame::gather(u64::try_from(count).unwrap_or(0)));
    }
}
