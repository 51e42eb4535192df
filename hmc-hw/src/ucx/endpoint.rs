//! An endpoint to one peer's worker, and the keys to its memory.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::conn_info::ConnInfo;
use super::context::{UcxError, made};
use super::cq::{CompletionQueue, on_complete, on_ep_error};
use super::print_info::{capture, lanes};
use super::process::Process;
use super::result::{NbxResult, Status};
use super::sys;
use super::ucp_worker::LockedWorker;

/// An endpoint to a peer. Only [`Endpoint::close`] closes it, under the progress lock.
pub(super) struct Endpoint {
    handle: NonNull<sys::ucp_ep>,
    /// The process of the peer's worker.
    owner: Process,
}

// SAFETY: a handle that is only used under the progress lock of its worker.
unsafe impl Send for Endpoint {}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

/// A key to memory of the peer.
pub(super) struct Key {
    handle: NonNull<sys::ucp_rkey>,
}

// SAFETY: as for `Endpoint`.
unsafe impl Send for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

/// Parameters of a request without options.
pub(super) const fn params() -> sys::ucp_request_param_t {
    sys::ucp_request_param_t {
        op_attr_mask: 0,
        flags: 0,
        request: ptr::null_mut(),
        cb: sys::ucp_request_param_cb { send: None },
        datatype: 0,
        user_data: ptr::null_mut(),
        reply_buffer: ptr::null_mut(),
        memory_type: 0,
        recv_info: sys::ucp_request_param_recv_info { length: ptr::null_mut() },
        memh: ptr::null_mut(),
        remote_datatype: 0,
        remote: ptr::null(),
        remote_count: 0,
    }
}

/// Parameters of a request whose callback completes `record` of `queue`.
#[inline]
pub(super) fn params_with_callback(
    queue: &CompletionQueue,
    record: u32,
) -> sys::ucp_request_param_t {
    sys::ucp_request_param_t {
        op_attr_mask: sys::UCP_OP_ATTR_FIELD_CALLBACK | sys::UCP_OP_ATTR_FIELD_USER_DATA,
        cb: sys::ucp_request_param_cb { send: Some(on_complete) },
        user_data: queue.request_arg(record),
        ..params()
    }
}

impl Endpoint {
    /// Opens an endpoint to the worker of that connection info. The error handler writes to `queue`.
    ///
    /// UCX does not check connection info, which comes from the peer: it must come through an authenticated channel.
    pub(super) fn new(
        guard: &LockedWorker<'_>,
        info: &ConnInfo<'_>,
        queue: &Arc<CompletionQueue>,
    ) -> Result<Self, UcxError> {
        // SAFETY: numbers and pointers that may be null.
        let mut params: sys::ucp_ep_params_t = unsafe { std::mem::zeroed() };
        params.field_mask = sys::UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
            | sys::UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE
            | sys::UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.address = info.address.as_ptr().cast();
        params.err_mode = sys::UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler =
            sys::ucp_err_handler_t { cb: Some(on_ep_error), arg: queue.endpoint_arg() };
        let mut handle = ptr::null_mut();
        // SAFETY: the caller holds the worker's progress lock; the queue outlives the endpoint.
        let status = unsafe { (guard.api().ucp_ep_create)(guard.handle(), &params, &mut handle) };
        Ok(Self { handle: made("making an endpoint", status, handle)?, owner: info.owner })
    }

    pub(super) fn handle(&self) -> sys::ucp_ep_h {
        self.handle.as_ptr()
    }

    /// Closes it by force, without a message to the peer: requests in flight complete with an error in later calls of
    /// progress. The close itself completes `record`.
    pub(super) fn close(self, guard: &LockedWorker<'_>, queue: &CompletionQueue, record: u32) {
        let mut param = params_with_callback(queue, record);
        param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = sys::UCP_EP_CLOSE_FLAG_FORCE;
        // SAFETY: the caller holds the worker's progress lock; the endpoint is not used after this.
        let result = unsafe { (guard.api().ucp_ep_close_nbx)(self.handle(), &param) };
        if !matches!(NbxResult::of(result), Ok(NbxResult::Request(_))) {
            queue.closed.store(true, Ordering::Release);
        }
    }

    /// Returns the transports of its lanes (`tcp`, `rc_mlx5`); none if UCX does not print them.
    pub(super) fn lanes(&self, guard: &LockedWorker<'_>) -> Vec<String> {
        let Some(print) = guard.api().ucp_ep_print_info else { return Vec::new() };
        lanes(&capture(|stream| {
            // SAFETY: the caller holds the worker's progress lock; the stream is open.
            unsafe { print(self.handle(), stream) };
        }))
    }

    /// Unpacks a key that the peer packed.
    ///
    /// Fails if the peer's process has exited: if a lane of shared memory no longer finds the peer's memory, 1.13.1
    /// ends this process (`ucp_ep_rkey_unpack_internal` destroys the key with parts that it has not filled).
    pub(super) fn unpack(&self, guard: &LockedWorker<'_>, packed: &[u8]) -> Result<Key, UcxError> {
        if self.owner.has_ended() {
            return Err(UcxError {
                call: "reading a memory key",
                status: Status::CONNECTION_RESET,
                what: "the peer's process has ended".to_owned(),
            });
        }
        let mut handle = ptr::null_mut();
        // SAFETY: the caller holds the worker's progress lock; the bytes are the peer's, through an authenticated
        // channel.
        let status = unsafe {
            (guard.api().ucp_ep_rkey_unpack)(self.handle(), packed.as_ptr().cast(), &mut handle)
        };
        Ok(Key { handle: made("reading a memory key", status, handle)? })
    }
}

impl Key {
    pub(super) fn handle(&self) -> sys::ucp_rkey_h {
        self.handle.as_ptr()
    }

    /// Destroys the key. No operation uses it any more.
    pub(super) fn destroy(self, guard: &LockedWorker<'_>) {
        // SAFETY: the caller holds the worker's progress lock; unpacked once, destroyed once.
        unsafe { (guard.api().ucp_rkey_destroy)(self.handle()) };
    }
}
