//! Posting: requests to a send queue, receives to a queue pair or a shared queue.

use core::ffi::c_int;

use crate::abi::{
    IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_RTS, IBV_QPS_SQD, IBV_SEND_INLINE, IBV_SEND_SIGNALED,
    IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, ibv_mw, ibv_qp, ibv_recv_wr, ibv_send_wr,
    ibv_sge, ibv_srq,
};
use crate::device::MAX_MESSAGE;
use crate::faults::{Action, Call, HELD, operation};
use crate::object::KeyOwner;
use crate::queue::{Owner, Piece};
use crate::queue_pair::{Bind, Request};
use crate::state::{FakeIbv, state};
use crate::table::Id;

/// Returns the scatter list of a request.
///
/// # Safety
/// `list` points to `count` entries that may be read.
unsafe fn sges<'a>(list: *const ibv_sge, count: c_int) -> &'a [ibv_sge] {
    match usize::try_from(count) {
        Ok(count @ 1..) if !list.is_null() => {
            // SAFETY: the caller vouched for it.
            unsafe { core::slice::from_raw_parts(list, count) }
        }
        _ => &[],
    }
}

impl FakeIbv {
    /// Adds pieces to a list that has capacity for them; each holds its region.
    fn hold_pieces(&mut self, sges: &[ibv_sge], pieces: &mut Vec<Piece>) {
        pieces.clear();
        for sge in sges {
            let owner = self.keys.get(&(sge.lkey >> 8)).copied();
            let mr = match owner {
                Some(KeyOwner::Mr(id)) if self.mrs.get(id).is_some_and(|m| m.lkey == sge.lkey) => {
                    id
                }
                _ => 0,
            };
            if let Some(region) = self.mrs.get_mut(mr) {
                region.users += 1;
            }
            pieces.push(Piece { sge: *sge, mr });
        }
    }

    /// The errno with which a request is refused.
    fn check_send(&self, id: Id, wr: &ibv_send_wr, sges: &[ibv_sge]) -> Result<(), c_int> {
        let qp = self.qps.get(id).ok_or(libc::EINVAL)?;
        if !matches!(qp.state, IBV_QPS_RTS | IBV_QPS_SQD | IBV_QPS_ERR) {
            return Err(libc::EINVAL);
        }
        if self.devices[qp.device].is_dead {
            return Err(libc::EIO);
        }
        if qp.posted - qp.freed >= u64::from(qp.cap.max_send_wr) {
            return Err(libc::ENOMEM);
        }
        let count = u32::try_from(wr.num_sge).map_err(|_| libc::EINVAL)?;
        let len: u64 = sges.iter().map(|s| u64::from(s.length)).sum();
        let is_inline = wr.send_flags & IBV_SEND_INLINE != 0;
        let has_bytes = !matches!(wr.opcode, IBV_WR_LOCAL_INV | IBV_WR_BIND_MW);
        if count > qp.cap.max_send_sge || len > MAX_MESSAGE || !has_bytes && count != 0 {
            return Err(libc::EINVAL);
        }
        if is_inline && (wr.opcode == IBV_WR_RDMA_READ || !has_bytes) {
            return Err(libc::EINVAL);
        }
        // SAFETY: all bytes of the union are set, by either member.
        let imm = unsafe { wr.imm.imm_data };
        if wr.opcode == IBV_WR_BIND_MW && imm != 0 {
            return Err(libc::EINVAL);
        }
        if is_inline && len > qp.cap.max_inline_data.into() {
            return Err(libc::ENOMEM);
        }
        Ok(())
    }

    /// Reads the window, region and keys of a bind.
    ///
    /// # Safety
    /// `wr` is a bind; its window's structure may be read.
    unsafe fn bind_of(&mut self, wr: &ibv_send_wr) -> Result<Bind, c_int> {
        // SAFETY: it is the member of a bind.
        let bind = unsafe { wr.bind.bind_mw };
        let info = bind.bind_info;
        let mw = self.known(Call::Bind, |w| &w.mws, bind.mw).ok_or(libc::EINVAL)?;
        let mr = self.known(Call::Bind, |w| &w.mrs, info.mr).ok_or(libc::EINVAL)?;
        let window: *const ibv_mw = bind.mw;
        // SAFETY: the structure of a window that is alive.
        let old_rkey = unsafe { (*window).rkey };
        Ok(Bind {
            mw,
            old_rkey,
            rkey: bind.rkey,
            mr,
            addr: info.addr,
            len: info.length,
            access: info.mw_access_flags,
        })
    }

