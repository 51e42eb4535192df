//! Puts and gets as they are posted, and the calls on requests.

use core::ffi::c_void;

use crate::faults::{Action, Call};
use crate::handle::Handle;
use crate::request::{HELD, Request, What, callback_of};
use crate::state::{FakeUcp, enter, given, state, status_ptr};
use crate::sys::{
    self, ucp_ep_h, ucp_request_param_t, ucp_rkey_h, ucp_worker_h, ucs_status_ptr_t, ucs_status_t,
};

/// Arguments of a put or get.
struct PostArgs {
    what: What,
    call: Call,
    endpoint: Handle,
    here: *mut u8,
    len: usize,
    there: u64,
    key: Handle,
}

/// Time and status of a completion, by the script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Calls of progress; `None`: it is held.
    pub(crate) delay: Option<u64>,
    pub(crate) result: ucs_status_t,
}

impl FakeUcp {
    /// Returns the plan for a call.
    ///
    /// # Errors
    /// The status that the script refuses it with.
    pub(crate) fn plan(
        &mut self,
        action: Option<Action>,
        usual: u64,
    ) -> Result<Plan, ucs_status_t> {
        let delay = self.script.delay(usual);
        Ok(match action {
            None => Plan { delay: Some(delay), result: sys::UCS_OK },
            Some(Action::Refuse(status)) => return Err(status),
            Some(Action::Fail(status)) => Plan { delay: Some(delay.max(1)), result: status },
            Some(Action::Late(more)) => {
                Plan { delay: Some(delay.saturating_add(more)), result: sys::UCS_OK }
            }
            Some(Action::Hold | Action::Lose) => Plan { delay: None, result: sys::UCS_OK },
        })
    }

    /// The next number of a worker's operations, and its tick.
    pub(crate) fn next(&mut self, worker: Handle) -> (u64, u64) {
        self.workers.get_mut(worker).map_or((0, 0), |w| {
            w.seq += 1;
            (w.seq, w.tick)
        })
    }

    /// Submits a request.
    pub(crate) fn submit(&mut self, request: Request, delay: Option<u64>, tick: u64) -> Handle {
        let worker = request.worker;
        let due = delay.map_or(HELD, |d| tick.saturating_add(d.max(1)));
        let name = self.requests.insert(worker.index(), Request { due, ..request });
        if let Some(w) = self.workers.get_mut(worker) {
            w.pending.push(name);
        }
        name
    }

    /// Checks that the memory of a request is registered and contains its bytes.
    fn check_here(&mut self, args: &PostArgs, memory: Handle) -> Result<(), ucs_status_t> {
        let Some(m) = self.memories.get_mut(memory) else {
            return Err(self.misuse(args.call, "its memory was unmapped, or never mapped"));
        };
        let at = args.here.addr().wrapping_sub(m.start.addr());
        if at > m.len || args.len > m.len - at {
            return Err(self.misuse(args.call, "its bytes lie beside the memory that it names"));
        }
        Ok(())
    }

    /// Returns the memory of a key, and whether the key allows an access.
    fn check_there(&mut self, args: &PostArgs) -> Result<(Handle, bool), ucs_status_t> {
        let Some(key) = self.keys.get(args.key).copied() else {
            return Err(self.misuse(args.call, "its key was destroyed, or never unpacked"));
        };
        if key.endpoint != args.endpoint {
            return Err(self.misuse(args.call, "its key is of another endpoint"));
        }
        let right = match args.what {
            What::Get => sys::UCP_MEM_MAP_PROT_REMOTE_READ,
            _ => sys::UCP_MEM_MAP_PROT_REMOTE_WRITE,
        };
        let at = args.there.wrapping_sub(key.start);
        let len = u64::try_from(args.len).unwrap_or(u64::MAX);
        let within = at <= key.len && len <= key.len - at;
        Ok((key.memory, within && key.rights & right != 0))
    }

