//! Calls of shared receive queues.

use core::ffi::c_int;

use crate::abi::{IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};
use crate::faults::Call;
use crate::object::{Element, EventCount};
use crate::queue::{Owner, Receives, Srq};
use crate::state::{FakeIbv, await_acknowledged, fail, state, structure};

// SAFETY: the name is libibverbs' own, and a process has one. The pointers are valid, as libibverbs asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    srq_init_attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    let mut w = state();
    let call = Call::CreateSrq;
    let Some(domain) = w.known(call, |w| &w.pds, pd) else { return fail(libc::EINVAL) };
    let (parent, device) = w.pds.get(domain).map_or((0, 0), |p| (p.context, p.device));
    if let Some(errno) = w.set_up(call, Some(device)) {
        return fail(errno);
    }
    // SAFETY: the caller's, to be read.
    let wanted = unsafe { srq_init_attr.read() };
    let (max_wr, max_sge) = (wanted.attr.max_wr, wanted.attr.max_sge);
    let limits = w.devices[device].limits;
    if max_wr == 0
        || u64::from(max_wr) > limits.max_srq_wr
        || u64::from(max_sge) > limits.max_srq_sge
    {
        return fail(libc::EINVAL);
    }
    let count = w.srqs.values().filter(|s| s.device == device).count();
    if count as u64 >= limits.max_srq {
        return fail(libc::ENOMEM);
    }
    // SAFETY: the structure of a domain that is alive.
    let context = unsafe { (*pd).context };
    let new = structure(ibv_srq {
        context,
        srq_context: wanted.srq_context,
        pd,
        handle: w.srqs.next_id(),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    });
    let srq = Srq {
        structure: new,
        pd: domain,
        context: parent,
        device,
        receives: Receives::new(max_wr as usize, max_sge as usize),
        limit: 0,
        async_events: EventCount::default(),
        users: 0,
    };
    w.srqs.insert(new, srq);
    if let Some(pd) = w.pds.get_mut(domain) {
        pd.users += 1;
    }
    new
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    srq_attr: *mut ibv_srq_attr,
    srq_attr_mask: c_int,
) -> c_int {
    let mut w = state();
    let call = Call::ModifySrq;
    let Some(id) = w.known(call, |w| &w.srqs, srq) else { return libc::EINVAL };
    let device = w.srqs.get(id).map(|s| s.device);
    if let Some(errno) = w.set_up(call, device) {
        return errno;
    }
    // SAFETY: the caller's, to be read.
    let wanted = unsafe { srq_attr.read() };
    let Some(queue) = w.srqs.get_mut(id) else { return libc::EINVAL };
    // It cannot be resized.
    if srq_attr_mask & IBV_SRQ_MAX_WR != 0 || srq_attr_mask & !IBV_SRQ_LIMIT != 0 {
        return libc::EINVAL;
    }
    if srq_attr_mask & IBV_SRQ_LIMIT != 0 {
        if wanted.srq_limit as usize > queue.receives.slots.len() {
            return libc::EINVAL;
        }
        queue.limit = wanted.srq_limit;
    }
    0
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_srq(
    srq: *mut ibv_srq,
    srq_attr: *mut ibv_srq_attr,
) -> c_int {
    let mut w = state();
    let call = Call::QuerySrq;
    let Some(id) = w.known(call, |w| &w.srqs, srq) else { return libc::EINVAL };
    let device = w.srqs.get(id).map(|s| s.device);
    if let Some(errno) = w.set_up(call, device) {
        return errno;
    }
    let Some(queue) = w.srqs.get(id) else { return libc::EINVAL };
    let out = ibv_srq_attr {
        max_wr: queue.receives.slots.len() as u32,
        max_sge: queue.receives.max_sge as u32,
        srq_limit: queue.limit,
    };
    // SAFETY: the caller's, to be written.
    unsafe { srq_attr.write(out) };
    0
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    let mut w = state();
    let call = Call::DestroySrq;
    if let Some(errno) = w.script.refused(call) {
        return errno;
    }
    let Some(id) = w.known(call, |w| &w.srqs, srq) else { return libc::EINVAL };
    let Some(queue) = w.srqs.get(id) else { return libc::EINVAL };
    if queue.users != 0 {
        return libc::EBUSY;
    }
    let (context, domain) = (queue.context, queue.pd);
    let is_even = |w: &FakeIbv| w.srqs.get(id).is_none_or(|own| own.async_events.is_even());
    let (mut w, acknowledged) = await_acknowledged(w, is_even);
    if !acknowledged {
        w.misuse(call, "events of this queue are not acknowledged: the call would never return");
    }
    w.free_receives(Owner::Srq(id));
    w.forget_async(context, Element::Srq(id));
    w.srqs.remove(id);
    if let Some(pd) = w.pds.get_mut(domain) {
        pd.users -= 1;
    }
    0
}
