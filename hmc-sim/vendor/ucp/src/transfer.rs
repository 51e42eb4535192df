//! Puts and gets as they are posted, and the calls on requests.

use core::ffi::c_void;

use crate::handle::Handle;
use crate::request::{HELD, Request, What, told};
use crate::rules::{Action, Call};
use crate::sys::{
    self, ucp_ep_h, ucp_request_param_t, ucp_rkey_h, ucp_worker_h, ucs_status_ptr_t, ucs_status_t,
};
use crate::world::{World, answer, enter, given, world};

/// What a put or a get was called with.
struct Order {
    what: What,
    call: Call,
    endpoint: Handle,
    here: *mut u8,
    len: usize,
    there: u64,
    key: Handle,
}

/// When a request ends and what it tells, by the script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Calls of progress; none: it is held.
    pub(crate) delay: Option<u64>,
    pub(crate) fate: ucs_status_t,
}

impl World {
    /// The plan for a call, or what it is refused with.
    pub(crate) fn plan(
        &mut self,
        action: Option<Action>,
        usual: u64,
    ) -> Result<Plan, ucs_status_t> {
        let delay = self.script.delay(usual);
        Ok(match action {
            None => Plan { delay: Some(delay), fate: sys::UCS_OK },
            Some(Action::Refuse(status)) => return Err(status),
            Some(Action::Fail(status)) => Plan { delay: Some(delay.max(1)), fate: status },
            Some(Action::Late(more)) => {
                Plan { delay: Some(delay.saturating_add(more)), fate: sys::UCS_OK }
            }
            Some(Action::Hold | Action::Lose) => Plan { delay: None, fate: sys::UCS_OK },
        })
    }

    /// The next number of a worker's operations, and its tick.
    pub(crate) fn next(&mut self, worker: Handle) -> (u64, u64) {
        self.workers.get_mut(worker).map_or((0, 0), |w| {
            w.seq += 1;
            (w.seq, w.tick)
        })
    }

    /// A request on its way.
    pub(crate) fn launch(&mut self, request: Request, delay: Option<u64>, tick: u64) -> Handle {
        let worker = request.worker;
        let due = delay.map_or(HELD, |d| tick.saturating_add(d.max(1)));
        let name = self.requests.insert(worker.place(), Request { due, ..request });
        if let Some(w) = self.workers.get_mut(worker) {
            w.pending.push(name);
        }
        name
    }

    /// The memory that a request names must be registered and hold its bytes.
    fn check_here(&mut self, order: &Order, memory: Handle) -> Result<(), ucs_status_t> {
        let Some(m) = self.memories.get_mut(memory) else {
            return Err(self.misuse(order.call, "its memory was unmapped, or never mapped"));
        };
        let at = order.here.addr().wrapping_sub(m.start.addr());
        if at > m.len || order.len > m.len - at {
            return Err(self.misuse(order.call, "its bytes lie beside the memory that it names"));
        }
        Ok(())
    }

    /// Whether the key allows an access, and to which memory.
    fn check_there(&mut self, order: &Order) -> Result<(Handle, bool), ucs_status_t> {
        let Some(key) = self.keys.get(order.key).copied() else {
            return Err(self.misuse(order.call, "its key was destroyed, or never unpacked"));
        };
        if key.endpoint != order.endpoint {
            return Err(self.misuse(order.call, "its key is of another endpoint"));
        }
        let right = match order.what {
            What::Get => sys::UCP_MEM_MAP_PROT_REMOTE_READ,
            _ => sys::UCP_MEM_MAP_PROT_REMOTE_WRITE,
        };
        let at = order.there.wrapping_sub(key.start);
        let len = u64::try_from(order.len).unwrap_or(u64::MAX);
        let within = at <= key.len && len <= key.len - at;
        Ok((key.memory, within && key.rights & right != 0))
    }