    /// Posts one request.
    ///
    /// # Safety
    /// `wr` and what it points to may be read.
    unsafe fn post_one(&mut self, id: Id, wr: &ibv_send_wr) -> Result<(), c_int> {
        let call = operation(wr.opcode).ok_or(libc::EINVAL)?;
        // SAFETY: the caller vouched for the list.
        let sges = unsafe { sges(wr.sg_list, wr.num_sge) };
        self.check_send(id, wr, sges)?;
        let bind = if wr.opcode == IBV_WR_BIND_MW {
            // SAFETY: as above.
            unsafe { self.bind_of(wr) }?
        } else {
            Bind::default()
        };
        let ordinal = self.qps.get(id).map_or(0, |q| q.ordinal);
        let action = self.script.count_of(call, ordinal);
        if let Some(Action::Refuse(errno)) = action {
            return Err(errno);
        }
        self.seq += 1;
        let knobs = self.script.knobs;
        let mut due = self.tick + 1 + self.script.delay(knobs.delay);
        let mut ack = self.script.delay(knobs.ack_delay);
        match action {
            Some(Action::Late(ticks)) => due = due.saturating_add(ticks),
            Some(Action::Hold) => due = HELD,
            Some(Action::AckLate(ticks)) => ack = ack.saturating_add(ticks),
            Some(Action::AckHold) => ack = HELD,
            _ => {}
        }
        let Some(qp) = self.qps.get_mut(id) else { return Err(libc::EINVAL) };
        let at = qp.at(qp.posted);
        let signals = qp.signals_all || wr.send_flags & IBV_SEND_SIGNALED != 0;
        let old = core::mem::take(&mut qp.queue[at]);
        let (mut pieces, mut inline) = (old.pieces, old.inline);
        let is_inline = wr.send_flags & IBV_SEND_INLINE != 0;
        inline.clear();
        if is_inline {
            for sge in sges.iter().filter(|s| s.length != 0) {
                let from = core::ptr::with_exposed_provenance(sge.addr as usize);
                // SAFETY: an inline request names bytes of the caller, which are read now; they need no region.
                inline.extend_from_slice(unsafe {
                    core::slice::from_raw_parts(from, sge.length as usize)
                });
            }
        } else {
            self.hold_pieces(sges, &mut pieces);
        }
        if let Some(mr) = self.mrs.get_mut(bind.mr) {
            mr.users += 1;
        }
        if let Some(mw) = self.mws.get_mut(bind.mw) {
            mw.users += 1;
        }
        // SAFETY: all bytes of the union are set, by either member.
        let imm = unsafe { wr.imm.imm_data };
        // SAFETY: as above.
        let rdma = unsafe { wr.wr.rdma };
        let request = Request {
            wr_id: wr.wr_id,
            opcode: wr.opcode,
            flags: wr.send_flags,
            imm,
            remote_addr: rdma.remote_addr,
            rkey: rdma.rkey,
            bind,
            pieces,
            inline,
            len: sges.iter().map(|s| u64::from(s.length)).sum(),
            seq: self.seq,
            due,
            ack,
            failure: match action {
                Some(Action::Fail(outcome)) => Some(outcome),
                _ => None,
            },
            is_dropped: action == Some(Action::Drop),
            result: None,
        };
        let counters = &mut self.counters;
        counters.inlined += u64::from(is_inline);
        if signals {
            counters.signalled += 1;
        } else {
            counters.unsignalled += 1;
        }
        if let Some(qp) = self.qps.get_mut(id) {
            counters.bytes[qp.device] += request.len;
            qp.queue[at] = request;
            qp.posted += 1;
        }
        Ok(())
    }

    /// Posts one receive.
    ///
    /// # Safety
    /// `wr` and what it points to may be read.
    unsafe fn post_receive(&mut self, owner: Owner, wr: &ibv_recv_wr) -> Result<(), c_int> {
        let receives = self.receives(owner).ok_or(libc::EINVAL)?;
        let count = usize::try_from(wr.num_sge).map_err(|_| libc::EINVAL)?;
        if count > receives.max_sge {
            return Err(libc::EINVAL);
        }
        let slot = receives.free.pop().ok_or(libc::ENOMEM)?;
        receives.slots[slot].wr_id = wr.wr_id;
        let mut pieces = core::mem::take(&mut receives.slots[slot].pieces);
        // SAFETY: the caller vouched for the list.
        self.hold_pieces(unsafe { sges(wr.sg_list, wr.num_sge) }, &mut pieces);
        if let Some(receives) = self.receives(owner) {
            receives.slots[slot].pieces = pieces;
            receives.posted.push_back(slot);
        }
        Ok(())
    }

