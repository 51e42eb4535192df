//! Replies of an AM target: acknowledgements, and the bytes of the peer's gets.

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::range::ByteRange;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::window::WindowFault;
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::work::Failure;

use super::message::{AmMessage, FRAGMENT};
use super::path::AmPath;
use crate::ucx::cq::CompletionQueue;
use crate::ucx::endpoint::params_with_callback;
use crate::ucx::memory::Memory;
use crate::ucx::result::Status;
use crate::ucx::ucp_worker::LockedWorker;

/// Acknowledgements in one message.
const MAX_ACKS: usize = 16;

/// A get of the peer in progress.
#[derive(Debug)]
pub(super) struct GetReply {
    pub(super) seq: u32,
    pub(super) window: WindowId,
    pub(super) epoch: Epoch,
    pub(super) memory: Arc<Memory>,
    /// The range of that memory that was not sent yet.
    pub(super) rest: ByteRange,
    pub(super) total: u64,
}

#[derive(Debug)]
pub(super) struct AmReplies {
    pub(super) reply_path: Option<AmPath>,
    acks: VecDeque<DataFrame>,
    gets: VecDeque<GetReply>,
    messages: Box<[AmMessage]>,
    limit: usize,
}

impl AmReplies {
    /// Messages in flight at a time.
    pub(super) const SENDS: u32 = 8;

    pub(super) fn new(limit: usize) -> Self {
        Self {
            reply_path: None,
            acks: VecDeque::with_capacity(limit),
            gets: VecDeque::with_capacity(limit),
            messages: (0..Self::SENDS).map(|_| AmMessage::new()).collect(),
            limit,
        }
    }

    /// Queues an acknowledgement or a refusal. Returns `false` if the peer has more requests in flight than it may.
    pub(super) fn queue_ack(&mut self, frame: DataFrame) -> bool {
        let accepted = self.acks.len() < self.limit;
        if accepted {
            self.acks.push_back(frame);
        }
        accepted
    }

    /// Queues a get. Returns `false` if the peer has more requests in flight than it may.
    pub(super) fn queue_get(&mut self, get: GetReply) -> bool {
        let accepted = self.gets.len() < self.limit;
        if accepted {
            self.gets.push_back(get);
        }
        accepted
    }

    /// Returns `true` if there is something to send.
    pub(super) fn has_queued(&self) -> bool {
        !self.acks.is_empty() || !self.gets.is_empty()
    }

    /// Refuses queued gets of a closed window.
    pub(super) fn reject_gets(&mut self, id: WindowId) {
        let (acks, limit) = (&mut self.acks, self.limit);
        self.gets.retain(|r| {
            let goes = r.window == id;
            if goes && acks.len() < limit {
                let why = Failure::Window(WindowFault::Revoked);
                acks.push_back(DataFrame::nack(r.seq, why));
            }
            !goes
        });
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.messages.iter().any(AmMessage::is_busy)
    }

    pub(super) fn clear(&mut self) {
        self.reply_path = None;
        self.acks.clear();
        self.gets.clear();
    }

    /// Called when UCX has completed a message.
    pub(super) fn completed(&mut self, number: u32) {
        let slot = usize::try_from(number).ok().and_then(|at| self.messages.get_mut(at));
        if let Some(message) = slot {
            message.completed();
        }
    }

    /// Sends as many messages as may be in flight. Returns `true` if there was anything to send.
    pub(super) fn send(
        &mut self,
        guard: &LockedWorker<'_>,
        queue: &CompletionQueue,
    ) -> Result<bool, Status> {
        let Some(reply_path) = self.reply_path else { return Ok(false) };
        let mut any = false;
        while self.has_queued() {
            let Some(at) = self.messages.iter().position(|p| !p.is_busy()) else { break };
            let Some(message) = self.messages.get_mut(at) else { break };
            let frame = if let Some(ack) = self.acks.pop_front() {
                message.clear();
                for _ in 1..MAX_ACKS {
                    let Some(ack) = self.acks.pop_front() else { break };
                    message.add(&ack);
                }
                ack
            } else {
                let Some(get) = self.gets.front_mut() else { break };
                let frame = get.next(message);
                if get.rest.is_empty() {
                    self.gets.pop_front();
                }
                // The range was checked against that memory when the get was queued.
                let Some(frame) = frame else { continue };
                frame
            };
            any = true;
            let record = u32::try_from(at).unwrap_or(0);
            message.send(guard, reply_path, &frame, params_with_callback(queue, record))?;
        }
        Ok(any)
    }
}

impl GetReply {
    /// Loads the next fragment into a message, and returns its frame.
    fn next(&mut self, message: &mut AmMessage) -> Option<DataFrame> {
        let (fragment, rest) = self.rest.split_at_most(FRAGMENT);
        let mut frame = DataFrame::new(DataKind::ReadData, self.seq);
        (frame.window, frame.epoch) = (self.window, self.epoch);
        (frame.offset, frame.total) = (self.total.saturating_sub(self.rest.len()), self.total);
        frame.len = u32::try_from(fragment.len()).unwrap_or(0);
        self.rest = rest;
        if rest.is_empty() {
            frame.flags = DataFlags::LAST;
        }
        let bytes = self.memory.view(fragment)?;
        message.load(&bytes, bytes.extent().whole())?;
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use hmc_core::wire::data::DataFrame;

    use super::AmReplies;

    #[test]
    fn no_more_answers_wait_than_were_agreed() {
        let mut replies = AmReplies::new(2);
        assert!(!replies.has_queued() && replies.is_idle());
        for (seq, space) in [(1, true), (2, true), (3, false)] {
            assert_eq!(replies.queue_ack(DataFrame::ack(seq, 1)), space, "{seq}");
            assert!(replies.has_queued());
        }
        replies.clear();
        assert!(!replies.has_queued());
        assert!(replies.queue_ack(DataFrame::ack(4, 1)));
    }
}
