//! Requests that go to the other end: writes, reads and sends.

use crate::abi::{
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_EVENT_QP_ACCESS_ERR,
    IBV_EVENT_SRQ_LIMIT_REACHED, IBV_SEND_INLINE, IBV_SEND_SOLICITED, IBV_WC_LOC_LEN_ERR,
    IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM,
    IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR,
    IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
};
use crate::completion::{Details, SUCCESS, failure};
use crate::object::{AsyncEvent, Element};
use crate::progress::{Step, done, failed};
use crate::queue::Owner;
use crate::queue_pair::{Request, add_psn, mtu_bytes, packets};
use crate::state::FakeIbv;
use crate::table::Id;

/// The number of retries that stands for all.
const FOR_EVER: u8 = 7;

impl FakeIbv {
    /// Carries out a request that needs the other end.
    pub(crate) fn carry_out_message(&mut self, id: Id, request: &Request) -> Step {
        let Some(qp) = self.qps.get(id) else { return Step::Wait };
        let (pd, attr) = (qp.pd, qp.attr);
        let reads = request.opcode == IBV_WR_RDMA_READ;
        let is_inline = request.flags & IBV_SEND_INLINE != 0;
        if !is_inline && !self.may_use(pd, &request.pieces, reads) {
            return failed(IBV_WC_LOC_PROT_ERR);
        }
        let Some(peer) = self.peer_of(id) else {
            if let Some(failure) = request.failure {
                return Step::Done(failure);
            }
            // Without a timeout it is sent once and nothing reports that no answer came.
            let limit = if attr.timeout == 0 { u64::MAX } else { attr.retry_cnt.into() };
            return self.retry(id, limit, IBV_WC_RETRY_EXC_ERR);
        };
        let peer_mtu = self.qps.get(peer).map_or(attr.path_mtu, |p| p.attr.path_mtu);
        if peer_mtu != attr.path_mtu && request.len > mtu_bytes(peer_mtu.min(attr.path_mtu)) {
            return self.refuse(peer, IBV_WC_REM_INV_REQ_ERR);
        }
        let step = match request.opcode {
            IBV_WR_RDMA_READ => self.read(id, peer, request),
            IBV_WR_RDMA_WRITE => self.write_to(id, peer, request),
            IBV_WR_RDMA_WRITE_WITH_IMM => self.write_imm(id, peer, request),
            _ => self.send(id, peer, request),
        };
        if step == done() {
            let count = packets(request.len, attr.path_mtu);
            if let Some(qp) = self.qps.get_mut(id) {
                qp.sq_psn = add_psn(qp.sq_psn, count);
            }
            if let Some(peer) = self.qps.get_mut(peer) {
                peer.rq_psn = add_psn(peer.rq_psn, count);
            }
        }
        match (step, request.failure) {
            (Step::Done(outcome), Some(failure)) if outcome == SUCCESS => Step::Done(failure),
            _ => step,
        }
    }

    /// Counts a tick in which the first request got no answer.
    fn retry(&mut self, id: Id, limit: u64, status: u32) -> Step {
        let Some(qp) = self.qps.get_mut(id) else { return Step::Wait };
        qp.retries += 1;
        if qp.retries > limit { failed(status) } else { Step::Wait }
    }

    /// The responder has no receive.
    fn not_ready(&mut self, id: Id) -> Step {
        let retry = self.qps.get(id).map_or(0, |q| q.attr.rnr_retry);
        let limit = if retry == FOR_EVER { u64::MAX } else { retry.into() };
        self.retry(id, limit, IBV_WC_RNR_RETRY_EXC_ERR)
    }

    /// The responder refuses a request: both ends fail.
    fn refuse(&mut self, peer: Id, status: u32) -> Step {
        self.counters.refused += 1;
        self.enter_error(peer);
        failed(status)
    }

    fn refuse_access(&mut self, peer: Id) -> Step {
        if let Some(context) = self.qps.get(peer).map(|p| p.context) {
            let kind = IBV_EVENT_QP_ACCESS_ERR;
            self.raise_async(context, AsyncEvent { kind, element: Element::Qp(peer) });
        }
        self.refuse(peer, IBV_WC_REM_ACCESS_ERR)
    }

    fn read(&mut self, id: Id, peer: Id, request: &Request) -> Step {
        let tick = self.tick;
        let there = self.qps.get(peer).map_or(0, |p| u64::from(p.attr.max_dest_rd_atomic));
        let Some(qp) = self.qps.get_mut(id) else { return Step::Wait };
        if qp.attr.max_rd_atomic == 0 {
            return failed(IBV_WC_LOC_QP_OP_ERR);
        }
        // The reads of one tick are those in flight together.
        let before = if qp.reads.0 == tick { qp.reads.1 } else { 0 };
        if before >= qp.attr.max_rd_atomic.into() {
            return Step::Wait;
        }
        qp.reads = (tick, before + 1);
        let pd = qp.pd;
        if before >= there {
            return self.refuse(peer, IBV_WC_REM_INV_REQ_ERR);
        }
        let access = (request.rkey, request.remote_addr, request.len);
        if request.len != 0 {
            let Some(target) = self.target(peer, access, IBV_ACCESS_REMOTE_READ) else {
                return self.refuse_access(peer);
            };
            self.deliver_of(id);
            let len = self.moved(request);
            // SAFETY: the range was checked against the region of the target.
            unsafe { self.scatter(pd, &request.pieces, target.at, len) };
        }
        done()
    }

