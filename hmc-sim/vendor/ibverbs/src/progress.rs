//! Progress: which request of which queue pair is next, and its completion.

use crate::abi::{
    IBV_QPS_ERR, IBV_SEND_SIGNALED, IBV_WC_BIND_MW, IBV_WC_LOCAL_INV, IBV_WC_RDMA_READ,
    IBV_WC_RDMA_WRITE, IBV_WC_SEND, IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR, IBV_WR_BIND_MW,
    IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
    ibv_wc_opcode, ibv_wr_opcode,
};
use crate::completion::{Details, SUCCESS, failure, wc};
use crate::faults::{Order, Outcome};
use crate::queue::{Completion, Freed, Owner};
use crate::queue_pair::Request;
use crate::state::FakeIbv;
use crate::table::Id;

/// What became of an attempt to carry out a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing more in this tick.
    Wait,
    Done(Outcome),
}

const fn completed_as(opcode: ibv_wr_opcode) -> ibv_wc_opcode {
    match opcode {
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => IBV_WC_RDMA_WRITE,
        IBV_WR_RDMA_READ => IBV_WC_RDMA_READ,
        IBV_WR_LOCAL_INV => IBV_WC_LOCAL_INV,
        IBV_WR_BIND_MW => IBV_WC_BIND_MW,
        _ => IBV_WC_SEND,
    }
}

impl FakeIbv {
    /// One tick: each queue pair does what it can, in the order of the script.
    pub(crate) fn progress(&mut self) {
        self.tick += 1;
        self.deliver_due();
        let mut left = match self.script.knobs.batch {
            0 => u64::MAX,
            batch => batch,
        };
        while left != 0 {
            let Some(id) = self.next_queue_pair() else { return };
            if self.advance(id) {
                left -= 1;
            }
        }
    }

    fn next_queue_pair(&mut self) -> Option<Id> {
        let tick = self.tick;
        let order = self.script.knobs.order;
        let candidates =
            |(id, qp): (Id, &crate::queue_pair::Qp)| qp.next_seq(tick).map(|seq| (seq, id));
        match order {
            Order::Posted => self.qps.iter().filter_map(candidates).min(),
            Order::Reversed => self.qps.iter().filter_map(candidates).max(),
            Order::Shuffled => {
                let count = self.qps.iter().filter_map(candidates).count();
                if count == 0 {
                    return None;
                }
                let nth = self.script.below(count as u64);
                let nth = usize::try_from(nth).unwrap_or(0);
                self.qps.iter().filter_map(candidates).nth(nth)
            }
        }
        .map(|(_, id)| id)
    }

    /// Does one thing for a queue pair. Returns `false` if it waits.
    fn advance(&mut self, id: Id) -> bool {
        let tick = self.tick;
        let Some(qp) = self.qps.get_mut(id) else { return false };
        if qp.state == IBV_QPS_ERR {
            self.flush_one(id);
            return true;
        }
        let at = qp.at(qp.completed);
        // The request is taken out while it is carried out, with the memory of its lists.
        let mut request = core::mem::take(&mut qp.queue[at]);
        let step = match request.result {
            None if request.due > tick => Step::Wait,
            None => self.carry_out(id, &request),
            Some(outcome) => Step::Done(outcome),
        };
        let mut ends = None;
        if let Step::Done(outcome) = step {
            if request.result.is_none() {
                request.result = Some(outcome);
                request.ack = request.ack.saturating_add(tick);
            }
            // A failure is not delayed: nothing behind it is carried out.
            if request.ack <= tick || outcome.status != IBV_WC_SUCCESS {
                ends = Some(outcome);
            }
        }
        if let Some(outcome) = ends {
            self.complete_send(id, &request, outcome);
        }
        let Some(qp) = self.qps.get_mut(id) else { return false };
        qp.queue[at] = request;
        match step {
            Step::Wait => qp.stalled = tick,
            Step::Done(_) => {
                qp.retries = 0;
                if ends.is_none() {
                    qp.stalled = tick;
                }
            }
        }
        if let Some(outcome) = ends.filter(|o| o.status != IBV_WC_SUCCESS) {
            debug_assert_ne!(outcome.status, IBV_WC_WR_FLUSH_ERR);
            self.enter_error(id);
        }
        ends.is_some()
    }

    /// Completes the first request of a send queue.
    fn complete_send(&mut self, id: Id, request: &Request, outcome: Outcome) {
        let Some(qp) = self.qps.get_mut(id) else { return };
        qp.completed += 1;
        let is_asked = qp.signals_all || request.flags & IBV_SEND_SIGNALED != 0;
        if outcome.status == IBV_WC_SUCCESS && !is_asked {
            return;
        }
        let details = Details {
            opcode: completed_as(request.opcode),
            byte_len: u32::try_from(request.len).unwrap_or(u32::MAX),
            ..Details::default()
        };
        let wc = wc(request.wr_id, qp.qp_num, outcome, details);
        let (cq, freed) = (qp.send_cq, Freed::Sends(id, qp.completed));
        if request.is_dropped {
            self.lose(cq);
        } else {
            self.add(cq, Completion { wc, qp: id, freed }, false);
        }
    }

    /// Flushes one request or receive of a failed queue pair.
    fn flush_one(&mut self, id: Id) {
        let Some(qp) = self.qps.get_mut(id) else { return };
        let flushed = failure(IBV_WC_WR_FLUSH_ERR);
        if qp.completed < qp.posted {
            let at = qp.at(qp.completed);
            let request = core::mem::take(&mut qp.queue[at]);
            self.complete_send(id, &request, flushed);
            if let Some(qp) = self.qps.get_mut(id) {
                qp.queue[at] = request;
            }
        } else if let Some(slot) = qp.receives.posted.pop_front() {
            self.complete_receive(id, (Owner::Qp(id), slot), flushed, Details::default(), false);
        }
    }

    fn carry_out(&mut self, id: Id, request: &Request) -> Step {
        match request.opcode {
            IBV_WR_LOCAL_INV => Step::Done(
                request.failure.unwrap_or_else(|| self.invalidate_local(id, request.imm)),
            ),
            IBV_WR_BIND_MW => {
                Step::Done(request.failure.unwrap_or_else(|| self.bind(id, &request.bind)))
            }
            _ => self.carry_out_message(id, request),
        }
    }
}

/// The result of a request that was carried out.
pub(crate) const fn done() -> Step {
    Step::Done(SUCCESS)
}

/// The result of a request that failed.
pub(crate) const fn failed(status: u32) -> Step {
    Step::Done(failure(status))
}
