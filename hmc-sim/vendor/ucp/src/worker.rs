//! Calls of workers: creation, progress, events.

use core::ffi::{c_int, c_uint};

use crate::am;
use crate::faults::{Call, refused};
use crate::handle::Handle;
use crate::state::{FakeUcp, Worker, enter, state};
use crate::sys::{
    self, ucp_address_t, ucp_context_h, ucp_worker_attr_t, ucp_worker_h, ucp_worker_params_t,
    ucs_status_t,
};

const ADDRESS_MARK: [u8; 8] = *b"fakeucp\0";
const ADDRESS_BYTES: usize = 48;

/// The worker that an address names.
///
/// # Safety
/// `address` is null or begins with 16 bytes that may be read.
pub(crate) unsafe fn read_address(address: *const ucp_address_t) -> Option<Handle> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller vouched for the bytes.
    let bytes = unsafe { address.cast::<[[u8; 8]; 2]>().read_unaligned() };
    let number = usize::try_from(u64::from_le_bytes(bytes[1])).ok()?;
    (bytes[0] == ADDRESS_MARK).then_some(Handle(number))
}

impl FakeUcp {
    /// Wakes a thread that polls a worker's descriptor.
    pub(crate) fn signal_worker(&mut self, worker: Handle) {
        if let Some(w) = self.workers.get_mut(worker)
            && core::mem::take(&mut w.armed)
        {
            signal(w.efd);
        }
    }
}

fn signal(efd: c_int) {
    let one = 1u64;
    // SAFETY: eight bytes of ours. A counter that is full is as good as one more.
    let _ = unsafe { libc::write(efd, core::ptr::from_ref(&one).cast(), 8) };
}

/// Clears the descriptor. Returns `true` if it was readable.
fn drain(efd: c_int) -> bool {
    let mut count = 0u64;
    // SAFETY: eight bytes of ours; the descriptor does not block.
    unsafe { libc::read(efd, core::ptr::from_mut(&mut count).cast(), 8) == 8 }
}

