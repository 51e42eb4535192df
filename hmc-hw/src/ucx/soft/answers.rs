//! What a door sends: acknowledgements, and the bytes that the peer gets.

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::region::{Epoch, WindowId};
use hmc_core::span::Span;
use hmc_core::window::WindowFault;
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::work::Failure;

use super::parcel::{PIECE, Parcel};
use super::way::Way;
use crate::ucx::cq::CompletionQueue;
use crate::ucx::endpoint::params_with_callback;
use crate::ucx::memory::Memory;
use crate::ucx::result::Status;
use crate::ucx::ucp_worker::LockedWorker;

/// Frames in one message of answers.
const TOGETHER: usize = 16;

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
    pub(super) way: Option<Way>,
    words: VecDeque<DataFrame>,
    readings: VecDeque<Reading>,
    parcels: Box<[Parcel]>,
    most: usize,
}

impl Answers {
    /// Messages under way at a time.
    pub(super) const SENDS: u32 = 8;

    pub(super) fn new(most: usize) -> Self {
        Self {
            way: None,
            words: VecDeque::with_capacity(most),
            readings: VecDeque::with_capacity(most),
            parcels: (0..Self::SENDS).map(|_| Parcel::new()).collect(),
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
        !self.parcels.iter().any(Parcel::is_busy)
    }

    pub(super) fn forget(&mut self) {
        self.way = None;
        self.words.clear();
        self.readings.clear();
    }

    /// UCX gave a message back.
    pub(super) fn returned(&mut self, number: u32) {
        let place = usize::try_from(number).ok().and_then(|at| self.parcels.get_mut(at));
        if let Some(parcel) = place {
            parcel.returned();
        }
    }

    /// Sends as much as may be under way. Whether there was anything.
    pub(super) fn send(
        &mut self,
        guard: &LockedWorker<'_>,
        told_to: &CompletionQueue,
    ) -> Result<bool, Status> {
        let Some(way) = self.way else { return Ok(false) };
        let mut any = false;
        while self.is_wanted() {
            let Some(at) = self.parcels.iter().position(|p| !p.is_busy()) else { break };
            let Some(parcel) = self.parcels.get_mut(at) else { break };
            let frame = if let Some(word) = self.words.pop_front() {
                parcel.clear();
                for _ in 1..TOGETHER {
                    let Some(word) = self.words.pop_front() else { break };
                    parcel.add(&word);
                }
                word
            } else {
                let Some(reading) = self.readings.front_mut() else { break };
                let frame = reading.next(parcel);
                if reading.rest.is_empty() {
                    self.readings.pop_front();
                }
                // The range was proven to lie within that memory when it was asked for.
                let Some(frame) = frame else { continue };
                frame
            };
            any = true;
            let record = u32::try_from(at).unwrap_or(0);
            parcel.send(guard, way, &frame, params_with_callback(told_to, record))?;
        }
        Ok(any)
    }
}

impl Reading {
    /// Puts the next piece into a parcel, and says what it is.
    fn next(&mut self, parcel: &mut Parcel) -> Option<DataFrame> {
        let (piece, rest) = self.rest.take(PIECE);
        let mut frame = DataFrame::new(DataKind::ReadData, self.seq);
        (frame.window, frame.epoch) = (self.window, self.epoch);
        (frame.offset, frame.total) = (self.total.saturating_sub(self.rest.len()), self.total);
        frame.len = u32::try_from(piece.len()).unwrap_or(0);
        self.rest = rest;
        if rest.is_empty() {
            frame.flags = DataFlags::LAST;
        }
        let bytes = self.memory.view(piece)?;
        parcel.load(&bytes, bytes.extent().whole())?;
        Some(frame)
    }
}
