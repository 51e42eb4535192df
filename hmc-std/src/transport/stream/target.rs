//! Requests of the peer without a reply yet.

use std::collections::VecDeque;

use hmc_core::range::ByteRange;
use hmc_core::region::{Epoch, LocalSlice, WindowId};
use hmc_core::wire::data::{DataFrame, DataKind};
use hmc_core::work::Failure;
use rustix::process::Pid;

use super::requests::{MAX_REQUESTS, max_requests, reserve_once};

/// Bytes whose copy takes longer than a process that sleeps needs to wake and to ask for more: 0.1 ms.
pub(super) const BYTES_A_WAKE: u64 = 1 << 20;

/// Answers that may wait to be sent.
const fn max_answers(gathers: bool) -> usize {
    max_requests(gathers).saturating_mul(2)
}

const _: () = assert!(max_answers(true) == hmc_core::wire::held::of_data(DataKind::Write).count());

/// A put of several frames: it started with a checked range and must go on in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct PutInProgress {
    pub(super) seq: u32,
    pub(super) window: (WindowId, Epoch),
    /// The first byte in the window; of those behind it so many have come.
    pub(super) start: u64,
    pub(super) done: u64,
    pub(super) left: u64,
    pub(super) fault: Option<Failure>,
}

/// A get being answered: what is left of the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct GetReply {
    pub(super) seq: u32,
    pub(super) window: WindowId,
    pub(super) epoch: Epoch,
    pub(super) source: LocalSlice,
    pub(super) total: u64,
    /// The request, if it names a generation.
    pub(super) request: Option<DataFrame>,
}

/// A copy between our window and the peer's address space, in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct CmaJob {
    pub(super) frame: DataFrame,
    pub(super) ours: LocalSlice,
    pub(super) theirs: ByteRange,
}

/// Bytes that are still to be put into a window of ours.
#[derive(Clone, Copy, Debug)]
struct Counted {
    window: WindowId,
    epoch: Epoch,
    left: u64,
}

#[derive(Debug)]
pub(super) struct StreamTarget {
    pub(super) writing: Option<PutInProgress>,
    pub(super) replies: VecDeque<GetReply>,
    pub(super) jobs: VecDeque<CmaJob>,
    /// Puts that are visible and not yet acknowledged: the last number and how many in a row.
    pub(super) run: Option<(u32, u64)>,
    /// Whether the peer understands an Ack of several operations.
    batched_acks: bool,
    answers: VecDeque<DataFrame>,
    max_answers: usize,
    pub(super) cma_pid: Option<Pid>,
    /// Of messages that come: as many as may be under way, at most.
    counted: Vec<Counted>,
    /// All bytes of one of them have come since somebody looked.
    pub(super) all_put: bool,
}

impl StreamTarget {
    /// `reached` is the peer's process, if copies into and out of its address space may be tried.
    pub(super) fn new(reached: Option<u32>, batched_acks: bool, gathers: bool) -> Self {
        Self {
            writing: None,
            replies: VecDeque::new(),
            jobs: VecDeque::new(),
            run: None,
            batched_acks,
            answers: VecDeque::with_capacity(max_answers(false)),
            max_answers: max_answers(gathers),
            cma_pid: reached.and_then(|p| i32::try_from(p).ok()).and_then(Pid::from_raw),
            counted: Vec::new(),
            all_put: false,
        }
    }

    /// The stream is down. What was counted stays: a message whose bytes have all come was received.
    pub(super) fn clear(&mut self) {
        self.writing = None;
        self.replies.clear();
        self.jobs.clear();
        self.run = None;
        self.answers.clear();
    }

    pub(super) fn count_puts(&mut self, window: WindowId, epoch: Epoch, left: u64) {
        self.counted.push(Counted { window, epoch, left });
    }

    pub(super) fn are_all_put(&self, window: WindowId, epoch: Epoch) -> bool {
        let mut counted = self.counted.iter();
        counted.any(|c| (c.window, c.epoch) == (window, epoch) && c.left == 0)
    }

