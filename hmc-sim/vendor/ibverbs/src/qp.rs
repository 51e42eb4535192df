//! Calls of queue pairs, except the changes of their state.

use core::ffi::c_int;
use std::collections::VecDeque;

use crate::abi::{
    IBV_QPS_RESET, IBV_QPT_RC, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr,
};
use crate::device::Limits;
use crate::faults::Call;
use crate::object::{Element, EventCount, Mw};
use crate::queue::{Piece, Receives};
use crate::queue_pair::{Qp, Request};
use crate::state::{FakeIbv, await_acknowledged, fail, state, structure};

/// Returns `true` if a device has queue pairs of that size.
fn fits(cap: &ibv_qp_cap, limits: &Limits) -> bool {
    let queue = cap.max_send_wr.max(cap.max_recv_wr);
    let list = cap.max_send_sge.max(cap.max_recv_sge);
    u64::from(queue) <= limits.max_qp_wr
        && u64::from(list) <= limits.max_sge
        && u64::from(cap.max_inline_data) <= limits.max_inline_data
}

/// The ring of a send queue, with memory for all lists and inline bytes.
fn ring(cap: &ibv_qp_cap) -> Vec<Request> {
    let request = || Request {
        pieces: Vec::<Piece>::with_capacity(cap.max_send_sge as usize),
        inline: Vec::with_capacity(cap.max_inline_data as usize),
        ..Request::default()
    };
    core::iter::repeat_with(request).take(cap.max_send_wr.max(1) as usize).collect()
}

