//! Calls of endpoints: creation, flush, close, description.

use core::ffi::c_char;
use std::ffi::CString;

use crate::faults::{Action, Call, refused};
use crate::handle::Handle;
use crate::request::{Request, What, callback_of};
use crate::setup::print;
use crate::state::{Endpoint, FakeUcp, enter, given, state, status_ptr};
use crate::sys::{
    self, FILE, ucp_ep_attr_t, ucp_ep_h, ucp_ep_params_t, ucp_request_param_t,
    ucp_transport_entry_t, ucp_worker_h, ucs_status_ptr_t, ucs_status_t,
};
use crate::worker::read_address;

impl FakeUcp {
    /// The endpoints of a worker.
    pub(crate) fn endpoints_of(&self, worker: Handle) -> Vec<Handle> {
        self.endpoints
            .names()
            .filter(|n| self.endpoints.get(*n).is_some_and(|e| e.worker == worker))
            .collect()
    }

    fn make_endpoint(
        &mut self,
        worker: Handle,
        params: &ucp_ep_params_t,
    ) -> Result<Handle, ucs_status_t> {
        if let Some(status) = refused(self.script.count(Call::EpCreate)) {
            return Err(status);
        }
        self.worker(Call::EpCreate, worker)?;
        let has = |bit| params.field_mask & bit != 0;
        if !has(sys::UCP_EP_PARAM_FIELD_REMOTE_ADDRESS) {
            return Err(sys::UCS_ERR_INVALID_PARAM);
        }
        // SAFETY: the caller vouched for an address.
        let peer = unsafe { read_address(params.address) };
        let peer = peer.filter(|p| self.workers.get(*p).is_some());
        let peer = peer.ok_or(sys::UCS_ERR_UNREACHABLE)?;
        self.counters.endpoints += 1;
        let mut endpoint = Endpoint::new(worker, peer, self.counters.endpoints);
        let tells = params.err_mode == sys::UCP_ERR_HANDLING_MODE_PEER
            && has(sys::UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE)
            && has(sys::UCP_EP_PARAM_FIELD_ERR_HANDLER);
        endpoint.handler = tells.then_some(params.err_handler);
        Ok(self.endpoints.insert(worker.index(), endpoint))
    }

    fn flush(
        &mut self,
        endpoint: Handle,
        param: &ucp_request_param_t,
    ) -> Result<ucs_status_ptr_t, ucs_status_t> {
        let action = self.script.count(Call::EpFlush);
        let plan = self.plan(action, self.script.knobs.flush_delay)?;
        let e = self.endpoint(Call::EpFlush, endpoint)?;
        let (worker, idle) = (e.worker, e.in_flight == 0);
        let (seq, tick) = self.next(worker);
        if plan.delay == Some(0) && idle {
            self.deliver(endpoint, seq);
            return Ok(core::ptr::null_mut());
        }
        let e = self.endpoint(Call::EpFlush, endpoint)?;
        e.flushes += 1;
        let flushes = e.flushes;
        self.counters.flushes_max = self.counters.flushes_max.max(flushes);
        let (callback, user_data) = callback_of(param);
        let request = Request {
            result: plan.result,
            callback,
            user_data,
            ..Request::of(What::Flush, worker, endpoint, seq)
        };
        let name = self.submit(request, plan.delay, tick);
        if action == Some(Action::Lose) {
            self.remove_flush(worker, name);
        }
        Ok(name.pointer())
    }

    /// As 1.13.1 forgets a flush that waits in the queue of a process that was killed.
    fn remove_flush(&mut self, worker: Handle, flush: Handle) {
        if let Some(w) = self.workers.get_mut(worker) {
            w.pending.retain(|name| *name != flush);
        }
        if let Some(e) =
            self.requests.remove(flush).and_then(|r| self.endpoints.get_mut(r.endpoint))
        {
            e.flushes -= 1;
        }
    }

    /// Closes an endpoint. Returns the requests that complete at once, and the result.
    fn close(
        &mut self,
        endpoint: Handle,
        param: &ucp_request_param_t,
    ) -> Result<(Vec<Handle>, ucs_status_ptr_t), ucs_status_t> {
        let action = self.script.count(Call::EpClose);
        let known = self.endpoints.get(endpoint).filter(|e| !e.closed).map(|e| e.worker);
        let Some(worker) = known else {
            return Err(self.misuse(Call::EpClose, "this endpoint was closed, or never made"));
        };
        let delay = match action {
            Some(Action::Late(more)) => Some(self.script.knobs.close_delay + more),
            Some(Action::Hold | Action::Lose) => None,
            _ => Some(self.script.knobs.close_delay),
        };
        let force = param.op_attr_mask & sys::UCP_OP_ATTR_FIELD_FLAGS != 0
            && param.flags & sys::UCP_EP_CLOSE_FLAG_FORCE != 0;
        if force {
            self.cancel_all(endpoint, sys::UCS_ERR_CANCELED, delay.unwrap_or(0));
        } else {
            self.deliver(endpoint, u64::MAX);
        }
        let pending = self.workers.get(worker).map_or(&[][..], |w| &w.pending);
        let own: Vec<Handle> = pending
            .iter()
            .copied()
            .filter(|n| self.requests.get(*n).is_some_and(|r| r.endpoint == endpoint))
            .collect();
        if let Some(Action::Refuse(status) | Action::Fail(status)) = action {
            self.endpoints.remove(endpoint);
            return Err(status);
        }
        if delay == Some(0) && (force || own.is_empty()) {
            if let Some(w) = self.workers.get_mut(worker) {
                w.pending.retain(|n| !own.contains(n));
            }
            return Ok((own, core::ptr::null_mut()));
        }
        if let Some(e) = self.endpoints.get_mut(endpoint) {
            e.closed = true;
        }
        let (seq, tick) = self.next(worker);
        let (callback, user_data) = callback_of(param);
        let request =
            Request { callback, user_data, ..Request::of(What::Close, worker, endpoint, seq) };
        Ok((Vec::new(), self.submit(request, delay, tick).pointer()))
    }
}