    /// Nothing is put into that window any more.
    pub(super) fn stop_counting(&mut self, window: WindowId, epoch: Epoch) {
        self.counted.retain(|c| (c.window, c.epoch) != (window, epoch));
    }

    /// A put of so many bytes into a window can be read.
    pub(super) fn note_put(&mut self, window: WindowId, epoch: Epoch, len: u64) {
        let mut counted = self.counted.iter_mut();
        if let Some(c) = counted.find(|c| (c.window, c.epoch) == (window, epoch) && c.left != 0) {
            c.left = c.left.saturating_sub(len);
            self.all_put |= c.left == 0;
        }
    }

    pub(super) fn has_cma(&self) -> bool {
        self.cma_pid.is_some()
    }

    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Whether the queued copies may be done before the peer can ask for more.
    pub(super) fn is_short_of_jobs(&self) -> bool {
        let bytes = self.jobs.iter().map(|j| j.ours.span.len());
        bytes.take(MAX_REQUESTS).fold(0, u64::saturating_add) <= BYTES_A_WAKE
    }

    pub(super) fn has_output(&self) -> bool {
        self.run.is_some() || !self.answers.is_empty() || !self.replies.is_empty()
    }

    /// The next acknowledgement or refusal to send.
    pub(super) fn next_answer(&mut self) -> Option<DataFrame> {
        self.answers
            .pop_front()
            .or_else(|| self.run.take().map(|(seq, count)| DataFrame::ack(seq, count)))
    }

    pub(super) fn push_reply(&mut self, reply: GetReply) {
        reserve_once(&mut self.replies);
        self.replies.push_back(reply);
    }

    pub(super) fn push_job(&mut self, job: CmaJob) {
        reserve_once(&mut self.jobs);
        self.jobs.push_back(job);
    }

    pub(super) fn front_reply(&self) -> Option<GetReply> {
        self.replies.front().copied()
    }

    pub(super) fn advance_reply(&mut self, rest: ByteRange, complete: bool) {
        if complete {
            self.replies.pop_front();
        } else if let Some(r) = self.replies.front_mut() {
            r.source.span = rest;
        }
    }

    /// Refuses the reply at the front.
    pub(super) fn drop_reply(&mut self, why: Failure) {
        if let Some(r) = self.replies.pop_front() {
            self.refuse(r.seq, why);
        }
    }

    fn close_run(&mut self) {
        if let Some((seq, count)) = self.run.take() {
            self.answers.push_back(DataFrame::ack(seq, count));
        }
    }

    /// Notes that an operation is done; rows of them share one acknowledgement.
    pub(super) fn done(&mut self, seq: u32) {
        self.run = match self.run {
            Some((last, count)) if self.batched_acks && last.wrapping_add(1) == seq => {
                Some((seq, count.saturating_add(1)))
            }
            _ => {
                self.close_run();
                Some((seq, 1))
            }
        };
    }

    pub(super) fn refuse(&mut self, seq: u32, why: Failure) {
        self.close_run();
        self.answers.push_back(DataFrame::nack(seq, why));
    }

    /// Whether the peer may still ask without breaking the protocol, while `asked` requests have no answer yet.
    pub(super) fn has_space(&self, asked: usize) -> bool {
        self.answers.len().saturating_add(asked) < self.max_answers
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, StreamTarget};

    fn acks(batched_acks: bool, seqs: &[u32]) -> Vec<(u32, u64)> {
        let mut target = StreamTarget::new(None, batched_acks, false);
        for seq in seqs {
            target.done(*seq);
        }
        let acks = std::iter::from_fn(|| target.next_answer()).map(|f| (f.seq, f.total)).collect();
        assert!(!target.has_output());
        target.refuse(7, Failure::UnknownRegion);
        assert!(target.has_output());
        acks
    }

    #[test]
    fn a_peer_without_the_feature_gets_an_ack_for_each_operation() {
        assert_eq!(acks(true, &[u32::MAX, 0, 1, 5]), [(1, 3), (5, 1)]);
        assert_eq!(acks(false, &[u32::MAX, 0, 5]), [(u32::MAX, 1), (0, 1), (5, 1)]);
    }
}