    /// Posts a chain of receives.
    ///
    /// # Safety
    /// The chain may be read, `bad` may be written.
    unsafe fn post_receives(
        &mut self,
        owner: Owner,
        mut wr: *mut ibv_recv_wr,
        bad: *mut *mut ibv_recv_wr,
    ) -> c_int {
        let first = wr;
        // SAFETY: the caller vouched for the chain.
        while let Some(one) = unsafe { wr.as_ref() } {
            // SAFETY: as above.
            if let Err(errno) = unsafe { self.post_receive(owner, one) } {
                self.counters.doorbells += u64::from(wr != first);
                // SAFETY: the caller vouched for it.
                unsafe { bad.write(wr) };
                return errno;
            }
            wr = one.next;
        }
        self.counters.doorbells += 1;
        0
    }

    /// Returns `true` if an object's context has the operations that a call came through.
    pub(crate) fn came_through(&mut self, call: Call, context: Id, slot: usize) -> bool {
        let fits = self.contexts.get(context).is_none_or(|c| c.slot == slot);
        if !fits {
            self.misuse(call, "this object does not belong to the context of these operations");
        }
        fits
    }
}

/// `ibv_post_send` of the context in a slot.
///
/// # Safety
/// As for `ibv_post_send`.
pub(crate) unsafe fn post_send(
    slot: usize,
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let mut w = state();
    let refused = w.script.refused(Call::PostSend);
    let Some(id) = w.known(Call::PostSend, |w| &w.qps, qp) else { return libc::EINVAL };
    let context = w.qps.get(id).map_or(0, |q| q.context);
    let mut result = refused.map_or(Ok(()), Err);
    if !w.came_through(Call::PostSend, context, slot) {
        result = Err(libc::EINVAL);
    }
    let first = wr;
    // SAFETY: the chain is the caller's.
    while let (Ok(()), Some(one)) = (result, unsafe { wr.as_ref() }) {
        // SAFETY: as above.
        result = unsafe { w.post_one(id, one) };
        if result.is_ok() {
            wr = one.next;
        }
    }
    w.counters.doorbells += u64::from(wr != first);
    match result {
        Ok(()) => 0,
        Err(errno) => {
            // SAFETY: the caller's, to be written.
            unsafe { bad.write(wr) };
            errno
        }
    }
}

/// `ibv_post_recv` of the context in a slot.
///
/// # Safety
/// As for `ibv_post_recv`.
pub(crate) unsafe fn post_recv(
    slot: usize,
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut w = state();
    let refused = w.script.refused(Call::PostRecv);
    let Some(id) = w.known(Call::PostRecv, |w| &w.qps, qp) else { return libc::EINVAL };
    let Some(queue) = w.qps.get(id) else { return libc::EINVAL };
    let (context, is_ready) = (queue.context, queue.state != IBV_QPS_RESET && queue.srq.is_none());
    let is_own = w.came_through(Call::PostRecv, context, slot);
    if let Some(errno) = refused.or((!is_ready || !is_own).then_some(libc::EINVAL)) {
        // SAFETY: the caller's, to be written.
        unsafe { bad.write(wr) };
        return errno;
    }
    // SAFETY: the chain is the caller's.
    unsafe { w.post_receives(Owner::Qp(id), wr, bad) }
}

/// `ibv_post_srq_recv` of the context in a slot.
///
/// # Safety
/// As for `ibv_post_srq_recv`.
pub(crate) unsafe fn post_srq_recv(
    slot: usize,
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut w = state();
    let refused = w.script.refused(Call::PostSrqRecv);
    let Some(id) = w.known(Call::PostSrqRecv, |w| &w.srqs, srq) else { return libc::EINVAL };
    let context = w.srqs.get(id).map_or(0, |s| s.context);
    let is_own = w.came_through(Call::PostSrqRecv, context, slot);
    if let Some(errno) = refused.or((!is_own).then_some(libc::EINVAL)) {
        // SAFETY: the caller's, to be written.
        unsafe { bad.write(wr) };
        return errno;
    }
    // SAFETY: the chain is the caller's.
    unsafe { w.post_receives(Owner::Srq(id), wr, bad) }
}
