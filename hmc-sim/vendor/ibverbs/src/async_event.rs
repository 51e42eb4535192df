//! Calls of asynchronous events.

use core::ffi::{c_int, c_void};

use crate::abi::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED,
    IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED, ibv_async_event, ibv_async_event_element,
    ibv_context,
};
use crate::event::wait;
use crate::faults::Call;
use crate::object::{AsyncEvent, Element};
use crate::state::{FakeIbv, fail, state};

impl FakeIbv {
    /// Returns the element as C has it, if its object is alive.
    fn element(&self, event: AsyncEvent) -> Option<ibv_async_event_element> {
        // Bytes that no member uses are not random.
        let mut out = ibv_async_event_element { wq: core::ptr::null_mut() };
        match event.element {
            Element::Device => {}
            Element::Port(port_num) => out.port_num = port_num,
            Element::Cq(id) => out.cq = self.cqs.get(id)?.structure,
            Element::Qp(id) => out.qp = self.qps.get(id)?.structure,
            Element::Srq(id) => out.srq = self.srqs.get(id)?.structure,
        }
        Some(out)
    }
}

// SAFETY: the name is libibverbs' own, and a process has one. The pointers are valid, as libibverbs asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let call = Call::GetAsyncEvent;
    if let Some(errno) = state().script.refused(call) {
        fail::<c_void>(errno);
        return -1;
    }
    loop {
        let mut w = state();
        let Some(id) = w.known(call, |w| &w.contexts, context) else { return -1 };
        if let Some(next) = w.take_async(id)
            && let Some(element) = w.element(next)
        {
            if let Some(count) = w.async_count(next.element) {
                count.got += 1;
            }
            // SAFETY: the caller's, to be written.
            unsafe { event.write(ibv_async_event { element, event_type: next.kind }) };
            return 0;
        }
        let fd = w.contexts.get(id).map_or(-1, |c| c.fd);
        drop(w);
        if let Err(errno) = wait(fd) {
            fail::<c_void>(errno);
            return -1;
        }
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    let mut w = state();
    let call = Call::AckAsyncEvent;
    w.script.count(call);
    // SAFETY: the caller's, to be read.
    let event = unsafe { event.read() };
    // SAFETY: a pointer or null, whichever event it is of.
    let object = unsafe { event.element.wq };
    let element = match event.event_type {
        IBV_EVENT_CQ_ERR => w.known(call, |w| &w.cqs, object).map(Element::Cq),
        IBV_EVENT_QP_FATAL..=IBV_EVENT_PATH_MIG_ERR | IBV_EVENT_QP_LAST_WQE_REACHED => {
            w.known(call, |w| &w.qps, object).map(Element::Qp)
        }
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
            w.known(call, |w| &w.srqs, object).map(Element::Srq)
        }
        _ => None,
    };
    let Some(element) = element else { return };
    let Some(count) = w.async_count(element) else { return };
    count.acked += 1;
    let (acked, got) = (count.acked, count.got);
    match element {
        Element::Cq(id) => {
            if let Some(own) = w.cqs.get(id).map(|c| c.structure) {
                // SAFETY: the structure of an object that is alive.
                unsafe { (*own).async_events_completed = acked };
            }
        }
        Element::Qp(id) => {
            if let Some(own) = w.qps.get(id).map(|q| q.structure) {
                // SAFETY: as above.
                unsafe { (*own).events_completed = acked };
            }
        }
        Element::Srq(id) => {
            if let Some(own) = w.srqs.get(id).map(|s| s.structure) {
                // SAFETY: as above.
                unsafe { (*own).events_completed = acked };
            }
        }
        Element::Device | Element::Port(_) => {}
    }
    if acked > got {
        w.misuse(call, "this event was acknowledged already");
    }
}
