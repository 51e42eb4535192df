//! What a door sends: acknowledgements, and the bytes that the peer gets.

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::region::{Epoch, WindowId};
use hmc_core::window::WindowFault;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};
use hmc_core::work::Failure;

use super::{HEAD_BYTES, PIECE, Way, head, send};
use crate::ucx::board::Board;
use crate::ucx::endpoint::told;
use crate::ucx::memory::Memory;
use crate::ucx::result::{Answer, Status};
use crate::ucx::worker::Crank;

/// Frames in one message of answers.
const TOGETHER: usize = 16;

/// A get of the peer's that is being answered.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) seq: u32,
    pub(super) window: WindowId,
    pub(super) epoch: Epoch,
    pub(super) memory: Arc<Memory>,
    /// Where its bytes begin within that memory.
    pub(super) start: u64,
    pub(super) total: u64,
    pub(super) sent: u64,
}

/// A message that may be under way.
#[derive(Debug)]
struct Send {
    head: Box<[u8; HEAD_BYTES]>,
    more: Box<[u8; (TOGETHER - 1) * DATA_FRAME_BYTES]>,
    busy: bool,
    /// Whose bytes it sends.
    keeps: Option<(WindowId, Arc<Memory>)>,
}

#[derive(Debug)]
pub(super) struct Answers {
    pub(super) way: Option<Way>,
    words: VecDeque<DataFrame>,
    readings: VecDeque<Reading>,
    sends: Box<[Send]>,
    most: usize,
}

impl Answers {
    /// Messages under way at a time.
    pub(super) const SENDS: u32 = 16;

    pub(super) fn new(most: usize) -> Self {
        let send = || Send {
            head: Box::new([0; HEAD_BYTES]),
            more: Box::new([0; (TOGETHER - 1) * DATA_FRAME_BYTES]),
            busy: false,
            keeps: None,
        };
        Self {
            way: None,
            words: VecDeque::with_capacity(most),
            readings: VecDeque::with_capacity(most),
            sends: (0..Self::SENDS).map(|_| send()).collect(),
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

    pub(super) fn uses(&self, id: WindowId) -> bool {
        self.sends.iter().any(|s| s.keeps.as_ref().is_some_and(|(w, _)| *w == id))
    }

    pub(super) fn is_quiet(&self) -> bool {
        !self.sends.iter().any(|s| s.busy)
    }

    pub(super) fn forget(&mut self) {
        self.way = None;
        self.words.clear();
        self.readings.clear();
    }

    /// UCX gave a message back.
    pub(super) fn returned(&mut self, send: u32) {
        let place = usize::try_from(send).ok().and_then(|at| self.sends.get_mut(at));
        if let Some(send) = place {
            send.busy = false;
            send.keeps = None;
        }
    }

    /// Sends as much as may be under way. Whether there was anything.
    pub(super) fn send(&mut self, crank: &Crank<'_>, told_to: &Board) -> Result<bool, Status> {
        let Some(way) = self.way else { return Ok(false) };
        let mut any = false;
        while self.is_wanted() {
            let Some(at) = self.sends.iter().position(|s| !s.busy) else { break };
            let Some(place) = self.sends.get_mut(at) else { break };
            let payload = if let Some(word) = self.words.pop_front() {
                *place.head = head(way.door, &word);
                let (mut more, mut len) = (place.more.chunks_exact_mut(DATA_FRAME_BYTES), 0usize);
                while let Some(room) = more.next().filter(|_| !self.words.is_empty()) {
                    let Some(word) = self.words.pop_front() else { break };
                    room.copy_from_slice(&word.emit());
                    len = len.saturating_add(DATA_FRAME_BYTES);
                }
                (place.more.as_ptr(), len)
            } else if let Some(reading) = self.readings.front_mut() {
                let len = reading.total.saturating_sub(reading.sent).min(PIECE);
                let mut frame = DataFrame::new(DataKind::ReadData, reading.seq);
                (frame.window, frame.epoch) = (reading.window, reading.epoch);
                (frame.offset, frame.total) = (reading.sent, reading.total);
                frame.len = u32::try_from(len).unwrap_or(0);
                let from = reading.start.saturating_add(reading.sent);
                reading.sent = reading.sent.saturating_add(len);
                if reading.sent >= reading.total {
                    frame.flags = DataFlags::LAST;
                }
                *place.head = head(way.door, &frame);
                place.keeps = Some((reading.window, Arc::clone(&reading.memory)));
                // Both fit: the range was proven to lie within that memory.
                let (from, len) =
                    (usize::try_from(from).unwrap_or(0), usize::try_from(len).unwrap_or(0));
                let start = reading.memory.start().as_ptr().wrapping_add(from).cast_const();
                if reading.sent >= reading.total {
                    self.readings.pop_front();
                }
                (start, len)
            } else {
                break;
            };
            any = true;
            let record = u32::try_from(at).unwrap_or(0);
            // SAFETY: the head and the words lie in boxes that nobody writes while the send is busy; bytes of a window
            // are held by `keeps`, and their range was proven against it.
            let sent =
                unsafe { send(crank, way.endpoint, &place.head, payload, told(told_to, record)) };
            match sent {
                Ok(Answer::Request(_)) => place.busy = true,
                Ok(Answer::Done) => place.keeps = None,
                Err(status) => {
                    place.keeps = None;
                    return Err(status);
                }
            }
        }
        Ok(any)
    }
}