    fn post(
        &mut self,
        order: &Order,
        param: &ucp_request_param_t,
    ) -> Result<ucs_status_ptr_t, ucs_status_t> {
        let action = self.script.count(order.call);
        let usual = match order.what {
            What::Get => self.script.knobs.get_delay,
            _ => self.script.knobs.put_delay,
        };
        let mut plan = self.plan(action, usual)?;
        let worker = self.endpoint(order.call, order.endpoint)?.worker;
        let memory = Handle::of(param.memh);
        let named = param.op_attr_mask & sys::UCP_OP_ATTR_FIELD_MEMH != 0;
        if named {
            self.check_here(order, memory)?;
        }
        let (target, allowed) = self.check_there(order)?;
        if !allowed {
            // As a NIC answers for an access that its key does not cover.
            self.books.refused += 1;
            plan.fate = sys::UCS_ERR_IO_ERROR;
        }
        let there =
            core::ptr::with_exposed_provenance_mut::<u8>(usize::try_from(order.there).unwrap_or(0));
        let (seq, tick) = self.next(worker);
        let may_wait = param.op_attr_mask & sys::UCP_OP_ATTR_FLAG_NO_IMM_CMPL != 0;
        let short =
            u64::try_from(order.len).unwrap_or(u64::MAX) <= self.script.knobs.immediate_bytes;
        if plan.delay == Some(0) && short && !may_wait {
            if plan.fate != sys::UCS_OK {
                return Err(plan.fate);
            }
            if order.what == What::Get {
                // SAFETY: the caller vouched for its own range, the key for the other.
                unsafe { self.fetch(there, order.here, order.len, target) };
            } else {
                // SAFETY: as above.
                unsafe { self.carry(order.endpoint, seq, order.here, there, order.len, target) };
            }
            return Ok(core::ptr::null_mut());
        }
        if named && let Some(m) = self.memories.get_mut(memory) {
            m.users += 1;
        }
        if let Some(key) = self.keys.get_mut(order.key) {
            key.users += 1;
        }
        if let Some(endpoint) = self.endpoints.get_mut(order.endpoint) {
            endpoint.flying += 1;
        }
        let (callback, user_data) = told(param);
        let request = Request {
            fate: plan.fate,
            here: order.here,
            there,
            len: order.len,
            memory: if named { memory } else { Handle::NONE },
            key: order.key,
            target: if allowed { target } else { Handle::NONE },
            callback,
            user_data,
            ..Request::of(order.what, worker, order.endpoint, seq)
        };
        Ok(self.launch(request, plan.delay, tick).pointer())
    }
}

fn transfer(order: &Order, param: *const ucp_request_param_t) -> ucs_status_ptr_t {
    let _inside = enter(order.call, order.endpoint);
    // SAFETY: null or the caller's order, which lives during the call.
    let Some(param) = (unsafe { given(param) }) else { return answer(sys::UCS_ERR_INVALID_PARAM) };
    world().post(order, param).unwrap_or_else(answer)
}

// SAFETY: the name is UCX's own, and a process has one libucp. The pointers are valid, as UCX asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_put_nbx(
    ep: ucp_ep_h,
    buffer: *const c_void,
    count: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    let order = Order {
        what: What::Put,
        call: Call::Put,
        endpoint: Handle::of(ep),
        here: buffer.cast_mut().cast(),
        len: count,
        there: remote_addr,
        key: Handle::of(rkey),
    };
    transfer(&order, param)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_get_nbx(
    ep: ucp_ep_h,
    buffer: *mut c_void,
    count: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    let order = Order {
        what: What::Get,
        call: Call::Get,
        endpoint: Handle::of(ep),
        here: buffer.cast(),
        len: count,
        there: remote_addr,
        key: Handle::of(rkey),
    };
    transfer(&order, param)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_request_check_status(request: *mut c_void) -> ucs_status_t {
    let mut w = world();
    match w.requests.get(Handle::of(request)) {
        Some(request) => request.ended.unwrap_or(sys::UCS_INPROGRESS),
        None => w.misuse(Call::Free, "a request that was freed is asked for its status"),
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_request_free(request: *mut c_void) {
    let name = Handle::of(request);
    let _inside = enter(Call::Free, name);
    let mut w = world();
    w.script.count(Call::Free);
    match w.requests.get_mut(name) {
        Some(request) if request.released => {
            w.misuse(Call::Free, "this request is freed twice");
        }
        Some(request) if request.ended.is_none() => request.released = true,
        Some(_) => {
            w.requests.remove(name);
        }
        None => {
            w.misuse(Call::Free, "this request was freed already, or there never was one");
        }
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_request_cancel(_worker: ucp_worker_h, request: *mut c_void) {
    let mut w = world();
    // As in UCX: what is here cannot be withdrawn, and goes on.
    if w.requests.get(Handle::of(request)).is_none() {
        w.misuse(Call::Free, "a request that was freed is cancelled");
    }
}
