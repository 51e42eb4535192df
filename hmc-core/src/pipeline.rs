//! One long transfer as a bounded number of chunks in flight.
//!
//! A [`Pipeline`] splits a transfer, posts its chunks, waits for them and counts them. Its owner makes progress on
//! the work queue between calls of [`Pipeline::advance`]. Each chunk is an operation of the work queue, posted
//! through [`Operations`], so that an owner of the work queue can keep the memory of each chunk alive. The result
//! is `Done` only when all chunks are done, and `fenced` only when none of them can access memory.

use core::num::NonZeroU64;

use heapless::Vec;

use crate::chunks::{Chunks, LengthMismatch, RangePair};
use crate::queue::{Hold, QueueError, Transfer, WorkQueue, failure_of};
use crate::slots::{Outcome, Slot, Stale};
use crate::time::Instant;
use crate::transport::{Transport, TransportError};
use crate::work::{CompleteWhen, Failure, Opcode, SlotId};

/// Most chunks in flight in one pipeline.
pub const MAX_CHUNKS: usize = 64;

/// Where a pipeline posts its chunks: a [`WorkQueue`], or its owner, which keeps the memory of each chunk until its fence.
pub trait Operations {
    /// Why a transfer was refused.
    type Error: TransportError;

    /// Begins one chunk; see [`WorkQueue::post`].
    ///
    /// # Errors
    /// As there.
    fn post(&mut self, t: &Transfer, deadline: Instant) -> Result<SlotId, QueueError<Self::Error>>;

    /// What became of a chunk; see [`WorkQueue::outcome`].
    ///
    /// # Errors
    /// [`Stale`] for a chunk that somebody else took.
    fn outcome(&self, op: SlotId) -> Result<Option<Outcome>, Stale>;

    /// Takes the outcome of a chunk whose memory is free.
    fn take(&mut self, op: SlotId);

    /// Withdraws a chunk; see [`WorkQueue::cancel`]. One that somebody else took is passed over.
    fn cancel(&mut self, op: SlotId);

    /// Lets a chunk run on, whose outcome nobody will take; see [`WorkQueue::abandon`].
    fn abandon(&mut self, op: SlotId);
}

impl<T: Transport, X: Hold, S: AsRef<[Slot<X>]> + AsMut<[Slot<X>]>> Operations
    for WorkQueue<T, S, X>
{
    type Error = T::Error;

    fn post(&mut self, t: &Transfer, deadline: Instant) -> Result<SlotId, QueueError<T::Error>> {
        WorkQueue::post(self, t, deadline)
    }

    fn outcome(&self, op: SlotId) -> Result<Option<Outcome>, Stale> {
        WorkQueue::outcome(self, op)
    }

    fn take(&mut self, op: SlotId) {
        let _ = self.try_wait(op);
    }

    fn cancel(&mut self, op: SlotId) {
        let _ = WorkQueue::cancel(self, op);
    }

    fn abandon(&mut self, op: SlotId) {
        let _ = WorkQueue::abandon(self, op);
    }
}

/// The state of a pipeline after [`Pipeline::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineStatus {
    /// Chunks are to be posted or under way.
    Pending,
    /// Every byte moved.
    Done(u64),
    /// It failed.
    Failed {
        /// By the first of its chunks that failed.
        failure: Failure,
        /// Whether the memory will not be touched any more. If not, the failure may be told already,
        /// but keep the memory and go on advancing.
        fenced: bool,
    },
}

/// Up to `max_inflight` chunks of one transfer in flight over a work queue.
#[derive(Debug)]
pub struct Pipeline {
    opcode: Opcode,
    when: CompleteWhen,
    last_when: CompleteWhen,
    deadline: Instant,
    bulk: Chunks,
    /// The chunk that carries the tag of a notify, posted when all others are done: chunks are
    /// unordered among each other.
    last: Option<(Opcode, RangePair)>,
    ops: Vec<SlotId, MAX_CHUNKS>,
    window: usize,
    bytes: u64,
    failure: Option<Failure>,
    /// After a failure: whether the chunks in flight were withdrawn.
    withdrawn: bool,
    /// Somebody else took one of the chunks: it is not known whether its memory is free.
    lost: bool,
}