// SAFETY: the name is UCX's own, and a process has one libucp. The pointers are valid, as UCX asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_ep_create(
    worker: ucp_worker_h,
    params: *const ucp_ep_params_t,
    ep: *mut ucp_ep_h,
) -> ucs_status_t {
    let worker = Handle::of(worker);
    let _inside = enter(Call::EpCreate, worker);
    // SAFETY: the caller's parameters.
    let Some(params) = (unsafe { given(params) }) else { return sys::UCS_ERR_INVALID_PARAM };
    match state().make_endpoint(worker, params) {
        Ok(name) => {
            // SAFETY: the caller's, to be written.
            unsafe { ep.write(name.pointer()) };
            sys::UCS_OK
        }
        Err(status) => status,
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_ep_flush_nbx(
    ep: ucp_ep_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    let endpoint = Handle::of(ep);
    let _inside = enter(Call::EpFlush, endpoint);
    // SAFETY: the caller's parameters.
    let Some(param) = (unsafe { given(param) }) else {
        return status_ptr(sys::UCS_ERR_INVALID_PARAM);
    };
    state().flush(endpoint, param).unwrap_or_else(status_ptr)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_worker_flush_nbx(
    worker: ucp_worker_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    let worker = Handle::of(worker);
    let _inside = enter(Call::WorkerFlush, worker);
    // SAFETY: the caller's parameters.
    let Some(param) = (unsafe { given(param) }) else {
        return status_ptr(sys::UCS_ERR_INVALID_PARAM);
    };
    let mut w = state();
    let action = w.script.count(Call::WorkerFlush);
    let delay = w.script.knobs.flush_delay.max(1);
    let plan = match w.plan(action, delay) {
        Ok(plan) => plan,
        Err(status) => return status_ptr(status),
    };
    if let Err(status) = w.worker(Call::WorkerFlush, worker) {
        return status_ptr(status);
    }
    let (seq, tick) = w.next(worker);
    let (callback, user_data) = callback_of(param);
    let request = Request {
        result: plan.result,
        callback,
        user_data,
        ..Request::of(What::WorkerFlush, worker, Handle::NONE, seq)
    };
    w.submit(request, plan.delay, tick).pointer()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_ep_close_nbx(
    ep: ucp_ep_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    let endpoint = Handle::of(ep);
    let _inside = enter(Call::EpClose, endpoint);
    // SAFETY: the caller's parameters.
    let Some(param) = (unsafe { given(param) }) else {
        return status_ptr(sys::UCS_ERR_INVALID_PARAM);
    };
    let mut w = state();
    let (requests, result) = match w.close(endpoint, param) {
        Ok(closed) => closed,
        Err(status) => return status_ptr(status),
    };
    let ended: Vec<_> = requests.into_iter().filter_map(|name| w.end(name)).collect();
    if result.is_null() {
        w.endpoints.remove(endpoint);
    }
    drop(w);
    // UCX too calls back from inside the close.
    for told in ended {
        // SAFETY: the request's own callback, with what it was to be given.
        unsafe { told.call_back() };
    }
    result
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_ep_print_info(_ep: ucp_ep_h, stream: *mut FILE) {
    let lanes = state().lane_name();
    // As UCX 1.13.1 and 1.22.0 print it.
    let mut text = String::from("#\n# UCP endpoint \n#\n#               peer: <no debug data>\n");
    for (at, lane) in lanes.split('+').enumerate() {
        let device = lane.split('/').next().unwrap_or_default();
        text += &format!(
            "#                 lane[{at}]:  {at}:{lane}.0 md[{at}]           -> md[{at}]/{device}/sysdev[255] \
             rma_bw#0 am am_bw#0\n"
        );
    }
    text += "#\n";
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the caller's stream.
    unsafe { print(stream, &text) };
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_ep_query(
    ep: ucp_ep_h,
    attr: *mut ucp_ep_attr_t,
) -> ucs_status_t {
    let mut w = state();
    if let Err(status) = w.endpoint(Call::EpCreate, Handle::of(ep)) {
        return status;
    }
    let lane = w.lane_name();
    drop(w);
    // SAFETY: the caller's, to be read and written.
    let Some(attr) = (unsafe { attr.as_mut() }) else { return sys::UCS_ERR_INVALID_PARAM };
    if attr.field_mask & sys::UCP_EP_ATTR_FIELD_TRANSPORTS != 0 && attr.transports.num_entries > 0 {
        let name = |text: &str| -> *const c_char {
            // Names of transports live as long as the library, in UCX too.
            CString::new(text).map_or(c"".as_ptr(), |t| Box::leak(t.into_boxed_c_str()).as_ptr())
        };
        let (transport, device) = lane.split_once('/').unwrap_or((&lane, ""));
        let entry =
            ucp_transport_entry_t { transport_name: name(transport), device_name: name(device) };
        // SAFETY: the caller's array has at least one entry.
        unsafe { attr.transports.entries.write(entry) };
        attr.transports.num_entries = 1;
    }
    sys::UCS_OK
}
