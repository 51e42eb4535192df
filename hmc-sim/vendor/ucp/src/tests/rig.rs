//! Two workers with an endpoint between them, driven through UCX's calls, for the tests of the fake library itself.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::endpoint::{ucp_ep_close_nbx, ucp_ep_create, ucp_ep_flush_nbx};
use crate::memory::{
    ucp_ep_rkey_unpack, ucp_mem_map, ucp_mem_unmap, ucp_rkey_buffer_release, ucp_rkey_destroy,
    ucp_rkey_pack,
};
use crate::script::{
    hmc_fake_ucp_collect, hmc_fake_ucp_count, hmc_fake_ucp_reset, hmc_fake_ucp_rule,
    hmc_fake_ucp_set,
};
use crate::setup::{ucp_cleanup, ucp_init_version};
use crate::state::state;
use crate::sys;
use crate::transfer::{ucp_get_nbx, ucp_put_nbx, ucp_request_free};
use crate::worker::{
    ucp_worker_create, ucp_worker_destroy, ucp_worker_get_address, ucp_worker_progress,
    ucp_worker_release_address,
};

/// Requests that ended: which, and how.
static ENDED: Mutex<Vec<(usize, i8)>> = Mutex::new(Vec::new());
/// Calls of the error handler.
pub(super) static FAILED: Mutex<Vec<i8>> = Mutex::new(Vec::new());
/// A message that came: header, data, and where the data lies.
pub(super) type Mail = (Vec<u8>, Vec<u8>, usize);

/// Messages that came.
pub(super) static MAIL: Mutex<Vec<Mail>> = Mutex::new(Vec::new());

pub(super) fn held<T>(of: &'static Mutex<T>) -> MutexGuard<'static, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: the library calls it with a request that has ended.
unsafe extern "C" fn ended(request: *mut c_void, status: i8, user: *mut c_void) {
    held(&ENDED).push((user.addr(), status));
    // SAFETY: it has ended, and is freed once.
    unsafe { ucp_request_free(request) };
}

// SAFETY: it touches nothing of what it is given.
unsafe extern "C" fn failed(_arg: *mut c_void, _ep: sys::ucp_ep_h, status: i8) {
    held(&FAILED).push(status);
}

// SAFETY: the library calls it with bytes that may be read.
pub(super) unsafe extern "C" fn received(
    keep: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    _param: *const sys::ucp_am_recv_param_t,
) -> i8 {
    let bytes = |start: *const c_void, len: usize| {
        // SAFETY: the library hands that many bytes.
        unsafe { core::slice::from_raw_parts(start.cast::<u8>(), len) }.to_vec()
    };
    held(&MAIL).push((bytes(header, header_length), bytes(data, length), data.addr()));
    if keep.is_null() { sys::UCS_OK } else { sys::UCS_INPROGRESS }
}

/// Two workers, an endpoint between them, and memory of either.
pub(super) struct Rig {
    pub(super) context: sys::ucp_context_h,
    pub(super) workers: [sys::ucp_worker_h; 2],
    pub(super) ep: sys::ucp_ep_h,
    here: Vec<u8>,
    there: Vec<u8>,
    pub(super) near: sys::ucp_mem_h,
    pub(super) far: sys::ucp_mem_h,
    key: sys::ucp_rkey_h,
    _turn: MutexGuard<'static, ()>,
}

pub(super) fn set(name: &str, value: u64) {
    let name = std::ffi::CString::new(name).expect("no zero");
    // SAFETY: a C string.
    assert_eq!(unsafe { hmc_fake_ucp_set(name.as_ptr(), value) }, 0);
}

pub(super) fn rule(function: &str, nth: u64, action: c_int, value: i64) {
    let function = std::ffi::CString::new(function).expect("no zero");
    // SAFETY: a C string.
    assert_eq!(unsafe { hmc_fake_ucp_rule(function.as_ptr(), nth, action, value) }, 0);
}

pub(super) fn count(what: &str) -> u64 {
    let what = std::ffi::CString::new(what).expect("no zero");
    // SAFETY: a C string.
    unsafe { hmc_fake_ucp_count(what.as_ptr()) }
}

pub(super) fn findings() -> Vec<String> {
    core::mem::take(&mut state().findings)
}

pub(super) fn order(user: usize) -> sys::ucp_request_param_t {
    sys::ucp_request_param_t {
        op_attr_mask: sys::UCP_OP_ATTR_FIELD_CALLBACK | sys::UCP_OP_ATTR_FIELD_USER_DATA,
        flags: 0,
        request: null_mut(),
        cb: sys::ucp_request_param_cb { send: Some(ended) },
        datatype: 0,
        user_data: core::ptr::without_provenance_mut(user),
        reply_buffer: null_mut(),
        memory_type: 0,
        recv_info: sys::ucp_request_param_recv_info { length: null_mut() },
        memh: null_mut(),
        remote_datatype: 0,
        remote: null(),
        remote_count: 0,
    }
}

impl Rig {
    pub(super) fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = held(&TURN);
        hmc_fake_ucp_reset();
        hmc_fake_ucp_collect(1);
        held(&ENDED).clear();
        held(&FAILED).clear();
        held(&MAIL).clear();
        let mut context = null_mut();
        // SAFETY: the context may be written.
        assert_eq!(unsafe { ucp_init_version(1, 10, null(), null(), &raw mut context) }, 0);
        let workers = [(); 2].map(|()| {
            let mut worker = null_mut();
            // SAFETY: the worker may be written.
            assert_eq!(unsafe { ucp_worker_create(context, null(), &raw mut worker) }, 0);
            worker
        });
        let (mut here, mut there) = (vec![7u8; 4096], vec![0u8; 4096]);
        let near = map(context, &mut here);
        let far = map(context, &mut there);
        let ep = connect(workers[0], workers[1]);
        let key = unpack(context, ep, far);
        Self { context, workers, ep, here, there, near, far, key, _turn: turn }
    }

    pub(super) fn put(&self, user: usize, at: usize, len: usize) -> isize {
        let to = self.there.as_ptr().expose_provenance() + at;
        let mut param = order(user);
        param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_MEMH;
        param.memh = self.near;
        let to = u64::try_from(to).expect("an address");
        // SAFETY: the rig keeps both buffers until it goes.
        let answer = unsafe {
            ucp_put_nbx(self.ep, self.here.as_ptr().cast(), len, to, self.key, &raw const param)
        };
        answer.addr().cast_signed()
    }

    pub(super) fn get(&mut self, user: usize, at: usize, len: usize) -> isize {
        let from = self.there.as_ptr().expose_provenance() + at;
        let param = order(user);
        let from = u64::try_from(from).expect("an address");
        // SAFETY: as above.
        let answer = unsafe {
            ucp_get_nbx(
                self.ep,
                self.here.as_mut_ptr().cast(),
                len,
                from,
                self.key,
                &raw const param,
            )
        };
        answer.addr().cast_signed()
    }

    pub(super) fn flush(&self, user: usize) -> isize {
        let param = order(user);
        // SAFETY: the endpoint is the rig's.
        unsafe { ucp_ep_flush_nbx(self.ep, &raw const param) }.addr().cast_signed()
    }

    pub(super) fn close(&self, user: usize) -> isize {
        let mut param = order(user);
        param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = sys::UCP_EP_CLOSE_FLAG_FORCE;
        // SAFETY: the endpoint is the rig's.
        unsafe { ucp_ep_close_nbx(self.ep, &raw const param) }.addr().cast_signed()
    }

    pub(super) fn progress(&self) -> c_uint {
        // SAFETY: the worker is the rig's.
        unsafe { ucp_worker_progress(self.workers[0]) }
    }

    /// What ended since the last call.
    pub(super) fn ended() -> Vec<(usize, i8)> {
        core::mem::take(&mut held(&ENDED))
    }

    pub(super) fn byte(&self, at: usize) -> u8 {
        let at = core::ptr::from_ref(&self.there[at]);
        // SAFETY: within the rig's buffer, which the library writes.
        unsafe { at.read_volatile() }
    }

    /// Gives everything back; what the library found meanwhile.
    pub(super) fn end(self) -> Vec<String> {
        self.close(0);
        self.progress();
        self.progress();
        // SAFETY: all of these are the rig's, and given back once.
        unsafe { ucp_rkey_destroy(self.key) };
        for memory in [self.near, self.far] {
            // SAFETY: as above.
            unsafe { ucp_mem_unmap(self.context, memory) };
        }
        for worker in self.workers {
            // SAFETY: as above.
            unsafe { ucp_worker_destroy(worker) };
        }
        // SAFETY: as above.
        unsafe { ucp_cleanup(self.context) };
        findings()
    }
}