// SAFETY: the name is libibverbs' own, and a process has one. The pointers are valid, as libibverbs asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let mut w = state();
    let call = Call::CreateQp;
    let Some(domain) = w.known(call, |w| &w.pds, pd) else { return fail(libc::EINVAL) };
    let (parent, device) = w.pds.get(domain).map_or((0, 0), |p| (p.context, p.device));
    if let Some(errno) = w.set_up(call, Some(device)) {
        return fail(errno);
    }
    // SAFETY: the caller's, to be read. What is granted is what was asked for.
    let wanted = unsafe { qp_init_attr.read() };
    let Some(send_cq) = w.known(call, |w| &w.cqs, wanted.send_cq) else {
        return fail(libc::EINVAL);
    };
    let Some(recv_cq) = w.known(call, |w| &w.cqs, wanted.recv_cq) else {
        return fail(libc::EINVAL);
    };
    let is_own = |cq| w.cqs.get(cq).is_some_and(|c| c.context == parent);
    if !is_own(send_cq) || !is_own(recv_cq) {
        return fail(libc::EINVAL);
    }
    let mut srq = None;
    if !wanted.srq.is_null() {
        srq = w.known(call, |w| &w.srqs, wanted.srq);
        if srq.and_then(|s| w.srqs.get(s)).is_none_or(|s| s.context != parent) {
            return fail(libc::EINVAL);
        }
    }
    let limits = w.devices[device].limits;
    if wanted.qp_type != IBV_QPT_RC || !fits(&wanted.cap, &limits) {
        return fail(libc::EINVAL);
    }
    let count = w.qps.values().filter(|q| q.device == device).count();
    if count as u64 >= limits.max_qp {
        return fail(libc::ENOMEM);
    }
    let qp_num = w.devices[device].next_qp;
    w.devices[device].next_qp += 1;
    // SAFETY: the structure of a domain that is alive.
    let context = unsafe { (*pd).context };
    let new = structure(ibv_qp {
        context,
        qp_context: wanted.qp_context,
        pd,
        send_cq: wanted.send_cq,
        recv_cq: wanted.recv_cq,
        srq: wanted.srq,
        handle: w.qps.next_id(),
        qp_num,
        state: IBV_QPS_RESET,
        qp_type: wanted.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    });
    let mut cap = wanted.cap;
    if srq.is_some() {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    w.counters.queue_pairs += 1;
    let qp = Qp {
        structure: new,
        context: parent,
        pd: domain,
        device,
        ordinal: w.counters.queue_pairs,
        qp_num,
        state: IBV_QPS_RESET,
        // SAFETY: numbers and bytes, for which zero is a value.
        attr: unsafe { core::mem::zeroed::<ibv_qp_attr>() },
        cap,
        send_cq,
        recv_cq,
        srq,
        signals_all: wanted.sq_sig_all != 0,
        queue: ring(&cap),
        posted: 0,
        completed: 0,
        freed: 0,
        receives: Receives::new(cap.max_recv_wr as usize, cap.max_recv_sge as usize),
        sq_psn: 0,
        rq_psn: 0,
        stalled: 0,
        retries: 0,
        reads: (0, 0),
        staged: VecDeque::with_capacity(64),
        async_events: EventCount::default(),
    };
    w.qps.insert(new, qp);
    // SAFETY: the caller's, to be written.
    unsafe { (*qp_init_attr).cap = cap };
    for cq in [send_cq, recv_cq] {
        if let Some(cq) = w.cqs.get_mut(cq) {
            cq.users += 1;
        }
    }
    if let Some(srq) = srq.and_then(|s| w.srqs.get_mut(s)) {
        srq.users += 1;
    }
    if let Some(pd) = w.pds.get_mut(domain) {
        pd.users += 1;
    }
    new
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _attr_mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    let mut w = state();
    let call = Call::QueryQp;
    let Some(id) = w.known(call, |w| &w.qps, qp) else { return libc::EINVAL };
    let device = w.qps.get(id).map(|q| q.device);
    if let Some(errno) = w.set_up(call, device) {
        return errno;
    }
    let Some(own) = w.qps.get(id) else { return libc::EINVAL };
    let mut out = own.attr;
    (out.qp_state, out.cur_qp_state, out.cap) = (own.state, own.state, own.cap);
    (out.sq_psn, out.rq_psn) = (own.sq_psn, own.rq_psn);
    // SAFETY: the caller's, to be written.
    unsafe { attr.write(out) };
    // SAFETY: the structure of a queue pair that is alive.
    let structure = unsafe { &*qp };
    let init = ibv_qp_init_attr {
        qp_context: structure.qp_context,
        send_cq: structure.send_cq,
        recv_cq: structure.recv_cq,
        srq: structure.srq,
        cap: own.cap,
        qp_type: structure.qp_type,
        sq_sig_all: c_int::from(own.signals_all),
    };
    // SAFETY: the caller's, to be written.
    unsafe { init_attr.write(init) };
    0
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let mut w = state();
    let call = Call::DestroyQp;
    if let Some(errno) = w.script.refused(call) {
        return errno;
    }
    let Some(id) = w.known(call, |w| &w.qps, qp) else { return libc::EINVAL };
    let is_bound = |mw: &Mw| mw.binding.is_some_and(|b| b.qp == id && !b.is_invalidated);
    if w.mws.values().any(|mw| is_bound(mw) && !mw.is_refused) {
        w.misuse(call, "windows are bound to this queue pair: rxe waits 50 seconds here");
    }
    let is_even = |w: &FakeIbv| w.qps.get(id).is_none_or(|own| own.async_events.is_even());
    let (mut w, acknowledged) = await_acknowledged(w, is_even);
    if !acknowledged {
        w.misuse(
            call,
            "events of this queue pair are not acknowledged: the call would never return",
        );
    }
    w.drop_work(id);
    let Some(gone) = w.qps.remove(id) else { return libc::EINVAL };
    w.forget_async(gone.context, Element::Qp(id));
    for cq in [gone.send_cq, gone.recv_cq] {
        if let Some(cq) = w.cqs.get_mut(cq) {
            cq.users -= 1;
        }
    }
    if let Some(srq) = gone.srq.and_then(|s| w.srqs.get_mut(s)) {
        srq.users -= 1;
    }
    if let Some(pd) = w.pds.get_mut(gone.pd) {
        pd.users -= 1;
    }
    0
}