    /// The number of bytes that a request moves: half of those of one that fails.
    fn moved(&self, request: &Request) -> usize {
        let len = usize::try_from(request.len).unwrap_or(0);
        if request.failure.is_some() { len / 2 } else { len }
    }

    /// Reads the bytes of a request from its memory.
    fn bytes_of(&mut self, id: Id, request: &Request) -> Vec<u8> {
        let len = self.moved(request);
        let mut bytes = self.buffer();
        let inline = &request.inline[..request.inline.len().min(len)];
        bytes.extend_from_slice(inline);
        if let Some(pd) = self.qps.get(id).map(|q| q.pd) {
            self.gather(pd, &request.pieces, len, &mut bytes);
        }
        bytes
    }

    fn write_to(&mut self, id: Id, peer: Id, request: &Request) -> Step {
        if request.len == 0 {
            // Neither key nor address is looked at.
            return done();
        }
        let access = (request.rkey, request.remote_addr, request.len);
        let Some(target) = self.target(peer, access, IBV_ACCESS_REMOTE_WRITE) else {
            return self.refuse_access(peer);
        };
        let bytes = self.bytes_of(id, request);
        let is_staged = self.script.knobs.staged && request.failure.is_none();
        if !is_staged {
            self.deliver_of(id);
        }
        self.land(id, target.mr, target.at, bytes, is_staged);
        done()
    }

    /// Takes the first receive of a queue pair.
    fn take_receive(&mut self, peer: Id) -> Option<(Owner, usize)> {
        let owner = self.qps.get(peer)?.owner(peer);
        let slot = self.receives(owner)?.posted.pop_front()?;
        if let Owner::Srq(srq) = owner
            && let Some(queue) = self.srqs.get_mut(srq)
            && queue.receives.posted.len() < queue.limit as usize
        {
            queue.limit = 0;
            let context = queue.context;
            let event =
                AsyncEvent { kind: IBV_EVENT_SRQ_LIMIT_REACHED, element: Element::Srq(srq) };
            self.raise_async(context, event);
        }
        Some((owner, slot))
    }

    fn has_receive(&mut self, peer: Id) -> bool {
        let Some(owner) = self.qps.get(peer).map(|p| p.owner(peer)) else { return false };
        self.receives(owner).is_some_and(|r| !r.posted.is_empty())
    }

    fn write_imm(&mut self, id: Id, peer: Id, request: &Request) -> Step {
        if !self.has_receive(peer) {
            return self.not_ready(id);
        }
        let step = self.write_to(id, peer, request);
        if step != done() || request.failure.is_some() {
            return step;
        }
        self.deliver_of(id);
        let details = Details {
            opcode: IBV_WC_RECV_RDMA_WITH_IMM,
            byte_len: u32::try_from(request.len).unwrap_or(u32::MAX),
            imm: request.imm,
            src_qp: self.qps.get(id).map_or(0, |q| q.qp_num),
            flags: IBV_WC_WITH_IMM,
        };
        if let Some(receive) = self.take_receive(peer) {
            let is_solicited = request.flags & IBV_SEND_SOLICITED != 0;
            self.complete_receive(peer, receive, SUCCESS, details, is_solicited);
        }
        step
    }

    fn send(&mut self, id: Id, peer: Id, request: &Request) -> Step {
        if request.failure.is_some() {
            return done();
        }
        if !self.has_receive(peer) {
            return self.not_ready(id);
        }
        let Some((owner, slot)) = self.take_receive(peer) else { return Step::Wait };
        let pd = match owner {
            Owner::Qp(id) => self.qps.get(id).map_or(0, |q| q.pd),
            Owner::Srq(id) => self.srqs.get(id).map_or(0, |s| s.pd),
        };
        let Some(receives) = self.receives(owner) else { return Step::Wait };
        let pieces = core::mem::take(&mut receives.slots[slot].pieces);
        let capacity: u64 = pieces.iter().map(|p| u64::from(p.sge.length)).sum();
        let problem = if request.len > capacity {
            Some((IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR))
        } else if !self.may_use(pd, &pieces, true) {
            Some((IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR))
        } else {
            let bytes = self.bytes_of(id, request);
            self.deliver_of(id);
            // SAFETY: the bytes are our own.
            unsafe { self.scatter(pd, &pieces, bytes.as_ptr(), bytes.len()) };
            self.pool.push(bytes);
            let invalid =
                request.opcode == IBV_WR_SEND_WITH_INV && !self.invalidate(peer, request.imm);
            invalid.then_some((IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR))
        };
        if let Some(receives) = self.receives(owner) {
            receives.slots[slot].pieces = pieces;
        }
        if let Some((theirs, ours)) = problem {
            self.complete_receive(peer, (owner, slot), failure(theirs), Details::default(), false);
            return self.refuse(peer, ours);
        }
        let details = Details {
            opcode: IBV_WC_RECV,
            byte_len: u32::try_from(request.len).unwrap_or(u32::MAX),
            imm: request.imm,
            src_qp: self.qps.get(id).map_or(0, |q| q.qp_num),
            flags: match request.opcode {
                IBV_WR_SEND_WITH_IMM => IBV_WC_WITH_IMM,
                IBV_WR_SEND_WITH_INV => IBV_WC_WITH_INV,
                _ => 0,
            },
        };
        let is_solicited = request.flags & IBV_SEND_SOLICITED != 0;
        self.complete_receive(peer, (owner, slot), SUCCESS, details, is_solicited);
        done()
    }
}