fn map(context: sys::ucp_context_h, bytes: &mut [u8]) -> sys::ucp_mem_h {
    let params = sys::ucp_mem_map_params_t {
        field_mask: sys::UCP_MEM_MAP_PARAM_FIELD_ADDRESS | sys::UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        address: bytes.as_mut_ptr().cast(),
        length: bytes.len(),
        flags: 0,
        prot: 0,
        memory_type: 0,
        exported_memh_buffer: null(),
    };
    let mut memory = null_mut();
    // SAFETY: the parameters name bytes that outlive the registration.
    assert_eq!(unsafe { ucp_mem_map(context, &raw const params, &raw mut memory) }, 0);
    memory
}

fn connect(from: sys::ucp_worker_h, to: sys::ucp_worker_h) -> sys::ucp_ep_h {
    let (mut address, mut len, mut ep) = (null_mut(), 0, null_mut());
    // SAFETY: both may be written.
    assert_eq!(unsafe { ucp_worker_get_address(to, &raw mut address, &raw mut len) }, 0);
    // SAFETY: numbers and pointers that may be null.
    let mut params: sys::ucp_ep_params_t = unsafe { core::mem::zeroed() };
    params.field_mask = sys::UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
        | sys::UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE
        | sys::UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = address;
    params.err_mode = sys::UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = sys::ucp_err_handler_t { cb: Some(failed), arg: null_mut() };
    // SAFETY: the address is alive, the endpoint may be written.
    assert_eq!(unsafe { ucp_ep_create(from, &raw const params, &raw mut ep) }, 0);
    // SAFETY: given above, released once.
    unsafe { ucp_worker_release_address(to, address) };
    ep
}

pub(super) fn unpack(
    context: sys::ucp_context_h,
    ep: sys::ucp_ep_h,
    memory: sys::ucp_mem_h,
) -> sys::ucp_rkey_h {
    let (mut packed, mut len, mut key) = (null_mut(), 0, null_mut());
    // SAFETY: both may be written.
    assert_eq!(unsafe { ucp_rkey_pack(context, memory, &raw mut packed, &raw mut len) }, 0);
    // SAFETY: packed above.
    assert_eq!(unsafe { ucp_ep_rkey_unpack(ep, packed, &raw mut key) }, 0);
    // SAFETY: packed above, released once.
    unsafe { ucp_rkey_buffer_release(packed) };
    key
}
