//! Completions: how they come into their queue, and how a queue pair fails.

use crate::abi::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_QPS_ERR, IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR, ibv_wc, ibv_wc_imm_data, ibv_wc_opcode,
};
use crate::faults::Outcome;
use crate::object::{AsyncEvent, Element};
use crate::queue::{Armed, Completion, Freed, Owner};
use crate::state::FakeIbv;
use crate::table::Id;

/// What fills the members of a failed completion that are not valid.
const GARBAGE: u32 = 0xEEEE_EEEE;

/// A success.
pub(crate) const SUCCESS: Outcome = Outcome { status: IBV_WC_SUCCESS, vendor_err: 0 };

/// A failure, with a vendor's number as an mlx5 reports them.
pub(crate) const fn failure(status: u32) -> Outcome {
    Outcome { status, vendor_err: 0x80 + status }
}

/// The members of a completion that are valid if it succeeded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Details {
    pub(crate) opcode: ibv_wc_opcode,
    pub(crate) byte_len: u32,
    pub(crate) imm: u32,
    pub(crate) src_qp: u32,
    pub(crate) flags: u32,
}

/// Makes a completion.
pub(crate) fn wc(wr_id: u64, qp_num: u32, outcome: Outcome, details: Details) -> ibv_wc {
    let short = 0xEEEE;
    if outcome.status != IBV_WC_SUCCESS {
        return ibv_wc {
            wr_id,
            status: outcome.status,
            opcode: GARBAGE,
            vendor_err: outcome.vendor_err,
            byte_len: GARBAGE,
            imm: ibv_wc_imm_data { imm_data: GARBAGE },
            qp_num,
            src_qp: GARBAGE,
            wc_flags: GARBAGE,
            pkey_index: short,
            slid: short,
            sl: 0xEE,
            dlid_path_bits: 0xEE,
        };
    }
    ibv_wc {
        wr_id,
        status: outcome.status,
        opcode: details.opcode,
        vendor_err: outcome.vendor_err,
        byte_len: details.byte_len,
        imm: ibv_wc_imm_data { imm_data: details.imm },
        qp_num,
        src_qp: details.src_qp,
        wc_flags: details.flags,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

impl FakeIbv {
    /// Adds a completion to a queue; one that finds it full is lost.
    pub(crate) fn add(&mut self, cq: Id, completion: Completion, is_solicited: bool) {
        let Some(queue) = self.cqs.get_mut(cq) else { return };
        if queue.ring.len() >= queue.capacity {
            return self.lose(cq);
        }
        queue.ring.push_back(completion);
        let is_failed = completion.wc.status != IBV_WC_SUCCESS;
        let notifies = match queue.armed {
            Armed::No => false,
            Armed::Solicited => is_solicited || is_failed,
            Armed::Any => true,
        };
        self.counters.completions += 1;
        match completion.wc.status {
            IBV_WC_SUCCESS => {}
            IBV_WC_WR_FLUSH_ERR => self.counters.flushed += 1,
            _ => self.counters.failures += 1,
        }
        if notifies {
            queue.armed = Armed::No;
            self.notify(cq);
        }
    }

    /// Loses a completion of a queue: the first raises an event.
    pub(crate) fn lose(&mut self, cq: Id) {
        self.counters.overruns += 1;
        let Some(queue) = self.cqs.get_mut(cq) else { return };
        if !core::mem::replace(&mut queue.is_overrun, true) {
            let context = queue.context;
            let event = AsyncEvent { kind: IBV_EVENT_CQ_ERR, element: Element::Cq(cq) };
            self.raise_async(context, event);
        }
    }

    /// Adds the completion of a receive.
    pub(crate) fn complete_receive(
        &mut self,
        id: Id,
        (owner, slot): (Owner, usize),
        outcome: Outcome,
        details: Details,
        is_solicited: bool,
    ) {
        let Some(wr_id) = self.receives(owner).map(|r| r.slots[slot].wr_id) else { return };
        let Some(qp) = self.qps.get(id) else { return };
        let wc = wc(wr_id, qp.qp_num, outcome, details);
        let completion = Completion { wc, qp: id, freed: Freed::Receive(owner, slot) };
        let cq = qp.recv_cq;
        self.add(cq, completion, is_solicited);
    }

    /// The receives of a queue pair or a shared queue.
    pub(crate) fn receives(&mut self, owner: Owner) -> Option<&mut crate::queue::Receives> {
        match owner {
            Owner::Qp(id) => self.qps.get_mut(id).map(|q| &mut q.receives),
            Owner::Srq(id) => self.srqs.get_mut(id).map(|s| &mut s.receives),
        }
    }

    /// Moves a queue pair to the error state. What it has is flushed by progress.
    pub(crate) fn enter_error(&mut self, id: Id) {
        let Some(qp) = self.qps.get_mut(id) else { return };
        if qp.state == IBV_QPS_ERR {
            return;
        }
        qp.state = IBV_QPS_ERR;
        qp.attr.qp_state = IBV_QPS_ERR;
        qp.stalled = 0;
        let (context, is_shared) = (qp.context, qp.srq.is_some());
        if is_shared {
            let kind = IBV_EVENT_QP_LAST_WQE_REACHED;
            self.raise_async(context, AsyncEvent { kind, element: Element::Qp(id) });
        }
    }
}
