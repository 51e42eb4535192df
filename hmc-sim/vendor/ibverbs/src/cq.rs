//! Calls of completion queues.

use core::ffi::{c_int, c_uint, c_void};
use std::collections::VecDeque;

use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq, ibv_wc};
use crate::event::wait;
use crate::faults::Call;
use crate::object::{Element, EventCount};
use crate::queue::{Armed, Cq};
use crate::state::{FakeIbv, await_acknowledged, fail, state, structure};

/// Completions for which a queue has capacity from the start.
const CAPACITY: usize = 4096;

// SAFETY: the name is libibverbs' own, and a process has one. The pointers are valid, as libibverbs asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let mut w = state();
    let call = Call::CreateCq;
    let Some(id) = w.known(call, |w| &w.contexts, context) else { return fail(libc::EINVAL) };
    let device = w.contexts.get(id).map_or(0, |c| c.device);
    if let Some(errno) = w.set_up(call, Some(device)) {
        return fail(errno);
    }
    let channel_id = if channel.is_null() {
        None
    } else {
        let Some(at) = w.known(call, |w| &w.channels, channel) else { return fail(libc::EINVAL) };
        if w.channels.get(at).is_none_or(|c| c.context != id) {
            return fail(libc::EINVAL);
        }
        Some(at)
    };
    let limits = w.devices[device].limits;
    let count = w.cqs.values().filter(|c| c.device == device).count();
    let capacity = match usize::try_from(cqe) {
        Ok(capacity) if cqe > 0 && capacity as u64 <= limits.max_cqe && comp_vector == 0 => {
            capacity
        }
        _ => return fail(libc::EINVAL),
    };
    if count as u64 >= limits.max_cq {
        return fail(libc::ENOMEM);
    }
    let handle = w.cqs.next_id();
    let new = structure(ibv_cq {
        context,
        channel,
        cq_context,
        handle,
        cqe,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        comp_events_completed: 0,
        async_events_completed: 0,
    });
    let cq = Cq {
        structure: new,
        context: id,
        device,
        capacity,
        ring: VecDeque::with_capacity(capacity.min(CAPACITY)),
        channel: channel_id,
        armed: Armed::No,
        events: EventCount::default(),
        async_events: EventCount::default(),
        users: 0,
        is_overrun: false,
    };
    w.cqs.insert(new, cq);
    if let Some(channel) = channel_id.and_then(|c| w.channels.get_mut(c)) {
        channel.users += 1;
    }
    new
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let mut w = state();
    let call = Call::DestroyCq;
    if let Some(errno) = w.script.refused(call) {
        return errno;
    }
    let Some(id) = w.known(call, |w| &w.cqs, cq) else { return libc::EINVAL };
    let Some(queue) = w.cqs.get(id) else { return libc::EINVAL };
    if queue.users != 0 {
        return libc::EBUSY;
    }
    let (context, channel) = (queue.context, queue.channel);
    let is_even = |w: &FakeIbv| {
        let queue = w.cqs.get(id);
        queue.is_none_or(|queue| queue.events.is_even() && queue.async_events.is_even())
    };
    let (mut w, acknowledged) = await_acknowledged(w, is_even);
    if !acknowledged {
        w.misuse(call, "events of this queue are not acknowledged: the call would never return");
    }
    w.forget_async(context, Element::Cq(id));
    if let Some(channel) = channel {
        w.forget_notifications(channel, id);
        if let Some(channel) = w.channels.get_mut(channel) {
            channel.users -= 1;
        }
    }
    w.cqs.remove(id);
    0
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    let call = Call::GetCqEvent;
    if let Some(errno) = state().script.refused(call) {
        fail::<c_void>(errno);
        return -1;
    }
    loop {
        let mut w = state();
        let Some(id) = w.known(call, |w| &w.channels, channel) else { return -1 };
        if let Some(queue) = w.take_notification(id).and_then(|cq| w.cqs.get_mut(cq)) {
            queue.events.got += 1;
            let own = queue.structure;
            // SAFETY: the caller's, to be written.
            unsafe { cq.write(own) };
            // SAFETY: the structure of a queue that is alive.
            let data = unsafe { (*own).cq_context };
            // SAFETY: the caller's, to be written.
            unsafe { cq_context.write(data) };
            return 0;
        }
        let fd = w.channels.get(id).map_or(-1, |c| c.fd);
        drop(w);
        if let Err(errno) = wait(fd) {
            fail::<c_void>(errno);
            return -1;
        }
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    let mut w = state();
    let call = Call::AckCqEvents;
    w.script.count(call);
    let Some(id) = w.known(call, |w| &w.cqs, cq) else { return };
    let Some(queue) = w.cqs.get_mut(id) else { return };
    queue.events.acked = queue.events.acked.wrapping_add(nevents);
    let (events, own) = (queue.events, queue.structure);
    // SAFETY: the structure of a queue that is alive.
    unsafe { (*own).comp_events_completed = events.acked };
    if events.acked > events.got {
        w.misuse(call, "more events are acknowledged than there were");
    }
}

/// `ibv_poll_cq` of the context in a slot.
///
/// # Safety
/// As for `ibv_poll_cq`.
pub(crate) unsafe fn poll_cq(slot: usize, cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    let mut w = state();
    let call = Call::PollCq;
    let refused = w.script.refused(call);
    let Some(id) = w.known(call, |w| &w.cqs, cq) else { return -libc::EINVAL };
    let context = w.cqs.get(id).map_or(0, |c| c.context);
    if !w.came_through(call, context, slot) {
        return -libc::EINVAL;
    }
    if let Some(errno) = refused {
        return -errno;
    }
    if w.script.knobs.poll_progress {
        w.progress();
    }
    let mut polled = 0;
    let mut to = wc;
    while polled < count {
        let Some(completion) = w.cqs.get_mut(id).and_then(|c| c.ring.pop_front()) else { break };
        w.free(completion.freed);
        // SAFETY: the caller's, to be written, `count` of them.
        unsafe { to.write(completion.wc) };
        to = to.wrapping_add(1);
        polled += 1;
    }
    polled
}

/// `ibv_req_notify_cq` of the context in a slot.
pub(crate) fn req_notify_cq(slot: usize, cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let mut w = state();
    let call = Call::ReqNotifyCq;
    if let Some(errno) = w.script.refused(call) {
        return errno;
    }
    let Some(id) = w.known(call, |w| &w.cqs, cq) else { return libc::EINVAL };
    let context = w.cqs.get(id).map_or(0, |c| c.context);
    if !w.came_through(call, context, slot) {
        return libc::EINVAL;
    }
    let Some(queue) = w.cqs.get_mut(id) else { return libc::EINVAL };
    if solicited_only == 0 {
        queue.armed = Armed::Any;
    } else if queue.armed == Armed::No {
        queue.armed = Armed::Solicited;
    }
    0
}
