//! Requests of this end without a reply, in the order of sequence numbers.

use std::collections::VecDeque;

use hmc_core::work::{Opcode, WorkRequest};

/// Requests that one end may have unanswered on one stream; more is a breach of protocol.
pub(crate) const MAX_REQUESTS: usize = hmc_core::limits::MAX_STREAM_REQUESTS;

/// The same with a peer that understands `Gather`, or with one that does not. Queues get the space for more than
/// [`MAX_REQUESTS`] when so many are under way for the first time.
pub(super) const fn max_requests(gathers: bool) -> usize {
    if gathers { hmc_core::limits::MAX_GATHER_REQUESTS } else { MAX_REQUESTS }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing of it was sent.
    Queued,
    /// Some of its frames were sent.
    Sending,
    /// All of it was sent; the answer is awaited.
    Sent,
    /// Answered, or withdrawn before anything was sent.
    Finished,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) work: WorkRequest,
    pub(super) phase: Phase,
    /// Payload bytes sent (put) or received (get).
    pub(super) moved: u64,
    /// The completion was already given, or nobody wants it.
    pub(super) mute: bool,
    /// Bytes to report when it is done.
    pub(super) report: u64,
    /// The peer moves the bytes itself, from or to our address space.
    pub(super) by_ref: bool,
}

/// A window of requests `base .. base + len`, numbered modulo 2^32.
#[derive(Debug)]
pub(super) struct Requests {
    queue: VecDeque<Request>,
    base: u32,
    next_to_send: u32,
    limit: usize,
}

impl Requests {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity(limit.min(MAX_REQUESTS)),
            base: 0,
            next_to_send: 0,
            limit,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= self.limit
    }

    /// Appends a request. The caller checked `is_full`.
    pub(super) fn push(&mut self, request: Request) {
        self.queue.push_back(request);
    }

    fn place(&self, seq: u32) -> Option<usize> {
        let at = usize::try_from(seq.wrapping_sub(self.base)).ok()?;
        (at < self.queue.len()).then_some(at)
    }

    pub(super) fn get_mut(&mut self, seq: u32) -> Option<&mut Request> {
        let at = self.place(seq)?;
        self.queue.get_mut(at)
    }

    /// The request to send from next, skipping what was withdrawn.
    pub(super) fn next_to_send(&mut self) -> Option<(u32, &mut Request)> {
        loop {
            let seq = self.next_to_send;
            let at = self.place(seq)?;
            match self.queue.get(at)?.phase {
                Phase::Queued | Phase::Sending => {
                    return self.queue.get_mut(at).map(|r| (seq, r));
                }
                Phase::Sent | Phase::Finished => self.next_to_send = seq.wrapping_add(1),
            }
        }
    }

    /// The requests from the one to send from next.
    pub(super) fn unsent(&mut self) -> impl Iterator<Item = &Request> {
        let first = self.next_to_send().map(|(seq, _)| seq).and_then(|seq| self.place(seq));
        self.queue.iter().skip(first.unwrap_or(usize::MAX))
    }

    pub(super) fn has_unsent(&mut self) -> bool {
        self.next_to_send().is_some()
    }

    /// Marks a request as answered and drops the answered ones at the front.
    pub(super) fn finish(&mut self, seq: u32) {
        if let Some(r) = self.get_mut(seq) {
            r.phase = Phase::Finished;
        }
        while self.queue.front().is_some_and(|r| r.phase == Phase::Finished) {
            self.queue.pop_front();
            if self.next_to_send == self.base {
                self.next_to_send = self.base.wrapping_add(1);
            }
            self.base = self.base.wrapping_add(1);
        }
    }

    /// Returns `true` if no put without an answer has completed already.
    pub(super) fn are_puts_answered(&self) -> bool {
        let completed_early = |r: &Request| r.mute && r.work.opcode != Opcode::Get;
        !self.queue.iter().any(|r| completed_early(r) && r.phase != Phase::Finished)
    }

    /// The sequence numbers of all requests, oldest first.
    pub(super) fn seqs(&self) -> impl Iterator<Item = u32> + use<> {
        let base = self.base;
        let len = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        (0..len).map(move |i| base.wrapping_add(i))
    }
}

/// Gives a queue the space for [`MAX_REQUESTS`] entries at its first use: an idle peer does not pay for it. A queue of more,
/// of a peer that understands `Gather`, grows by the entries that it is the first to hold.
pub(crate) fn reserve_once<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() == 0 {
        queue.reserve_exact(MAX_REQUESTS);
    }
}

#[cfg(test)]
mod tests {
    use super::{Phase, Request, Requests};
    use hmc_core::range::Extent;
    use hmc_core::region::{Epoch, LocalSlice, RegionKey, WindowId, WindowSlice};
    use hmc_core::slots::SlotId;
    use hmc_core::work::{CompleteWhen, Opcode, WorkRequest};

    fn request() -> Request {
        let span = Extent::new(8).whole();
        Request {
            work: WorkRequest {
                op: SlotId { index: 0, generation: 1 },
                opcode: Opcode::Get,
                when: CompleteWhen::Visible,
                local: LocalSlice { key: RegionKey { index: 0, generation: 1 }, span },
                remote: WindowSlice { window: WindowId(1), epoch: Epoch(1), span, expected: None },
            },
            phase: Phase::Queued,
            moved: 0,
            mute: false,
            report: 8,
            by_ref: false,
        }
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut all = Requests::new(4);
        all.base = u32::MAX;
        all.next_to_send = u32::MAX;
        for _ in 0..4 {
            all.push(request());
        }
        assert!(all.is_full());
        assert_eq!(all.seqs().collect::<Vec<_>>(), [u32::MAX, 0, 1, 2]);
        all.finish(0);
        assert!(all.is_full(), "the oldest is still awaited");
        all.finish(u32::MAX);
        assert_eq!(all.seqs().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(all.next_to_send().map(|(seq, _)| seq), Some(1));
        assert!(all.get_mut(0).is_none(), "answered long ago");
        assert!(all.get_mut(3).is_none(), "never asked");
    }
}