// SAFETY: the name is UCX's own, and a process has one libucp. The pointers are valid, as UCX asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_worker_create(
    context: ucp_context_h,
    _params: *const ucp_worker_params_t,
    worker: *mut ucp_worker_h,
) -> ucs_status_t {
    let mut w = state();
    if let Some(status) = refused(w.script.count(Call::WorkerCreate)) {
        return status;
    }
    let context = Handle::of(context);
    if w.contexts.get(context).is_none() {
        return w.misuse(Call::WorkerCreate, "this context was given back, or never made");
    }
    // SAFETY: no pointers.
    let efd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    if efd < 0 {
        return sys::UCS_ERR_IO_ERROR;
    }
    let name = w.workers.insert(0, Worker::new(context, efd));
    // SAFETY: the caller's, to be written.
    unsafe { worker.write(name.pointer()) };
    sys::UCS_OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_worker_destroy(worker: ucp_worker_h) {
    let name = Handle::of(worker);
    let _inside = enter(Call::WorkerDestroy, name);
    let mut w = state();
    w.script.count(Call::WorkerDestroy);
    if w.endpoints.values_mut().any(|e| e.worker == name) {
        w.misuse(Call::WorkerDestroy, "endpoints of this worker are not closed");
    }
    let of_it = |r: &mut crate::request::Request| r.worker == name;
    if w.requests.values_mut().any(of_it) {
        w.misuse(Call::WorkerDestroy, "requests of this worker are under way, or not freed");
    }
    match w.workers.remove(name) {
        Some(gone) => {
            // SAFETY: made by `ucp_worker_create`, closed once.
            let _ = unsafe { libc::close(gone.efd) };
        }
        None => {
            w.misuse(Call::WorkerDestroy, "this worker was destroyed already, or never made");
        }
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_worker_query(
    worker: ucp_worker_h,
    attr: *mut ucp_worker_attr_t,
) -> ucs_status_t {
    let mut w = state();
    if let Err(status) = w.worker(Call::WorkerCreate, Handle::of(worker)) {
        return status;
    }
    // SAFETY: the caller's, to be read and written.
    if let Some(attr) = unsafe { attr.as_mut() } {
        attr.thread_mode = sys::UCS_THREAD_MODE_SERIALIZED;
        attr.max_am_header = am::MAX_HEADER;
        attr.max_debug_string = 256;
    }
    sys::UCS_OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_worker_get_address(
    worker: ucp_worker_h,
    address: *mut *mut ucp_address_t,
    length: *mut usize,
) -> ucs_status_t {
    let name = Handle::of(worker);
    let mut w = state();
    if let Some(status) = refused(w.script.count(Call::WorkerAddress)) {
        return status;
    }
    if let Err(status) = w.worker(Call::WorkerAddress, name) {
        return status;
    }
    let number = u64::try_from(name.0).unwrap_or(0);
    let mut bytes = ADDRESS_MARK.to_vec();
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.resize(ADDRESS_BYTES, 0);
    let (start, len) = w.allocate(bytes);
    // SAFETY: the caller's, to be written.
    unsafe { address.write(start.cast()) };
    // SAFETY: as above.
    unsafe { length.write(len) };
    sys::UCS_OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_worker_release_address(
    _worker: ucp_worker_h,
    address: *mut ucp_address_t,
) {
    let mut w = state();
    if !w.take_back(address.cast()) {
        w.misuse(Call::WorkerAddress, "this address was released already, or never given");
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_worker_progress(worker: ucp_worker_h) -> c_uint {
    let name = Handle::of(worker);
    let _inside = enter(Call::Progress, name);
    let mut w = state();
    w.script.count(Call::Progress);
    if w.worker(Call::Progress, name).is_err() {
        return 0;
    }
    let mut outcome = w.advance(name);
    let mail = w.next_message(name);
    drop(w);
    if outcome.count == 0 && mail.is_none() {
        if outcome.ended.capacity() != 0 {
            give_back(name, &mut outcome);
        }
        return 0;
    }
    for error in outcome.errors.drain(..) {
        // No handler is called for an endpoint that was closed meanwhile.
        if state().endpoints.get(error.endpoint).is_none_or(|e| e.closed) {
            continue;
        }
        if let Some(callback) = error.handler.cb {
            // SAFETY: the handler and its argument are what the endpoint was made with.
            unsafe { callback(error.handler.arg, error.endpoint.pointer(), error.status) };
        }
    }
    for ended in outcome.ended.drain(..) {
        // SAFETY: it completed in this call.
        unsafe { ended.call_back() };
    }
    let mut count = outcome.count;
    let mut next = mail;
    while let Some(message) = next {
        am::receive(name, message);
        count = count.saturating_add(1);
        next = state().next_message(name);
    }
    give_back(name, &mut outcome);
    count
}

/// Keeps the capacity of a call's lists for the next call.
fn give_back(worker: Handle, outcome: &mut crate::completion::Outcome) {
    if let Some(w) = state().workers.get_mut(worker) {
        if w.ended.capacity() < outcome.ended.capacity() {
            w.ended = core::mem::take(&mut outcome.ended);
        }
        if w.errors.is_empty() && w.errors.capacity() < outcome.errors.capacity() {
            w.errors = core::mem::take(&mut outcome.errors);
        }
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_worker_get_efd(
    worker: ucp_worker_h,
    fd: *mut c_int,
) -> ucs_status_t {
    let mut w = state();
    if let Some(status) = refused(w.script.count(Call::Efd)) {
        return status;
    }
    match w.worker(Call::Efd, Handle::of(worker)) {
        Ok(worker) => {
            // SAFETY: the caller's, to be written.
            unsafe { fd.write(worker.efd) };
            sys::UCS_OK
        }
        Err(status) => status,
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_worker_arm(worker: ucp_worker_h) -> ucs_status_t {
    let name = Handle::of(worker);
    let _inside = enter(Call::Arm, name);
    let mut w = state();
    if let Some(status) = refused(w.script.count(Call::Arm)) {
        return status;
    }
    let worker = match w.worker(Call::Arm, name) {
        Ok(worker) => worker,
        Err(status) => return status,
    };
    let waiting = !worker.errors.is_empty() || !worker.inbox.is_empty();
    if drain(worker.efd) || waiting || w.can_move(name) {
        return sys::UCS_ERR_BUSY;
    }
    if let Ok(worker) = w.worker(Call::Arm, name) {
        worker.armed = true;
    }
    sys::UCS_OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_worker_signal(worker: ucp_worker_h) -> ucs_status_t {
    let mut w = state();
    if let Some(status) = refused(w.script.count(Call::Signal)) {
        return status;
    }
    match w.worker(Call::Signal, Handle::of(worker)) {
        Ok(worker) => {
            signal(worker.efd);
            sys::UCS_OK
        }
        Err(status) => status,
    }
}