impl Pipeline {
    /// A pipeline for `transfer` in chunks of `chunk_bytes`, of which `max_inflight` (1 to
    /// [`MAX_CHUNKS`]; other numbers are brought into that range) are in flight at a time. It fails
    /// with `DeadlineExceeded` unless it is done by `deadline`.
    ///
    /// # Errors
    /// [`LengthMismatch`] when the two ranges are not equally long.
    pub fn new(
        transfer: &Transfer,
        chunk_bytes: NonZeroU64,
        max_inflight: usize,
        deadline: Instant,
    ) -> Result<Self, LengthMismatch> {
        let whole = RangePair::new(transfer.local, transfer.remote)?;
        let (opcode, bulk, last) = match transfer.opcode {
            Opcode::Put | Opcode::Get => (transfer.opcode, whole, None),
            Opcode::PutNotify { .. } => {
                let short = whole.len().checked_rem(chunk_bytes.get()).unwrap_or(0);
                let tail = if short == 0 { chunk_bytes.get() } else { short };
                let (bulk, last) = whole.split_at_most(whole.len().saturating_sub(tail));
                (Opcode::Put, bulk, Some((transfer.opcode, last)))
            }
        };
        Ok(Self {
            opcode,
            // The tag must come after all bytes, so these must be visible before it is sent.
            when: if last.is_some() { CompleteWhen::Visible } else { transfer.when },
            last_when: transfer.when,
            deadline,
            bulk: bulk.chunks(chunk_bytes),
            last,
            ops: Vec::new(),
            window: max_inflight.clamp(1, MAX_CHUNKS),
            bytes: 0,
            failure: None,
            withdrawn: false,
            lost: false,
        })
    }

    /// Takes what is done and posts as much as fits. Never blocks; call again after progress
    /// on the work queue while the answer is `Pending`, or `Failed` and not `fenced`. After a failure
    /// nothing more is posted and the chunks in flight are cancelled.
    pub fn advance<O: Operations>(&mut self, queue: &mut O, now: Instant) -> PipelineStatus {
        self.collect(queue);
        if self.failure.is_none() {
            if self.is_complete() {
                return PipelineStatus::Done(self.bytes);
            }
            if self.deadline <= now && self.deadline != Instant::NEVER {
                self.failure = Some(Failure::DeadlineExceeded);
            } else {
                self.post(queue);
            }
        }
        let Some(failure) = self.failure else {
            return PipelineStatus::Pending;
        };
        self.withdraw(queue);
        PipelineStatus::Failed { failure, fenced: !self.lost && self.in_flight() == 0 }
    }

    /// Makes it fail with `Cancelled`, unless it has failed or is complete. Go on advancing for the
    /// fence.
    pub fn cancel(&mut self) {
        if self.failure.is_none() && !self.is_complete() {
            self.failure = Some(Failure::Cancelled);
        }
    }

    /// Gives it up: the chunks in flight run on, and the work queue's events tell when their memory is
    /// free.
    pub fn abandon<O: Operations>(self, queue: &mut O) {
        for op in self.ops {
            // A stale chunk was taken by somebody else, who knows.
            queue.abandon(op);
        }
    }

    /// Chunks in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ops.len()
    }

    /// Bytes that have moved so far.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    fn is_complete(&self) -> bool {
        self.bulk.remaining().is_empty() && self.last.is_none() && self.in_flight() == 0
    }

    /// Takes the chunks whose memory is free. Others stay, for their fence, even when their outcome
    /// is known.
    fn collect<O: Operations>(&mut self, queue: &mut O) {
        let Self { ops, bytes, failure, lost, .. } = self;
        ops.retain(|op| match queue.outcome(*op) {
            Ok(None) => true,
            Ok(Some(outcome)) => {
                if let Err(why) = outcome.result {
                    *failure = failure.or(Some(why));
                }
                if outcome.fenced {
                    *bytes = bytes.saturating_add(outcome.result.unwrap_or(0));
                    // Cannot be stale: its outcome was just read.
                    queue.take(*op);
                }
                !outcome.fenced
            }
            Err(_) => {
                *failure = failure.or(Some(Failure::Cancelled));
                *lost = true;
                false
            }
        });
    }

    fn post<O: Operations>(&mut self, queue: &mut O) {
        while self.ops.len() < self.window {
            let idle = self.ops.is_empty();
            let mut bulk = self.bulk;
            let (opcode, when, chunk, is_last) = match (bulk.next(), self.last) {
                (Some(chunk), _) => (self.opcode, self.when, chunk, false),
                (None, Some((opcode, chunk))) if idle => (opcode, self.last_when, chunk, true),
                (None, _) => return,
            };
            let transfer = Transfer { opcode, when, local: chunk.local(), remote: chunk.remote() };
            match queue.post(&transfer, self.deadline) {
                // It fits: the window is no wider than the list.
                Ok(op) => {
                    let _ = self.ops.push(op);
                }
                Err(QueueError::Busy | QueueError::Full { .. }) => return,
                Err(QueueError::Transport(e)) => {
                    self.failure = Some(failure_of(e.kind()));
                    return;
                }
                Err(QueueError::Length { .. }) => {
                    // A pair is equally long: not reached.
                    self.failure = Some(Failure::Unsupported);
                    return;
                }
            }
            if is_last {
                self.last = None;
                return;
            }
            self.bulk = bulk;
        }
    }

    fn withdraw<O: Operations>(&mut self, queue: &mut O) {
        if self.withdrawn {
            return;
        }
        self.withdrawn = true;
        for op in &self.ops {
            // A stale chunk is found by `collect`.
            queue.cancel(*op);
        }
        self.collect(queue);
    }
}
