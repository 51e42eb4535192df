//! Eager active messages: the receiver's callback gets a whole message, in its progress.
//!
//! Long data that is not sent eagerly is announced by a rendezvous, whose data no receiver here fetches.
//! A reply endpoint is passed if the receiver has an endpoint to the sender; UCX would create one.

use core::ffi::{c_uint, c_void};

use crate::faults::{Call, refused};
use crate::handle::Handle;
use crate::message::{Handler, Message};
use crate::request::{Request, What, callback_of};
use crate::state::{FakeUcp, enter, given, state, status_ptr};
use crate::sys::{
    self, ucp_am_handler_param_t, ucp_am_recv_param_t, ucp_ep_h, ucp_request_param_t, ucp_worker_h,
    ucs_status_ptr_t, ucs_status_t,
};

/// Bytes of a header, at the most.
pub(crate) const MAX_HEADER: usize = 2048;

/// The longest data that UCX sends eagerly unless it is asked to.
const MAX_EAGER: usize = 8192;

const DATATYPE_CLASS: u64 = 7;
const DATATYPE_IOV: u64 = 2;

/// `ucp_dt_iov_t`
#[repr(C)]
struct Part {
    buffer: *const c_void,
    length: usize,
}

impl FakeUcp {
    /// Delivers a message to the peer's worker. If that was destroyed, the endpoint fails.
    pub(crate) fn drop_into_inbox(&mut self, endpoint: Handle, message: Message) -> ucs_status_t {
        let peer = self.endpoints.get(endpoint).map_or(Handle::NONE, |e| e.peer);
        let Some(worker) = self.workers.get_mut(peer) else {
            self.fail(endpoint, sys::UCS_ERR_CONNECTION_RESET);
            return sys::UCS_ERR_CONNECTION_RESET;
        };
        worker.inbox.push_back(message);
        self.signal_worker(peer);
        sys::UCS_OK
    }

    pub(crate) fn next_message(&mut self, worker: Handle) -> Option<Message> {
        self.workers.get_mut(worker)?.inbox.pop_front()
    }

    fn send(
        &mut self,
        endpoint: Handle,
        mut message: Message,
        param: &ucp_request_param_t,
    ) -> Result<ucs_status_ptr_t, ucs_status_t> {
        let action = self.script.count(Call::AmSend);
        let plan = self.plan(action, self.script.knobs.am_delay)?;
        let worker = self.endpoint(Call::AmSend, endpoint)?.worker;
        if message.reply_to.is_some() {
            message.reply_to = Some(worker);
        }
        let (seq, tick) = self.next(worker);
        let pending = self.workers.get(worker).map_or(&[][..], |w| &w.pending);
        let behind = pending
            .iter()
            .filter_map(|n| self.requests.get(*n))
            .any(|r| r.what == What::Message && r.endpoint == endpoint);
        let may_wait = param.op_attr_mask & sys::UCP_OP_ATTR_FLAG_NO_IMM_CMPL != 0;
        if plan.delay == Some(0) && !behind && !may_wait {
            return match self.drop_into_inbox(endpoint, message) {
                sys::UCS_OK => Ok(core::ptr::null_mut()),
                status => Err(status),
            };
        }
        if let Some(e) = self.endpoints.get_mut(endpoint) {
            e.in_flight += 1;
        }
        let (callback, user_data) = callback_of(param);
        let request = Request {
            result: plan.result,
            message: Some(message),
            callback,
            user_data,
            ..Request::of(What::Message, worker, endpoint, seq)
        };
        Ok(self.submit(request, plan.delay, tick).pointer())
    }
}

/// Calls the receiver's callback for a message, without the lock.
pub(crate) fn receive(worker: Handle, message: Message) {
    let mut w = state();
    let handler =
        w.workers.get(worker).and_then(|x| x.handlers.iter().find(|h| h.id == message.id));
    let handler = handler.copied();
    let back = message.reply_to.and_then(|sender| {
        let mut ours = w.endpoints_of(worker).into_iter();
        ours.find(|n| w.endpoints.get(*n).is_some_and(|e| e.peer == sender && !e.closed))
    });
    let Message { header, mut data, is_rendezvous, .. } = message;
    // Without a handler UCX drops it, with a warning.
    if let Some(Handler { flags, callback: Some(callback), arg, .. }) = handler {
        let keeps = flags & sys::UCP_AM_FLAG_PERSISTENT_DATA != 0;
        let mut recv_attr = if keeps { sys::UCP_AM_RECV_ATTR_FLAG_DATA } else { 0 };
        if is_rendezvous {
            recv_attr |= sys::UCP_AM_RECV_ATTR_FLAG_RNDV;
        }
        if back.is_some() {
            recv_attr |= sys::UCP_AM_RECV_ATTR_FIELD_REPLY_EP;
        }
        let reply_ep = back.map_or(core::ptr::null_mut(), Handle::pointer);
        let param = ucp_am_recv_param_t { recv_attr, reply_ep };
        let (start, len) = (data.as_mut_ptr(), data.len());
        drop(w);
        // SAFETY: the callback and its argument are what was registered; header and data outlive the call.
        let status = unsafe {
            callback(arg, header.as_ptr().cast(), header.len(), start.cast(), len, &raw const param)
        };
        w = state();
        match status {
            sys::UCS_INPROGRESS if keeps => {
                w.kept.push(core::mem::take(&mut data));
            }
            sys::UCS_OK => {}
            _ => {
                w.misuse(
                    Call::AmHandler,
                    "a callback answers neither OK nor, with data that lasts, INPROGRESS",
                );
            }
        }
    }
    w.pool.push(header);
    if data.capacity() != 0 {
        w.pool.push(data);
    }
}