    fn post(
        &mut self,
        args: &PostArgs,
        param: &ucp_request_param_t,
    ) -> Result<ucs_status_ptr_t, ucs_status_t> {
        let action = self.script.count(args.call);
        let usual = match args.what {
            What::Get => self.script.knobs.get_delay,
            _ => self.script.knobs.put_delay,
        };
        let mut plan = self.plan(action, usual)?;
        let worker = self.endpoint(args.call, args.endpoint)?.worker;
        let memory = Handle::of(param.memh);
        let named = param.op_attr_mask & sys::UCP_OP_ATTR_FIELD_MEMH != 0;
        if named {
            self.check_here(args, memory)?;
        }
        let (target, allowed) = self.check_there(args)?;
        if !allowed {
            // As a NIC answers for an access that its key does not cover.
            self.counters.refused += 1;
            plan.result = sys::UCS_ERR_IO_ERROR;
        }
        let there =
            core::ptr::with_exposed_provenance_mut::<u8>(usize::try_from(args.there).unwrap_or(0));
        let (seq, tick) = self.next(worker);
        let may_wait = param.op_attr_mask & sys::UCP_OP_ATTR_FLAG_NO_IMM_CMPL != 0;
        let short =
            u64::try_from(args.len).unwrap_or(u64::MAX) <= self.script.knobs.immediate_bytes;
        if plan.delay == Some(0) && short && !may_wait {
            if plan.result != sys::UCS_OK {
                return Err(plan.result);
            }
            if args.what == What::Get {
                // SAFETY: the caller vouched for its own range, the key for the other.
                unsafe { self.read_target(there, args.here, args.len, target) };
            } else {
                // SAFETY: as above.
                unsafe {
                    self.complete_put(args.endpoint, seq, args.here, there, args.len, target)
                };
            }
            return Ok(core::ptr::null_mut());
        }
        if named && let Some(m) = self.memories.get_mut(memory) {
            m.users += 1;
        }
        if let Some(key) = self.keys.get_mut(args.key) {
            key.users += 1;
        }
        if let Some(endpoint) = self.endpoints.get_mut(args.endpoint) {
            endpoint.in_flight += 1;
        }
        let (callback, user_data) = callback_of(param);
        let request = Request {
            result: plan.result,
            here: args.here,
            there,
            len: args.len,
            memory: if named { memory } else { Handle::NONE },
            key: args.key,
            target: if allowed { target } else { Handle::NONE },
            callback,
            user_data,
            ..Request::of(args.what, worker, args.endpoint, seq)
        };
        Ok(self.submit(request, plan.delay, tick).pointer())
    }
}

fn transfer(args: &PostArgs, param: *const ucp_request_param_t) -> ucs_status_ptr_t {
    let _inside = enter(args.call, args.endpoint);
    // SAFETY: null or the caller's parameters, which lives during the call.
    let Some(param) = (unsafe { given(param) }) else {
        return status_ptr(sys::UCS_ERR_INVALID_PARAM);
    };
    state().post(args, param).unwrap_or_else(status_ptr)
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
    let args = PostArgs {
        what: What::Put,
        call: Call::Put,
        endpoint: Handle::of(ep),
        here: buffer.cast_mut().cast(),
        len: count,
        there: remote_addr,
        key: Handle::of(rkey),
    };
    transfer(&args, param)
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
    let args = PostArgs {
        what: What::Get,
        call: Call::Get,
        endpoint: Handle::of(ep),
        here: buffer.cast(),
        len: count,
        there: remote_addr,
        key: Handle::of(rkey),
    };
    transfer(&args, param)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_request_check_status(request: *mut c_void) -> ucs_status_t {
    let mut w = state();
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
    let mut w = state();
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
    let mut w = state();
    // As in UCX: what is here cannot be withdrawn, and goes on.
    if w.requests.get(Handle::of(request)).is_none() {
        w.misuse(Call::Free, "a request that was freed is cancelled");
    }
}
