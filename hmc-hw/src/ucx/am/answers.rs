//! What a door sends: acknowledgements, and the bytes that the peer gets.

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::region::{Epoch, WindowId};
use hmc_core::span::Span;
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

/// Frames in one message of answers.
const MAX_FRAMES: usize = 16;

/// A get of the peer's that is being answered.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) seq: u32,
    pub(super) window: WindowId,
    pub(super) epoch: Epoch,
    pub(super) memory: Arc<Memory>,
    /// Where the bytes lie in that memory that were not sent yet.
    pub(super) rest: Span,
    pub(super) total: u64,
}

#[derive(Debug)]
pub(super) struct Answers {
    pub(super) reply_path: Option<AmPath>,
    words: VecDeque<DataFrame>,
    readings: VecDeque<Reading>,
    messages: Box<[AmMessage]>,
    most: usize,
}

impl Answers {
    /// Messages in flight at a time.
    pub(super) const SENDS: u32 = 8;

    pub(super) fn new(most: usize) -> Self {
        Self {
            reply_path: None,
            words: VecDeque::with_capacity(most),
            readings: VecDeque::with_capacity(most),
            messages: (0..Self::SENDS).map(|_| AmMessage::new()).collect(),
            most,
        }
    }

    /// Queues an answer. `false`: the peer asked for more than it may.
    pub(super) fn say(&mut self, frame: DataFrame) -> bool {
        let room = self.words.len() < self.most;
        if room {
            self.words.push_back(frame);
        }
        room
    }

    /// Queues a get. `false`: the peer asked for more than it may.
    pub(super) fn read(&mut self, reading: Reading) -> bool {
        let room = self.readings.len() < self.most;
        if room {
            self.readings.push_back(reading);
        }
        room
    }

    /// Whether there is something to send.
    pub(super) fn is_wanted(&self) -> bool {
        !self.words.is_empty() || !self.readings.is_empty()
    }

    /// Gets of a window that is closed end with a word of it.
    pub(super) fn refuse(&mut self, id: WindowId) {
        let (words, most) = (&mut self.words, self.most);
        self.readings.retain(|r| {
            let goes = r.window == id;
            if goes && words.len() < most {
                let why = Failure::Window(WindowFault::Revoked);
                words.push_back(DataFrame::nack(r.seq, why));
            }
            !goes
        });
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.messages.iter().any(AmMessage::is_busy)
    }

    pub(super) fn forget(&mut self) {
        self.reply_path = None;
        self.words.clear();
        self.readings.clear();
    }

    /// Called when UCX has completed a message.
    pub(super) fn completed(&mut self, number: u32) {
        let place = usize::try_from(number).ok().and_then(|at| self.messages.get_mut(at));
        if let Some(message) = place {
            message.completed();
        }
    }

    /// Sends as much as may be under way. Whether there was anything.
    pub(super) fn send(
        &mut self,
        guard: &LockedWorker<'_>,
        told_to: &CompletionQueue,
    ) -> Result<bool, Status> {
        let Some(reply_path) = self.reply_path else { return Ok(false) };
        let mut any = false;
        while self.is_wanted() {
            let Some(at) = self.messages.iter().position(|p| !p.is_busy()) else { break };
            let Some(message) = self.messages.get_mut(at) else { break };
            let frame = if let Some(word) = self.words.pop_front() {
                message.clear();
                for _ in 1..MAX_FRAMES {
                    let Some(word) = self.words.pop_front() else { break };
                    message.add(&word);
                }
                word
            } else {
                let Some(reading) = self.readings.front_mut() else { break };
                let frame = reading.next(message);
                if reading.rest.is_empty() {
                    self.readings.pop_front();
                }
                // The range was proven to lie within that memory when it was asked for.
                let Some(frame) = frame else { continue };
                frame
            };
            any = true;
            let record = u32::try_from(at).unwrap_or(0);
            message.send(guard, reply_path, &frame, params_with_callback(told_to, record))?;
        }
        Ok(any)
    }
}

impl Reading {
    /// Loads the next fragment into a message, and returns its frame.
    fn next(&mut self, message: &mut AmMessage) -> Option<DataFrame> {
        let (fragment, rest) = self.rest.take(FRAGMENT);
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