// SAFETY: the name is UCX's own, and a process has one libucp. The pointers are valid, as UCX asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_worker_set_am_recv_handler(
    worker: ucp_worker_h,
    param: *const ucp_am_handler_param_t,
) -> ucs_status_t {
    let name = Handle::of(worker);
    let _inside = enter(Call::AmHandler, name);
    let mut w = state();
    if let Some(status) = refused(w.script.count(Call::AmHandler)) {
        return status;
    }
    // SAFETY: the caller's parameters.
    let Some(param) = (unsafe { given(param) }) else { return sys::UCS_ERR_INVALID_PARAM };
    let has = |bit| param.field_mask & bit != 0;
    if !has(sys::UCP_AM_HANDLER_PARAM_FIELD_ID) || !has(sys::UCP_AM_HANDLER_PARAM_FIELD_CB) {
        return sys::UCS_ERR_INVALID_PARAM;
    }
    let handler = Handler {
        id: param.id,
        flags: if has(sys::UCP_AM_HANDLER_PARAM_FIELD_FLAGS) { param.flags } else { 0 },
        callback: param.cb,
        arg: if has(sys::UCP_AM_HANDLER_PARAM_FIELD_ARG) {
            param.arg
        } else {
            core::ptr::null_mut()
        },
    };
    match w.worker(Call::AmHandler, name) {
        Ok(worker) => {
            worker.handlers.retain(|h| h.id != handler.id);
            worker.handlers.push(handler);
            sys::UCS_OK
        }
        Err(status) => status,
    }
}

/// Gathers the bytes of a message.
///
/// # Safety
/// `buffer` and `count` fit the datatype that `param` names, and all bytes may be read.
unsafe fn gather(
    out: &mut Vec<u8>,
    buffer: *const c_void,
    count: usize,
    param: &ucp_request_param_t,
) -> Result<(), ucs_status_t> {
    let typed = param.op_attr_mask & sys::UCP_OP_ATTR_FIELD_DATATYPE != 0;
    let datatype = if typed { param.datatype } else { 1 << 3 };
    let mut add = |start: *const c_void, len: usize| {
        if len != 0 {
            // SAFETY: the caller vouched for the bytes.
            out.extend_from_slice(unsafe { core::slice::from_raw_parts(start.cast::<u8>(), len) });
        }
    };
    match datatype & DATATYPE_CLASS {
        0 => add(buffer, count * usize::try_from(datatype >> 3).unwrap_or(0)),
        DATATYPE_IOV if count != 0 => {
            // SAFETY: the caller vouched for that many parts.
            let parts = unsafe { core::slice::from_raw_parts(buffer.cast::<Part>(), count) };
            parts.iter().for_each(|part| add(part.buffer, part.length));
        }
        DATATYPE_IOV => {}
        _ => return Err(sys::UCS_ERR_UNSUPPORTED),
    }
    Ok(())
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_am_send_nbx(
    ep: ucp_ep_h,
    id: c_uint,
    header: *const c_void,
    header_length: usize,
    buffer: *const c_void,
    count: usize,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    let endpoint = Handle::of(ep);
    let _inside = enter(Call::AmSend, endpoint);
    // SAFETY: the caller's parameters.
    let Some(param) = (unsafe { given(param) }) else {
        return status_ptr(sys::UCS_ERR_INVALID_PARAM);
    };
    let flagged = param.op_attr_mask & sys::UCP_OP_ATTR_FIELD_FLAGS != 0;
    let flags = if flagged { param.flags } else { 0 };
    if flags & sys::UCP_AM_SEND_FLAG_RNDV != 0 {
        return status_ptr(sys::UCS_ERR_UNSUPPORTED);
    }
    if header_length > MAX_HEADER {
        return status_ptr(sys::UCS_ERR_INVALID_PARAM);
    }
    let mut w = state();
    let (mut head, mut data) = (w.buffer(), w.buffer());
    if header_length != 0 {
        // SAFETY: the caller's header.
        head.extend_from_slice(unsafe {
            core::slice::from_raw_parts(header.cast::<u8>(), header_length)
        });
    }
    // SAFETY: the caller's bytes and datatype.
    if let Err(status) = unsafe { gather(&mut data, buffer, count, param) } {
        return status_ptr(status);
    }
    let reply_to = (flags & sys::UCP_AM_SEND_FLAG_REPLY != 0).then_some(Handle::NONE);
    let is_rendezvous = flags & sys::UCP_AM_SEND_FLAG_EAGER == 0 && data.len() > MAX_EAGER;
    let message = Message { id, header: head, data, is_rendezvous, reply_to };
    w.send(endpoint, message, param).unwrap_or_else(status_ptr)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_am_data_release(worker: ucp_worker_h, data: *mut c_void) {
    let _inside = enter(Call::AmRelease, Handle::of(worker));
    let mut w = state();
    w.script.count(Call::AmRelease);
    match w.kept.iter().position(|k| core::ptr::eq(k.as_ptr().cast(), data)) {
        Some(at) => {
            let data = w.kept.swap_remove(at);
            w.pool.push(data);
        }
        None => {
            w.misuse(Call::AmRelease, "this data was released already, or never kept");
        }
    }
}
